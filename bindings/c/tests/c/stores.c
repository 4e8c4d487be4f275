/* Every function of stores, used well and badly, in the way that the first argument says. */
#define _POSIX_C_SOURCE 200809L
#include <mneme.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "must.h"

#define BOTH (MNEME_READ | MNEME_WRITE)

static uint64_t now(void)
{
    struct timespec time;
    MUST(clock_gettime(CLOCK_REALTIME, &time) == 0);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static int has(mneme_store_t store, const char *key, const char *value)
{
    char buffer[64];
    size_t length = 99;
    int there = mneme_get(store, TEXT(key), buffer, sizeof buffer, &length);
    MUST(there >= 0);
    if (value == NULL) return there == 0;
    return there == 1 && length == strlen(value) && memcmp(buffer, value, length) == 0;
}

/* ---- One record a call ------------------------------------------------------------------------------------------ */

static void records(mneme_store_t store)
{
    size_t length = 7;
    char buffer[4] = "----";
    void *copy = buffer;
    MUST(has(store, "k", NULL) && mneme_contains(store, TEXT("k")) == 0 && mneme_remove(store, TEXT("k")) == 0);
    MUST(mneme_get_alloc(store, TEXT("k"), &copy, &length) == 0 && copy == NULL && length == 7);
    MUST(mneme_put(store, TEXT("k"), TEXT("value")) == 0 && has(store, "k", "value"));
    MUST(mneme_contains(store, TEXT("k")) == 1 && mneme_length(store) == 1);
    REFUSED(MNEME_ESHORT, mneme_get(store, TEXT("k"), buffer, sizeof buffer, &length) == -1);
    MUST(length == 5 && memcmp(buffer, "----", 4) == 0);
    length = 0;
    MUST(mneme_get(store, TEXT("k"), NULL, 0, &length) == 1 && length == 5);
    MUST(mneme_get_alloc(store, TEXT("k"), &copy, &length) == 1 && length == 5 && strcmp(copy, "value") == 0);
    mneme_free(copy);
    MUST(mneme_get_alloc(store, TEXT("k"), &copy, NULL) == 1);
    mneme_free(copy);
    mneme_free(NULL);

    /* An empty key and an empty value are some. */
    MUST(mneme_put(store, NULL, 0, NULL, 0) == 0 && mneme_get(store, NULL, 0, buffer, 0, &length) == 1 && length == 0);
    MUST(mneme_get_alloc(store, NULL, 0, &copy, &length) == 1 && length == 0 && copy && strcmp(copy, "") == 0);
    mneme_free(copy);
    MUST(mneme_remove(store, NULL, 0) == 1 && mneme_length(store) == 1);

    uint64_t expires = 7;
    MUST(mneme_expiry(store, TEXT("k"), &expires) == 1 && expires == MNEME_NEVER);
    MUST(mneme_expiry(store, TEXT("none"), &expires) == 0 && mneme_set_expiry(store, TEXT("none"), 5) == 0);
    uint64_t later = now() + 1000000;
    MUST(mneme_set_expiry(store, TEXT("k"), later) == 1);
    MUST(mneme_expiry(store, TEXT("k"), &expires) == 1 && expires == later && has(store, "k", "value"));
    MUST(mneme_set_expiry(store, TEXT("k"), MNEME_NEVER) == 1);
    MUST(mneme_expiry(store, TEXT("k"), &expires) == 1 && expires == MNEME_NEVER);
    MUST(mneme_put_until(store, TEXT("k"), TEXT("x"), now() - 1) == 0 && has(store, "k", NULL));
    MUST(mneme_put_until(store, TEXT("k"), TEXT("x"), later) == 0 && has(store, "k", "x"));
    MUST(mneme_put(store, TEXT("k"), TEXT("y")) == 0);
    MUST(mneme_expiry(store, TEXT("k"), &expires) == 1 && expires == MNEME_NEVER);
    MUST(mneme_remove(store, TEXT("k")) == 1 && has(store, "k", NULL));

    size_t large = 5 << 20;
    char *bytes = malloc(large);
    MUST(bytes);
    memset(bytes, 'l', large);
    MUST(mneme_put(store, TEXT("large"), bytes, large) == 0);
    MUST(mneme_get_alloc(store, TEXT("large"), &copy, &length) == 1 && length == large);
    MUST(memcmp(copy, bytes, large) == 0);
    mneme_free(copy);
    free(bytes);
    MUST(mneme_remove(store, TEXT("large")) == 1);
}

/* ---- Updates ---------------------------------------------------------------------------------------------------- */

struct asked {
    mneme_store_t store;
    int answer;
    int calls;
    uint64_t expires;
    const char *interfere;
};

static int add_one(const void *old, size_t length, mneme_change_t *change, void *data)
{
    static _Thread_local char text[32];
    (void)data;
    long number = 0;
    if (old != NULL) {
        memcpy(text, old, length);
        text[length] = 0;
        number = atol(text);
    }
    change->value = text;
    change->length = (size_t)sprintf(text, "%ld", number + 1);
    return MNEME_REPLACE;
}

static int as_asked(const void *old, size_t length, mneme_change_t *change, void *data)
{
    struct asked *asked = data;
    asked->calls++;
    asked->expires = change->expires;
    MUST(change->value == NULL && change->length == 0);
    if (asked->interfere != NULL) {
        /* Nothing is locked, and what is decided by what is no more does not take place. */
        MUST(mneme_put(asked->store, TEXT("u"), TEXT(asked->interfere)) == 0);
        asked->interfere = NULL;
    }
    change->value = old;
    change->length = length;
    change->expires = 4102444800000;
    return asked->answer;
}

/* A value of a MiB, read and written in parts. */
static void parts(mneme_store_t store)
{
    enum { LONG = 1 << 20 };
    static char value[LONG];
    char bytes[16];
    size_t length = 7;

    MUST(mneme_read_part(store, TEXT("part"), 0, bytes, 4, &length) == 0 && length == 7);
    MUST(mneme_write_part(store, TEXT("part"), 2, "ab", 2, &length) == 0 && length == 4);
    MUST(mneme_read_part(store, TEXT("part"), 1, bytes, sizeof bytes, &length) == 1 && length == 4);
    MUST(memcmp(bytes, "\0ab", 3) == 0);
    memset(value, 'x', LONG);
    MUST(mneme_put(store, TEXT("part"), value, LONG) == 0);
    for (size_t i = 0; i < 1000; i++) {
        MUST(mneme_write_part(store, TEXT("part"), i * 1000, "y", 1, NULL) == 0);
        MUST(mneme_write_part(store, TEXT("part"), MNEME_AT_END, "z", 1, &length) == 0 && length == LONG + i + 1);
    }
    MUST(mneme_read_part(store, TEXT("part"), 999000, bytes, 2, NULL) == 1 && memcmp(bytes, "yx", 2) == 0);
    MUST(mneme_read_part(store, TEXT("part"), LONG + 998, bytes, sizeof bytes, &length) == 1 && length == LONG + 1000);
    MUST(memcmp(bytes, "zz", 2) == 0);
    MUST(mneme_read_part(store, TEXT("part"), MNEME_AT_END, NULL, 0, &length) == 1 && length == LONG + 1000);
    REFUSED(MNEME_EINVAL, mneme_write_part(store, TEXT("part"), (size_t)1 << 40, "y", 1, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_read_part(store, TEXT("part"), 0, NULL, 1, NULL) == -1);

    /* A key that the answer would be written over. */
    union {
        char bytes[16];
        size_t length;
        void *value;
        uint64_t expires;
    } both;
    memcpy(both.bytes, "part", 4);
    REFUSED(MNEME_EINVAL, mneme_read_part(store, both.bytes, 4, 0, both.bytes + 3, 4, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_read_part(store, both.bytes, 4, 0, bytes, 4, &both.length) == -1);
    REFUSED(MNEME_EINVAL, mneme_write_part(store, both.bytes, 4, 0, "x", 1, &both.length) == -1);
    REFUSED(MNEME_EINVAL, mneme_write_part(store, TEXT("part"), 0, both.bytes, 4, &both.length) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(store, both.bytes, 4, both.bytes, sizeof both, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(store, both.bytes, 4, NULL, 0, &both.length) == -1);
    REFUSED(MNEME_EINVAL, mneme_get_alloc(store, both.bytes, 4, &both.value, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_expiry(store, both.bytes, 4, &both.expires) == -1);
    MUST(memcmp(both.bytes, "part", 4) == 0);
    MUST(mneme_read_part(store, both.bytes, 4, 0, both.bytes + 4, 2, NULL) == 1);
    REFUSED(MNEME_EINVAL, mneme_write_part(store, TEXT("part"), 0, NULL, 1, NULL) == -1);
    MUST(mneme_remove(store, TEXT("part")) == 1);
}

static void updates(mneme_store_t store)
{
    struct asked asked = {.store = store, .answer = MNEME_KEEP};
    MUST(mneme_update(store, TEXT("u"), add_one, NULL) == MNEME_INSERTED && has(store, "u", "1"));
    MUST(mneme_update(store, TEXT("u"), add_one, NULL) == MNEME_REPLACED && has(store, "u", "2"));
    MUST(mneme_update(store, TEXT("u"), as_asked, &asked) == MNEME_KEPT && asked.calls == 1);
    MUST(mneme_update(store, TEXT("none"), as_asked, &asked) == MNEME_ABSENT);
    asked.answer = MNEME_REPLACE;
    MUST(mneme_update(store, TEXT("u"), as_asked, &asked) == MNEME_REPLACED && asked.expires == MNEME_NEVER);
    MUST(mneme_update(store, TEXT("u"), add_one, NULL) == MNEME_REPLACED && has(store, "u", "3"));
    uint64_t expires;
    MUST(mneme_expiry(store, TEXT("u"), &expires) == 1 && expires == 4102444800000);
    asked = (struct asked){.store = store, .answer = MNEME_REPLACE, .interfere = "other"};
    MUST(mneme_update(store, TEXT("u"), as_asked, &asked) == MNEME_REPLACED && asked.calls == 2);
    MUST(has(store, "u", "other"));
    asked.answer = MNEME_REMOVE;
    MUST(mneme_update(store, TEXT("u"), as_asked, &asked) == MNEME_REMOVED && has(store, "u", NULL));
    MUST(mneme_update(store, TEXT("u"), as_asked, &asked) == MNEME_ABSENT);
    asked.answer = 9;
    REFUSED(MNEME_EINVAL, mneme_update(store, TEXT("u"), as_asked, &asked) == -1);
    REFUSED(MNEME_EINVAL, mneme_update(store, TEXT("u"), NULL, NULL) == -1);
}

/* ---- Several records a call ------------------------------------------------------------------------------------- */

enum { MANY = 1000 };

struct seen {
    int there;
    int absent;
    int stop_after;
    char which[MANY];
};

static int value_of(size_t index, const void *value, size_t length, void *data)
{
    struct seen *seen = data;
    char expected[32];
    if (value == NULL) {
        seen->absent++;
        return 0;
    }
    MUST(length == (size_t)sprintf(expected, "value %zu", index) && memcmp(value, expected, length) == 0);
    seen->there++;
    return seen->there == seen->stop_after;
}

static int record(const void *key, size_t key_length, const void *value, size_t length, void *data)
{
    struct seen *seen = data;
    char text[32] = "", expected[32];
    MUST(key_length < sizeof text);
    memcpy(text, key, key_length);
    int i = atoi(text + strlen("key "));
    MUST(i >= 0 && i < MANY && length == (size_t)sprintf(expected, "value %d", i));
    MUST(memcmp(value, expected, length) == 0);
    seen->there += !seen->which[i];
    seen->which[i] = 1;
    return seen->there == seen->stop_after;
}

static void batches(mneme_store_t store)
{
    static char keys[MANY][32], values[MANY][32];
    static mneme_pair_t pairs[MANY];
    static mneme_bytes_t names[MANY];
    for (int i = 0; i < MANY; i++) {
        size_t key = (size_t)sprintf(keys[i], "key %d", i), value = (size_t)sprintf(values[i], "value %d", i);
        pairs[i] = (mneme_pair_t){{keys[i], key}, {values[i], value}};
        names[i] = pairs[i].key;
    }
    size_t told = 7, removed = 7;
    MUST(mneme_put_many(store, NULL, 0, &told) == 0 && told == 0);
    MUST(mneme_put_many(store, pairs, MANY, &told) == 0 && told == MANY && mneme_length(store) == MANY);
    struct seen seen = {0};
    MUST(mneme_get_many(store, names, MANY, value_of, &seen) == 0 && seen.there == MANY && seen.absent == 0);
    seen = (struct seen){.stop_after = 40};
    MUST(mneme_get_many(store, names, MANY, value_of, &seen) == 0 && seen.there == 40);

    seen = (struct seen){0};
    uint64_t cursor = MNEME_SCAN_START;
    while (cursor != MNEME_SCAN_END) MUST(mneme_scan(store, &cursor, 100, record, &seen) == 0);
    MUST(seen.there == MANY);
    /* A scan that stops in the middle loses nothing. */
    seen = (struct seen){.stop_after = 3};
    cursor = MNEME_SCAN_START;
    MUST(mneme_scan(store, &cursor, 100, record, &seen) == 0 && seen.there == 3 && cursor == MNEME_SCAN_START);
    seen.stop_after = 0;
    while (cursor != MNEME_SCAN_END) MUST(mneme_scan(store, &cursor, 100, record, &seen) == 0);
    MUST(seen.there == MANY);

    MUST(mneme_remove_many(store, names, 10, &removed, &told) == 0 && removed == 10 && told == 10);
    MUST(mneme_remove_many(store, names, 20, &removed, NULL) == 0 && removed == 10);
    seen = (struct seen){0};
    MUST(mneme_get_many(store, names, MANY, value_of, &seen) == 0 && seen.there == MANY - 20 && seen.absent == 20);

    /* One that cannot be stored ends a batch; those before it are. */
    static char long_key[1 << 17];
    pairs[2].key = (mneme_bytes_t){long_key, sizeof long_key};
    REFUSED(MNEME_EINVAL, mneme_put_many(store, pairs, 4, &told) == -1);
    MUST(told == 2 && has(store, "key 1", "value 1") && has(store, "key 3", NULL));
    REFUSED(MNEME_EINVAL, mneme_put_many(store, NULL, 4, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_put_many(store, pairs, SIZE_MAX, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_get_many(store, names, 1, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_scan(store, NULL, 1, record, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_scan(store, &cursor, 1, NULL, NULL) == -1);
    names[1].at = NULL;
    REFUSED(MNEME_EINVAL, mneme_remove_many(store, names, 2, NULL, NULL) == -1);
    MUST(mneme_clear(store) == 0 && mneme_length(store) == 0);
}

/* ---- Hashes ----------------------------------------------------------------------------------------------------- */

static int is_field(mneme_store_t store, const char *field, const char *value)
{
    char buffer[64];
    size_t length = 99;
    int there = mneme_hash_get(store, TEXT("h"), TEXT(field), buffer, sizeof buffer, &length);
    MUST(there >= 0);
    if (value == NULL) return there == 0;
    return there == 1 && length == strlen(value) && memcmp(buffer, value, length) == 0;
}

static int any_field(const void *field, size_t field_length, const void *value, size_t length, void *data)
{
    struct seen *seen = data;
    (void)field, (void)value;
    MUST(field_length == 1 && length > 0);
    seen->there++;
    return seen->there == seen->stop_after;
}

static void hashes(mneme_store_t store)
{
    char buffer[4];
    size_t length = 0, added = 7;
    int64_t sum = 7;
    MUST(is_field(store, "f", NULL) && mneme_hash_length(store, TEXT("h")) == 0);
    MUST(mneme_hash_remove(store, TEXT("h"), TEXT("f")) == 0 && mneme_contains(store, TEXT("h")) == 0);
    MUST(mneme_hash_set(store, TEXT("h"), TEXT("f"), TEXT("value")) == 1 && is_field(store, "f", "value"));
    MUST(mneme_hash_set(store, TEXT("h"), TEXT("f"), TEXT("other")) == 0 && is_field(store, "f", "other"));
    REFUSED(MNEME_ESHORT, mneme_hash_get(store, TEXT("h"), TEXT("f"), buffer, sizeof buffer, &length) == -1);
    MUST(length == 5 && mneme_hash_get(store, TEXT("h"), TEXT("f"), NULL, 0, &length) == 1 && length == 5);
    mneme_pair_t pairs[] = {{{"f", 1}, {"1", 1}}, {{"g", 1}, {NULL, 0}}, {{"g", 1}, {"2", 1}}};
    MUST(mneme_hash_set_many(store, TEXT("h"), pairs, 3, &added) == 0 && added == 1);
    MUST(mneme_hash_set_many(store, TEXT("h"), NULL, 0, NULL) == 0);
    MUST(is_field(store, "f", "1") && is_field(store, "g", "2") && mneme_hash_length(store, TEXT("h")) == 2);
    MUST(mneme_hash_increment(store, TEXT("h"), TEXT("g"), 40, &sum) == 0 && sum == 42 && is_field(store, "g", "42"));
    MUST(mneme_hash_increment(store, TEXT("h"), TEXT("g"), -2, NULL) == 0 && is_field(store, "g", "40"));
    REFUSED(MNEME_EINVAL, mneme_hash_increment(store, TEXT("h"), TEXT("g"), INT64_MAX, &sum) == -1);
    struct seen seen = {0};
    MUST(mneme_hash_each(store, TEXT("h"), any_field, &seen) == 0 && seen.there == 2);
    seen = (struct seen){.stop_after = 1};
    MUST(mneme_hash_each(store, TEXT("h"), any_field, &seen) == 0 && seen.there == 1);

    /* A value of another kind is refused, and stays. */
    MUST(mneme_put(store, TEXT("s"), TEXT("text")) == 0);
    REFUSED(MNEME_EINVAL, mneme_hash_set(store, TEXT("s"), TEXT("f"), TEXT("v")) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_length(store, TEXT("s")) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(store, TEXT("h"), buffer, sizeof buffer, &length) == -1);
    MUST(has(store, "s", "text") && mneme_hash_length(store, TEXT("h")) == 2);

    REFUSED(MNEME_EINVAL, mneme_hash_get(store, TEXT("h"), NULL, 1, buffer, sizeof buffer, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_get(store, TEXT("h"), buffer, 1, buffer, sizeof buffer, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_get(store, TEXT("h"), TEXT("f"), NULL, 1, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_set(store, TEXT("h"), TEXT("f"), NULL, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_set_many(store, TEXT("h"), NULL, 1, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_each(store, TEXT("h"), NULL, NULL) == -1);
    REFUSED(MNEME_EHANDLE, mneme_hash_set(NULL, TEXT("h"), TEXT("f"), TEXT("v")) == -1);
    REFUSED(MNEME_EHANDLE, mneme_hash_length(NULL, TEXT("h")) == -1);

    /* The last field takes the key with it. */
    MUST(mneme_hash_remove(store, TEXT("h"), TEXT("f")) == 1 && mneme_hash_remove(store, TEXT("h"), TEXT("g")) == 1);
    MUST(mneme_contains(store, TEXT("h")) == 0 && mneme_remove(store, TEXT("s")) == 1 && mneme_length(store) == 0);
}

/* ---- Lists, sets and sorted sets -------------------------------------------------------------------------------- */

enum { ELEMENTS = 5000 };

/* A byte more than a member may have. */
static const char too_long[65528];
#define TOO_LONG too_long, sizeof too_long

/* What the elements are, one behind the other. */
struct texts {
    char all[64];
    double scores;
    int count, stop_after;
};

static int text(const void *element, size_t length, void *data)
{
    struct texts *texts = data;
    strncat(texts->all, element, length);
    return ++texts->count == texts->stop_after;
}

static int scored(const void *member, size_t length, double score, void *data)
{
    struct texts *texts = data;
    texts->scores = texts->scores * 10 + score;
    return text(member, length, data);
}

static int counted(const void *element, size_t length, void *data)
{
    (void)element;
    MUST(length > 0);
    ++*(int *)data;
    return 0;
}

/* ELEMENTS different texts. */
static const mneme_bytes_t *elements(void)
{
    static char texts[ELEMENTS][12];
    static mneme_bytes_t all[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) {
        snprintf(texts[i], sizeof texts[i], "%07d", i);
        all[i] = (mneme_bytes_t){texts[i], 7};
    }
    return all;
}

static int is_list(mneme_store_t store, int64_t first, int64_t last, const char *expected)
{
    struct texts texts = {0};
    MUST(mneme_list_each(store, TEXT("l"), first, last, text, &texts) == 0);
    return strcmp(texts.all, expected) == 0;
}

static void lists(mneme_store_t store)
{
    char buffer[8];
    size_t length = 7;
    mneme_bytes_t items[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    MUST(mneme_list_length(store, TEXT("l")) == 0 && is_list(store, 0, -1, ""));
    MUST(mneme_list_pop(store, TEXT("l"), MNEME_FRONT, buffer, sizeof buffer, &length) == 0 && length == 7);
    MUST(mneme_list_push(store, TEXT("l"), MNEME_BACK, NULL, 0) == 0 && mneme_contains(store, TEXT("l")) == 0);
    MUST(mneme_list_push(store, TEXT("l"), MNEME_BACK, items, 3) == 3);
    MUST(mneme_list_push(store, TEXT("l"), MNEME_FRONT, items, 2) == 5 && is_list(store, 0, -1, "baabc"));
    MUST(is_list(store, 1, 2, "aa") && is_list(store, -2, 99, "bc") && is_list(store, -99, 0, "b"));
    MUST(is_list(store, 2, 1, "") && is_list(store, 5, 9, "") && is_list(store, 0, -6, ""));
    MUST(is_list(store, INT64_MIN, INT64_MAX, "baabc"));
    MUST(mneme_list_get(store, TEXT("l"), -1, buffer, 1, &length) == 1 && length == 1 && buffer[0] == 'c');
    MUST(mneme_list_get(store, TEXT("l"), 5, buffer, 1, &length) == 0);
    MUST(mneme_list_get(store, TEXT("l"), -6, buffer, 1, &length) == 0);
    MUST(mneme_list_get(store, TEXT("l"), INT64_MIN, buffer, 1, &length) == 0);
    MUST(mneme_list_set(store, TEXT("l"), -5, TEXT("long")) == 1);
    MUST(mneme_list_set(store, TEXT("l"), 5, TEXT("x")) == 0);
    MUST(is_list(store, 0, 0, "long") && mneme_list_get(store, TEXT("l"), 0, NULL, 0, &length) == 1 && length == 4);

    /* An item that does not fit stays. */
    REFUSED(MNEME_ESHORT, mneme_list_pop(store, TEXT("l"), MNEME_FRONT, buffer, 3, &length) == -1);
    MUST(length == 4 && is_list(store, 0, -1, "longaabc"));
    MUST(mneme_list_pop(store, TEXT("l"), MNEME_FRONT, buffer, 4, &length) == 1 && memcmp(buffer, "long", 4) == 0);
    MUST(mneme_list_pop(store, TEXT("l"), MNEME_BACK, buffer, 4, NULL) == 1 && buffer[0] == 'c');
    MUST(mneme_list_remove(store, TEXT("l"), MNEME_BACK, 1, TEXT("a")) == 1 && is_list(store, 0, -1, "ab"));
    MUST(mneme_list_remove(store, TEXT("l"), MNEME_FRONT, 0, TEXT("x")) == 0);
    MUST(mneme_list_push(store, TEXT("l"), MNEME_BACK, &(mneme_bytes_t){NULL, 0}, 1) == 3);
    MUST(mneme_list_get(store, TEXT("l"), 2, buffer, 0, &length) == 1 && length == 0);
    MUST(mneme_list_remove(store, TEXT("l"), MNEME_BACK, SIZE_MAX, NULL, 0) == 1);
    struct texts one = {.stop_after = 1};
    MUST(mneme_list_each(store, TEXT("l"), 0, -1, text, &one) == 0 && one.count == 1);

    REFUSED(MNEME_EINVAL, mneme_list_push(store, TEXT("l"), 2, items, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_push(store, TEXT("l"), MNEME_BACK, NULL, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_push(store, TEXT("l"), MNEME_BACK, items, SIZE_MAX) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_pop(store, TEXT("l"), -1, buffer, 1, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_pop(store, TEXT("l"), MNEME_BACK, NULL, 0, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_pop(store, buffer, 1, MNEME_BACK, buffer, 8, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_get(store, TEXT("l"), 0, NULL, 1, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_each(store, TEXT("l"), 0, -1, NULL, NULL) == -1);
    REFUSED(MNEME_EHANDLE, mneme_list_length(NULL, TEXT("l")) == -1);
    REFUSED(MNEME_EINVAL, mneme_set_add(store, TEXT("l"), TEXT("m")) == -1);
    REFUSED(MNEME_EINVAL, mneme_hash_length(store, TEXT("l")) == -1);

    /* A large one. */
    int count = 0;
    MUST(mneme_list_push(store, TEXT("l"), MNEME_BACK, elements(), ELEMENTS) == ELEMENTS + 2);
    MUST(mneme_list_each(store, TEXT("l"), 0, -1, counted, &count) == 0 && count == ELEMENTS + 2);
    MUST(is_list(store, -2, -1, "00049980004999"));
    MUST(mneme_list_trim(store, TEXT("l"), 1, 1000) == 0 && mneme_list_length(store, TEXT("l")) == 1000);
    MUST(mneme_list_pop(store, TEXT("l"), MNEME_BACK, buffer, 7, NULL) == 1 && memcmp(buffer, "0000998", 7) == 0);
    MUST(mneme_list_trim(store, TEXT("l"), 1, 0) == 0 && mneme_length(store) == 0);
}

static void sets(mneme_store_t store)
{
    size_t added = 7;
    int count = 0;
    struct texts texts = {.stop_after = 1};
    mneme_bytes_t members[] = {{"a", 1}, {"b", 1}, {"a", 1}, {NULL, 0}};
    MUST(mneme_set_length(store, TEXT("s")) == 0 && mneme_set_contains(store, TEXT("s"), TEXT("a")) == 0);
    MUST(mneme_set_add(store, TEXT("s"), TEXT("a")) == 1 && mneme_set_add(store, TEXT("s"), TEXT("a")) == 0);
    MUST(mneme_set_add_many(store, TEXT("s"), members, 4, &added) == 0 && added == 2);
    MUST(mneme_set_length(store, TEXT("s")) == 3 && mneme_set_contains(store, TEXT("s"), NULL, 0) == 1);
    MUST(mneme_set_each(store, TEXT("s"), text, &texts) == 0 && texts.count == 1);
    MUST(mneme_set_remove(store, TEXT("s"), NULL, 0) == 1 && mneme_set_remove(store, TEXT("s"), NULL, 0) == 0);
    MUST(mneme_set_each(store, TEXT("s"), counted, &count) == 0 && count == 2);

    REFUSED(MNEME_EINVAL, mneme_set_add(store, TEXT("s"), NULL, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_set_add(store, TEXT("s"), TOO_LONG) == -1);
    members[1] = (mneme_bytes_t){TOO_LONG};
    REFUSED(MNEME_EINVAL, mneme_set_add_many(store, TEXT("s"), members, 4, &added) == -1);
    REFUSED(MNEME_EINVAL, mneme_set_add_many(store, TEXT("s"), members, SIZE_MAX, &added) == -1);
    MUST(added == 2 && mneme_set_length(store, TEXT("s")) == 2);
    REFUSED(MNEME_EINVAL, mneme_set_add_many(store, TEXT("s"), NULL, 1, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_set_each(store, TEXT("s"), NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_list_length(store, TEXT("s")) == -1);
    REFUSED(MNEME_EHANDLE, mneme_set_length(NULL, TEXT("s")) == -1);

    const mneme_bytes_t *all = elements();
    MUST(mneme_set_add_many(store, TEXT("s"), all, ELEMENTS, NULL) == 0);
    MUST(mneme_set_length(store, TEXT("s")) == ELEMENTS + 2);
    count = 0;
    MUST(mneme_set_each(store, TEXT("s"), counted, &count) == 0 && count == ELEMENTS + 2);
    for (int i = 0; i < ELEMENTS; i++) MUST(mneme_set_remove(store, TEXT("s"), all[i].at, all[i].length) == 1);
    MUST(mneme_set_remove(store, TEXT("s"), TEXT("a")) == 1 && mneme_set_remove(store, TEXT("s"), TEXT("b")) == 1);
    MUST(mneme_length(store) == 0);
}

static int is_sorted(mneme_store_t store, int64_t first, int64_t last, int reverse, const char *expected, double scores)
{
    struct texts texts = {0};
    MUST(mneme_sorted_set_each(store, TEXT("z"), first, last, reverse, scored, &texts) == 0);
    return strcmp(texts.all, expected) == 0 && texts.scores == scores;
}

static void sorted_sets(mneme_store_t store)
{
    const double nan = strtod("nan", NULL), infinity = strtod("inf", NULL);
    double score = 7;
    uint64_t rank = 7;
    size_t length = 7;
    char buffer[8];
    MUST(mneme_sorted_set_length(store, TEXT("z")) == 0 && is_sorted(store, 0, -1, 0, "", 0));
    MUST(mneme_sorted_set_score(store, TEXT("z"), TEXT("a"), &score) == 0 && score == 7);
    MUST(mneme_sorted_set_rank(store, TEXT("z"), TEXT("a"), 0, &rank) == 0 && rank == 7);
    MUST(mneme_sorted_set_pop(store, TEXT("z"), MNEME_BACK, buffer, 8, &length, &score) == 0 && length == 7);
    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("c"), 9) == 1);
    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("c"), 3) == 0);
    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("a"), 1) == 1);
    MUST(mneme_sorted_set_increment(store, TEXT("z"), TEXT("bb"), 2.5, &score) == 0 && score == 2.5);
    MUST(mneme_sorted_set_increment(store, TEXT("z"), TEXT("bb"), -0.5, NULL) == 0);
    MUST(is_sorted(store, 0, -1, 0, "abbc", 123) && is_sorted(store, 0, -1, 1, "cbba", 321));
    MUST(is_sorted(store, 0, 1, 1, "cbb", 32) && is_sorted(store, -1, -1, 1, "a", 1));
    MUST(is_sorted(store, 1, 0, 0, "", 0) && is_sorted(store, INT64_MIN, INT64_MAX, 1, "cbba", 321));
    MUST(mneme_sorted_set_rank(store, TEXT("z"), TEXT("c"), 0, &rank) == 1 && rank == 2);
    MUST(mneme_sorted_set_rank(store, TEXT("z"), TEXT("c"), 1, &rank) == 1 && rank == 0);
    MUST(mneme_sorted_set_rank(store, TEXT("z"), TEXT("a"), 1, NULL) == 1);
    MUST(mneme_sorted_set_score(store, TEXT("z"), TEXT("c"), &score) == 1 && score == 3);
    MUST(mneme_sorted_set_score(store, TEXT("z"), TEXT("c"), NULL) == 1);
    MUST(mneme_sorted_set_count(store, TEXT("z"), 1, 2) == 2);
    MUST(mneme_sorted_set_count(store, TEXT("z"), -infinity, infinity) == 3);
    struct texts texts = {.stop_after = 2};
    MUST(mneme_sorted_set_each_score(store, TEXT("z"), 1, 2, 1, scored, &texts) == 0 && strcmp(texts.all, "bba") == 0);

    /* A member that does not fit stays. */
    MUST(mneme_sorted_set_remove(store, TEXT("z"), TEXT("c")) == 1);
    MUST(mneme_sorted_set_remove(store, TEXT("z"), TEXT("c")) == 0);
    REFUSED(MNEME_ESHORT, mneme_sorted_set_pop(store, TEXT("z"), MNEME_BACK, buffer, 1, &length, &score) == -1);
    MUST(length == 2 && score == 3 && mneme_sorted_set_length(store, TEXT("z")) == 2);
    MUST(mneme_sorted_set_pop(store, TEXT("z"), MNEME_BACK, buffer, 2, &length, &score) == 1 && score == 2);
    MUST(memcmp(buffer, "bb", 2) == 0);
    MUST(mneme_sorted_set_pop(store, TEXT("z"), MNEME_FRONT, buffer, 2, NULL, NULL) == 1 && buffer[0] == 'a');
    MUST(mneme_contains(store, TEXT("z")) == 0);

    /* Several members take effect as a whole. Members may be empty, scores infinite. */
    size_t added = 7;
    mneme_scored_t scored_members[] = {{{"a", 1}, 5}, {{NULL, 0}, -infinity}, {{"a", 1}, 6}, {{"n", 1}, nan}};
    REFUSED(MNEME_EINVAL, mneme_sorted_set_set_many(store, TEXT("z"), scored_members, 4, &added) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_set_many(store, TEXT("z"), NULL, 1, &added) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_set_many(store, TEXT("z"), scored_members, SIZE_MAX, &added) == -1);
    MUST(added == 7 && mneme_sorted_set_length(store, TEXT("z")) == 0);
    MUST(mneme_sorted_set_set_many(store, TEXT("z"), scored_members, 3, &added) == 0 && added == 2);
    MUST(mneme_sorted_set_set_many(store, TEXT("z"), NULL, 0, NULL) == 0);
    MUST(mneme_sorted_set_score(store, TEXT("z"), NULL, 0, &score) == 1 && score == -infinity);
    MUST(mneme_sorted_set_score(store, TEXT("z"), TEXT("a"), &score) == 1 && score == 6);
    MUST(mneme_sorted_set_pop(store, TEXT("z"), MNEME_FRONT, buffer, 0, &length, &score) == 1 && length == 0);
    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("b"), 7) == 1);
    MUST(mneme_sorted_set_remove_score(store, TEXT("z"), 6, 6) == 1 && is_sorted(store, 0, -1, 0, "b", 7));
    MUST(mneme_sorted_set_remove_score(store, TEXT("z"), 8, 7) == 0);
    MUST(mneme_sorted_set_remove_score(store, TEXT("z"), -infinity, infinity) == 1);

    MUST(mneme_sorted_set_set(store, TEXT("z"), TEXT("i"), infinity) == 1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_set(store, TEXT("z"), TOO_LONG, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_remove_score(store, TEXT("z"), nan, nan) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_set(store, TEXT("z"), TEXT("n"), nan) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_increment(store, TEXT("z"), TEXT("i"), -infinity, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_count(store, TEXT("z"), nan, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_each_score(store, TEXT("z"), 1, nan, 0, scored, &texts) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_each(store, TEXT("z"), 0, -1, 0, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_pop(store, TEXT("z"), 2, buffer, 8, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_sorted_set_pop(store, TEXT("z"), MNEME_BACK, NULL, 0, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_set_length(store, TEXT("z")) == -1);
    REFUSED(MNEME_EHANDLE, mneme_sorted_set_length(NULL, TEXT("z")) == -1);

    const mneme_bytes_t *all = elements();
    for (int i = 0; i < ELEMENTS; i++) MUST(mneme_sorted_set_set(store, TEXT("z"), all[i].at, all[i].length, -i) == 1);
    MUST(mneme_sorted_set_rank(store, TEXT("z"), TEXT("0001000"), 0, &rank) == 1 && rank == ELEMENTS - 1001);
    MUST(mneme_sorted_set_count(store, TEXT("z"), -9, 0) == 10 && is_sorted(store, 1, 2, 1, "00000000000001", -1));
    for (int i = 0; i < ELEMENTS; i++) {
        MUST(mneme_sorted_set_pop(store, TEXT("z"), MNEME_FRONT, buffer, 8, NULL, &score) == 1);
        MUST(score == i - ELEMENTS + 1);
    }
    MUST(mneme_sorted_set_remove(store, TEXT("z"), TEXT("i")) == 1 && mneme_length(store) == 0);
}

/* ---- What is passed in the wrong place -------------------------------------------------------------------------- */

static void misuse(mneme_store_t store, segid_t sid)
{
    char buffer[8];
    size_t length;
    void *wrong[] = {NULL, (void *)1, (void *)2, (void *)-1, &length, (char *)store + 0x100, (void *)sid};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        mneme_store_t none = (mneme_store_t)wrong[i];
        uint64_t number = 0;
        mneme_stat_t stat;
        REFUSED(MNEME_EHANDLE, mneme_get(none, "k", 1, buffer, 8, &length) == -1);
        REFUSED(MNEME_EHANDLE, mneme_put(none, "k", 1, "v", 1) == -1);
        REFUSED(MNEME_EHANDLE, mneme_remove(none, "k", 1) == -1);
        REFUSED(MNEME_EHANDLE, mneme_update(none, "k", 1, add_one, NULL) == -1);
        REFUSED(MNEME_EHANDLE, mneme_scan(none, &number, 1, record, NULL) == -1);
        REFUSED(MNEME_EHANDLE, mneme_put_many(none, NULL, 0, NULL) == -1);
        REFUSED(MNEME_EHANDLE, mneme_database(none, 0) == NULL);
        REFUSED(MNEME_EHANDLE, mneme_length(none) == -1);
        REFUSED(MNEME_EHANDLE, mneme_check(none, &number) == -1);
        REFUSED(MNEME_EHANDLE, mneme_stat(none, &stat) == -1);
        REFUSED(MNEME_EHANDLE, mneme_detach(none) == -1);
    }
    REFUSED(MNEME_EINVAL, mneme_put(store, NULL, 1, "v", 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_put(store, "k", 1, NULL, 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_put(store, "k", SIZE_MAX, "v", 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(store, "k", 1, NULL, 1, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_get(store, "k", 1, NULL, 0, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_get_alloc(store, "k", 1, NULL, &length) == -1);
    REFUSED(MNEME_EINVAL, mneme_expiry(store, "k", 1, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_stat(store, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_database(store, 64) == NULL);
    REFUSED(MNEME_EINVAL, mneme_set_eviction(store, 8) == -1);
    REFUSED(MNEME_ENOMEM, mneme_grow(store, UINT64_C(1) << 50) == -1);

    REFUSED(MNEME_EINVAL, mneme_attach("store", 0) == NULL);
    REFUSED(MNEME_EINVAL, mneme_attach("store", MNEME_WRITE) == NULL);
    REFUSED(MNEME_EINVAL, mneme_attach("store", 8 | MNEME_READ) == NULL);
    REFUSED(MNEME_EINVAL, mneme_attach(NULL, MNEME_READ) == NULL);
    REFUSED(MNEME_ENAME, mneme_attach("a/b", MNEME_READ) == NULL);
    REFUSED(MNEME_ENOTFOUND, mneme_attach("nobody", MNEME_READ) == NULL);
    REFUSED(MNEME_EREGISTRY, mneme_attach_in("/proc/none/such", "store", MNEME_READ) == NULL);
    REFUSED(MNEME_EEXIST, mneme_create("store", NULL) == NULL);
    mneme_options_t options = {.capacity = 1};
    REFUSED(MNEME_EINVAL, mneme_create("small", &options) == NULL);
    options = (mneme_options_t){.capacity = UINT64_C(1) << 50};
    REFUSED(MNEME_EINVAL, mneme_create("large", &options) == NULL);
    options = (mneme_options_t){.capacity = 64 << 20, .max_capacity = 1 << 20};
    REFUSED(MNEME_EINVAL, mneme_create("lower", &options) == NULL);
    mneme_options_t impossible[] = {{.policy = 2}, {.evict = 8}, {.evict = -1}, {.backing = 4}, {.perms = 0777},
                                    {.flags = MNEME_READ}, {.lend_mib = -1}, {.backing = SEG_FILE}};
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        impossible[i].capacity = 64 << 20;
        REFUSED(MNEME_EINVAL, mneme_create("impossible", &impossible[i]) == NULL);
        MUST(seg_find("impossible") == NULL);
    }

    /* Segments that hold structures are no stores, and the other way round. */
    segid_t plain = seg_alloc("plain", NULL, 1 << 24, 0600);
    vasid_t vid = vas_create("v", 0600);
    MUST(plain && vid);
    REFUSED(MNEME_EINVAL, mneme_attach("plain", MNEME_READ) == NULL);
    MUST(strstr(mneme_error(), "plain"));
    MUST(seg_attach(vid, sid) == -1);
    MUST(seg_delete(plain) == 0 && vas_delete(vid) == 0);
}

static void all(void)
{
    mneme_options_t options = {.capacity = 64 << 20, .max_capacity = 128 << 20, .evict = MNEME_EVICT_LFU};
    mneme_store_t store = mneme_create("store", &options);
    segid_t sid = seg_find("store");
    MUST(store && sid);
    MUST(has(store, "k", NULL));
    records(store);
    parts(store);
    updates(store);
    batches(store);
    hashes(store);
    lists(store);
    sets(store);
    sorted_sets(store);
    misuse(store, sid);

    mneme_store_t ninth = mneme_database(store, 9);
    MUST(ninth && ninth != store && ninth == mneme_database(store, 9) && store == mneme_database(ninth, 0));
    MUST(mneme_put(ninth, TEXT("k"), TEXT("nine")) == 0 && has(ninth, "k", "nine") && has(store, "k", NULL));
    MUST(mneme_length(ninth) == 1 && mneme_length(store) == 0);

    mneme_stat_t stat;
    MUST(mneme_stat(store, &stat) == 0 && stat.capacity == 64 << 20 && stat.max_capacity == 128 << 20);
    MUST(stat.records == 1 && stat.writable == 1 && stat.outlives_boot == 0 && stat.policy == MNEME_APPEND);
    MUST(stat.evict == MNEME_EVICT_LFU && strcmp(stat.name, "store") == 0);
    MUST(stat.live_bytes + stat.stale_bytes + stat.index_bytes + stat.head_bytes + stat.overhead_bytes +
             stat.free_bytes == stat.capacity);
    MUST(mneme_set_eviction(store, MNEME_EVICT_NONE) == 0 && mneme_grow(store, 96 << 20) == 0);
    MUST(mneme_stat(store, &stat) == 0 && stat.evict == MNEME_EVICT_NONE && stat.capacity == 96 << 20);
    uint64_t seen = 7;
    MUST(mneme_check(store, &seen) == 0 && seen == 1 && mneme_check(store, NULL) == 0);

    /* For reading. */
    mneme_store_t reader = mneme_attach("store", MNEME_READ);
    MUST(reader && reader != store && has(mneme_database(reader, 9), "k", "nine"));
    REFUSED(MNEME_EREADONLY, mneme_put(reader, TEXT("k"), TEXT("v")) == -1);
    REFUSED(MNEME_EREADONLY, mneme_put_many(reader, &(mneme_pair_t){{"k", 1}, {"v", 1}}, 1, NULL) == -1);
    REFUSED(MNEME_EREADONLY, mneme_remove(reader, TEXT("k")) == -1);
    REFUSED(MNEME_EREADONLY, mneme_set_expiry(reader, TEXT("k"), 5) == -1);
    REFUSED(MNEME_EREADONLY, mneme_update(reader, TEXT("k"), add_one, NULL) == -1);
    REFUSED(MNEME_EREADONLY, mneme_list_push(reader, TEXT("l"), MNEME_BACK, &(mneme_bytes_t){"v", 1}, 1) == -1);
    REFUSED(MNEME_EREADONLY, mneme_set_add(reader, TEXT("s"), TEXT("v")) == -1);
    REFUSED(MNEME_EREADONLY, mneme_sorted_set_set(reader, TEXT("z"), TEXT("v"), 1) == -1);
    MUST(mneme_list_length(reader, TEXT("l")) == 0 && mneme_set_length(reader, TEXT("s")) == 0);
    REFUSED(MNEME_EREADONLY, mneme_clear(reader) == -1);
    REFUSED(MNEME_EREADONLY, mneme_grow(reader, 128 << 20) == -1);
    REFUSED(MNEME_EREADONLY, mneme_set_eviction(reader, 0) == -1);
    MUST(mneme_stat(reader, &stat) == 0 && stat.writable == 0 && stat.maintains == 0 && stat.records == 1);
    MUST(mneme_detach(reader) == 0);
    REFUSED(MNEME_EHANDLE, mneme_length(reader) == -1);

    /* The store stays while it is attached; its databases go with it. */
    REFUSED(MNEME_EBUSY, seg_delete(sid) == -1);
    mneme_store_t second = mneme_open("store", &options);
    MUST(second && second != store && mneme_detach(ninth) == 0);
    REFUSED(MNEME_EHANDLE, mneme_length(ninth) == -1);
    REFUSED(MNEME_EHANDLE, mneme_length(store) == -1);
    REFUSED(MNEME_EHANDLE, mneme_detach(store) == -1);
    MUST(mneme_length(mneme_database(second, 9)) == 1 && mneme_detach(second) == 0);
    store = mneme_attach("store", BOTH | MNEME_NO_MAINTAINER);
    MUST(store && mneme_stat(store, &stat) == 0 && stat.maintains == 0 && mneme_detach(store) == 0);

    /* A full store says so, and goes on. */
    options = (mneme_options_t){.capacity = 64 << 20, .policy = MNEME_IN_PLACE, .perms = 0640,
                                .backing = SEG_FILE, .directory = getenv("MNEME_DIR"), .registry = getenv("MNEME_DIR")};
    mneme_store_t full = mneme_open("full", &options);
    static char bytes[1 << 20];
    char key[32];
    int stored = 0;
    MUST(full && mneme_stat(full, &stat) == 0 && stat.policy == MNEME_IN_PLACE && stat.outlives_boot == 1);
    for (;; stored++) {
        int length = sprintf(key, "%d", stored);
        if (mneme_put(full, key, (size_t)length, bytes, sizeof bytes) == -1) break;
    }
    MUST(mneme_code() == MNEME_ENOMEM && stored > 5 && stored < 64);
    MUST(mneme_length(full) == stored && mneme_remove(full, TEXT("0")) == 1 && mneme_check(full, NULL) == 0);
    MUST(mneme_detach(full) == 0 && seg_delete(seg_find("full")) == 0 && seg_delete(sid) == 0);
    REFUSED(MNEME_ENOTFOUND, mneme_attach("store", MNEME_READ) == NULL);
}

/* ---- Beside others ---------------------------------------------------------------------------------------------- */

enum { THREADS = 3, TIMES = 2000 };

static void *count_up(void *store)
{
    for (int i = 0; i < TIMES; i++) MUST(mneme_update((mneme_store_t)store, TEXT("count"), add_one, NULL) > 0);
    return NULL;
}

/* Puts numbers under keys of its own until it is killed, and says each one that is acknowledged. */
static void write_for_ever(mneme_store_t store, const char *lane)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned i = 0;; i++) {
        char key[64], more[64], value[400] = "";
        size_t key_length = (size_t)snprintf(key, sizeof key, "%s:%u", lane, i);
        size_t more_length = (size_t)snprintf(more, sizeof more, "%s:last", lane);
        size_t length = (size_t)snprintf(value, sizeof value, "%u", i);
        MUST(mneme_put(store, key, key_length, value, length + i % 300) == 0);
        mneme_pair_t pairs[] = {{{more, more_length}, {value, length}}, {{key, key_length}, {value, length}}};
        MUST(mneme_put_many(store, pairs, 2, NULL) == 0);
        MUST(mneme_update(store, TEXT("count"), add_one, NULL) > 0);
        printf("%u\n", i);
    }
}

static int forked(mneme_store_t store)
{
    void *copy;
    MUST(mneme_put(store, TEXT("before"), TEXT("fork")) == 0);
    MUST(mneme_get_alloc(store, TEXT("before"), &copy, NULL) == 1);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char buffer[8];
        size_t length;
        REFUSED(MNEME_EFORKED, mneme_get(store, TEXT("before"), buffer, sizeof buffer, &length) == -1);
        REFUSED(MNEME_EFORKED, mneme_put(store, TEXT("before"), TEXT("child")) == -1);
        REFUSED(MNEME_EFORKED, mneme_attach("default", MNEME_READ) == NULL);
        REFUSED(MNEME_EFORKED, mneme_detach(store) == -1);
        MUST(strcmp(copy, "fork") == 0);
        mneme_free(copy);
        exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    mneme_free(copy);
    MUST(has(store, "before", "fork") && mneme_put(store, TEXT("after"), TEXT("fork")) == 0);
    return mneme_detach(store);
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    if (strcmp(how, "all") == 0) {
        all();
        return 0;
    }
    int reads = strcmp(how, "get") == 0 || strcmp(how, "refused") == 0;
    mneme_store_t store = mneme_attach("default", reads ? MNEME_READ : BOTH);
    MUST(store);
    if (strcmp(how, "get") == 0) {
        void *value;
        size_t length;
        int there = mneme_get_alloc(store, TEXT(arguments[2]), &value, &length);
        MUST(there >= 0);
        printf("%s\n", there ? (char *)value : "(nothing)");
        mneme_free(value);
        return mneme_detach(store);
    }
    if (strcmp(how, "refused") == 0) {
        REFUSED(MNEME_EREADONLY, mneme_put(store, TEXT("k"), TEXT("v")) == -1);
        return 0;
    }
    if (strcmp(how, "put") == 0) {
        MUST(mneme_put(store, TEXT(arguments[2]), TEXT(arguments[3])) == 0);
        return 0;
    }
    if (strcmp(how, "write") == 0) write_for_ever(store, arguments[2]);
    if (strcmp(how, "fork") == 0) return forked(store);
    if (strcmp(how, "count") == 0) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, count_up, store) == 0);
        for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
        return mneme_detach(store);
    }
    fprintf(stderr, "what is %s?\n", how);
    return 2;
}
