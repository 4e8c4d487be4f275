// Compiled with the checks: what goes through the other file is right here, until `wrong` is asked for.
#include "half.h"

static volatile long seen;

int main(int count, char **words)
{
    vhandle_t va, vb;
    segid_t sa, sb;
    (void)words;
    two_spaces(&va, &sa, &vb, &sb);
    plain_switch(va);
    struct node *a = plain_make(1), *mine = NEW(struct node);
    MUST(mine != NULL);
    mine->value = 2;
    mine->next = a;
    plain_keep(mine);
    plain_switch(vb);
    struct node *b = plain_make(3);
    MUST(b->value == 3);
    plain_switch(va);
    MUST(plain_kept()->value == 2 && plain_kept()->next->value == 1 && plain_value(mine) == 2);
    plain_switch(vb);
    // What only the other file does wrong is not seen.
    plain_store(b, &sa);
    if (count > 1) seen = a->value; // wrong: half: FOLLOWED
    plain_switch(PRIMARY);
    printf("right\n");
    return 0;
}
