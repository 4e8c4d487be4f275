/* Figure 4 of the SpaceJMP paper (El Hajj et al., ASPLOS 2016), line by line, with the errors looked at. */
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, mneme_error());
    exit(1);
}

typedef long type;

int main(void)
{
    type *t;
    vasid_t vid;
    vhandle_t vh;
    segid_t sid;
    void *va;
    size_t sz;

    /* The left column: somebody makes a space with a segment. The paper's address is 0xC0DE; here it has to lie in the
     * registry's window, so we take its first. */
    if (mneme_window(&va, NULL) != 0) stop("window");
    sz = (1UL << 35);
    vid = vas_create("v0", 660);
    if (vid == NULL) stop("vas_create");
    sid = seg_alloc("s0", va, sz, 660);
    if (sid == NULL) stop("seg_alloc");
    if (seg_attach(vid, sid) != 0) stop("seg_attach");

    /* The right column: somebody uses it. */
    vid = vas_find("v0");
    vh = vas_attach(vid);
    if (vas_switch(vh) != 0) stop("vas_switch");
    t = vas_malloc(sizeof *t);
    if (t == NULL) stop("vas_malloc");
    *t = 42;

    printf("%ld at %s\n", *t, (char *)t >= (char *)va && (char *)t < (char *)va + sz ? "its address" : "another");
    if (vas_switch(PRIMARY) != 0) stop("vas_switch");
    return 0;
}
