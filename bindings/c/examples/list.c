/* A linked list that is there again in the next run: `list WORD...` appends words and prints all that there are. */
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *next;
    char word[];
};

struct list {
    struct node *first;
    struct node **end; /* Where the next node goes. */
};

static void stop(const char *what)
{
    fprintf(stderr, "list: %s: %s\n", what, mneme_error());
    exit(1);
}

/* The space with its segment, made in the first run. */
static vasid_t space(void)
{
    vasid_t vid = vas_find("list");
    if (vid == NULL && mneme_code() == MNEME_ENOTFOUND) {
        vid = vas_create("list", 0600);
        segid_t sid = seg_alloc("list", NULL, 1 << 30, 0600);
        if (vid == NULL || sid == NULL || seg_attach(vid, sid) != 0) stop("making it");
    }
    if (vid == NULL) stop("vas_find");
    return vid;
}

int main(int count, char **words)
{
    vhandle_t vh = vas_attach(space());
    if (vh == NULL) stop("vas_attach");
    segid_t sid = seg_find("list");

    /* From here on nobody else is inside, in any process. */
    if (vas_switch(vh) != 0) stop("vas_switch");
    struct list *list = seg_root(sid);
    if (list == NULL) {
        list = vas_malloc(sizeof *list);
        if (list == NULL) stop("vas_malloc");
        list->first = NULL;
        list->end = &list->first;
        if (seg_set_root(sid, list) != 0) stop("seg_set_root");
    }
    for (int i = 1; i < count; i++) {
        struct node *node = vas_malloc(sizeof *node + strlen(words[i]) + 1);
        if (node == NULL) stop("vas_malloc");
        strcpy(node->word, words[i]);
        node->next = NULL;
        *list->end = node;
        list->end = &node->next;
    }
    if (vas_switch(PRIMARY) != 0) stop("vas_switch");

    /* To print, others may read beside us. */
    if (vas_switch_as(vh, READ) != 0) stop("vas_switch_as");
    for (struct node *node = list->first; node != NULL; node = node->next) printf("%s\n", node->word);
    return vas_switch(PRIMARY) == 0 && vas_detach(vh) == 0 ? 0 : 1;
}
