/* SPDX-License-Identifier: MIT OR GPL-2.0 */
#ifndef INTERNAL_H
#define INTERNAL_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/spinlock.h>
#include "vas.h"

/* An entry that leads to a table. Tables of a space are filled down to the second level, so that the kernel, when it
 * looks for a page that is not there, adds none of its own. */
#define TABLE_ENTRY (_PAGE_PRESENT | _PAGE_RW | _PAGE_USER | _PAGE_ACCESSED | _PAGE_DIRTY)

/* A process' window, made by the open file. */
struct window {
    struct kref uses; /* the file's and its threads' roots' */
    struct mm_struct *mm;
    struct mmu_notifier notifier, freeing;
    bool is_mapped; /* read under the lock of the slot, or of the roots, that is changed by it */
    struct file *space; /* that the slot leads to; under mm->page_table_lock */
    unsigned long home; /* what the slot holds when it does not */
    spinlock_t lock; /* its threads' roots */
    struct list_head roots;
};

int space_make(struct vas_make __user *at);
int space_extend(struct vas_extend __user *at);
int space_place(struct window *window, struct vas_place __user *at);
/* Whether a process may enter it. */
bool space_is_for(struct file *file, struct mm_struct *mm);
struct file *space_get(int descriptor);
unsigned long space_entry(struct file *space);

void window_put(struct window *window);
/* No CPU that runs the process has an entry of the window any more. */
void window_flush(struct window *window);
/* The entry of the window in a root. */
unsigned long *window_slot(pgd_t *root);

int roots_open(void);
void roots_close(void);
int roots_enter(struct window *window, struct file *space);
/* Takes all threads out of their spaces. */
void roots_leave(struct window *window);
/* Tables of the process are about to be freed. */
void roots_renew(struct window *window);
void roots_counts(struct vas_counts *counts);

#endif
