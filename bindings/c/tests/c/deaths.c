/* Ends in the middle of a change, in the way that the first argument says; or looks what others left. */
#define _POSIX_C_SOURCE 200809L
#include <mneme.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

static vhandle_t vh;

static void *end_inside(void *nothing)
{
    MUST(vas_switch(vh) == 0);
    return nothing;
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    if (strcmp(how, "make") == 0) {
        vasid_t made = vas_create("v", 0600);
        segid_t sid = seg_alloc("s", NULL, 1 << 24, 0600);
        MUST(made && sid && seg_attach(made, sid) == 0);
        return 0;
    }
    vasid_t vid = vas_find("v");
    segid_t sid = seg_find("s");
    MUST(vid && sid);
    vh = vas_attach(vid);
    MUST(vh);

    if (strcmp(how, "look") == 0) {
        if (vas_switch(vh) == 0) {
            printf("whole, %s\n", seg_root(sid) ? "with a root" : "without a root");
            return vas_switch(PRIMARY);
        }
        MUST(mneme_code() == MNEME_EPOISONED);
        MUST(vas_current() == PRIMARY);
        seg_stat_t stat;
        MUST(seg_ctl(sid, SEG_STAT, &stat) == 0 && stat.poisoned == 1);
        printf("poisoned\n");
        return 0;
    }
    if (strcmp(how, "rebuild") == 0) {
        MUST(seg_ctl(sid, SEG_REBUILD) == 0);
        return 0;
    }
    if (strcmp(how, "accept") == 0) {
        MUST(seg_ctl(sid, SEG_ACCEPT) == 0);
        MUST(seg_ctl(sid, SEG_CHECK) == 0);
        return 0;
    }

    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, end_inside, NULL) == 0);
        MUST(pthread_join(thread, NULL) == 0);
        /* The locks are free again, and the process lives. */
        MUST(vas_switch(vh) == -1 && mneme_code() == MNEME_EPOISONED);
        return 0;
    }
    if (strcmp(how, "reader") == 0) {
        MUST(vas_switch_as(vh, READ) == 0);
        raise(SIGKILL);
    }
    MUST(vas_switch(vh) == 0);
    void *block = vas_malloc(100);
    MUST(block && seg_set_root(sid, block) == 0);
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "exit") == 0) exit(0);
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            /* It says so, and its end is nobody's end. */
            int refused = vas_switch(PRIMARY) == -1 && mneme_code() == MNEME_EFORKED;
            refused = refused && vas_malloc(1) == NULL && mneme_code() == MNEME_EFORKED;
            exit(refused ? 0 : 3);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        MUST(vas_malloc(100) != NULL);
    }
    MUST(vas_switch(PRIMARY) == 0);
    return 0;
}
