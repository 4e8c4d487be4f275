/* What the programs of the tests expect of a call. */
#include <mneme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The program ends with the line and the error unless this holds. */
#define MUST(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s: %d %s\n", __LINE__, #what, mneme_code(), mneme_error()); \
            exit(2); \
        } \
    } while (0)

/* A call fails with this code, and says why. */
#define REFUSED(code, what) \
    do { \
        MUST(what); \
        MUST(mneme_code() == (code) && mneme_error()[0] != 0); \
    } while (0)

/* A text and its length, as two arguments. */
#define TEXT(text) (text), strlen(text)
