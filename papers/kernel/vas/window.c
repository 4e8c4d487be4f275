// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /dev/mneme-vas: a process' window, and the slot of the process' root that shows a space there.
 *
 * The window is one mapping that refuses to be divided, protected, inherited or faulted in. The slot holds what the
 * kernel put there, or a space; the kernel never walks or frees tables of a space, because a notifier empties the slot
 * before it touches the mapping.
 */
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <asm/mmu_context.h>
#include <asm/tlbflush.h>
#include "internal.h"
#include "releases.h"

unsigned long *window_slot(pgd_t *root)
{
    pgd_t *entry = root + pgd_index(VAS_WINDOW);

    /* Without a fifth level this is the entry itself. */
    return (unsigned long *)p4d_offset(entry, VAS_WINDOW);
}

static void flush_this_cpu(void *unused)
{
    native_write_cr3(__read_cr3());
}

void window_flush(struct window *window)
{
    struct mm_struct *mm = window->mm;
    unsigned int here = get_cpu();

    /* CPUs that come to it later look at the generation, the others are interrupted. */
    atomic64_inc(&mm->context.tlb_gen);
    smp_mb__after_atomic();
    if (cpumask_any_but(mm_cpumask(mm), here) < nr_cpu_ids)
        on_each_cpu_mask(mm_cpumask(mm), flush_this_cpu, NULL, true);
    else if (cpumask_test_cpu(here, mm_cpumask(mm)))
        flush_this_cpu(NULL);
    put_cpu();
}

/* Puts a space into the slot, or what was there before. Takes over the reference if it succeeds. */
static int set_slot(struct window *window, struct file *space)
{
    unsigned long *slot = window_slot(window->mm->pgd);
    struct file *before;

    spin_lock(&window->mm->page_table_lock);
    if (space && !window->is_mapped) {
        spin_unlock(&window->mm->page_table_lock);
        return -EINVAL;
    }
    before = window->space;
    if (!before)
        window->home = *slot;
    WRITE_ONCE(*slot, space ? space_entry(space) : window->home);
    window->space = space;
    spin_unlock(&window->mm->page_table_lock);
    if (before || space)
        window_flush(window);
    if (before)
        fput(before);
    return 0;
}

static void window_free(struct kref *uses)
{
    struct window *window = container_of(uses, struct window, uses);

    mmdrop(window->mm);
    kfree(window);
}

void window_put(struct window *window)
{
    kref_put(&window->uses, window_free);
}

/* ---- The mapping. */

static vm_fault_t window_fault(struct vm_fault *fault)
{
    return VM_FAULT_SIGBUS;
}

/* A write to a page of a file that is open to read only: the entry stays as it is. */
static vm_fault_t window_write(struct vm_fault *fault)
{
    return VM_FAULT_SIGBUS;
}

static int window_may_split(struct vm_area_struct *vma, unsigned long address)
{
    return -EINVAL;
}

static int window_mprotect(struct vm_area_struct *vma, unsigned long start, unsigned long end, unsigned long flags)
{
    return -EACCES;
}

static const struct vm_operations_struct window_mapping = {
    .fault = window_fault,
    .pfn_mkwrite = window_write,
    .may_split = window_may_split,
    .mprotect = window_mprotect,
};

static int window_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct window *window = file->private_data;

    if (window->mm != current->mm || vma->vm_start != VAS_WINDOW || vma->vm_end != VAS_WINDOW + VAS_BYTES ||
        vma->vm_pgoff || !(vma->vm_flags & VM_SHARED))
        return -EINVAL;
    vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
    vma->vm_ops = &window_mapping;
    WRITE_ONCE(window->is_mapped, true);
    return 0;
}

/* ---- What the kernel does to the process' mappings. */

static void everybody_leaves(struct window *window)
{
    roots_leave(window);
    set_slot(window, NULL);
}

static int before_change(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
    struct window *window = container_of(notifier, struct window, notifier);

    if (range->start < VAS_WINDOW + VAS_BYTES && range->end > VAS_WINDOW) {
        /* VAS_ENTER reads it under the lock that is taken next here: it is refused, or what it did is undone. */
        if (range->event == MMU_NOTIFY_UNMAP)
            WRITE_ONCE(window->is_mapped, false);
        everybody_leaves(window);
    }
    return 0;
}

static void before_free(struct mmu_notifier *notifier, struct mm_struct *mm, unsigned long start, unsigned long end)
{
    roots_renew(container_of(notifier, struct window, freeing));
}

static void before_end(struct mmu_notifier *notifier, struct mm_struct *mm)
{
    everybody_leaves(container_of(notifier, struct window, notifier));
}

static const struct mmu_notifier_ops notices = {
    .invalidate_range_start = before_change,
    .release = before_end,
};

/* Apart: 6.12 wants it alone. */
static const struct mmu_notifier_ops freeing_notice = {
    .arch_invalidate_secondary_tlbs = before_free,
};

/* ---- The device. */

static int window_open(struct inode *inode, struct file *file)
{
    struct window *window;
    int result;

    if (!current->mm)
        return -EINVAL;
    window = kzalloc(sizeof(*window), GFP_KERNEL);
    if (!window)
        return -ENOMEM;
    kref_init(&window->uses);
    spin_lock_init(&window->lock);
    INIT_LIST_HEAD(&window->roots);
    window->mm = current->mm;
    window->notifier.ops = &notices;
    window->freeing.ops = &freeing_notice;
    mmgrab(window->mm);
    result = mmu_notifier_register(&window->notifier, window->mm);
    if (!result) {
        result = mmu_notifier_register(&window->freeing, window->mm);
        if (result)
            mmu_notifier_unregister(&window->notifier, window->mm);
    }
    if (result) {
        window_put(window);
        return result;
    }
    file->private_data = window;
    return 0;
}

static int window_release(struct inode *inode, struct file *file)
{
    struct window *window = file->private_data;

    /* Calls `before_end`, unless the process has ended. */
    mmu_notifier_unregister(&window->notifier, window->mm);
    mmu_notifier_unregister(&window->freeing, window->mm);
    window_put(window);
    return 0;
}

static long enter(struct window *window, int descriptor, bool is_thread)
{
    struct file *space = NULL;
    long result;

    if (window->mm != current->mm)
        return -EINVAL;
    if (descriptor != -1) {
        space = space_get(descriptor);
        if (!space)
            return -EBADF;
        if (!space_is_for(space, current->mm)) {
            fput(space);
            return -EINVAL;
        }
    }
    result = is_thread ? roots_enter(window, space) : set_slot(window, space);
    if (result && space)
        fput(space);
    return result;
}

static long window_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct window *window = file->private_data;
    struct vas_counts counts;

    switch (command) {
    case VAS_MAKE:
        return space_make((void __user *)argument);
    case VAS_EXTEND:
        return space_extend((void __user *)argument);
    case VAS_PLACE:
        return window->mm == current->mm ? space_place(window, (void __user *)argument) : -EINVAL;
    case VAS_ENTER:
        return enter(window, (int)argument, false);
    case VAS_ENTER_THREAD:
        return enter(window, (int)argument, true);
    case VAS_COUNTS:
        roots_counts(&counts);
        return copy_to_user((void __user *)argument, &counts, sizeof(counts)) ? -EFAULT : 0;
    case VAS_NOTHING:
        return 0;
    default:
        return -ENOTTY;
    }
}

static const struct file_operations window_file = {
    .owner = THIS_MODULE,
    .open = window_open,
    .release = window_release,
    .unlocked_ioctl = window_ioctl,
    .mmap = window_mmap,
    .llseek = noop_llseek,
};

static struct miscdevice window_device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "mneme-vas",
    .mode = 0600,
    .fops = &window_file,
};

static int __init vas_init(void)
{
    int result;

    if (boot_cpu_has(X86_FEATURE_PTI)) {
        pr_err("vas: a kernel with page-table isolation has two roots a process; boot with nopti\n");
        return -ENODEV;
    }
    result = roots_open();
    if (result)
        return result;
    result = misc_register(&window_device);
    if (result)
        roots_close();
    return result;
}

static void __exit vas_exit(void)
{
    misc_deregister(&window_device);
    roots_close();
}

module_init(vas_init);
module_exit(vas_exit);
MODULE_DESCRIPTION("Address spaces that a process, or a thread alone, enters by an entry of its page tables");
MODULE_LICENSE("Dual MIT/GPL");
