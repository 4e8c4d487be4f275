/* Counts visits in the store `visits`, beside other programs: a page's name adds one, nothing lists them all. */
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, mneme_error());
    return 1;
}

/* Called with a copy of the present count, or NULL; again if somebody else was faster. */
static int one_more(const void *old, size_t length, mneme_change_t *change, void *data)
{
    char *text = data;
    long count = 0;
    if (old != NULL && length < 32) {
        memcpy(text, old, length);
        text[length] = '\0';
        count = atol(text);
    }
    change->value = text;
    change->length = (size_t)snprintf(text, 32, "%ld", count + 1);
    return MNEME_REPLACE;
}

static int show(const void *key, size_t key_length, const void *value, size_t length, void *data)
{
    (void)data;
    printf("%.*s: %.*s\n", (int)key_length, (const char *)key, (int)length, (const char *)value);
    return 0;
}

int main(int count, char **arguments)
{
    const char *page = count > 1 ? arguments[1] : NULL;
    if (page != NULL && strcmp(page, "make") == 0) {
        mneme_options_t options = {.capacity = 64 << 20, .perms = 0660};
        return mneme_create("visits", &options) ? 0 : fail("make");
    }
    mneme_store_t store = mneme_attach("visits", page ? MNEME_READ | MNEME_WRITE : MNEME_READ);
    if (store == NULL) return fail("attach");
    if (page != NULL) {
        char text[32];
        if (mneme_update(store, page, strlen(page), one_more, text) < 0) return fail("update");
        size_t length;
        if (mneme_get(store, page, strlen(page), text, sizeof text, &length) < 0) return fail("get");
        printf("%s: %.*s\n", page, (int)length, text);
    }
    uint64_t cursor = page ? MNEME_SCAN_END : MNEME_SCAN_START;
    while (cursor != MNEME_SCAN_END) {
        if (mneme_scan(store, &cursor, 100, show, NULL) < 0) return fail("scan");
    }
    return mneme_detach(store);
}
