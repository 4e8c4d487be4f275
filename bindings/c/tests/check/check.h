// What the programs that are compiled with the checks have in common: C and C++.
#ifndef CHECK_H
#define CHECK_H

#include "../c/must.h"
#include <stdint.h>

#ifdef __cplusplus
#include <new>
#endif

#define NODE struct node *
#define NEW(type) ((type *)vas_malloc(sizeof(type)))
#define NOINLINE __attribute__((noinline))

// A space with a segment of its own: made by the first process, attached by each.
static vhandle_t space_with(const char *name, segid_t *sid)
{
    vasid_t vid = vas_find(name);
    *sid = seg_find(name);
    if (vid == NULL) {
        vid = vas_create(name, 0600);
        *sid = seg_alloc(name, NULL, 1 << 26, 0600);
        MUST(vid != NULL && *sid != NULL && seg_attach(vid, *sid) == 0);
    }
    // A program that a check has ended leaves it poisoned.
    MUST(*sid != NULL && seg_ctl(*sid, SEG_ACCEPT) == 0);
    vhandle_t vh = vas_attach(vid);
    MUST(vh != NULL);
    return vh;
}

static inline void two_spaces(vhandle_t *va, segid_t *sa, vhandle_t *vb, segid_t *sb)
{
    *va = space_with("a", sa);
    *vb = space_with("b", sb);
}

#endif
