// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A space: page tables for the window, built once from the pages of a file on tmpfs, and shared by all processes that
 * enter it.
 *
 * The space is a file of its own. A slot or a root that leads to its tables has a reference to it, given back after the
 * entry is gone from all TLBs.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

struct space {
    unsigned long *top; /* 512 entries of 1 GiB */
    unsigned long *nothing; /* an empty table for those behind the end */
    struct file *data;
    u64 pages;
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

    for (first = 0; space->top && first < PTRS_PER_PUD; first++) {
        unsigned long *middle = table_at(space->top[first]);

        if (!middle || middle == space->nothing)
            continue;
        for (second = 0; second < PTRS_PER_PMD; second++) {
            unsigned long *last = table_at(middle[second]);

            for (third = 0; last && third < PTRS_PER_PTE; third++) {
                struct page *page;

                if (!last[third])
                    continue;
                page = pfn_to_page((last[third] & PTE_PFN_MASK) >> PAGE_SHIFT);
                /* Writes by way of the window leave no trace that the kernel would look at. */
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
        mapping_unmap_writable(space->data->f_mapping);
        fput(space->data);
    }
    kfree(space);
}

/* Without memory an allocation fails; no process is ended for it. */
#define ENDS_WITHOUT (__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

static int fill(struct space *space)
{
    struct address_space *mapping = space->data->f_mapping;
    u64 number, present = mapping->nrpages;
    unsigned int first;

    /* A file with holes gets them filled. */
    if (space->pages > present && space->pages - present > si_mem_available())
        return -ENOMEM;
    for (number = 0; number < space->pages; number++) {
        unsigned long *middle, *last;
        struct page *page;

        if (fatal_signal_pending(current))
            return -EINTR;
        cond_resched();
        middle = below(&space->top[number >> 18]);
        last = middle ? below(&middle[(number >> 9) & 511]) : NULL;
        if (!last)
            return -ENOMEM;
        page = shmem_read_mapping_page_gfp(mapping, number, mapping_gfp_mask(mapping) | ENDS_WITHOUT);
        if (IS_ERR(page))
            return PTR_ERR(page);
        last[number & 511] = page_to_pfn(page) << PAGE_SHIFT | TABLE_ENTRY | _PAGE_SPECIAL | _PAGE_NX;
    }
    for (first = 0; first < PTRS_PER_PUD; first++) {
        if (!space->top[first])
            space->top[first] = __pa(space->nothing) | TABLE_ENTRY;
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

static int take_data(struct space *space, const struct vas_make *asked)
{
    struct file *data = fget(asked->file);
    int result = -EINVAL;

    if (!data)
        return -EBADF;
    if (data->f_mapping->a_ops == &shmem_aops && (data->f_mode & FMODE_WRITE) && asked->bytes &&
        asked->bytes % PAGE_SIZE == 0 && asked->bytes <= VAS_BYTES &&
        asked->bytes <= i_size_read(file_inode(data)))
        result = mapping_map_writable(data->f_mapping);
    if (result) {
        fput(data);
        return result;
    }
    /* Its pages are in no list that memory is reclaimed from. */
    mapping_set_unevictable(data->f_mapping);
    space->data = data;
    space->pages = asked->bytes / PAGE_SIZE;
    return 0;
}

int space_make(struct vas_make __user *at)
{
    struct vas_make asked;
    struct space *space;
    int result;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    space = kzalloc(sizeof(*space), GFP_KERNEL);
    if (!space)
        return -ENOMEM;
    result = take_data(space, &asked);
    if (!result) {
        space->top = new_table();
        space->nothing = new_table();
        result = space->top && space->nothing ? fill(space) : -ENOMEM;
    }
    if (!result)
        result = anon_inode_getfd("[mneme-vas]", &space_file, space, O_RDWR | O_CLOEXEC);
    if (result < 0)
        free_space(space);
    return result;
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
