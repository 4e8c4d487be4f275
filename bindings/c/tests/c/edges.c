/* What programs do at the edges: without memory, out of callbacks, in threads that end. The first argument says which. */
#define _GNU_SOURCE
#include <malloc.h>
#include <mneme.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "must.h"

#define BOTH (MNEME_READ | MNEME_WRITE)
#define WITHOUT_MEMORY(what) REFUSED(MNEME_ENOMEM, (what) == -1)

enum { MIB = 1 << 20, LONG = 20 * MIB };

static mneme_store_t opened(const char *name, uint64_t capacity)
{
    mneme_options_t options = {.capacity = capacity, .flags = MNEME_NO_MAINTAINER};
    mneme_store_t store = mneme_open(name, &options);
    MUST(store);
    return store;
}

/* ---- Without memory --------------------------------------------------------------------------------------------- */

static int any_value(size_t index, const void *value, size_t length, void *data)
{
    (void)index, (void)value, (void)length, (void)data;
    return 0;
}

static int any_record(const void *key, size_t key_length, const void *value, size_t length, void *data)
{
    (void)key, (void)key_length, (void)value, (void)length, (void)data;
    return 0;
}

static int replace_by(const void *old, size_t length, mneme_change_t *change, void *data)
{
    (void)old, (void)length;
    *change = *(mneme_change_t *)data;
    return MNEME_REPLACE;
}

/* The process gets no more than 4 MiB from here on. */
static void take_memory_away(void)
{
    size_t pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    MUST(statm && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    rlim_t bytes = pages * (size_t)sysconf(_SC_PAGESIZE) + 4 * MIB;
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) == 0);
}

/* A long value for whose copy there is no memory is an error, and what needs no copy succeeds. */
static void memory(void)
{
    MUST(mallopt(M_ARENA_MAX, 1) == 1);
    static char bytes[LONG];
    char part[8];
    mneme_store_t store = opened("memory", 256 * MIB);
    /* Put whole; changed in parts; and short, to become long. */
    MUST(mneme_put(store, TEXT("put"), bytes, LONG) == 0 && mneme_put(store, TEXT("short"), "s", 1) == 0);
    MUST(mneme_put(store, TEXT("changed"), bytes, LONG) == 0);
    MUST(mneme_write_part(store, TEXT("changed"), LONG / 2, "x", 1, NULL) == 0);
    take_memory_away();

    const char *both[] = {"put", "changed"};
    for (size_t i = 0; i < 2; i++) {
        const char *key = both[i];
        size_t length = 0;
        void *copy;
        mneme_bytes_t name = {key, strlen(key)};
        WITHOUT_MEMORY(mneme_get(store, TEXT(key), bytes, LONG, &length));
        WITHOUT_MEMORY(mneme_get_alloc(store, TEXT(key), &copy, &length));
        WITHOUT_MEMORY(mneme_read_part(store, TEXT(key), 0, bytes, LONG, &length));
        WITHOUT_MEMORY(mneme_get_many(store, &name, 1, any_value, NULL));
        MUST(mneme_get(store, TEXT(key), NULL, 0, &length) == 1 && length == LONG);
        length = 0;
        MUST(mneme_read_part(store, TEXT(key), LONG / 2, part, sizeof part, &length) == 1 && length == LONG);
        MUST(mneme_contains(store, TEXT(key)) == 1);
    }
    uint64_t cursor = MNEME_SCAN_START;
    int scanned = 0;
    while (cursor != MNEME_SCAN_END && scanned == 0) scanned = mneme_scan(store, &cursor, 1, any_record, NULL);
    WITHOUT_MEMORY(scanned);
    WITHOUT_MEMORY(mneme_write_part(store, TEXT("short"), 1, bytes, LONG, NULL));
    WITHOUT_MEMORY(mneme_write_part(store, TEXT("new"), LONG, "x", 1, NULL));
    MUST(mneme_set_expiry(store, TEXT("put"), 4102444800000) == 1);
    mneme_change_t change = {bytes, LONG, MNEME_NEVER};
    WITHOUT_MEMORY(mneme_update(store, TEXT("short"), replace_by, &change));
    MUST(mneme_contains(store, TEXT("new")) == 0);
    /* Nothing is lost, and what is written from the program's memory needs no other. */
    size_t length;
    MUST(mneme_get(store, TEXT("short"), part, sizeof part, &length) == 1 && length == 1 && part[0] == 's');
    MUST(mneme_read_part(store, TEXT("changed"), LONG / 2, part, 1, NULL) == 1 && part[0] == 'x');
    MUST(mneme_put(store, TEXT("more"), bytes, LONG) == 0);
    MUST(mneme_write_part(store, TEXT("changed"), 0, "y", 1, NULL) == 0);
    MUST(mneme_remove(store, TEXT("put")) == 1 && mneme_check(store, NULL) == 0);
}

/* ---- Out of callbacks ------------------------------------------------------------------------------------------- */

static jmp_buf outside;

static int jump_from_update(const void *old, size_t length, mneme_change_t *change, void *data)
{
    (void)old, (void)length, (void)change, (void)data;
    longjmp(outside, 1);
}

static int jump_from_value(size_t index, const void *value, size_t length, void *data)
{
    (void)index, (void)value, (void)length, (void)data;
    longjmp(outside, 1);
}

static int jump_from_record(const void *key, size_t key_length, const void *value, size_t length, void *data)
{
    (void)key, (void)key_length, (void)value, (void)length, (void)data;
    longjmp(outside, 1);
}

static int jump_from_element(const void *element, size_t length, void *data)
{
    (void)element, (void)length, (void)data;
    longjmp(outside, 1);
}

static int jump_from_member(const void *member, size_t length, double score, void *data)
{
    (void)member, (void)length, (void)score, (void)data;
    longjmp(outside, 1);
}

static int jump_from_fetch(const void **value, size_t *length, void *data)
{
    (void)value, (void)length, (void)data;
    longjmp(outside, 1);
}

static int detach_in_update(const void *old, size_t length, mneme_change_t *change, void *data)
{
    (void)old, (void)length;
    MUST(mneme_detach((mneme_store_t)data) == 0);
    change->value = "v";
    change->length = 1;
    return MNEME_REPLACE;
}

static int detach_at_first(size_t index, const void *value, size_t length, void *data)
{
    (void)value, (void)length;
    if (index == 0) MUST(mneme_detach((mneme_store_t)data) == 0);
    return 0;
}

static int destroy_in_fetch(const void **value, size_t *length, void *data)
{
    MUST(mneme_cache_destroy((mneme_cache_t)data) == 0);
    *value = "v";
    *length = 1;
    return 1;
}

/* A call whose function never returns keeps nothing that its store, or its cache, needs to go. */
static void jump(void)
{
    mneme_store_t volatile store = opened("jump", 64 * MIB);
    mneme_bytes_t keys[] = {{"k", 1}, {"k", 1}};
    uint64_t cursor = MNEME_SCAN_START;
    MUST(mneme_put(store, TEXT("k"), TEXT("v")) == 0);
    if (setjmp(outside) == 0) mneme_update(store, TEXT("k"), jump_from_update, NULL);
    if (setjmp(outside) == 0) mneme_get_many(store, keys, 1, jump_from_value, NULL);
    if (setjmp(outside) == 0) mneme_scan(store, &cursor, 1, jump_from_record, NULL);
    MUST(mneme_put(store, TEXT("k"), TEXT("w")) == 0);
    MUST(mneme_hash_set(store, TEXT("h"), TEXT("f"), TEXT("v")) == 1);
    MUST(mneme_list_push(store, TEXT("l"), MNEME_BACK, keys, 1) == 1);
    MUST(mneme_set_add(store, TEXT("s"), TEXT("m")) == 1);
    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("m"), 1) == 1);
    if (setjmp(outside) == 0) mneme_hash_each(store, TEXT("h"), jump_from_record, NULL);
    if (setjmp(outside) == 0) mneme_list_each(store, TEXT("l"), 0, -1, jump_from_element, NULL);
    if (setjmp(outside) == 0) mneme_set_each(store, TEXT("s"), jump_from_element, NULL);
    if (setjmp(outside) == 0) mneme_sorted_set_each(store, TEXT("z"), 0, -1, 0, jump_from_member, NULL);
    MUST(mneme_list_length(store, TEXT("l")) == 1);
    MUST(mneme_detach(store) == 0 && seg_delete(seg_find("jump")) == 0);

    mneme_options_t options = {.capacity = 64 * MIB, .lend_mib = 16};
    store = mneme_create("lends", &options);
    mneme_cache_t volatile cache = mneme_cache_open(store);
    MUST(store && cache);
    size_t length;
    if (setjmp(outside) == 0) mneme_cache_get(cache, TEXT("k"), NULL, 0, &length, jump_from_fetch, NULL);
    MUST(mneme_cache_destroy(cache) == 0 && mneme_detach(store) == 0 && seg_delete(seg_find("lends")) == 0);

    /* The store may go while a call's function runs. */
    store = opened("jump", 64 * MIB);
    MUST(mneme_get_many(store, keys, 2, detach_at_first, store) == 0);
    MUST(seg_delete(seg_find("jump")) == 0);
    store = opened("jump", 64 * MIB);
    REFUSED(MNEME_EHANDLE, mneme_update(store, TEXT("k"), detach_in_update, store) == -1);
    MUST(seg_delete(seg_find("jump")) == 0);
    cache = mneme_cache_create(8 * MIB, 100);
    char buffer[8];
    MUST(cache && mneme_cache_get(cache, TEXT("k"), buffer, 8, &length, destroy_in_fetch, cache) == 1);
    MUST(length == 1 && buffer[0] == 'v');
}

/* ---- In threads that end ---------------------------------------------------------------------------------------- */

static mneme_store_t used;
static pthread_key_t key_of_thread;

/* What a thread's slot is needed for is refused, and nothing else is. */
static void refused_at_the_end(void)
{
    size_t length;
    REFUSED(MNEME_EINVAL, mneme_put(used, TEXT("k"), TEXT("late")) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(used, TEXT("k"), NULL, 0, &length) == -1);
    mneme_store_t other = mneme_attach("ending", BOTH);
    MUST(other && mneme_detach(other) == 0);
}

static void last_of_thread(void *data)
{
    (void)data;
    refused_at_the_end();
}

static void *use_and_end(void *data)
{
    MUST(mneme_put(used, TEXT("k"), TEXT("early")) == 0);
    MUST(pthread_setspecific(key_of_thread, &used) == 0);
    return data;
}

static void ending(void)
{
    used = opened("ending", 64 * MIB);
    pthread_t thread;
    MUST(pthread_key_create(&key_of_thread, last_of_thread) == 0);
    MUST(pthread_create(&thread, NULL, use_and_end, NULL) == 0 && pthread_join(thread, NULL) == 0);
    MUST(mneme_put(used, TEXT("k"), TEXT("main")) == 0);
    MUST(atexit(refused_at_the_end) == 0);
}

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

static void texts(void)
{
    REFUSED(MNEME_EREGISTRY, mneme_registry("/proc/none\nsuch") == -1);
    MUST(strchr(mneme_error(), '\n') == NULL && strstr(mneme_error(), "/proc/none"));
    segid_t sid = seg_alloc("s", NULL, 1 << 24, 0600);
    MUST(sid && seg_attach(CURRENT, sid) == 0);
    REFUSED(MNEME_EINVAL, vas_free(&sid) == -1);
    const char *text = mneme_error();
    /* There is none yet, which is no failure and has no text; that of the failure stays readable. */
    MUST(seg_root(sid) == NULL && mneme_code() == MNEME_OK && mneme_error()[0] == 0);
    MUST(strstr(text, "no block"));
}

int main(int count, char **arguments)
{
    const char *which = count > 1 ? arguments[1] : "";
    if (strcmp(which, "memory") == 0) memory();
    else if (strcmp(which, "jump") == 0) jump();
    else if (strcmp(which, "ending") == 0) ending();
    else if (strcmp(which, "texts") == 0) texts();
    else return 2;
    return 0;
}
