// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /dev/gcma: claims, and mappings of them by entries of 2 MiB.
 *
 * A claim belongs to an open file and can be released while nothing maps it. A mapping holds a reference to the file,
 * so that what a process leaves at its death is released after its mappings are gone.
 */
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/pfn_t.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "area.h"
#include "releases.h"

struct claim {
    struct list_head list;
    unsigned long first, pages;
    atomic_t mappings; /* grows under the file's lock alone */
    struct mutex zeroing;
    unsigned long *zeroed; /* which pages a program may see; they may hold another's blocks before */
};

struct claims {
    struct mutex lock;
    struct list_head list;
};

static void end_claim(struct claim *claim)
{
    area_release(claim->first, claim->pages);
    bitmap_free(claim->zeroed);
    kfree(claim);
}

static int gcma_open(struct inode *inode, struct file *file)
{
    struct claims *claims = kzalloc(sizeof(*claims), GFP_KERNEL);

    if (!claims)
        return -ENOMEM;
    mutex_init(&claims->lock);
    INIT_LIST_HEAD(&claims->list);
    file->private_data = claims;
    /* What tells the kernel that faults of 2 MiB are to be tried: it is memory that is mapped directly. */
    inode_lock(inode);
    inode_set_flags(inode, S_DAX, S_DAX);
    inode_unlock(inode);
    return 0;
}

static int gcma_release(struct inode *inode, struct file *file)
{
    struct claims *claims = file->private_data;
    struct claim *claim, *next;

    list_for_each_entry_safe(claim, next, &claims->list, list)
        end_claim(claim);
    kfree(claims);
    return 0;
}

static long begin_claim(struct claims *claims, struct gcma_claim __user *at)
{
    struct gcma_claim asked;
    struct claim *claim;
    long first;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    if (asked.pages == 0 || asked.pages > area_pages())
        return -EINVAL;
    claim = kzalloc(sizeof(*claim), GFP_KERNEL);
    if (!claim)
        return -ENOMEM;
    claim->zeroed = bitmap_zalloc(asked.pages, GFP_KERNEL);
    first = claim->zeroed ? area_claim(asked.pages, &asked.discarded) : -ENOMEM;
    if (first < 0) {
        bitmap_free(claim->zeroed);
        kfree(claim);
        return first;
    }
    claim->first = first;
    claim->pages = asked.pages;
    mutex_init(&claim->zeroing);
    asked.first = first;
    if (copy_to_user(at, &asked, sizeof(asked))) {
        end_claim(claim);
        return -EFAULT;
    }
    mutex_lock(&claims->lock);
    list_add(&claim->list, &claims->list);
    mutex_unlock(&claims->lock);
    return 0;
}

/* The file's claim with that page. */
static struct claim *claim_at(struct claims *claims, unsigned long page)
{
    struct claim *claim;

    lockdep_assert_held(&claims->lock);
    list_for_each_entry(claim, &claims->list, list) {
        if (page >= claim->first && page - claim->first < claim->pages)
            return claim;
    }
    return NULL;
}

static long release_claim(struct claims *claims, struct gcma_claim __user *at)
{
    struct gcma_claim asked;
    struct claim *claim;
    long result = 0;

    if (copy_from_user(&asked, at, sizeof(asked)))
        return -EFAULT;
    mutex_lock(&claims->lock);
    claim = claim_at(claims, asked.first);
    if (!claim || claim->first != asked.first)
        result = -ENOENT;
    else if (atomic_read(&claim->mappings))
        result = -EBUSY;
    else
        list_del(&claim->list);
    mutex_unlock(&claims->lock);
    if (!result)
        end_claim(claim);
    return result;
}

static long gcma_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct gcma_state state;

    switch (command) {
    case GCMA_CLAIM:
        return begin_claim(file->private_data, (void __user *)argument);
    case GCMA_RELEASE:
        return release_claim(file->private_data, (void __user *)argument);
    case GCMA_STATE:
        area_state(&state);
        return copy_to_user((void __user *)argument, &state, sizeof(state)) ? -EFAULT : 0;
    default:
        return -ENOTTY;
    }
}

/* Clears what the program has not seen yet. */
static void clear_pages(struct claim *claim, unsigned long page, unsigned long count)
{
    unsigned long at = page - claim->first, end = at + count;

    mutex_lock(&claim->zeroing);
    for (; at < end; at++) {
        if (!test_bit(at, claim->zeroed)) {
            clear_page(area_address(claim->first + at));
            set_bit(at, claim->zeroed);
        }
    }
    mutex_unlock(&claim->zeroing);
}

static vm_fault_t gcma_fault(struct vm_fault *fault)
{
    struct claim *claim = fault->vma->vm_private_data;

    clear_pages(claim, fault->pgoff, 1);
    return vmf_insert_pfn(fault->vma, fault->address, area_pfn(fault->pgoff));
}

static vm_fault_t gcma_huge_fault(struct vm_fault *fault, fault_size size)
{
    struct vm_area_struct *vma = fault->vma;
    struct claim *claim = vma->vm_private_data;
    unsigned long address = fault->address & PMD_MASK, page;
    pfn_t pfn;

    if (!IS_OF_PMD(size) || address < vma->vm_start || address + PMD_SIZE > vma->vm_end)
        return VM_FAULT_FALLBACK;
    page = linear_page_index(vma, address);
    if (page % AREA_HUGE)
        return VM_FAULT_FALLBACK;
    clear_pages(claim, page, AREA_HUGE);
    /* As of a device, of which the kernel knows no pages: nobody pins what a release gives to others. */
    pfn = __pfn_to_pfn_t(area_pfn(page), PFN_DEV | PFN_MAP);
    return vmf_insert_pfn_pmd(fault, pfn, fault->flags & FAULT_FLAG_WRITE);
}

static void gcma_map_more(struct vm_area_struct *vma)
{
    struct claim *claim = vma->vm_private_data;

    atomic_inc(&claim->mappings);
}

static void gcma_unmap(struct vm_area_struct *vma)
{
    struct claim *claim = vma->vm_private_data;

    atomic_dec(&claim->mappings);
}

/* An entry of 2 MiB cannot be divided. */
static int gcma_may_split(struct vm_area_struct *vma, unsigned long address)
{
    return address % PMD_SIZE ? -EINVAL : 0;
}

static const struct vm_operations_struct gcma_mapping = {
    .open = gcma_map_more,
    .close = gcma_unmap,
    .may_split = gcma_may_split,
    .fault = gcma_fault,
    .huge_fault = gcma_huge_fault,
};

static int gcma_mmap(struct file *file, struct vm_area_struct *vma)
{
    struct claims *claims = file->private_data;
    struct claim *claim;

    if (!(vma->vm_flags & VM_SHARED))
        return -EINVAL;
    mutex_lock(&claims->lock);
    claim = claim_at(claims, vma->vm_pgoff);
    if (!claim || vma_pages(vma) > claim->pages - (vma->vm_pgoff - claim->first)) {
        mutex_unlock(&claims->lock);
        return -EINVAL;
    }
    atomic_inc(&claim->mappings);
    mutex_unlock(&claims->lock);
    vm_flags_set(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP | VM_HUGEPAGE);
    vma->vm_private_data = claim;
    vma->vm_ops = &gcma_mapping;
    return 0;
}

static const struct file_operations gcma_file = {
    .owner = THIS_MODULE,
    .open = gcma_open,
    .release = gcma_release,
    .unlocked_ioctl = gcma_ioctl,
    .mmap = gcma_mmap,
    .get_unmapped_area = thp_get_unmapped_area,
    .llseek = noop_llseek,
};

static struct miscdevice gcma_device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "gcma",
    .mode = 0600,
    .fops = &gcma_file,
};

int claims_register(void)
{
    return misc_register(&gcma_device);
}

void claims_unregister(void)
{
    misc_deregister(&gcma_device);
}
