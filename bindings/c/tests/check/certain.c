// What is wrong whatever happens at run time: the compiler says so where `warned` stands. It is never run.
#include "check.h"

struct node {
    long value;
    struct node *next;
};

static volatile long seen;
static long global;
static segid_t sa, sb;

int main(void)
{
    struct node local = {1, NULL};
    vhandle_t va, vb;
    two_spaces(&va, &sa, &vb, &sb);
    MUST(vas_switch_as(va, READ | WRITE) == 0);
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    node->value = 1;
    node->next = (NODE)(void *)&global; // warned: in main: a pointer to the process' own memory (global) is stored in a segment
    *(struct node **)vas_malloc(8) = &local; // warned: in main: a pointer to the process' own memory is stored in a segment
    seen = local.value;
    MUST(vas_switch_as(va, READ) == 0);
    struct node *root = (NODE)seg_root(sa);
    MUST(root != NULL);
    root->value = 2; // warned: in main: a segment that was entered for reading is written
    MUST(vas_switch(PRIMARY) == 0);
    seen = node->value; // warned: in main: a pointer into a segment is followed outside of every space
    return 0;
}
