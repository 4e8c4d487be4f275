// A segment and its clone, which has its addresses: what takes one for the other is ended, in C and C++, where the
// compiler was told to tell them apart. Without a case it does what is right, and says so.
#include "check.h"
#include <pthread.h>

struct node {
    long value;
    struct node *next;
};

struct pair {
    struct node *first, *second;
};

static vhandle_t va, vc;  // The original's space, and the clone's.
static segid_t sa, sc;    // What is in them.
static struct node *kept; // Two nodes of the original, the second behind the first.
static struct pair both;
static struct node **heap;
static volatile long seen;
static volatile int truth = 1;

static NODE root_of(vhandle_t vh, segid_t sid)
{
    MUST(vas_switch(vh) == 0);
    struct node *root = (NODE)seg_root(sid);
    MUST(root != NULL && root->next != NULL);
    return root;
}

static void by_a_local(void)
{
    struct node *root = root_of(va, sa);
    MUST(vas_switch(vc) == 0);
    seen = root->value; // wrong: by_a_local: CLONE
}

static void written(void)
{
    struct node *root = root_of(va, sa);
    MUST(vas_switch(vc) == 0);
    root->value = 3; // wrong: written: CLONE
}

static void by_a_global(void)
{
    kept = root_of(va, sa);
    MUST(vas_switch(vc) == 0);
    seen = kept->value; // wrong: by_a_global: CLONE
}

static void by_the_heap(void)
{
    heap = (struct node **)malloc(8 * sizeof *heap);
    MUST(heap != NULL);
    heap[truth + 3] = root_of(va, sa);
    MUST(vas_switch(vc) == 0);
    seen = heap[truth + 3]->value; // wrong: by_the_heap: CLONE
}

static void by_a_copy(void)
{
    struct pair made = {root_of(va, sa), NULL};
    both = made;
    struct pair *copy = (struct pair *)malloc(sizeof *copy);
    MUST(copy != NULL);
    *copy = both;
    memcpy(&both, copy, truth ? sizeof both : 1);
    MUST(vas_switch(vc) == 0);
    seen = both.first->value; // wrong: by_a_copy: CLONE
}

static void loaded(void)
{
    struct node *next = root_of(va, sa)->next;
    MUST(vas_switch(vc) == 0);
    seen = next->value; // wrong: loaded: CLONE
}

static void either(void)
{
    struct node *one = root_of(va, sa)->next;
    struct node *other = root_of(vc, sc);
    seen = (truth ? one : other)->value; // wrong: either: CLONE
}

static void in_each_turn(void)
{
    vhandle_t spaces[2] = {va, vc};
    struct node *at = root_of(va, sa);
    for (int turn = 0; turn < 1 + truth; turn++) {
        MUST(vas_switch(spaces[turn]) == 0);
        seen = at->value; // wrong: in_each_turn: CLONE
        at = at->next;
    }
}

NOINLINE long value_of(const struct node *node)
{
    return node->value; // wrong: passed: CLONE
}

static void passed(void)
{
    struct node *root = root_of(va, sa);
    seen = value_of(root);
    MUST(vas_switch(vc) == 0);
    seen = value_of(root);
}

NOINLINE NODE second_of(vhandle_t vh, segid_t sid)
{
    return root_of(vh, sid)->next;
}

static void returned(void)
{
    struct node *second = second_of(va, sa);
    MUST(vas_switch(vc) == 0);
    seen = second->value; // wrong: returned: CLONE
}

static void cast_for_the_other(void)
{
    struct node *root = (NODE)vas_cast(root_of(va, sa), vc);
    MUST(root != NULL);
    seen = root->value; // wrong: cast_for_the_other: CLONE
}

static void stored(void)
{
    struct node *root = root_of(va, sa);
    root_of(vc, sc)->next = root; // wrong: stored: CLONE
}

static void by_the_library(void)
{
    struct node *root = root_of(va, sa);
    char copy[sizeof *root];
    MUST(vas_switch(vc) == 0);
    memcpy(copy, root, truth ? sizeof copy : 1); // wrong: by_the_library: CLONE
    seen = copy[0];
}

static void *follow_it(void *given)
{
    MUST(vas_switch(vc) == 0);
    seen = (*(struct node **)given)->value; // wrong: by_another_thread: CLONE
    return NULL;
}

static void by_another_thread(void)
{
    pthread_t thread;
    static struct node *given;
    given = root_of(va, sa);
    MUST(vas_switch(PRIMARY) == 0);
    // A pointer that a library hands over has no tag; here it is taken from where it lies.
    MUST(pthread_create(&thread, NULL, follow_it, &given) == 0);
    pthread_join(thread, NULL);
}

// ---- What is right: each pointer in its own, or cast.

static NOINLINE void right(void)
{
    struct node *original = root_of(va, sa), *clone = root_of(vc, sc);
    MUST(original == clone && clone->value == 1);
    clone->value = 2;
    for (int turn = 0; turn < 6; turn++) {
        MUST(vas_switch(turn % 2 ? vc : va) == 0);
        // The words are the same ones, with the same address in them.
        kept = turn % 2 ? clone : original;
        both.first = kept;
        struct pair copy = both;
        MUST(kept->value == 1 + turn % 2 && copy.first->value == kept->value);
        MUST(value_of(kept) == kept->value);
        kept->next->value = second_of(turn % 2 ? vc : va, turn % 2 ? sc : sa)->value;
    }
    MUST(vas_switch(va) == 0);
    struct node *second = original->next;
    second->next = original;
    struct node *there = (NODE)vas_cast(second, vc);
    MUST(vas_switch(vc) == 0 && there->next == NULL);
    MUST(vas_switch(PRIMARY) == 0);
}

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(by_a_local),
    CASE(written),
    CASE(by_a_global),
    CASE(by_the_heap),
    CASE(by_a_copy),
    CASE(loaded),
    CASE(either),
    CASE(in_each_turn),
    CASE(passed),
    CASE(returned),
    CASE(cast_for_the_other),
    CASE(stored),
    CASE(by_the_library),
    CASE(by_another_thread),
};

static void a_segment_and_its_clone(void)
{
    va = space_with("a", &sa);
    MUST(vas_switch(va) == 0);
    struct node *root = (NODE)seg_root(sa);
    if (root == NULL) {
        root = NEW(struct node);
        MUST(root != NULL);
        root->next = NEW(struct node);
        MUST(root->next != NULL && seg_set_root(sa, root) == 0);
    }
    root->value = 1;
    root->next->value = 10;
    root->next->next = NULL;
    MUST(vas_switch(PRIMARY) == 0);
    vasid_t vid = vas_find("c");
    sc = seg_find("c");
    if (vid == NULL) {
        vid = vas_create("c", 0600);
        sc = seg_clone_as(sa, "c");
        MUST(vid != NULL && sc != NULL && seg_attach(vid, sc) == 0);
    }
    MUST(seg_ctl(sc, SEG_ACCEPT) == 0);
    vc = vas_attach(vid);
    MUST(vc != NULL);
    root_of(vc, sc)->value = 1;
    MUST(vas_switch(PRIMARY) == 0);
}

int main(int count, char **words)
{
    a_segment_and_its_clone();
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        if (count == 2 && strcmp(cases[n].name, words[1]) == 0) cases[n].run();
    if (count == 1) right();
    printf("right\n");
    return 0;
}
