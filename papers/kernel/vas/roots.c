// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Threads with a root table of their own: a copy of the process' root with another entry for the window.
 *
 * The copy is loaded when the thread runs and never at any other time. Two rules keep it right:
 *
 * - *renewal*: before a table that the copy leads to is freed, the CPUs that have such a copy loaded renew it. The
 *   kernel says so by the notice of secondary TLBs. A copy that is not loaded is renewed when it is.
 * - *copy on a miss*: an entry that the process' root has got since is copied when the thread faults for it.
 *
 * A copy is written under its window's lock, with interrupts off, and by the CPU that has it loaded or will. The notice
 * compares under the same lock, after the process' root was changed: a copy made before is seen, one made later has the
 * change.
 */
#include <linux/file.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>
#include <asm/tlbflush.h>
#include "internal.h"

static bool rules = true;
module_param(rules, bool, 0444);
MODULE_PARM_DESC(rules, "off: the two rules that keep threads' roots right do not apply, to show what they are for");

struct root {
    struct preempt_notifier notifier;
    struct hlist_node by_task;
    struct list_head of_window;
    struct task_struct *task;
    struct window *window;
    pgd_t *top;
    unsigned long *fourth; /* with five levels: the table in which the window's entry is */
    struct file *space;    /* NULL: the thread sees what the process does */
    bool is_loaded;
};

/* What this CPU has loaded. */
struct loaded {
    struct root *root;
    struct mm_struct *mm; /* the root's; other CPUs read it */
};
static DEFINE_PER_CPU(struct loaded, loaded);

static DEFINE_HASHTABLE(tasks, 6);
static DEFINE_SPINLOCK(tasks_lock);
static atomic_t how_many = ATOMIC_INIT(0);
static atomic64_t renewals, missed, copied, hazards;

#define USER_ENTRIES 256
#define WINDOW_INDEX ((VAS_WINDOW >> 39) & 511)

static unsigned long *table_of(struct root *root)
{
    return root->fourth ? root->fourth : (unsigned long *)root->top;
}

static unsigned long *table_of_process(struct mm_struct *mm)
{
    return (unsigned long *)((unsigned long)window_slot(mm->pgd) & PAGE_MASK);
}

/* The window's lock is held, and interrupts are off. No entry is torn: this CPU may have the table loaded. */
static void renew(struct root *root)
{
    unsigned long *to = table_of(root), *from = table_of_process(root->window->mm);
    unsigned int at;

    for (at = 0; at < PTRS_PER_PGD; at++) {
        if (at != WINDOW_INDEX)
            WRITE_ONCE(to[at], READ_ONCE(from[at]));
    }
    WRITE_ONCE(to[WINDOW_INDEX], space_entry(root->space));
    if (root->fourth) {
        unsigned int window = pgd_index(VAS_WINDOW);

        to = (unsigned long *)root->top;
        from = (unsigned long *)root->window->mm->pgd;
        for (at = 0; at < PTRS_PER_PGD; at++) {
            if (at != window)
                WRITE_ONCE(to[at], READ_ONCE(from[at]));
        }
        WRITE_ONCE(to[window], __pa(root->fourth) | TABLE_ENTRY);
    }
}

/* Whether the copy leads to a table that the process' root does not. What the copy lacks does no harm. */
static bool differs(const unsigned long *copy, const unsigned long *own, unsigned int but)
{
    unsigned int at;

    for (at = 0; at < USER_ENTRIES; at++) {
        unsigned long entry = READ_ONCE(copy[at]);

        if (at != but && entry && ((entry ^ READ_ONCE(own[at])) & ~_PAGE_ACCESSED))
            return true;
    }
    return false;
}

static bool is_stale(struct root *root)
{
    struct mm_struct *mm = root->window->mm;

    if (root->fourth && differs((unsigned long *)root->top, (unsigned long *)mm->pgd, pgd_index(VAS_WINDOW)))
        return true;
    return differs(table_of(root), table_of_process(mm), WINDOW_INDEX);
}

static bool is_in_cr3(struct root *root)
{
    return (__read_cr3() & CR3_ADDR_MASK) == __sme_pa(root->top);
}

/* Keeps the tag of CR3, and empties it. */
static void load_top(pgd_t *top)
{
    native_write_cr3((__read_cr3() & ~CR3_ADDR_MASK) | __sme_pa(top));
}

/* In the thread, with the window's lock. */
static void load(struct root *root)
{
    struct loaded *here = this_cpu_ptr(&loaded);

    WRITE_ONCE(here->mm, root->window->mm);
    here->root = root;
    root->is_loaded = true;
    /* Pairs with the barrier in `interrupt_those`: either that CPU sees this one, or this one its change. */
    smp_mb();
    renew(root);
    load_top(root->top);
}

/* As above; does nothing where it is not loaded. */
static void unload(struct root *root)
{
    struct loaded *here = this_cpu_ptr(&loaded);

    if (here->root != root)
        return;
    /* Not where the kernel has loaded another process' root meanwhile: in exec. */
    if (is_in_cr3(root))
        load_top(root->window->mm->pgd);
    root->is_loaded = false;
    here->root = NULL;
    WRITE_ONCE(here->mm, NULL);
}

static void scheduled_in(struct preempt_notifier *notifier, int cpu)
{
    struct root *root = container_of(notifier, struct root, notifier);
    unsigned long flags;

    spin_lock_irqsave(&root->window->lock, flags);
    if (root->space && current->mm == root->window->mm)
        load(root);
    spin_unlock_irqrestore(&root->window->lock, flags);
}

static void scheduled_out(struct preempt_notifier *notifier, struct task_struct *next)
{
    struct root *root = container_of(notifier, struct root, notifier);
    unsigned long flags;

    spin_lock_irqsave(&root->window->lock, flags);
    unload(root);
    spin_unlock_irqrestore(&root->window->lock, flags);
}

static struct preempt_ops turns = {
    .sched_in = scheduled_in,
    .sched_out = scheduled_out,
};

static struct root *root_of(struct task_struct *task)
{
    struct root *root, *found = NULL;
    unsigned long flags;

    spin_lock_irqsave(&tasks_lock, flags);
    hash_for_each_possible(tasks, root, by_task, (unsigned long)task) {
        if (root->task == task)
            found = root;
    }
    spin_unlock_irqrestore(&tasks_lock, flags);
    return found;
}

static void free_root(struct root *root)
{
    free_page((unsigned long)root->top);
    free_page((unsigned long)root->fourth);
    kfree(root);
}

static struct root *make_root(struct window *window)
{
    struct root *root = kzalloc(sizeof(*root), GFP_KERNEL);
    unsigned long flags;

    if (!root)
        return NULL;
    root->top = (pgd_t *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
    if (pgtable_l5_enabled())
        root->fourth = (unsigned long *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
    if (!root->top || (pgtable_l5_enabled() && !root->fourth) || !try_module_get(THIS_MODULE)) {
        free_root(root);
        return NULL;
    }
    root->task = current;
    root->window = window;
    kref_get(&window->uses);
    spin_lock_irqsave(&window->lock, flags);
    list_add(&root->of_window, &window->roots);
    spin_unlock_irqrestore(&window->lock, flags);
    spin_lock_irqsave(&tasks_lock, flags);
    hash_add(tasks, &root->by_task, (unsigned long)current);
    spin_unlock_irqrestore(&tasks_lock, flags);
    atomic_inc(&how_many);
    preempt_notifier_init(&root->notifier, &turns);
    preempt_disable();
    preempt_notifier_register(&root->notifier);
    preempt_enable();
    return root;
}

/* In its thread, at its end or before it gets another. */
static void end_root(struct root *root)
{
    struct window *window = root->window;
    struct file *space;
    unsigned long flags;

    preempt_disable();
    preempt_notifier_unregister(&root->notifier);
    spin_lock_irqsave(&window->lock, flags);
    unload(root);
    space = root->space;
    root->space = NULL;
    list_del(&root->of_window);
    spin_unlock_irqrestore(&window->lock, flags);
    preempt_enable();
    spin_lock_irqsave(&tasks_lock, flags);
    hash_del(&root->by_task);
    spin_unlock_irqrestore(&tasks_lock, flags);
    atomic_dec(&how_many);
    if (space)
        fput(space);
    free_root(root);
    window_put(window);
    module_put(THIS_MODULE);
}

int roots_enter(struct window *window, struct file *space)
{
    struct root *root = root_of(current);
    struct file *before;
    unsigned long flags;

    /* Of a program that this process was before exec. */
    if (root && root->window != window) {
        end_root(root);
        root = NULL;
    }
    if (!root && space) {
        root = make_root(window);
        if (!root)
            return -ENOMEM;
    }
    if (!root)
        return 0;
    spin_lock_irqsave(&window->lock, flags);
    if (space && !window->is_mapped) {
        spin_unlock_irqrestore(&window->lock, flags);
        return -EINVAL;
    }
    before = root->space;
    root->space = space;
    if (!space) {
        unload(root);
    } else if (root->is_loaded && is_in_cr3(root)) {
        /* The rules keep the rest of it right. */
        WRITE_ONCE(table_of(root)[WINDOW_INDEX], space_entry(space));
        load_top(root->top);
    } else {
        load(root);
    }
    spin_unlock_irqrestore(&window->lock, flags);
    if (before)
        fput(before);
    return 0;
}

/* ---- Interrupts to CPUs that have a root of a process loaded, and to no others. */

static bool has_loaded(int cpu, void *mm)
{
    return READ_ONCE(per_cpu(loaded, cpu).mm) == mm;
}

static void interrupt_those(struct window *window, void (*what)(void *))
{
    /* Pairs with the barrier in `load`. */
    smp_mb();
    on_each_cpu_cond_mask(has_loaded, what, window->mm, true, cpu_online_mask);
}

static void leave_here(void *mm)
{
    struct root *root = this_cpu_read(loaded.root);

    if (root && root->window->mm == mm) {
        spin_lock(&root->window->lock);
        unload(root);
        spin_unlock(&root->window->lock);
    }
}

void roots_leave(struct window *window)
{
    struct root *root;
    struct file *space;
    unsigned long flags;

    do {
        space = NULL;
        spin_lock_irqsave(&window->lock, flags);
        list_for_each_entry(root, &window->roots, of_window) {
            if (root->space) {
                space = root->space;
                root->space = NULL;
                break;
            }
        }
        spin_unlock_irqrestore(&window->lock, flags);
        if (space) {
            interrupt_those(window, leave_here);
            fput(space);
        }
    } while (space);
}

static void renew_here(void *mm)
{
    struct root *root = this_cpu_read(loaded.root);

    if (root && root->window->mm == mm && root->space) {
        spin_lock(&root->window->lock);
        if (root->space && is_in_cr3(root)) {
            renew(root);
            load_top(root->top);
        }
        spin_unlock(&root->window->lock);
    }
}

static unsigned int count_stale(struct window *window)
{
    unsigned int stale = 0;
    struct root *root;
    unsigned long flags;

    spin_lock_irqsave(&window->lock, flags);
    list_for_each_entry(root, &window->roots, of_window)
        stale += root->is_loaded && is_stale(root);
    spin_unlock_irqrestore(&window->lock, flags);
    return stale;
}

void roots_renew(struct window *window)
{
    if (!atomic_read(&how_many) || !count_stale(window))
        return;
    if (rules) {
        atomic64_inc(&renewals);
        interrupt_those(window, renew_here);
    }
    atomic64_add(count_stale(window), &hazards);
}

void roots_counts(struct vas_counts *counts)
{
    counts->renewals = atomic64_read(&renewals);
    counts->missed = atomic64_read(&missed);
    counts->copied = atomic64_read(&copied);
    counts->hazards = atomic64_read(&hazards);
}

/* ---- Faults and ends of threads, which the kernel's tracepoints tell. */

static void on_fault(void *unused, unsigned long address, struct pt_regs *registers, unsigned long code)
{
    struct root *root = this_cpu_read(loaded.root);
    unsigned long *to, *from, entry;
    unsigned int at = (address >> 39) & 511;
    unsigned long flags;

    if (!root || root->task != current || address >= TASK_SIZE_MAX)
        return;
    spin_lock_irqsave(&root->window->lock, flags);
    if (root->space) {
        to = table_of(root);
        from = table_of_process(root->window->mm);
        if (root->fourth && pgd_index(address) != pgd_index(VAS_WINDOW)) {
            at = pgd_index(address);
            to = (unsigned long *)root->top;
            from = (unsigned long *)root->window->mm->pgd;
        } else if (at == WINDOW_INDEX) {
            from = to;
        }
        entry = READ_ONCE(from[at]);
        if (!to[at] && entry) {
            atomic64_inc(&missed);
            if (rules) {
                WRITE_ONCE(to[at], entry);
                atomic64_inc(&copied);
            }
        }
    }
    spin_unlock_irqrestore(&root->window->lock, flags);
}

static void on_exit(void *unused, struct task_struct *task)
{
    struct root *root;

    if (!atomic_read(&how_many) || task != current)
        return;
    root = root_of(task);
    if (root)
        end_root(root);
}

static struct probe {
    const char *name;
    void *call;
    struct tracepoint *point;
    bool is_set;
} probes[] = {
    {"page_fault_user", on_fault},
    {"page_fault_kernel", on_fault},
    {"sched_process_exit", on_exit},
};

static void find_point(struct tracepoint *point, void *unused)
{
    unsigned int at;

    for (at = 0; at < ARRAY_SIZE(probes); at++) {
        if (strcmp(point->name, probes[at].name) == 0)
            probes[at].point = point;
    }
}

void roots_close(void)
{
    unsigned int at;

    for (at = 0; at < ARRAY_SIZE(probes); at++) {
        if (probes[at].is_set)
            tracepoint_probe_unregister(probes[at].point, probes[at].call, NULL);
        probes[at].is_set = false;
    }
    tracepoint_synchronize_unregister();
    preempt_notifier_dec();
}

int roots_open(void)
{
    unsigned int at;

    preempt_notifier_inc();
    for_each_kernel_tracepoint(find_point, NULL);
    for (at = 0; at < ARRAY_SIZE(probes); at++) {
        int result = -ENOENT;

        if (probes[at].point)
            result = tracepoint_probe_register(probes[at].point, probes[at].call, NULL);
        if (result) {
            roots_close();
            return result;
        }
        probes[at].is_set = true;
    }
    return 0;
}
