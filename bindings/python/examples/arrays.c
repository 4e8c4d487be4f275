/* The arrays that Python has put into a segment: `arrays SEGMENT` lists them, with the sum of those of '<f8';
 * `arrays SEGMENT NAME` adds 1 to each number of one. */
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layout, as docs/guides/python.md draws it. */
struct mneme_array {
    uint64_t *shape; /* `dimensions` numbers; then the name; then the descr */
    uint32_t dimensions, name_bytes, descr_bytes, reserved;
    void *data; /* in C order, 64-byte aligned */
    uint64_t bytes;
};

struct mneme_arrays {
    char magic[8]; /* "mnemarr1" */
    uint64_t count, capacity;
    struct mneme_array *entries; /* in no order */
};

static void stop(const char *what)
{
    fprintf(stderr, "arrays: %s: %s\n", what, mneme_error());
    exit(1);
}

static void list(const struct mneme_array *array)
{
    const char *name = (const char *)(array->shape + array->dimensions);
    const char *descr = name + array->name_bytes;
    printf("%.*s %.*s", (int)array->name_bytes, name, (int)array->descr_bytes, descr);
    for (uint32_t i = 0; i < array->dimensions; i++)
        printf(" %llu", (unsigned long long)array->shape[i]);
    if (array->descr_bytes == 5 && memcmp(descr, "'<f8'", 5) == 0) {
        const double *numbers = array->data;
        double sum = 0;
        for (uint64_t i = 0; i < array->bytes / sizeof *numbers; i++) sum += numbers[i];
        printf(" sum %g", sum);
    }
    printf("\n");
}

static int add(const struct mneme_array *array, const char *wanted)
{
    const char *name = (const char *)(array->shape + array->dimensions);
    const char *descr = name + array->name_bytes;
    if (array->name_bytes != strlen(wanted) || memcmp(name, wanted, array->name_bytes) != 0) return 0;
    if (array->descr_bytes != 5 || memcmp(descr, "'<f8'", 5) != 0) return 0;
    double *numbers = array->data;
    for (uint64_t i = 0; i < array->bytes / sizeof *numbers; i++) numbers[i] += 1;
    return 1;
}

int main(int count, char **words)
{
    if (count != 2 && count != 3) {
        fprintf(stderr, "arrays SEGMENT [NAME]\n");
        return 2;
    }
    segid_t sid = seg_find(words[1]);
    if (sid == NULL) stop("seg_find");
    /* From here on no process changes the segment, or reads it in a section. */
    if (seg_attach(CURRENT, sid) != 0) stop("seg_attach");
    const struct mneme_arrays *arrays = seg_root(sid);
    if (arrays == NULL || memcmp(arrays->magic, "mnemarr1", 8) != 0) stop("no arrays");
    int changed = 0;
    for (uint64_t i = 0; i < arrays->count; i++) {
        if (count == 2) list(&arrays->entries[i]);
        else changed += add(&arrays->entries[i], words[2]);
    }
    if (seg_detach(CURRENT, sid) != 0) stop("seg_detach");
    return count == 3 && changed == 0;
}
