/*
 * What the checks that pass.cpp inserts do: libmneme-check.a.
 *
 * A check passes if the address belongs to no segment, or to one that the thread is inside of. The thread keeps the
 * last segment that was found; libmneme's count of sections says whether that still holds.
 */
#define _DEFAULT_SOURCE
#include "mneme-check.h"
#include <mneme.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Called by what the compiler inserts. */
void __mneme_check_read(const void *pointer, const char *site);
void __mneme_check_write(const void *pointer, const char *site);
void __mneme_check_store(const void *to, const void *pointer, const char *site);
void __mneme_check_switched(int result, const char *site);
void __mneme_check_clone(const void *to, const void *pointer, vhandle_t tag, const char *site);
vhandle_t __mneme_tag_load(const void *from, const void *pointer);
void __mneme_tag_store(const void *to, const void *pointer, vhandle_t tag);
void __mneme_tag_forget(const void *to, uint64_t bytes);
void __mneme_tag_copy(const void *to, const void *from, uint64_t bytes);
void __mneme_tag_pass(int at, const void *function, const void *pointer, vhandle_t tag);
vhandle_t __mneme_tag_passed(int at, const void *function, const void *pointer);

typedef void (*handler_t)(const char *message);
static _Atomic(handler_t) handler;

static const volatile uint64_t *bounds;
static _Thread_local const volatile uint64_t *sections;
static _Thread_local uint64_t section; /* for which `last` holds; 0: for none */
static _Thread_local mneme_place_t last;
static _Thread_local unsigned long run;

void mneme_check_handler(void (*chosen)(const char *message))
{
    atomic_store(&handler, chosen);
}

unsigned long mneme_checks_run(void)
{
    return run;
}

static __attribute__((cold, noinline)) void report(const char *site, const char *what, const void *pointer)
{
    char message[512];
    int length = snprintf(message, sizeof message, "mneme-check: %s: %s", site, what);
    if (pointer != NULL && length > 0 && (size_t)length < sizeof message)
        snprintf(message + length, sizeof message - (size_t)length, " (%p)", pointer);
    handler_t chosen = atomic_load(&handler);
    if (chosen != NULL) {
        chosen(message);
        return;
    }
    fprintf(stderr, "%s\n", message);
    abort();
}

static int may_be_in_a_segment(const void *pointer)
{
    /* Every thread gets the same answer, and stores the same. */
    const volatile uint64_t *known = __atomic_load_n(&bounds, __ATOMIC_RELAXED);
    if (__builtin_expect(known == NULL, 0)) {
        known = mneme_bounds();
        __atomic_store_n(&bounds, known, __ATOMIC_RELAXED);
    }
    uint64_t first = known[0];
    return (uint64_t)(uintptr_t)pointer - first < known[1] - first;
}

/* MNEME_INSIDE: `last` is the segment. */
static int place(const void *pointer)
{
    if (__builtin_expect(sections == NULL, 0)) sections = mneme_sections();
    if (section == *sections && (uintptr_t)pointer - (uintptr_t)last.base < last.bytes) return MNEME_INSIDE;
    mneme_place_t found;
    int where = mneme_place(pointer, &found);
    if (where == MNEME_INSIDE) {
        last = found;
        section = *sections;
    }
    return where;
}

void __mneme_check_read(const void *pointer, const char *site)
{
    run++;
    if (__builtin_expect(may_be_in_a_segment(pointer), 1) && place(pointer) == MNEME_OUTSIDE)
        report(site, "a pointer into a segment that the thread is not inside of is followed", pointer);
}

void __mneme_check_write(const void *pointer, const char *site)
{
    run++;
    if (!may_be_in_a_segment(pointer)) return;
    int where = place(pointer);
    if (where == MNEME_OUTSIDE)
        report(site, "a pointer into a segment that the thread is not inside of is followed", pointer);
    else if (where == MNEME_INSIDE && (last.access & MNEME_WRITE) == 0)
        report(site, "a segment that was entered for reading is written", pointer);
}

void __mneme_check_store(const void *to, const void *pointer, const char *site)
{
    run++;
    /* Where it is stored was checked before. */
    if (pointer == NULL || !may_be_in_a_segment(to) || place(to) != MNEME_INSIDE) return;
    if (!may_be_in_a_segment(pointer)) {
        report(site, "a pointer to the process' own memory is stored in a segment", pointer);
        return;
    }
    /* Another segment of the same space will do, as in the paper. */
    switch (place(pointer)) {
    case MNEME_COMMON:
        report(site, "a pointer to the process' own memory is stored in a segment", pointer);
        break;
    case MNEME_OUTSIDE:
        report(site, "a pointer into another space is stored in a segment", pointer);
        break;
    default:
        break;
    }
}

void __mneme_check_switched(int result, const char *site)
{
    run++;
    if (result == 0) return;
    char what[256];
    snprintf(what, sizeof what, "a switch failed, and nothing looks at its result: %.160s", mneme_error());
    report(site, what, NULL);
}

/*
 * Tags: the handle that the thread was in when a pointer was made. Where nothing is known, it is NULL, and nothing is
 * reported. A tag goes with its pointer's value, so that one that lags behind its pointer is none.
 */

/* A word of the process' own memory that holds a pointer. */
struct tagged {
    _Atomic uintptr_t tag;
    _Atomic uintptr_t both; /* the pointer ^ the tag: two threads that write at once leave nothing that is taken for one */
};

/* A leaf is for 4 MiB, the table for 47 bits of addresses; memory is taken where a pointer was stored. */
#define LEAF_BITS 22
#define LEAVES ((size_t)1 << (47 - LEAF_BITS))
#define LEAF_WORDS (((size_t)1 << LEAF_BITS) / 8)
static _Atomic(struct tagged *) *_Atomic leaves;

static void *take(size_t bytes)
{
    void *taken = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return taken == MAP_FAILED ? NULL : taken;
}

/* NULL: it has none, and none is made, or there is no memory. */
static struct tagged *word_at(uintptr_t address, int make)
{
    /* Release and acquire: pairs within this function, for zeros that another thread took. */
    _Atomic(struct tagged *) *table = atomic_load(&leaves);
    if (table == NULL) {
        if (!make) return NULL;
        _Atomic(struct tagged *) *none = NULL;
        table = take(LEAVES * sizeof *table);
        if (table == NULL) return NULL;
        if (!atomic_compare_exchange_strong(&leaves, &none, table)) {
            munmap(table, LEAVES * sizeof *table);
            table = none;
        }
    }
    size_t number = address >> LEAF_BITS;
    if (number >= LEAVES) return NULL;
    struct tagged *leaf = atomic_load_explicit(&table[number], memory_order_acquire);
    if (leaf == NULL) {
        if (!make) return NULL;
        struct tagged *none = NULL;
        leaf = take(LEAF_WORDS * sizeof *leaf);
        if (leaf == NULL) return NULL;
        if (!atomic_compare_exchange_strong(&table[number], &none, leaf)) {
            munmap(leaf, LEAF_WORDS * sizeof *leaf);
            leaf = none;
        }
    }
    return &leaf[address % ((size_t)1 << LEAF_BITS) / 8];
}

static void put_tag(struct tagged *word, uintptr_t pointer, uintptr_t tag)
{
    atomic_store_explicit(&word->tag, tag, memory_order_relaxed);
    atomic_store_explicit(&word->both, pointer ^ tag, memory_order_relaxed);
}

vhandle_t __mneme_tag_load(const void *from, const void *pointer)
{
    if (!may_be_in_a_segment(pointer)) return NULL;
    if (may_be_in_a_segment(from)) return vas_current();
    struct tagged *word = word_at((uintptr_t)from, 0);
    if (word == NULL) return NULL;
    uintptr_t tag = atomic_load_explicit(&word->tag, memory_order_relaxed);
    uintptr_t both = atomic_load_explicit(&word->both, memory_order_relaxed);
    return (both ^ tag) == (uintptr_t)pointer ? (vhandle_t)tag : NULL;
}

void __mneme_tag_store(const void *to, const void *pointer, vhandle_t tag)
{
    /* A word with another pointer's tag has none for this one. */
    if (!may_be_in_a_segment(pointer) || may_be_in_a_segment(to)) return;
    struct tagged *word = word_at((uintptr_t)to, tag != NULL);
    if (word != NULL) put_tag(word, (uintptr_t)pointer, (uintptr_t)tag);
}

void __mneme_tag_forget(const void *to, uint64_t bytes)
{
    if (may_be_in_a_segment(to)) return;
    for (uint64_t at = 0; at < bytes; at += 8) {
        struct tagged *word = word_at((uintptr_t)to + at, 0);
        if (word != NULL) put_tag(word, 0, 0);
    }
}

void __mneme_tag_copy(const void *to, const void *from, uint64_t bytes)
{
    if (may_be_in_a_segment(to) || bytes < 8 || atomic_load(&leaves) == NULL) return;
    int is_in_a_segment = may_be_in_a_segment(from);
    int backwards = (uintptr_t)to > (uintptr_t)from;
    for (uint64_t n = 0; n < bytes / 8; n++) {
        uint64_t at = 8 * (backwards ? bytes / 8 - 1 - n : n);
        struct tagged *here = is_in_a_segment ? NULL : word_at((uintptr_t)from + at, 0);
        uintptr_t tag = here == NULL ? 0 : atomic_load_explicit(&here->tag, memory_order_relaxed);
        uintptr_t both = here == NULL ? 0 : atomic_load_explicit(&here->both, memory_order_relaxed);
        struct tagged *word = word_at((uintptr_t)to + at, tag != 0);
        if (word != NULL) put_tag(word, both ^ tag, tag);
    }
}

/* What a call is given, and what it gives back: by place, for the function that is called. Place 0 is the result's. */
#define PASSED 8
static _Thread_local struct {
    const void *function, *pointer;
    vhandle_t tag;
} passed[PASSED];

void __mneme_tag_pass(int at, const void *function, const void *pointer, vhandle_t tag)
{
    passed[at].function = function;
    passed[at].pointer = pointer;
    passed[at].tag = tag;
}

vhandle_t __mneme_tag_passed(int at, const void *function, const void *pointer)
{
    /* Taken once: the next call may come from code that passes none. */
    int is_it = passed[at].function == function && passed[at].pointer == pointer;
    passed[at].function = NULL;
    return is_it ? passed[at].tag : NULL;
}

/* The check before has found that `to` may be used. */
void __mneme_check_clone(const void *to, const void *pointer, vhandle_t tag, const char *site)
{
    if (tag == NULL || tag == vas_current() || !may_be_in_a_segment(pointer)) return;
    run++;
    if (!may_be_in_a_segment(to) || place(pointer) != MNEME_INSIDE) return;
    uint64_t meant = mneme_segment_at(tag, pointer);
    if (meant != 0 && meant != last.segment)
        report(site, "a pointer into a segment is used in another one at the same address", pointer);
}
