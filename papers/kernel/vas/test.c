// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What vas.ko promises, in a guest. `test`: with the module's two rules. `test twin`: without, to show what each is
 * for. Prints `@ok` or `@fail` for each promise, and `@row` for the table; a time is the guest's clock, which counts
 * instructions.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "promise.h"
#include "vas.h"

#define WINDOW ((volatile char *)VAS_WINDOW)
#define NONE (-1L)

/* ---- What does not go through. */

static __thread sigjmp_buf back;
static __thread volatile int is_trying;

static void on_fault(int signal)
{
    if (is_trying) siglongjmp(back, signal);
    printf("@fail a fault that nobody expects: signal %d\n", signal);
    _exit(1);
}

/* The byte, or -1. */
static int byte_at(const volatile char *at)
{
    int byte = -1;
    is_trying = 1;
    if (sigsetjmp(back, 1) == 0) byte = (unsigned char)*at;
    is_trying = 0;
    return byte;
}

static int map_window(int vas)
{
    int kind = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    return mmap((void *)VAS_WINDOW, VAS_BYTES, PROT_READ | PROT_WRITE, kind, vas, 0) == (void *)VAS_WINDOW;
}

static int make(int vas, int data, unsigned long bytes)
{
    struct vas_make asked = {.bytes = bytes, .most = bytes, .file = data};
    return ioctl(vas, VAS_MAKE, &asked);
}

/* A space of new memory, whose first byte says which. */
static int space(int vas, unsigned long bytes, char first)
{
    int data = memfd_create("data", MFD_CLOEXEC), made;
    need("its memory", data >= 0 && ftruncate(data, (off_t)bytes) == 0 && pwrite(data, &first, 1, 0) == 1);
    made = make(vas, data, bytes);
    need("a space", made >= 0);
    close(data);
    return made;
}

static struct vas_counts counts(int vas)
{
    struct vas_counts now;
    need("VAS_COUNTS", ioctl(vas, VAS_COUNTS, &now) == 0);
    return now;
}

/* ---- The process' slot. */

static void wrong_arguments(int vas, int a)
{
    int file = open("/proc/version", O_RDONLY), sealed = memfd_create("sealed", MFD_ALLOW_SEALING), small = memfd_create("small", 0);
    need("files", file >= 0 && sealed >= 0 && small >= 0 && ftruncate(sealed, 1 << 20) == 0 && ftruncate(small, 100) == 0);
    need("a seal", fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    promise("a file that is not on tmpfs makes no space", make(vas, file, 4096) < 0 && errno == EINVAL);
    promise("nor a sealed one", make(vas, sealed, 4096) < 0);
    promise("nor one that is shorter", make(vas, small, 4096) < 0 && errno == EINVAL);
    promise("nor a part of a page", make(vas, sealed, 100) < 0 && errno == EINVAL);
    promise("nor none", make(vas, -1, 4096) < 0 && errno == EBADF);
    promise("what is no space is not entered", ioctl(vas, VAS_ENTER, file) < 0 && errno == EBADF);
    promise("nor by a thread", ioctl(vas, VAS_ENTER_THREAD, vas) < 0 && errno == EBADF);
    int sparse = memfd_create("sparse", 0);
    need("a file", sparse >= 0 && ftruncate(sparse, 1L << 32) == 0);
    promise("nor one of more memory than there is", make(vas, sparse, 1UL << 32) < 0 && errno == ENOMEM);
    close(sparse);
    int other = device("/dev/mneme-vas");
    promise("another window of the process' enters nothing", ioctl(other, VAS_ENTER, a) < 0 && errno == EINVAL);
    close(other);
    close(file);
    close(sealed);
    close(small);
}

static void one_process(int vas, int a, int b)
{
    promise("without a space the window holds nothing", byte_at(WINDOW) == -1);
    need("enter", ioctl(vas, VAS_ENTER, a) == 0);
    promise("a space is seen", byte_at(WINDOW) == 'a');
    WINDOW[64] = 'A';
    need("enter", ioctl(vas, VAS_ENTER, b) == 0);
    promise("another one at the same addresses", byte_at(WINDOW) == 'b' && byte_at(WINDOW + 64) == 0);
    promise("nothing lies behind it", byte_at(WINDOW + 4 * MIB) == -1 && byte_at(WINDOW + VAS_BYTES - 1) == -1);
    need("enter", ioctl(vas, VAS_ENTER, a) == 0);
    promise("what was written is there", byte_at(WINDOW + 64) == 'A');
    promise("no part of the window is protected", mprotect((void *)VAS_WINDOW, PAGE, PROT_READ) != 0);
    promise("or unmapped", munmap((void *)VAS_WINDOW, PAGE) != 0);
    promise("and that leaves the space", byte_at(WINDOW + 64) == 'A');
    int pipes[2];
    char word[2] = "..";
    need("a pipe", pipe(pipes) == 0);
    promise("system calls read and write it", write(pipes[1], (void *)(WINDOW + 64), 1) == 1 &&
                                                  read(pipes[0], word, 1) == 1 && word[0] == 'A');
    close(pipes[0]);
    close(pipes[1]);
    need("leave", ioctl(vas, VAS_ENTER, NONE) == 0);
    promise("after leaving it holds nothing", byte_at(WINDOW) == -1);
}

static int place(int vas, int into, int what, unsigned first, unsigned units)
{
    struct vas_place asked = {.into = into, .what = what, .first = first, .units = units};
    return ioctl(vas, VAS_PLACE, &asked) == 0 ? 0 : errno;
}

/* Spaces in an empty one. */
static void placed(int vas, int a, int b)
{
    volatile char *second = WINDOW + VAS_UNIT;
    int own = make(vas, -1, 0), data = memfd_create("data", MFD_CLOEXEC);
    need("an empty space", own >= 0 && ioctl(vas, VAS_ENTER, own) == 0);
    promise("an empty space shows nothing", byte_at(WINDOW) == -1 && byte_at(second) == -1);
    promise("a space is placed in it", place(vas, own, a, 0, 1) == 0 && byte_at(WINDOW) == 'a');
    promise("a second one beside it", place(vas, own, b, 1, 2) == 0 && byte_at(WINDOW) == 'a' && byte_at(second) == 'b');
    promise("and in its place", place(vas, own, b, 0, 1) == 0 && byte_at(WINDOW) == 'b' && byte_at(second) == 'b');
    promise("a place is emptied", place(vas, own, -1, 0, 1) == 0 && byte_at(WINDOW) == -1 && byte_at(second) == 'b');
    promise("nothing lies behind the last place", place(vas, own, a, 512, 1) == EINVAL && place(vas, own, a, 511, 2) == EINVAL);
    promise("what is made of a file has no places", place(vas, a, b, 0, 1) == EINVAL && place(vas, own, own, 0, 1) == EINVAL);
    promise("what is no space has none", place(vas, vas, b, 0, 1) == EBADF && place(vas, own, vas, 0, 1) == EBADF);
    pid_t child = fork();
    if (child == 0) {
        int other = open("/dev/mneme-vas", O_RDWR);
        if (other < 0 || !map_window(other) || ioctl(other, VAS_ENTER, own) == 0 || errno != EINVAL) _exit(1);
        _exit(place(other, own, a, 0, 1) != EINVAL);
    }
    promise("another process neither enters nor changes it", status_of(child) == 0);

    need("its memory", data >= 0 && ftruncate(data, (off_t)(4 * MIB)) == 0 && pwrite(data, "d", 1, (off_t)(3 * MIB)) == 1);
    struct vas_make asked = {.bytes = MIB, .most = VAS_UNIT + 2 * MIB, .file = data};
    struct vas_extend more = {.bytes = 4 * MIB, .space = ioctl(vas, VAS_MAKE, &asked)};
    promise("a space of two units does not fit into one", place(vas, own, more.space, 3, 1) == EINVAL);
    need("a place", place(vas, own, more.space, 3, 2) == 0);
    promise("behind a space's bytes is nothing", byte_at(WINDOW + 3 * VAS_UNIT + MIB) == -1);
    promise("until it is extended", ioctl(vas, VAS_EXTEND, &more) == 0 && byte_at(WINDOW + 3 * VAS_UNIT + 3 * MIB) == 'd');
    more.bytes = 5 * MIB;
    promise("never beyond its file", ioctl(vas, VAS_EXTEND, &more) < 0 && errno == EINVAL);
    close(more.space);
    promise("a placed space lives without its descriptor", byte_at(WINDOW + 3 * VAS_UNIT + 3 * MIB) == 'd');

    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", data);
    int reading = open(path, O_RDONLY), shown = make(vas, reading, 4 * MIB);
    need("a space to read", reading >= 0 && shown >= 0 && place(vas, own, shown, 5, 1) == 0);
    volatile char *byte = WINDOW + 5 * VAS_UNIT + 3 * MIB;
    promise("a file that is open to read is read", byte_at(byte) == 'd');
    is_trying = 1;
    if (sigsetjmp(back, 1) == 0) {
        *byte = 'e';
        is_trying = 2;
    }
    promise("and not written", is_trying == 1 && byte_at(byte) == 'd');
    is_trying = 0;
    int pipes[2];
    need("a pipe", pipe(pipes) == 0 && write(pipes[1], "f", 1) == 1);
    promise("nor by a system call", read(pipes[0], (void *)byte, 1) < 0 && errno == EFAULT && byte_at(byte) == 'd');
    close(pipes[0]);
    close(pipes[1]);
    close(reading);
    close(shown);
    close(data);
    need("leave", ioctl(vas, VAS_ENTER, NONE) == 0);
    close(own);
}

/* The file of a space is cut while the space is seen. */
static void cut(int vas)
{
    int data = memfd_create("data", MFD_CLOEXEC);
    need("its memory", data >= 0 && ftruncate(data, (off_t)MIB) == 0 && pwrite(data, "d", 1, 0) == 1);
    int made = make(vas, data, MIB);
    need("a space", made >= 0 && ioctl(vas, VAS_ENTER, made) == 0);
    need("a cut", ftruncate(data, 0) == 0);
    promise("a space keeps the pages of a file that is cut", byte_at(WINDOW) == 'd' && byte_at(WINDOW + MIB - 1) == 0);
    WINDOW[0] = 'e';
    close(data);
    close(made);
    promise("and stays while it is seen, without a descriptor", byte_at(WINDOW) == 'e');
    need("leave", ioctl(vas, VAS_ENTER, NONE) == 0);
}

static void two_processes(int vas, int a)
{
    need("enter", ioctl(vas, VAS_ENTER, a) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (byte_at(WINDOW) != -1) _exit(1);
        if (ioctl(vas, VAS_ENTER, a) == 0 || errno != EINVAL) _exit(2);
        int own = open("/dev/mneme-vas", O_RDWR);
        if (own < 0 || !map_window(own) || ioctl(own, VAS_ENTER, a) != 0) _exit(3);
        if (byte_at(WINDOW + 64) != 'A') _exit(4);
        WINDOW[65] = 'C';
        _exit(0);
    }
    promise("a child has no window, but may map its own and enter the space", status_of(child) == 0);
    promise("what it wrote is seen", byte_at(WINDOW + 65) == 'C');
    char *aside = (char *)(3UL << 45);
    need("a move", mremap((void *)VAS_WINDOW, VAS_BYTES, VAS_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, aside) == aside);
    promise("a window that is moved shows nothing", byte_at(aside) == -1 && byte_at(WINDOW) == -1);
    promise("and no space is entered there", ioctl(vas, VAS_ENTER, a) < 0 && errno == EINVAL);
    need("it is unmapped", munmap(aside, VAS_BYTES) == 0);
    need("it is mapped again", map_window(vas));
    need("enter", ioctl(vas, VAS_ENTER, a) == 0);
    need("the window is unmapped", munmap((void *)VAS_WINDOW, VAS_BYTES) == 0);
    promise("without a window no space is entered", ioctl(vas, VAS_ENTER, a) < 0 && errno == EINVAL);
    need("it is mapped again", map_window(vas));
    promise("and holds nothing", byte_at(WINDOW) == -1);
}

/* Makes a space, maps the window, enters, leaves and unmaps, over and over, and says so after each step. */
static void live(int steps)
{
    int vas = open("/dev/mneme-vas", O_RDWR), data = memfd_create("data", 0), made;
    if (vas < 0 || data < 0 || ftruncate(data, (off_t)(8 * MIB)) != 0) _exit(1);
    for (long n = 0;; n++) {
        unsigned long way = n % 2 ? VAS_ENTER : VAS_ENTER_THREAD;
        if ((made = make(vas, data, 8 * MIB)) < 0 || write(steps, "m", 1) != 1) _exit(2);
        if (!map_window(vas) || write(steps, "w", 1) != 1) _exit(3);
        if (ioctl(vas, way, (long)made) != 0 || write(steps, "e", 1) != 1) _exit(4);
        if (byte_at(WINDOW) != 0 || close(made) != 0 || write(steps, "c", 1) != 1) _exit(5);
        if (n % 4 < 2 && ioctl(vas, way, NONE) != 0) _exit(6);
        if (munmap((void *)VAS_WINDOW, VAS_BYTES) != 0 || write(steps, "u", 1) != 1) _exit(7);
    }
}

/* Each is killed a step later than the one before. */
static void deaths_while_mapping(void)
{
    int are_killed = 1;
    for (int round = 0; round < 25; round++) {
        int steps[2];
        char step;
        need("a pipe", pipe(steps) == 0);
        pid_t child = fork();
        if (child == 0) live(steps[1]);
        close(steps[1]);
        for (int n = 0; n <= round; n++) need("the child's step", read(steps[0], &step, 1) == 1);
        kill(child, SIGKILL);
        are_killed &= WIFSIGNALED(status_of(child));
        close(steps[0]);
    }
    promise("processes are killed while they make spaces, map and unmap the window", are_killed);
}

/* A child enters and leaves in both ways, and is killed after so many steps. */
static void deaths(int a, int b)
{
    for (int round = 0; round < 24; round++) {
        int steps[2];
        char step;
        need("a pipe", pipe(steps) == 0);
        pid_t child = fork();
        if (child == 0) {
            int vas = open("/dev/mneme-vas", O_RDWR);
            if (vas < 0 || !map_window(vas)) _exit(1);
            for (int n = 0;; n++) {
                long into = n % 3 == 0 ? a : n % 3 == 1 ? b : NONE;
                if (ioctl(vas, n % 2 ? VAS_ENTER : VAS_ENTER_THREAD, into) != 0) _exit(2);
                if (write(steps[1], "s", 1) != 1) _exit(3);
            }
        }
        close(steps[1]);
        for (int n = 0; n <= round; n++) need("the child's step", read(steps[0], &step, 1) == 1);
        kill(child, SIGKILL);
        if (!WIFSIGNALED(status_of(child))) failures++;
        close(steps[0]);
    }
    promise("processes are killed between any two steps", failures == 0);
    pid_t child = fork();
    if (child == 0) {
        int vas = open("/dev/mneme-vas", O_RDWR);
        if (vas < 0 || !map_window(vas) || ioctl(vas, VAS_ENTER_THREAD, a) != 0) _exit(1);
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(byte_at(WINDOW) != -1);
        if (status_of(grandchild) != 0 || byte_at(WINDOW) == -1) _exit(3);
        execl("/bin/busybox", "busybox", "true", NULL);
        _exit(2);
    }
    promise("a thread in a space forks, and becomes another program", status_of(child) == 0);
}

/* ---- Threads with roots of their own. */

static int vas_of_all;
static int spaces[2];
static volatile int is_over;
static volatile unsigned long reads[2], wrong[2], refused[2];

static void *stay(void *number)
{
    long me = (long)number;
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[me]) == 0);
    for (int n = 0; n < 20000; n++) {
        wrong[me] += WINDOW[0] != "ab"[me];
        reads[me]++;
        if (n % 100 == 0) sched_yield();
        if (n % 1000 == 0) {
            /* Its other mappings change too. */
            char *more = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            need("memory", more != MAP_FAILED);
            memset(more, 1, MIB);
            munmap(more, MIB);
        }
    }
    need("a thread leaves", ioctl(vas_of_all, VAS_ENTER_THREAD, NONE) == 0);
    wrong[me] += byte_at(WINDOW) != 'c';
    return NULL;
}

static void threads_in_two_spaces(int vas, int c)
{
    pthread_t threads[2];
    need("enter", ioctl(vas, VAS_ENTER, c) == 0);
    for (long n = 0; n < 2; n++) need("a thread", pthread_create(&threads[n], NULL, stay, (void *)n) == 0);
    unsigned long other = 0;
    for (int n = 0; n < 20000; n++) other += WINDOW[0] != 'c';
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    promise("two threads in two spaces and the process in a third see each its own",
            reads[0] + reads[1] == 40000 && wrong[0] + wrong[1] + other == 0);
    need("leave", ioctl(vas, VAS_ENTER, NONE) == 0);
}

static void *ends_inside(void *unused)
{
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[0]) == 0);
    return unused;
}

static volatile int stage;

static void wait_for(int wanted)
{
    while (stage != wanted) sched_yield();
}

static void *loses_its_window(void *seen)
{
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[0]) == 0);
    stage = 1;
    wait_for(2);
    *(int *)seen = byte_at(WINDOW);
    return NULL;
}

static void ends(int vas)
{
    pthread_t thread;
    int seen = 0;
    for (int n = 0; n < 50; n++) {
        need("a thread", pthread_create(&thread, NULL, ends_inside, NULL) == 0);
        pthread_join(thread, NULL);
    }
    promise("threads end in a space", 1);
    stage = 0;
    need("a thread", pthread_create(&thread, NULL, loses_its_window, &seen) == 0);
    wait_for(1);
    need("the window is unmapped", munmap((void *)VAS_WINDOW, VAS_BYTES) == 0);
    stage = 2;
    pthread_join(thread, NULL);
    promise("unmapping the window takes all threads out", seen == -1);
    need("it is mapped again", map_window(vas));
}

/* ---- The hazard: tables of the process come and go while copies of its root lead to them. */

/* In a slot of 512 GiB that nothing else is in, so that its upper table is freed with it. */
static char *const spot = (char *)(1UL << 44);

static void *reader(void *number)
{
    long me = (long)number;
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[me]) == 0);
    for (unsigned long n = 0; !is_over; n++) {
        int byte = byte_at(spot + n % 512 * PAGE);
        if (byte == -1)
            refused[me]++;
        else if (byte == 0 || byte == 'x')
            reads[me]++;
        else
            wrong[me]++;
        if (WINDOW[0] != "ab"[me]) wrong[me]++;
    }
    need("a thread leaves", ioctl(vas_of_all, VAS_ENTER_THREAD, NONE) == 0);
    return NULL;
}

static char *map_spot(void)
{
    int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *at = mmap(spot, 2 * MIB, PROT_READ | PROT_WRITE, kind, -1, 0);
    need("the spot", at == spot);
    return at;
}

static void hazard(int vas)
{
    enum { ROUNDS = 20 };
    pthread_t threads[2];
    struct vas_counts before = counts(vas);
    for (int n = 0; n < 2; n++) reads[n] = wrong[n] = refused[n] = 0;
    for (long n = 0; n < 2; n++) need("a thread", pthread_create(&threads[n], NULL, reader, (void *)n) == 0);
    need("enter", ioctl(vas, VAS_ENTER_THREAD, spaces[0]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        memset(map_spot(), 'x', 2 * MIB);
        usleep(2000);
        munmap(spot, 2 * MIB);
        /* What was freed is used again at once, for something else. */
        char *other = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need("memory", other != MAP_FAILED);
        memset(other, 0xff, 8 * MIB);
        munmap(other, 8 * MIB);
    }
    need("leave", ioctl(vas, VAS_ENTER_THREAD, NONE) == 0);
    is_over = 1;
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    struct vas_counts after = counts(vas);
    promise("while tables come and go, no read is wrong", wrong[0] + wrong[1] == 0 && reads[0] + reads[1] > 0);
    promise("roots were renewed", after.renewals > before.renewals);
    promise("entries were copied when they were missed, all", after.copied > before.copied && after.copied == after.missed);
    promise("no table was freed to which a root in use led", after.hazards == 0);
    printf("@row tables come and go, %d rounds: %lu reads, %lu refused, %lu wrong; %llu renewals, %llu entries copied\n", ROUNDS,
           reads[0] + reads[1], refused[0] + refused[1], wrong[0] + wrong[1], after.renewals - before.renewals,
           after.copied - before.copied);
}

/* Without renewal, a root in use leads to a table that is freed. Nothing reads by it. */
static void *frees_a_table(void *unused)
{
    map_spot()[0] = 'x';
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[0]) == 0);
    munmap(spot, 2 * MIB);
    need("a thread leaves", ioctl(vas_of_all, VAS_ENTER_THREAD, NONE) == 0);
    return unused;
}

/* Without the copy on a miss, a thread faults until it is scheduled anew, when its root is renewed. */
static void *touches_what_came_later(void *unused)
{
    need("a thread enters", ioctl(vas_of_all, VAS_ENTER_THREAD, spaces[0]) == 0);
    map_spot()[0] = 'x';
    return unused;
}

static void twins(int vas)
{
    pthread_t thread;
    need("a thread", pthread_create(&thread, NULL, frees_a_table, NULL) == 0);
    pthread_join(thread, NULL);
    promise("without renewal a table is freed to which a root in use leads", counts(vas).hazards > 0);
    pid_t child = fork();
    if (child == 0) {
        vas_of_all = open("/dev/mneme-vas", O_RDWR);
        if (vas_of_all < 0 || !map_window(vas_of_all)) _exit(1);
        touches_what_came_later(NULL);
        _exit(0);
    }
    for (int n = 0; n < 100 && counts(vas).missed < 100; n++) usleep(20000);
    kill(child, SIGKILL);
    status_of(child);
    struct vas_counts seen = counts(vas);
    printf("@row without the rules: %llu tables freed in use, %llu faults for one page\n", seen.hazards, seen.missed);
    promise("without copies on a miss a thread faults over and over", seen.missed > 1 && seen.copied == 0);
}

/* ---- The table. */

static unsigned long each(int vas, unsigned long command, long one, long other)
{
    enum { TURNS = 2000 };
    uint64_t began = now();
    for (int n = 0; n < TURNS; n++) need("a switch", ioctl(vas, command, n % 2 ? one : other) == 0);
    return (now() - began) / TURNS;
}

static unsigned long by_mremap(unsigned long bytes)
{
    enum { TURNS = 200 };
    char *at = (char *)(3UL << 44), *aside[2] = {at + (1UL << 33), at + (2UL << 33)};
    int kind = MREMAP_MAYMOVE | MREMAP_FIXED;
    for (int n = 0; n < 2; n++) {
        int data = memfd_create("data", 0);
        need("memory", data >= 0 && ftruncate(data, (off_t)bytes) == 0);
        char *made = mmap(aside[n], 1 << 30, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, data, 0);
        need("its mapping", made == aside[n]);
        for (unsigned long page = 0; page < bytes; page += PAGE) made[page] = 1;
        close(data);
    }
    need("a move", mremap(aside[0], 1 << 30, 1 << 30, kind, at) == at);
    uint64_t began = now();
    for (int n = 0; n < TURNS; n++) {
        need("a move", mremap(at, 1 << 30, 1 << 30, kind, aside[n % 2]) == aside[n % 2]);
        need("a move", mremap(aside[1 - n % 2], 1 << 30, 1 << 30, kind, at) == at);
    }
    unsigned long took = (now() - began) / TURNS;
    munmap(at, 1 << 30);
    munmap(aside[0], 1 << 30);
    munmap(aside[1], 1 << 30);
    return took;
}

static void table(int vas)
{
    printf("@row a system call that does nothing: %lu instructions\n", each(vas, VAS_NOTHING, 0, 0));
    static const unsigned long sizes[] = {2, 64};
    for (int n = 0; n < 2; n++) {
        int one = space(vas, sizes[n] * MIB, 'a'), other = space(vas, sizes[n] * MIB, 'b');
        unsigned long slot = each(vas, VAS_ENTER, one, other);
        need("leave", ioctl(vas, VAS_ENTER, NONE) == 0);
        unsigned long root = each(vas, VAS_ENTER_THREAD, one, other);
        need("leave", ioctl(vas, VAS_ENTER_THREAD, NONE) == 0);
        printf("@row %lu MiB: a slot's entry %lu, a thread's root %lu, two mremap %lu instructions\n", sizes[n], slot,
               root, by_mremap(sizes[n] * MIB));
        close(one);
        close(other);
    }
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    need("signals", sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    int vas = vas_of_all = device("/dev/mneme-vas");
    need("the window", map_window(vas));
    int a = spaces[0] = space(vas, 2 * MIB, 'a'), b = spaces[1] = space(vas, 2 * MIB, 'b'), c = space(vas, 2 * MIB, 'c');
    if (count > 1 && strcmp(words[1], "twin") == 0) {
        twins(vas);
        return failures != 0;
    }
    wrong_arguments(vas, a);
    one_process(vas, a, b);
    two_processes(vas, a);
    placed(vas, a, b);
    cut(vas);
    deaths(a, b);
    deaths_while_mapping();
    threads_in_two_spaces(vas, c);
    ends(vas);
    hazard(vas);
    /* With one, the guest's clock counts instructions. */
    if (sysconf(_SC_NPROCESSORS_ONLN) == 1) table(vas);
    return failures != 0;
}
