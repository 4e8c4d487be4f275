/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What the tests of all modules print: `@ok` or `@fail` for each promise, for `cargo xtask kernel`.
 */
#ifndef PROMISE_H
#define PROMISE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

static int failures;

static void promise(const char *what, int holds)
{
    printf("%s %s\n", holds ? "@ok" : "@fail", what);
    failures += !holds;
}

/* Without it the test cannot go on. */
static void need(const char *what, int holds)
{
    if (holds) return;
    printf("@fail %s: %s\n", what, strerror(errno));
    exit(1);
}

static int device(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    need(path, file >= 0);
    return file;
}

static int status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* Nanoseconds; instructions where the guest's clock counts them. */
static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

#endif
