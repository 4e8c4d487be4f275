// A list in a segment, `list NODES ROUNDS`: what is proven is not checked. It prints the sum of all walks, and how many
// checks ran.
#include "check.h"
#ifdef MNEME_CHECKED
#include <mneme-check.h>
#else
#define mneme_checks_run() 0UL
#endif

struct node {
    long value;
    struct node *next;
};

static NOINLINE struct node *push(struct node *head, long value)
{
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    node->value = value;
    node->next = head;
    return node;
}

static NOINLINE long sum_of(const struct node *node)
{
    long sum = 0;
    for (; node != NULL; node = node->next) sum += node->value;
    return sum;
}

int main(int count, char **words)
{
    vhandle_t va, vb;
    segid_t sa, sb;
    MUST(count == 3);
    two_spaces(&va, &sa, &vb, &sb);
    MUST(vas_switch(va) == 0);
    struct node *head = NULL;
    for (long value = 0; value < atol(words[1]); value++) head = push(head, value);
    MUST(seg_set_root(sa, head) == 0);
    MUST(vas_switch(PRIMARY) == 0);

    MUST(vas_switch_as(va, READ) == 0);
    long sum = 0;
    for (long round = 0; round < atol(words[2]); round++) sum += sum_of((NODE)seg_root(sa));
    MUST(vas_switch(PRIMARY) == 0);
    printf("%ld, %lu checks\n", sum, mneme_checks_run());
    return 0;
}
