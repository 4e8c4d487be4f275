/* Threads and processes add to one number; nothing is lost, though nobody uses an atomic operation. */
#include <mneme.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

enum { THREADS = 3, TIMES = 2000 };

static vhandle_t vh;
static segid_t sid;

static void *add(void *nothing)
{
    for (int i = 0; i < TIMES; i++) {
        MUST(vas_switch(vh) == 0);
        long *number = seg_root(sid);
        *(volatile long *)number = *number + 1;
        MUST(vas_switch(PRIMARY) == 0);
    }
    return nothing;
}

/* Tries to be inside too, and says what came of it. */
static void *try_it(void *code)
{
    MUST(mneme_timeout(20) == 0);
    vhandle_t other = vas_attach(vas_find("v"));
    MUST(other && other != vh);
    *(int *)code = vas_switch_as(other, *(int *)code) == 0 ? 0 : mneme_code();
    MUST(vas_switch(PRIMARY) == 0 && vas_detach(other) == 0);
    return NULL;
}

static int trying(int access)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, try_it, &access) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    return access;
}

int main(int count, char **arguments)
{
    MUST(mneme_timeout(60000) == 0);
    if (count > 1 && strcmp(arguments[1], "make") == 0) {
        vasid_t made = vas_create("v", 0600);
        sid = seg_alloc("s", NULL, 1 << 24, 0600);
        MUST(made && sid && seg_attach(made, sid) == 0);
    }
    vh = vas_attach(vas_find("v"));
    sid = seg_find("s");
    MUST(vh && sid);
    if (count > 1 && strcmp(arguments[1], "wait") == 0) {
        MUST(vas_switch(vh) == 0);
        MUST(trying(READ) == MNEME_ESTALLED && trying(READ | WRITE) == MNEME_ESTALLED);
        MUST(vas_switch_as(vh, READ) == 0);
        MUST(trying(READ) == 0 && trying(READ | WRITE) == MNEME_ESTALLED);
        MUST(vas_switch(PRIMARY) == 0);
        MUST(trying(READ | WRITE) == 0);
        return 0;
    }
    if (count > 1) {
        MUST(vas_switch(vh) == 0);
        if (seg_root(sid) == NULL) MUST(seg_set_root(sid, vas_calloc(1, sizeof(long))) == 0);
        printf("%ld\n", *(long *)seg_root(sid));
        return vas_switch(PRIMARY);
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, add, NULL) == 0);
    for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
    return 0;
}
