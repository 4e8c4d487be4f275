/*
 * mneme-check.h: what a program may say to the checks of pointers. docs/guides/c-checks.md is the guide.
 */
#ifndef MNEME_CHECK_H
#define MNEME_CHECK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls `handler` with a line about each wrong access, instead of printing it and ending the program by abort(). After
 * it returns, the access takes place. It runs in the thread of the access and may call anything; NULL: as before. */
void mneme_check_handler(void (*handler)(const char *message));

/* How many checks the calling thread has run. */
unsigned long mneme_checks_run(void);

#ifdef __cplusplus
}
#endif

#endif
