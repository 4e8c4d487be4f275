/* The calls for memory that is held in reserve, used well and badly. */
#include <mneme.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

enum { MIB = 1 << 20, THREADS = 3, TIMES = 20000 };

/* A truth that counts how often it is asked. */
struct truth {
    const char *value;
    int asked;
    int answer;
};

static int fetch(const void **value, size_t *length, void *data)
{
    struct truth *truth = data;
    truth->asked++;
    if (truth->value == NULL) return truth->answer;
    *value = truth->value;
    *length = strlen(truth->value);
    return truth->answer;
}

static int shows(mneme_cache_t cache, const char *key, struct truth *truth, const char *expected)
{
    char buffer[32];
    size_t length = 0;
    int found = mneme_cache_get(cache, TEXT(key), buffer, sizeof buffer, &length, truth ? fetch : NULL, truth);
    if (expected == NULL) return found == 0;
    return found == 1 && length == strlen(expected) && memcmp(buffer, expected, length) == 0;
}

static void lookups(mneme_cache_t cache)
{
    struct truth truth = {"Hull", 0, 1}, none = {NULL, 0, 0}, broken = {NULL, 0, -1}, null = {NULL, 0, 1};
    char small[2];
    size_t length = 0;
    MUST(shows(cache, "city", NULL, NULL));
    MUST(shows(cache, "city", &truth, "Hull") && shows(cache, "city", &truth, "Hull") && truth.asked == 1);
    MUST(shows(cache, "city", NULL, "Hull"));
    MUST(mneme_cache_get(cache, TEXT("city"), NULL, 0, &length, NULL, NULL) == 1 && length == 4);
    REFUSED(MNEME_ESHORT, mneme_cache_get(cache, TEXT("city"), small, sizeof small, &length, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_cache_get(cache, TEXT("city"), NULL, 0, NULL, NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, mneme_cache_get(cache, NULL, 4, NULL, 0, &length, NULL, NULL) == -1);
    truth.value = "York";
    MUST(mneme_cache_put(cache, TEXT("city"), TEXT("York")) == 1 && shows(cache, "city", &truth, "York"));
    MUST(mneme_cache_remove(cache, TEXT("city")) == 0 && shows(cache, "city", NULL, NULL));
    MUST(shows(cache, "city", &truth, "York") && truth.asked == 2);
    MUST(mneme_cache_clear(cache) == 0 && shows(cache, "city", NULL, NULL));
    MUST(shows(cache, "nothing", &none, NULL) && none.asked == 1);
    REFUSED(MNEME_EINVAL, mneme_cache_get(cache, TEXT("k"), NULL, 0, &length, fetch, &broken) == -1);
    MUST(mneme_cache_get(cache, TEXT("k"), NULL, 0, &length, fetch, &null) == 1 && length == 0);
    char *long_value = calloc(3, MIB);
    REFUSED(MNEME_EINVAL, mneme_cache_put(cache, TEXT("long"), long_value, 3 * MIB) == -1);
    free(long_value);
}

/* What is claimed is had at once and is the program's; the copies that were there are gone. */
static void claims(mneme_cache_t cache)
{
    mneme_cache_stat_t stat;
    char key[32];
    static char value[1000];
    for (int i = 0; i < 20000; i++) {
        int length = snprintf(key, sizeof key, "%d", i);
        MUST(mneme_cache_put(cache, key, (size_t)length, value, sizeof value) >= 0);
    }
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.lent_bytes > 16 * MIB && stat.claimed_bytes == 0);
    MUST(stat.bytes >= 24 * MIB && stat.kept > 0);
    unsigned char *memory = mneme_cache_claim(cache, 16 * MIB - 5);
    MUST(memory != NULL && (size_t)memory % (2 * MIB) == 0);
    memset(memory, 0xab, 16 * MIB);
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.claimed_bytes == 16 * MIB && stat.discards > 0);
    MUST(stat.claims > 0 && stat.claim_p50_ns > 0 && stat.claim_p50_ns <= stat.claim_max_ns);
    for (int i = 0; i < 20000; i++) {
        size_t length = sizeof value;
        int name = snprintf(key, sizeof key, "%d", i);
        char found[sizeof value];
        int there = mneme_cache_get(cache, key, (size_t)name, found, sizeof found, &length, NULL, NULL);
        MUST(there == 0 || (there == 1 && length == sizeof value && memcmp(found, value, length) == 0));
    }
    for (size_t i = 0; i < 16 * MIB; i += 4096) MUST(memory[i] == 0xab);
    REFUSED(MNEME_ENOMEM, mneme_cache_claim(cache, 16 * MIB) == NULL);
    REFUSED(MNEME_EINVAL, mneme_cache_claim(cache, UINT64_MAX) == NULL);
    REFUSED(MNEME_EINVAL, mneme_cache_claim(cache, 0) == NULL);
    REFUSED(MNEME_EINVAL, mneme_cache_release(cache, memory + 1) == -1);
    REFUSED(MNEME_EINVAL, mneme_cache_release(cache, NULL) == -1);
    MUST(mneme_cache_release(cache, memory) == 0);
    REFUSED(MNEME_EINVAL, mneme_cache_release(cache, memory) == -1);
    MUST(mneme_cache_limit(cache, 0) == 0 && mneme_cache_clear(cache) == 0);
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.claimed_bytes == 0 && stat.lent_bytes <= 2 * MIB);
    MUST(mneme_cache_limit(cache, UINT64_MAX) == 0);
}

static void *look_up(void *data)
{
    mneme_cache_t cache = data;
    struct truth truth = {"the same for all", 0, 1};
    char key[16];
    for (int i = 0; i < TIMES; i++) {
        snprintf(key, sizeof key, "%d", i % 1000);
        MUST(shows(cache, key, &truth, truth.value));
    }
    return NULL;
}

/* Puts values until the store is full. How many it took. */
static int fill_up(mneme_store_t store, size_t length)
{
    char *value = calloc(1, length);
    int number = 0;
    while (number < 64 && mneme_put(store, &number, sizeof number, value, length) == 0) number++;
    MUST(number < 64 && mneme_code() == MNEME_ENOMEM);
    free(value);
    return number;
}

/* What a store does not need is a cache, until it needs it. */
static void of_a_store(void)
{
    mneme_options_t options = {.capacity = 64 * MIB, .max_capacity = 64 * MIB, .flags = MNEME_NO_MAINTAINER, .lend_mib = -1};
    REFUSED(MNEME_EINVAL, mneme_create("lends", &options) == NULL);
    options.lend_mib = 32;
    mneme_store_t store = mneme_create("lends", &options);
    MUST(store);
    /* Only memory that the store had once is lent. It is free once the store has looked for some:
     * a value of 20 MiB needs as many frames side by side. */
    int all = fill_up(store, MIB);
    for (int i = 0; i < all; i++) MUST(mneme_remove(store, &i, sizeof i) == 1);
    int long_ones = fill_up(store, 20 * MIB);
    for (int i = 0; i < long_ones; i++) MUST(mneme_remove(store, &i, sizeof i) == 1);
    char *value = calloc(20, MIB);
    MUST(long_ones == 2 && mneme_put(store, TEXT("long"), value, 20 * MIB) == 0);
    MUST(mneme_remove(store, TEXT("long")) == 1);
    free(value);
    mneme_cache_t cache = mneme_cache_open(store), other = mneme_cache_open(store);
    MUST(cache && other && cache != other);
    lookups(cache);
    MUST(mneme_cache_put(cache, TEXT("city"), TEXT("Hull")) == 1 && shows(other, "city", NULL, "Hull"));
    mneme_cache_stat_t stat;
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.lent_bytes > 0 && stat.claimed_bytes == 0);
    REFUSED(MNEME_EINVAL, mneme_cache_claim(cache, 2 * MIB) == NULL);
    REFUSED(MNEME_EINVAL, mneme_cache_release(cache, &stat) == -1);

    /* An opening that reads looks up and changes nothing. */
    mneme_store_t read_only = mneme_attach("lends", MNEME_READ);
    mneme_cache_t looks = mneme_cache_open(read_only);
    struct truth truth = {"York", 0, 1};
    MUST(looks && shows(looks, "city", NULL, "Hull"));
    MUST(shows(looks, "other", &truth, "York") && shows(looks, "other", NULL, NULL));
    REFUSED(MNEME_EREADONLY, mneme_cache_put(looks, TEXT("city"), TEXT("York")) == -1);
    REFUSED(MNEME_EREADONLY, mneme_cache_remove(looks, TEXT("city")) == -1);
    REFUSED(MNEME_EREADONLY, mneme_cache_clear(looks) == -1);
    REFUSED(MNEME_EREADONLY, mneme_cache_limit(looks, 0) == -1);
    MUST(mneme_cache_destroy(looks) == 0 && mneme_detach(read_only) == 0);
    MUST(shows(cache, "city", NULL, "Hull") && mneme_cache_destroy(other) == 0);

    /* The cache needs the store's handle no more. */
    MUST(mneme_detach(store) == 0);
    REFUSED(MNEME_EHANDLE, mneme_cache_open(store) == NULL);
    MUST(mneme_cache_put(cache, TEXT("city"), TEXT("York")) == 1 && shows(cache, "city", NULL, "York"));
    store = mneme_attach("lends", MNEME_READ | MNEME_WRITE | MNEME_NO_MAINTAINER);
    MUST(store && shows(cache, "city", NULL, "York"));

    /* The store takes what it needs of these frames, but for the one that is being filled. */
    char *copy = calloc(1, 2 * MIB - 64);
    for (int i = 0; i < 4; i++) MUST(mneme_cache_put(cache, &i, sizeof i, copy, 2 * MIB - 64) == 1);
    free(copy);
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.lent_bytes >= 8 * MIB && stat.discards == 0);
    MUST(fill_up(store, MIB) > all - 8);
    MUST(mneme_cache_stat(cache, &stat) == 0 && stat.lent_bytes <= 2 * MIB && stat.discards >= 3);
    MUST(shows(cache, "city", NULL, NULL) || shows(cache, "city", NULL, "York"));
    MUST(shows(cache, "city", &truth, "York") && mneme_check(store, NULL) == 0);
    MUST(mneme_cache_destroy(cache) == 0 && mneme_detach(store) == 0);

    store = mneme_create("keeps", NULL);
    MUST(store);
    REFUSED(MNEME_EINVAL, mneme_cache_open(store) == NULL);
    MUST(mneme_detach(store) == 0);
}

/* Another process has the store, and has put a copy there. */
static void beside_another(void)
{
    mneme_store_t store = mneme_attach("default", MNEME_READ | MNEME_WRITE | MNEME_NO_MAINTAINER);
    mneme_cache_t cache = mneme_cache_open(store);
    MUST(cache && shows(cache, "city", NULL, "Hull"));
    MUST(mneme_cache_put(cache, TEXT("city"), TEXT("York")) == 1);
    MUST(mneme_cache_destroy(cache) == 0 && mneme_detach(store) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        (strcmp(argv[1], "beside") == 0 ? beside_another : of_a_store)();
        return 0;
    }
    REFUSED(MNEME_EINVAL, mneme_cache_create(1 * MIB, 1000) == NULL);
    REFUSED(MNEME_EINVAL, mneme_cache_create(32 * MIB, 0) == NULL);
    mneme_cache_t cache = mneme_cache_create(32 * MIB, 40000);
    MUST(cache);
    lookups(cache);
    claims(cache);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, look_up, cache) == 0);
    for (int i = 0; i < 200; i++) {
        void *memory = mneme_cache_claim(cache, 4 * MIB);
        MUST(memory != NULL);
        memset(memory, i, 4096);
        MUST(mneme_cache_release(cache, memory) == 0);
    }
    for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
    mneme_cache_stat_t stat;
    REFUSED(MNEME_EINVAL, mneme_cache_stat(cache, NULL) == -1);
    REFUSED(MNEME_EHANDLE, mneme_cache_stat((mneme_cache_t)&stat, &stat) == -1);
    REFUSED(MNEME_EHANDLE, mneme_length((mneme_store_t)cache) == -1);
    MUST(mneme_cache_destroy(cache) == 0);
    REFUSED(MNEME_EHANDLE, mneme_cache_destroy(cache) == -1);
    REFUSED(MNEME_EHANDLE, mneme_cache_clear(cache) == -1);
    return 0;
}
