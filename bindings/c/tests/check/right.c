// What is right, as C and as C++: no check ends it.
#include "check.h"
#include <mneme-check.h>
#include <pthread.h>

struct node {
    long value;
    struct node *next;
};

static vhandle_t va, vb;
static segid_t sa, sb;
static struct node *kept[2]; // What is stored in the common region is what it was.
static volatile int truth = 1;

// ---- The common region is followed and stored to at will.

static void common(void)
{
    struct node local = {1, NULL};
    struct node *heap = (NODE)malloc(sizeof *heap);
    MUST(heap != NULL && vas_switch(va) == 0);
    struct node *here = NEW(struct node);
    MUST(here != NULL);
    local.next = here;
    heap->next = &local;
    heap->value = 2;
    kept[0] = here;
    here->next = NULL;
    here->value = heap->next->value + heap->value;
    MUST(vas_switch(PRIMARY) == 0);
    MUST(heap->value == 2 && heap->next->next == kept[0]);
    free(heap);
}

// ---- Back in its space, a pointer is what it was.

static void there_and_back(void)
{
    MUST(vas_switch(vb) == 0);
    kept[1] = NEW(struct node);
    MUST(kept[1] != NULL);
    kept[1]->value = 4;
    kept[1]->next = NULL;
    vhandle_t spaces[2] = {va, vb};
    long sum = 0;
    for (int turn = 0; turn < 10; turn++) {
        MUST(vas_switch_as(spaces[turn % 2], READ) == 0);
        sum += kept[turn % 2]->value;
    }
    MUST(sum == 5 * (3 + 4));
    MUST(vas_switch(PRIMARY) == 0);
}

// ---- Several segments in one space; the paper allows pointers between them.

static void between_segments(void)
{
    MUST(seg_attach(va, sb) == 0 && vas_switch(va) == 0);
    struct node *one = (NODE)seg_calloc(sa, 1, sizeof *one);
    struct node *two = (NODE)seg_calloc(sb, 1, sizeof *two);
    MUST(one != NULL && two != NULL);
    one->next = truth ? two : one;
    one->next->value = 5;
    MUST(two->value == 5);
    one->next = NULL;
    MUST(vas_switch(PRIMARY) == 0 && seg_detach(va, sb) == 0);
}

// ---- The primary space, with a segment of its own.

static void *in_a_thread(void *argument)
{
    struct node *node = (NODE)argument;
    MUST(vas_switch_as(va, READ) == 0);
    long value = node->value;
    MUST(vas_switch(PRIMARY) == 0);
    return (void *)(uintptr_t)value;
}

static void in_the_primary_space(void)
{
    MUST(seg_attach(CURRENT, sa) == 0);
    kept[0]->value = 9;
    MUST(vas_cast(kept[0], PRIMARY) == kept[0]);
    MUST(seg_detach(CURRENT, sa) == 0);
    pthread_t thread;
    void *value;
    MUST(pthread_create(&thread, NULL, in_a_thread, kept[0]) == 0 && pthread_join(thread, &value) == 0);
    MUST((uintptr_t)value == 9);
}

// ---- A cast says where a pointer belongs, and is refused where it does not.

static void casts(void)
{
    MUST(vas_switch(va) == 0);
    struct node *cast = (NODE)vas_cast(kept[0], va);
    MUST(cast == kept[0] && cast->value == 9);
    REFUSED(MNEME_EOUTSIDE, vas_cast(kept[0], vb) == NULL);
    REFUSED(MNEME_EOUTSIDE, vas_cast(&sa, va) == NULL);
    REFUSED(MNEME_EHANDLE, vas_cast(kept[0], NULL) == NULL);
    MUST(vas_cast(NULL, va) == NULL);
    MUST(vas_switch(PRIMARY) == 0);
    int local = 3;
    int *same = (int *)vas_cast(&local, PRIMARY);
    MUST(same == &local && *same == 3);
    REFUSED(MNEME_EOUTSIDE, vas_cast(kept[0], PRIMARY) == NULL);
}

// ---- A handler hears of what is wrong, and the program goes on.

static int heard;

static void hear(const char *message)
{
    MUST(strstr(message, "mneme-check: ") == message && strstr(message, "right.c:") != NULL);
    heard++;
}

static void a_handler(void)
{
    void *volatile where = &heard;
    mneme_check_handler(hear);
    MUST(vas_switch(va) == 0);
    *(void **)kept[0] = where;
    MUST(heard == 1);
    kept[0]->value = 3;
    MUST(vas_switch(PRIMARY) == 0);
    mneme_check_handler(NULL);
}

int main(void)
{
    two_spaces(&va, &sa, &vb, &sb);
    common();
    there_and_back();
    between_segments();
    in_the_primary_space();
    casts();
    a_handler();
    MUST(vas_detach(va) == 0 && vas_detach(vb) == 0);
    printf("right\n");
    return 0;
}
