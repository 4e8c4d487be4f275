// A program of two files, of which one is compiled without the checks.
#include "check.h"

struct node {
    long value;
    struct node *next;
};

#ifdef __cplusplus
extern "C" {
#endif
struct node *plain_make(long value);          // Makes a node where the thread is.
long plain_value(const struct node *node);    // Follows it.
void plain_keep(struct node *node);           // Keeps it in the process' own memory
struct node *plain_kept(void);                // and gives it back.
void plain_switch(vhandle_t vh);              // Goes there.
void plain_store(struct node *to, void *any); // Stores a pointer in a node.
#ifdef __cplusplus
}
#endif
