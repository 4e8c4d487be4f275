// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A space: page tables for the window, built from the pages of a file on tmpfs, and shared by all processes that enter
 * it; or made of the tables of other spaces, by one process for itself.
 *
 * The space is a file of its own. A slot or a root that leads to its tables has a reference to it, given back after the
 * entry is gone from all TLBs.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

struct space {
    unsigned long *top; /* 512 entries of 1 GiB */
    unsigned long *nothing; /* an empty table for those behind the end */
    struct mutex lock; /* extending, placing */
    struct file *data; /* NULL: others are placed in it */
    u64 pages;
    unsigned int units; /* entries with tables of its own: what `data` may reach */
    struct mm_struct *owner; /* that may place others in it; compared alone */
    struct file *placed[PTRS_PER_PUD]; /* whose tables an entry leads to */
};

static unsigned long *new_table(void)
{
    return (unsigned long *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
}

static unsigned long *table_at(unsigned long entry)
{
    return entry ? __va(entry & PTE_PFN_MASK) : NULL;
}

/* The table that an entry leads to; makes it. */
static unsigned long *below(unsigned long *entry)
{
    if (!*entry) {
        unsigned long *made = new_table();

        if (!made)
            return NULL;
        *entry = __pa(made) | TABLE_ENTRY;
    }
    return table_at(*entry);
}

static void free_space(struct space *space)
{
    unsigned int first, second, third;

    for (first = 0; first < PTRS_PER_PUD; first++) {
        if (space->placed[first])
            fput(space->placed[first]);
    }
    for (first = 0; space->top && first < space->units; first++) {
        unsigned long *middle = table_at(space->top[first]);

        for (second = 0; middle && second < PTRS_PER_PMD; second++) {
            unsigned long *last = table_at(middle[second]);

            for (third = 0; last && third < PTRS_PER_PTE; third++) {
                struct page *page;

                if (!last[third])
                    continue;
                page = pfn_to_page((last[third] & PTE_PFN_MASK) >> PAGE_SHIFT);
                /* Writes by way of the window leave no trace that the kernel would look at. */
                if (last[third] & _PAGE_RW)
                    set_page_dirty_lock(page);
                put_page(page);
            }
            free_page((unsigned long)last);
        }
        free_page((unsigned long)middle);
    }
    free_page((unsigned long)space->top);
    free_page((unsigned long)space->nothing);
    if (space->data) {
        if (space->data->f_mode & FMODE_WRITE)
            mapping_unmap_writable(space->data->f_mapping);
        fput(space->data);
    }
    kfree(space);
}

/* Without memory an allocation fails; no process is ended for it. */
#define ENDS_WITHOUT (__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* Tables down to the second level, everywhere. */
static int lay_out(struct space *space)
{
    unsigned int first;

    space->top = new_table();
    space->nothing = new_table();
    if (!space->top || !space->nothing)
        return -ENOMEM;
    for (first = 0; first < PTRS_PER_PUD; first++) {
        if (first >= space->units)
            space->top[first] = __pa(space->nothing) | TABLE_ENTRY;
        else if (!below(&space->top[first]))
            return -ENOMEM;
    }
    return 0;
}

/* Maps the file's pages up to that one. */
static int fill(struct space *space, u64 pages)
{
    struct address_space *mapping = space->data->f_mapping;
    unsigned long bits = TABLE_ENTRY | _PAGE_SPECIAL | _PAGE_NX;
    u64 present = mapping->nrpages;

    if (!(space->data->f_mode & FMODE_WRITE))
        bits &= ~(_PAGE_RW | _PAGE_DIRTY);
    /* A file with holes gets them filled. */
    if (pages > present && pages - present > si_mem_available())
        return -ENOMEM;
    for (; space->pages < pages; space->pages++) {
        unsigned long *middle, *last;
        struct page *page;
        u64 number = space->pages;

        if (fatal_signal_pending(current))
            return -EINTR;
        cond_resched();
        middle = table_at(space->top[number >> 18]);
        last = below(&middle[(number >> 9) & 511]);
        if (!last)
            return -ENOMEM;
        page = shmem_read_mapping_page_gfp(mapping, number, mapping_gfp_mask(mapping) | ENDS_WITHOUT);
        if (IS_ERR(page))
            return PTR_ERR(page);
        WRITE_ONCE(last[number & 511], page_to_pfn(page) << PAGE_SHIFT | bits);
    }
    return 0;
}

static int space_release(struct inode *inode, struct file *file)
{
    free_space(file->private_data);
    return 0;
}

static const struct file_operations space_file = {
    .owner = THIS_MODULE,
    .release = space_release,
    .llseek = noop_llseek,
};

static bool is_long_enough(struct file *data, u64 bytes)
{
    return bytes % PAGE_SIZE == 0 && bytes <= i_size_read(file_inode(data));
}

static int take_data(struct space *space, const struct vas_make *asked)
{
    struct file *data = fget(asked->file);
    int result = -EINVAL;

    if (!data)
        return -EBADF;
    if (shmem_mapping(data->f_mapping) && (data->f_mode & FMODE_READ) && asked->bytes &&
        is_long_enough(data, asked->bytes) && asked->most >= asked->bytes && asked->most <= VAS_BYTES)
        result = data->f_mode & FMODE_WRITE ? mapping_map_writable(data->f_mapping) : 0;
    if (result) {
        fput(data);
        return result;
    }
    /* Its pages are in no list that memory is reclaimed from. */
    mapping_set_unevictable(data->f_mapping);
    space->data = data;
    space->units = DIV_ROUND_UP(asked->most, VAS_UNIT);
    return 0;
}

int space_make(struct vas_make __user *at)
{
    struct vas_make asked;
    struct space *space;
    int result = 0;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    space = kzalloc(sizeof(*space), GFP_KERNEL_ACCOUNT);
    if (!space)
        return -ENOMEM;
    mutex_init(&space->lock);
    if (asked.file == -1 && !asked.bytes)
        space->owner = current->mm;
    else
        result = take_data(space, &asked);
    if (!result)
        result = lay_out(space);
    if (!result && space->data)
        result = fill(space, asked.bytes / PAGE_SIZE);
    if (!result)
        result = anon_inode_getfd("[mneme-vas]", &space_file, space, O_RDWR | O_CLOEXEC);
    if (result < 0)
        free_space(space);
    return result;
}

int space_extend(struct vas_extend __user *at)
{
    struct vas_extend asked;
    struct file *file;
    struct space *space;
    int result = -EINVAL;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    file = space_get(asked.space);
    if (!file)
        return -EBADF;
    space = file->private_data;
    mutex_lock(&space->lock);
    if (space->data && is_long_enough(space->data, asked.bytes) && asked.bytes <= space->units * VAS_UNIT)
        result = fill(space, asked.bytes / PAGE_SIZE);
    mutex_unlock(&space->lock);
    fput(file);
    return result;
}

/* Replaces the entries; what was there is to be given back when no TLB has it. */
static int place(struct space *into, struct file *what, const struct vas_place *asked, struct file **before)
{
    struct space *shown = what ? what->private_data : NULL;
    unsigned int at;

    if (into->owner != current->mm || (shown && !shown->data) || asked->first >= PTRS_PER_PUD || !asked->units ||
        asked->units > PTRS_PER_PUD - asked->first || (shown && shown->units > asked->units))
        return -EINVAL;
    for (at = 0; at < asked->units; at++) {
        bool is_shown = shown && at < shown->units;
        unsigned int entry = asked->first + at;

        WRITE_ONCE(into->top[entry], is_shown ? shown->top[at] : __pa(into->nothing) | TABLE_ENTRY);
        before[at] = into->placed[entry];
        into->placed[entry] = is_shown ? get_file(what) : NULL;
    }
    return 0;
}

int space_place(struct window *window, struct vas_place __user *at)
{
    struct vas_place asked;
    struct file *into, *what = NULL, **before;
    int result = -EBADF;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    before = kcalloc(PTRS_PER_PUD, sizeof(*before), GFP_KERNEL);
    if (!before)
        return -ENOMEM;
    into = space_get(asked.into);
    if (asked.what != -1)
        what = space_get(asked.what);
    if (into && (what || asked.what == -1)) {
        struct space *space = into->private_data;

        mutex_lock(&space->lock);
        result = place(space, what, &asked, before);
        mutex_unlock(&space->lock);
    }
    if (!result) {
        unsigned int unit;
        bool is_seen = false;

        /* Where nothing was, no TLB has an entry. A CPU that remembers the way to the empty table faults, which makes
         * it forget that; the kernel finds the page present then. */
        for (unit = 0; unit < asked.units; unit++)
            is_seen |= before[unit] != NULL;
        if (is_seen)
            window_flush(window);
        for (unit = 0; unit < asked.units; unit++) {
            if (before[unit])
                fput(before[unit]);
        }
    }
    if (what)
        fput(what);
    if (into)
        fput(into);
    kfree(before);
    return result;
}

bool space_is_for(struct file *file, struct mm_struct *mm)
{
    struct space *space = file->private_data;

    return space->data || space->owner == mm;
}

struct file *space_get(int descriptor)
{
    struct file *file = fget(descriptor);

    if (file && file->f_op != &space_file) {
        fput(file);
        return NULL;
    }
    return file;
}

unsigned long space_entry(struct file *file)
{
    struct space *space = file->private_data;

    return __pa(space->top) | TABLE_ENTRY;
}
