// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What gcma.ko promises, in a guest; and the table that compares it with CMA's engine. `test MIB DISK`: a program of
 * MIB MiB, which are more than the guest's memory, is swapped to DISK through the target. Prints a line for each
 * promise, `@ok` or `@fail`, and `@row` for the table; a time is the guest's clock, which counts instructions.
 */
#define _GNU_SOURCE
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <sys/uio.h>
#include <unistd.h>
#include "gcma.h"
#include "promise.h"

#define HUGE (512 * PAGE)
#define RUNS 5

static struct gcma_state state(int gcma)
{
    struct gcma_state now;
    need("GCMA_STATE", ioctl(gcma, GCMA_STATE, &now) == 0);
    return now;
}

/* 0, or the error. */
static int ask(int file, unsigned long command, struct gcma_claim *claim)
{
    return ioctl(file, command, claim) == 0 ? 0 : errno;
}

static int claim_pages(int gcma, unsigned long pages, struct gcma_claim *claim)
{
    *claim = (struct gcma_claim){.pages = pages};
    return ask(gcma, GCMA_CLAIM, claim);
}

static char *map_claim(int gcma, const struct gcma_claim *claim)
{
    char *at = mmap(NULL, claim->pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, gcma, claim->first * PAGE);
    return at == MAP_FAILED ? NULL : at;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* ---- Claims and their ends. */

static void arguments(int gcma)
{
    unsigned long all = state(gcma).pages;
    struct gcma_claim claim, other;
    promise("a claim of no pages is refused", claim_pages(gcma, 0, &claim) == EINVAL);
    promise("a claim of more than the area is refused", claim_pages(gcma, all + 1, &claim) == EINVAL);
    promise("a claim of the largest number is refused", claim_pages(gcma, ~0UL, &claim) == EINVAL);
    promise("a claim of the whole area is granted", claim_pages(gcma, all, &claim) == 0 && claim.first == 0);
    promise("a claim beside it is refused", claim_pages(gcma, 1, &other) == ENOMEM);
    promise("and changes nothing", state(gcma).claimed == all);
    struct gcma_claim inside = {.first = 1};
    promise("a release within a claim is refused", ask(gcma, GCMA_RELEASE, &inside) == ENOENT);
    int another = device("/dev/gcma");
    promise("a claim is no other file's to release", ask(another, GCMA_RELEASE, &claim) == ENOENT);
    promise("nor to map", map_claim(another, &claim) == NULL && errno == EINVAL);
    close(another);
    promise("a release ends it", ask(gcma, GCMA_RELEASE, &claim) == 0 && state(gcma).claimed == 0);
    promise("what is not claimed is not mapped", map_claim(gcma, &claim) == NULL && errno == EINVAL);

    need("two claims", claim_pages(gcma, 100, &claim) == 0 && claim_pages(gcma, 512, &other) == 0);
    promise("a claim of 2 MiB begins at a multiple of that", other.first % 512 == 0);
    other.pages = 513;
    promise("a mapping beyond a claim is refused", map_claim(gcma, &other) == NULL && errno == EINVAL);
    char *private = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, gcma, claim.first * PAGE);
    promise("a private mapping is refused", private == MAP_FAILED && errno == EINVAL);
    char *mapped = map_claim(gcma, &claim);
    need("a mapping", mapped != NULL);
    mapped[99 * PAGE] = 1;
    promise("a mapped claim is not released", ask(gcma, GCMA_RELEASE, &claim) == EBUSY);
    munmap(mapped, 100 * PAGE);
    promise("but then", ask(gcma, GCMA_RELEASE, &claim) == 0 && ask(gcma, GCMA_RELEASE, &other) == 0);
}

static void huge_pages(int gcma)
{
    struct gcma_claim claim;
    long before = 0, after = 0;
    int is_zero = 1;
    for (int round = 0; round < 2; round++) {
        need("a claim of 8 MiB", claim_pages(gcma, 2048, &claim) == 0);
        char *mapped = map_claim(gcma, &claim);
        need("its mapping", mapped != NULL);
        before = faults();
        for (unsigned long at = 0; at < 2048 * PAGE; at += 8) {
            is_zero &= *(uint64_t *)(mapped + at) == 0;
            *(uint64_t *)(mapped + at) = ~0UL;
        }
        after = faults();
        int pipes[2];
        struct iovec part = {mapped, 64};
        need("a pipe", pipe(pipes) == 0);
        promise("a page that others may get later is not pinned", vmsplice(pipes[1], &part, 1, 0) < 0 && errno == EFAULT);
        close(pipes[0]);
        close(pipes[1]);
        promise("a part of 2 MiB is not unmapped", munmap(mapped, PAGE) != 0 && errno == EINVAL);
        need("half is unmapped", munmap(mapped, 2 * HUGE) == 0);
        promise("the rest is still there", (unsigned char)mapped[2 * HUGE] == 0xff);
        promise("and counts", ask(gcma, GCMA_RELEASE, &claim) == EBUSY);
        munmap(mapped + 2 * HUGE, 2 * HUGE);
        need("released", ask(gcma, GCMA_RELEASE, &claim) == 0);
    }
    promise("a claim is zero when it is touched first", is_zero);
    promise("2048 pages are mapped by 4 faults", after - before <= 4);
    printf("@row 8 MiB mapped and touched: %ld faults\n", after - before);
}

/* Claims, maps, writes, releases, and says so after each step. */
static void live(int gcma, int steps, unsigned seed)
{
    struct gcma_claim claim;
    for (;;) {
        unsigned long pages = rand_r(&seed) % 4000 + 1;
        if (claim_pages(gcma, pages, &claim) != 0) _exit(2);
        if (write(steps, "c", 1) != 1) _exit(2);
        char *mapped = map_claim(gcma, &claim);
        if (mapped == NULL) _exit(2);
        memset(mapped, (int)pages, pages * PAGE);
        if (write(steps, "m", 1) != 1) _exit(2);
        munmap(mapped, pages * PAGE);
        if (ask(gcma, GCMA_RELEASE, &claim) != 0) _exit(2);
        if (write(steps, "r", 1) != 1) _exit(2);
    }
}

static void deaths(int gcma)
{
    int are_gone = 1;
    for (unsigned round = 0; round < 30; round++) {
        int steps[2];
        need("a pipe", pipe(steps) == 0);
        pid_t child = fork();
        if (child == 0) live(device("/dev/gcma"), steps[1], round);
        close(steps[1]);
        char step;
        for (unsigned n = 0; n <= round; n++) need("the child's step", read(steps[0], &step, 1) == 1);
        kill(child, SIGKILL);
        status_of(child);
        close(steps[0]);
        are_gone &= state(gcma).claimed == 0;
    }
    promise("30 killed processes leave no claim", are_gone);
}

/* ---- The disk. */

static int dm(int control, unsigned long command, const char *name, uint32_t flags, uint64_t sectors, const char *of)
{
    char buffer[1024] = {0};
    struct dm_ioctl *head = (struct dm_ioctl *)buffer;
    head->version[0] = DM_VERSION_MAJOR;
    head->data_size = sizeof buffer;
    head->data_start = sizeof *head;
    head->flags = flags;
    snprintf(head->name, sizeof head->name, "%s", name);
    if (of != NULL) {
        struct dm_target_spec *table = (struct dm_target_spec *)(buffer + head->data_start);
        head->target_count = 1;
        table->length = sectors;
        snprintf(table->target_type, sizeof table->target_type, "gcma");
        snprintf((char *)(table + 1), 256, "%s", of);
    }
    return ioctl(control, command, buffer);
}

/* Makes a disk through the target; -1 if it is refused. */
static int through(int control, const char *name, uint64_t sectors, const char *of)
{
    if (dm(control, DM_DEV_CREATE, name, 0, 0, NULL) != 0) return -1;
    if (dm(control, DM_TABLE_LOAD, name, 0, sectors, of) != 0) {
        int why = errno;
        dm(control, DM_DEV_REMOVE, name, 0, 0, NULL);
        errno = why;
        return -1;
    }
    return dm(control, DM_DEV_SUSPEND, name, 0, 0, NULL);
}

static uint64_t sectors_of(const char *disk)
{
    uint64_t bytes = 0;
    int file = device(disk);
    need("its size", ioctl(file, BLKGETSIZE64, &bytes) == 0);
    close(file);
    return bytes / 512;
}

#define BLOCKS 512UL

/* Reads and writes runs of blocks, which other processes do too. */
static void read_and_write(const char *disk, unsigned seed)
{
    int file = open(disk, O_RDWR | O_DIRECT);
    char *buffer = aligned_alloc(PAGE, 16 * PAGE + PAGE);
    need("the disk, directly", file >= 0 && buffer != NULL);
    for (int round = 0; round < 400; round++) {
        unsigned long blocks = rand_r(&seed) % 8 + 1, first = rand_r(&seed) % (BLOCKS - blocks);
        /* Memory that begins within a page, too. */
        char *at = buffer + (rand_r(&seed) % 4 ? 0 : 512);
        if (rand_r(&seed) % 2) {
            for (unsigned long n = 0; n < blocks * PAGE; n += 8) *(uint64_t *)(at + n) = seed + n;
            need("a write", pwrite(file, at, blocks * PAGE, first * PAGE) == (ssize_t)(blocks * PAGE));
        } else {
            need("a read", pread(file, at, blocks * PAGE, first * PAGE) == (ssize_t)(blocks * PAGE));
        }
    }
    _exit(0);
}

/* No copy is older than the disk, however requests overlap. */
static void copies(int gcma, const char *cached, const char *disk)
{
    uint64_t hits = state(gcma).hits;
    int wrong = 0, status;
    for (unsigned n = 0; n < 6; n++)
        if (fork() == 0) read_and_write(cached, n + 1);
    struct gcma_claim claim;
    for (int n = 0; n < 20; n++) {
        need("a claim beside them", claim_pages(gcma, 8192, &claim) == 0);
        need("its end", ask(gcma, GCMA_RELEASE, &claim) == 0);
        usleep(1000);
    }
    while (wait(&status) > 0) wrong += status != 0;
    promise("processes read and write one disk", wrong == 0);
    int by = open(cached, O_RDONLY | O_DIRECT), below = open(disk, O_RDONLY | O_DIRECT);
    char *one = aligned_alloc(PAGE, PAGE), *other = aligned_alloc(PAGE, PAGE);
    need("both disks", by >= 0 && below >= 0 && one != NULL && other != NULL);
    wrong = 0;
    for (int round = 0; round < 2; round++)
        for (unsigned long n = 0; n < BLOCKS; n++) {
            need("a block", pread(by, one, PAGE, n * PAGE) == (long)PAGE);
            need("the disk's", pread(below, other, PAGE, n * PAGE) == (long)PAGE);
            wrong += memcmp(one, other, PAGE) != 0;
        }
    promise("no copy is older than the disk", wrong == 0);
    promise("and copies are read", state(gcma).hits >= hits + BLOCKS);
    close(by);
    close(below);
}

/* Until the disk is gone. */
static void write_until_the_end(const char *cached, unsigned seed)
{
    int file = open(cached, O_RDWR | O_DIRECT);
    char *page = aligned_alloc(PAGE, PAGE);
    need("the disk, directly", file >= 0 && page != NULL);
    memset(page, (int)seed, PAGE);
    for (;;) {
        off_t at = (off_t)(rand_r(&seed) % BLOCKS * PAGE);
        ssize_t done = rand_r(&seed) % 2 ? pwrite(file, page, PAGE, at) : pread(file, page, PAGE, at);
        if (done != (ssize_t)PAGE) _exit(done >= 0 || (errno != EIO && errno != ENODEV && errno != ENXIO));
    }
}

/* The target is to go while it is in use, and then the disk below it does. */
static void removed_under_load(int gcma, int control, const char *disk)
{
    enum { WRITERS = 4 };
    pid_t writers[WRITERS];
    char path[64];
    int wrong = 0;
    for (unsigned n = 0; n < WRITERS; n++)
        if ((writers[n] = fork()) == 0) write_until_the_end("/dev/dm-0", n + 1);
    usleep(20000);
    promise("a target in use is not removed", dm(control, DM_DEV_REMOVE, "cached", 0, 0, NULL) != 0 && errno == EBUSY);
    snprintf(path, sizeof path, "/sys/block/%s/device/../remove", disk + strlen("/dev/"));
    int plug = open(path, O_WRONLY);
    need("the disk is removed", plug >= 0 && write(plug, "1", 1) == 1);
    close(plug);
    for (int n = 0; n < WRITERS; n++) wrong += status_of(writers[n]) != 0;
    promise("a disk that is removed under load is an error to those who use it", wrong == 0);
    struct gcma_claim claim;
    promise("and claims are granted", claim_pages(gcma, 8192, &claim) == 0 && ask(gcma, GCMA_RELEASE, &claim) == 0);
}

/* ---- The table. */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How many of the claims of 32 MiB were granted. */
static int claims(const char *when, const char *whose, int file, unsigned long claim, unsigned long release)
{
    uint64_t took[RUNS], discarded = 0;
    int granted = 0;
    for (int n = 0; n < RUNS; n++) {
        struct gcma_claim asked = {.pages = 8192};
        uint64_t began = now();
        int refused = ask(file, claim, &asked);
        took[n] = now() - began;
        if (refused) continue;
        granted++;
        discarded += asked.discarded;
        need("its end", ask(file, release, &asked) == 0);
    }
    qsort(took, RUNS, sizeof took[0], by_size);
    printf("@row %s, %s: %d of %d granted, %lu to %lu thousand instructions, %lu pages discarded\n", when, whose,
           granted, RUNS, took[0] / 1000, took[RUNS - 1] / 1000, discarded);
    /* What else the CPU did meanwhile counts: the median. */
    if (claim == GCMA_CLAIM) promise("at most 60 instructions a page", took[RUNS / 2] <= 60 * 8192);
    return granted;
}

static void both(const char *when, int gcma, int contig, int is_cma_refused)
{
    char what[128];
    snprintf(what, sizeof what, "%s, every claim is granted", when);
    promise(what, claims(when, "GCMA", gcma, GCMA_CLAIM, GCMA_RELEASE) == RUNS);
    int granted = claims(when, "CMA's engine", contig, CONTIG_CLAIM, CONTIG_RELEASE);
    snprintf(what, sizeof what, "%s, CMA's engine grants %s", when, is_cma_refused ? "none" : "some");
    promise(what, is_cma_refused ? granted == 0 : granted > 0);
}

static uint64_t word_of(unsigned long page)
{
    return page * 0x9e3779b97f4a7c15 + 1;
}

/* A program with more memory than there is: writes all of it, reads it twice, pins a page each 256 KiB. */
static void large_program(unsigned long mib, int go, int done)
{
    unsigned long pages = mib << 8, wrong = 0, pins = 0;
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), step;
    need("the program's memory", memory != MAP_FAILED);
    for (unsigned long n = 0; n < pages; n++) *(uint64_t *)(memory + n * PAGE) = word_of(n);
    need("step", write(done, "w", 1) == 1 && read(go, &step, 1) == 1);
    for (int round = 0; round < 2; round++)
        for (unsigned long n = 0; n < pages; n++) wrong += *(uint64_t *)(memory + n * PAGE) != word_of(n);
    printf("@row %lu MiB read twice: %lu wrong pages\n", mib, wrong);
    promise("no page is wrong", wrong == 0);
    need("step", write(done, "r", 1) == 1 && read(go, &step, 1) == 1);
    int pipes[2] = {-1, -1};
    for (unsigned long n = 0; n < pages; n += 64, pins++) {
        if (pins % 250 == 0)
            need("a pipe", pipe(pipes) == 0 && fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20) > 0);
        struct iovec part = {memory + n * PAGE, 64};
        need("a pin", vmsplice(pipes[1], &part, 1, SPLICE_F_NONBLOCK) == 64);
    }
    need("step", write(done, "p", 1) == 1 && read(go, &step, 1) == 1);
    _exit(failures != 0);
}

static void table(int gcma, int contig, unsigned long mib)
{
    int go[2], done[2];
    char step;
    both("idle", gcma, contig, 0);
    need("pipes", pipe(go) == 0 && pipe(done) == 0);
    pid_t program = fork();
    if (program == 0) large_program(mib, go[0], done[1]);
    close(done[1]);
    need("the program's writes", read(done[0], &step, 1) == 1);
    both("memory full", gcma, contig, 0);
    uint64_t hits = state(gcma).hits;
    need("go", write(go[1], "g", 1) == 1);
    int granted = 0;
    struct gcma_claim claim;
    for (int n = 0; n < 20; n++) {
        if (claim_pages(gcma, 8192, &claim) == 0 && ask(gcma, GCMA_RELEASE, &claim) == 0) granted++;
        usleep(20000);
    }
    promise("every claim beside its reading is granted", granted == 20);
    need("the program's reads", read(done[0], &step, 1) == 1);
    promise("what was swapped is read from the area", state(gcma).hits > hits);
    need("go", write(go[1], "g", 1) == 1);
    need("the program's pins", read(done[0], &step, 1) == 1);
    both("a page each 256 KiB pinned", gcma, contig, 1);
    need("go", write(go[1], "g", 1) == 1);
    promise("the program ends well", status_of(program) == 0);
    struct gcma_state end = state(gcma);
    printf("@row blocks: %llu stored, %llu read from the area, %llu not there, %llu discarded by claims\n", end.stores,
           end.hits, end.misses, end.discarded);
}

/* What mkswap(8) writes. */
static void make_swap(const char *disk, uint64_t sectors)
{
    char *page = aligned_alloc(PAGE, PAGE);
    int file = device(disk);
    need("a page", page != NULL);
    memset(page, 0, PAGE);
    uint32_t head[] = {1, (uint32_t)(sectors / 8 - 1), 0};
    memcpy(page + 1024, head, sizeof head);
    memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
    need("swap's header", pwrite(file, page, PAGE, 0) == (ssize_t)PAGE && fsync(file) == 0);
    close(file);
    free(page);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    need("two arguments", count == 3);
    const char *disk = words[2];
    int gcma = device("/dev/gcma"), contig = device("/dev/contig"), control = device("/dev/mapper/control");
    uint64_t sectors = sectors_of(disk);
    arguments(gcma);
    huge_pages(gcma);
    deaths(gcma);
    promise("no disk, no target", through(control, "none", sectors, "/dev/none") != 0);
    promise("nor with a part of a block", through(control, "odd", sectors - 1, disk) != 0);
    need("a disk through the target", through(control, "cached", sectors, disk) == 0);
    const char *cached = "/dev/dm-0";
    copies(gcma, cached, disk);
    make_swap(cached, sectors);
    need("swapon", swapon(cached, 0) == 0);
    table(gcma, contig, strtoul(words[1], NULL, 10));
    need("swapoff", swapoff(cached) == 0);
    removed_under_load(gcma, control, disk);
    need("the target's end", dm(control, DM_DEV_REMOVE, "cached", 0, 0, NULL) == 0);
    promise("a disk that goes leaves no copy", state(gcma).lent == 0);
    promise("nor a claim", state(gcma).claimed == 0);
    return failures != 0;
}
