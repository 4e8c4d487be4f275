// Compiled without the checks.
#include "half.h"

static struct node *kept;

struct node *plain_make(long value)
{
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    node->value = value;
    node->next = NULL;
    return node;
}

long plain_value(const struct node *node)
{
    return node->value;
}

void plain_keep(struct node *node)
{
    kept = node;
}

struct node *plain_kept(void)
{
    return kept;
}

void plain_switch(vhandle_t vh)
{
    MUST(vas_switch(vh) == 0);
}

void plain_store(struct node *to, void *any)
{
    to->next = (NODE)any;
}
