/* Figure 42 of the dissertation: Alice makes a segment with data, and a space for others to attach. */
#include "shared_data.h"
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *what)
{
    fprintf(stderr, "alice: %s: %s\n", what, mneme_error());
    exit(1);
}

int main(void)
{
    const size_t SIZE = 1 << 30;
    /* NULL: an address that no other segment has. The dissertation's is a constant. */
    sid_t sid = seg_alloc("data", NULL, SIZE, READ | WRITE);
    if (sid == NULL) stop("seg_alloc");

    if (seg_attach(CURRENT, sid) != 0) stop("seg_attach");
    /* initialize data */
    struct data *d = seg_malloc(sid, sizeof *d);
    if (d == NULL) stop("seg_malloc");
    strcpy(d->greeting, "hello, Bob");
    d->word = d->greeting + 7;
    if (seg_set_root(sid, d) != 0) stop("seg_set_root");
    if (seg_detach(CURRENT, sid) != 0) stop("seg_detach");

    vid_t vid = vas_create("shared", READ | WRITE);
    if (vid == NULL) stop("vas_create");
    if (seg_attach(vid, sid) != 0) stop("seg_attach");
    /* give "shared" string to others */
    printf("shared\n");
    return 0;
}
