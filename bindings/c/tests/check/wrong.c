// Wrong programs, one a case: `wrong CASE` is to be ended by a check. It is compiled as C and as C++. A comment
// `wrong: CASE: MESSAGE` stands at the line that the message has to name.
#include "check.h"
#include <mneme-check.h>
#include <pthread.h>

struct node {
    long value;
    struct node *next;
};

struct with_function {
    void (*function)(void);
};

static vhandle_t va, vb;    // Two spaces with a segment each,
static segid_t sa, sb;      // which are these.
static struct node *a, *b;  // A block in each.
static volatile long seen;  // What is read is used.
static volatile int truth = 1;
static long global = 7;

static void nothing(void)
{
}

static NODE make(vhandle_t vh)
{
    MUST(vas_switch(vh) == 0);
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    node->value = 1;
    node->next = NULL;
    return node;
}

// ---- A pointer of a space is followed in that space alone.

static void another_space(void)
{
    MUST(vas_switch(va) == 0);
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    MUST(vas_switch(vb) == 0);
    seen = node->value; // wrong: another_space: FOLLOWED
}

static void written_in_another_space(void)
{
    MUST(vas_switch(vb) == 0);
    a->value = 2; // wrong: written_in_another_space: FOLLOWED
}

static void changed_in_another_space(void)
{
    MUST(vas_switch(vb) == 0);
    __atomic_fetch_add(&a->value, 1, __ATOMIC_RELAXED); // wrong: changed_in_another_space: FOLLOWED
}

static void after_leaving(void)
{
    MUST(vas_switch(va) == 0);
    seen = a->value;
    MUST(vas_switch(PRIMARY) == 0);
    seen = a->value; // wrong: after_leaving: FOLLOWED
}

static void without_entering(void)
{
    seen = a->value; // wrong: without_entering: FOLLOWED
}

static void before_the_switch_back(void)
{
    MUST(vas_switch(va) == 0);
    struct node *node = a;
    for (int round = 0; round < 2; round++) {
        seen = node->value; // wrong: before_the_switch_back: FOLLOWED
        MUST(vas_switch(vb) == 0);
    }
}

static void after_detaching(void)
{
    MUST(seg_attach(CURRENT, sa) == 0);
    seen = a->value;
    MUST(seg_detach(CURRENT, sa) == 0);
    seen = a->value; // wrong: after_detaching: FOLLOWED
}

static void *follow_it(void *node)
{
    seen = ((struct node *)node)->value; // wrong: another_thread: FOLLOWED
    return NULL;
}

static void another_thread(void)
{
    pthread_t thread;
    MUST(vas_switch(va) == 0);
    MUST(pthread_create(&thread, NULL, follow_it, a) == 0);
    pthread_join(thread, NULL);
}

static void written_while_reading(void)
{
    MUST(vas_switch_as(va, READ) == 0);
    seen = a->value;
    a->value = 3; // wrong: written_while_reading: READING
}

static void by_the_library(void)
{
    char copy[sizeof(struct node)];
    MUST(vas_switch(vb) == 0);
    memcpy(copy, a, truth ? sizeof copy : 1); // wrong: by_the_library: FOLLOWED
    seen = copy[0];
}

static void by_strlen(void)
{
    MUST(vas_switch(vb) == 0);
    seen = (long)strlen((char *)a); // wrong: by_strlen: FOLLOWED
}

static void by_printf(void)
{
    MUST(vas_switch(vb) == 0);
    printf("%d: %s\n", 1, (char *)a); // wrong: by_printf: FOLLOWED
}

// ---- A pointer of a space is stored in that space alone.

static void stored_in_another_space(void)
{
    MUST(vas_switch(vb) == 0);
    b->next = a; // wrong: stored_in_another_space: ELSEWHERE
}

static void stored_stack(void)
{
    struct node local = {1, NULL};
    MUST(vas_switch(va) == 0);
    a->next = &local; // wrong: stored_stack: COMMON
    seen = a->next->value;
}

static void stored_global(void)
{
    MUST(vas_switch(va) == 0);
    a->next = (struct node *)(void *)&global; // wrong: stored_global: COMMON
}

static void stored_heap(void)
{
    struct node *node = (NODE)malloc(sizeof *node);
    MUST(node != NULL && vas_switch(va) == 0);
    a->next = node; // wrong: stored_heap: COMMON
}

static void stored_function(void)
{
    MUST(vas_switch(va) == 0);
    ((struct with_function *)a)->function = nothing; // wrong: stored_function: COMMON
}

static void stored_text(void)
{
    MUST(vas_switch(va) == 0);
    *(const char **)a = truth ? "text" : NULL; // wrong: stored_text: COMMON
}

static void stored_in_a_structure(void)
{
    struct node node = {1, truth ? (NODE)(void *)&global : NULL};
    MUST(vas_switch(va) == 0);
    *a = node; // wrong: stored_in_a_structure: COMMON
}

static void exchanged(void)
{
    MUST(vas_switch(va) == 0);
    __atomic_exchange_n(&a->next, (NODE)(void *)&global, __ATOMIC_RELAXED); // wrong: exchanged: COMMON
}

// ---- The instructions of figure 5.

static void by_arithmetic(void)
{
    MUST(vas_switch(va) == 0);
    struct node *some = (NODE)vas_malloc(8 * sizeof *some);
    MUST(some != NULL && vas_switch(vb) == 0);
    seen = some[truth + 3].value; // wrong: by_arithmetic: FOLLOWED
}

static void by_an_integer(void)
{
    uintptr_t number = (uintptr_t)a;
    MUST(vas_switch(vb) == 0);
    seen = ((struct node *)number)->value; // wrong: by_an_integer: FOLLOWED
}

static void either_pointer(void)
{
    MUST(vas_switch(va) == 0);
    struct node *mine = NEW(struct node);
    struct node *one = truth ? b : mine;
    seen = one->value; // wrong: either_pointer: FOLLOWED
}

static void either_space(void)
{
    MUST(vas_switch(va) == 0);
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    if (truth) MUST(vas_switch(vb) == 0);
    seen = node->value; // wrong: either_space: FOLLOWED
}

static void either_handle(void)
{
    MUST(vas_switch(truth ? vb : va) == 0);
    seen = a->value; // wrong: either_handle: FOLLOWED
}

static void loaded(void)
{
    MUST(vas_switch(va) == 0);
    a->next = NEW(struct node);
    struct node *next = a->next;
    MUST(next != NULL && vas_switch(vb) == 0);
    seen = next->value; // wrong: loaded: FOLLOWED
}

static NOINLINE long value_of(const struct node *node)
{
    return node->value; // wrong: passed: FOLLOWED
}

static void passed(void)
{
    MUST(vas_switch(va) == 0);
    seen = value_of(a);
    MUST(vas_switch(vb) == 0);
    seen = value_of(a);
}

static NOINLINE NODE made_elsewhere(void)
{
    NODE node = make(va);
    MUST(vas_switch(vb) == 0);
    return node;
}

static void returned(void)
{
    seen = made_elsewhere()->value; // wrong: returned: FOLLOWED
}

static void in_each_turn(void)
{
    vhandle_t spaces[2] = {va, vb};
    struct node *last = NULL;
    for (int turn = 0; turn < 1 + truth; turn++) {
        MUST(vas_switch(spaces[turn]) == 0);
        if (last != NULL) seen = last->value; // wrong: in_each_turn: FOLLOWED
        last = NEW(struct node);
        MUST(last != NULL);
    }
}

static void (*volatile chosen)(void);

static NOINLINE void go_to_b(void)
{
    MUST(vas_switch(vb) == 0);
}

static void by_a_function_pointer(void)
{
    chosen = go_to_b;
    MUST(vas_switch(va) == 0);
    struct node *node = NEW(struct node);
    MUST(node != NULL);
    chosen();
    seen = node->value; // wrong: by_a_function_pointer: FOLLOWED
}

static void unnoticed_failure(void)
{
    MUST(vas_detach(vb) == 0);
    vas_switch(vb); // wrong: unnoticed_failure: SWITCH
}

#ifdef __cplusplus
struct animal {
    virtual long legs() const { return 4; }
    virtual ~animal() {}
};

static void stored_object(void)
{
    MUST(vas_switch(va) == 0);
    void *place = vas_malloc(sizeof(animal));
    MUST(place != NULL);
    seen = (new (place) animal)->legs();
}
#endif

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(another_space),
    CASE(written_in_another_space),
    CASE(changed_in_another_space),
    CASE(after_leaving),
    CASE(without_entering),
    CASE(before_the_switch_back),
    CASE(after_detaching),
    CASE(another_thread),
    CASE(written_while_reading),
    CASE(by_the_library),
    CASE(by_strlen),
    CASE(by_printf),
    CASE(stored_in_another_space),
    CASE(stored_stack),
    CASE(stored_global),
    CASE(stored_heap),
    CASE(stored_function),
    CASE(stored_text),
    CASE(stored_in_a_structure),
    CASE(exchanged),
    CASE(by_arithmetic),
    CASE(by_an_integer),
    CASE(either_pointer),
    CASE(either_space),
    CASE(either_handle),
    CASE(loaded),
    CASE(passed),
    CASE(returned),
    CASE(in_each_turn),
    CASE(by_a_function_pointer),
    CASE(unnoticed_failure),
#ifdef __cplusplus
    CASE(stored_object),
#endif
};

int main(int count, char **words)
{
    MUST(count == 2);
    two_spaces(&va, &sa, &vb, &sb);
    a = make(va);
    b = make(vb);
    MUST(vas_switch(PRIMARY) == 0);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        if (strcmp(cases[n].name, words[1]) == 0) cases[n].run();
    return 0; // Nothing was wrong, or there is no such case.
}
