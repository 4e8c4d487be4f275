/* Figure 43 of the dissertation: Bob attaches the space, and uses what Alice left there. */
#include "shared_data.h"
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>

static void stop(const char *what)
{
    fprintf(stderr, "bob: %s: %s\n", what, mneme_error());
    exit(1);
}

int main(void)
{
    vid_t vid = vas_find("shared");
    if (vid == NULL) stop("vas_find");
    vh_t vh = vas_attach(vid);
    if (vh == NULL) stop("vas_attach");
    if (vas_switch(vh) != 0) stop("vas_switch");

    /* now segment is accessible */
    struct data *d = seg_root(seg_find("data"));
    if (d == NULL) stop("seg_root");
    /* use 'd' */
    printf("%s: %s\n", d->greeting, d->word);

    if (vas_switch(PRIMARY) != 0) stop("vas_switch");
    /* Nobody keeps others from 'd' now: do not touch it. */
    return 0;
}
