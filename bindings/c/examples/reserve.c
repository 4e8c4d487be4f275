/* Holds 64 MiB in reserve for a large job, and lets them be a cache of a slow table until then. */
#include <mneme.h>
#include <stdio.h>
#include <string.h>

/* The slow table: the square of a number. */
struct wanted {
    int number;
    char text[32];
    int computed;
};

static int compute(const void **value, size_t *length, void *data)
{
    struct wanted *wanted = data;
    *length = (size_t)snprintf(wanted->text, sizeof wanted->text, "%d", wanted->number * wanted->number);
    *value = wanted->text;
    wanted->computed++;
    return 1;
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, mneme_error());
    return 1;
}

int main(void)
{
    mneme_cache_t cache = mneme_cache_create(64 << 20, 100000);
    if (cache == NULL) return fail("create");
    struct wanted wanted = {0};
    char square[32];
    size_t length;
    for (int i = 0; i < 3000; i++) {
        wanted.number = i % 1000;
        if (mneme_cache_get(cache, &wanted.number, sizeof wanted.number, square, sizeof square, &length, compute,
                            &wanted) != 1)
            return fail("get");
    }
    printf("%.*s, computed %d times of 3000\n", (int)length, square, wanted.computed);
    /* The large job: its memory is there at once, in one piece, whatever the cache has in it. */
    char *memory = mneme_cache_claim(cache, 32 << 20);
    if (memory == NULL) return fail("claim");
    memset(memory, 1, 32 << 20);
    if (mneme_cache_release(cache, memory) != 0) return fail("release");
    return mneme_cache_destroy(cache);
}
