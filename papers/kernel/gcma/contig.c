// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * contig.ko: what gcma.ko is compared with. /dev/contig claims contiguous pages as CMA does, by alloc_contig_range()
 * over memory that holds movable pages alone (ZONE_MOVABLE, `movablecore=`).
 */
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "gcma.h"

/* The file's one claim. */
struct run {
    struct mutex lock;
    unsigned long first, pages;
};

static int contig_open(struct inode *inode, struct file *file)
{
    struct run *run = kzalloc(sizeof(*run), GFP_KERNEL);

    if (!run)
        return -ENOMEM;
    mutex_init(&run->lock);
    file->private_data = run;
    return 0;
}

static void give_back(struct run *run)
{
    if (run->pages)
        free_contig_range(run->first, run->pages);
    run->pages = 0;
}

static int contig_release(struct inode *inode, struct file *file)
{
    give_back(file->private_data);
    kfree(file->private_data);
    return 0;
}

/* Tries every place, as cma_alloc() does. */
static long claim(unsigned long pages)
{
    struct zone *zone = &NODE_DATA(first_online_node)->node_zones[ZONE_MOVABLE];
    unsigned long step = ALIGN(pages, pageblock_nr_pages);
    unsigned long at = ALIGN(zone->zone_start_pfn, pageblock_nr_pages);

    for (; populated_zone(zone) && at + pages <= zone_end_pfn(zone); at += step) {
        int result = alloc_contig_range(at, at + pages, MIGRATE_MOVABLE, GFP_KERNEL | __GFP_NOWARN);

        if (!result)
            return at;
        if (result != -EBUSY)
            return result;
    }
    return -ENOMEM;
}

static long contig_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
    struct run *run = file->private_data;
    struct gcma_claim asked;
    long result = 0;

    if (copy_from_user(&asked, (void __user *)argument, sizeof(asked)))
        return -EFAULT;
    mutex_lock(&run->lock);
    if (command == CONTIG_RELEASE) {
        give_back(run);
    } else if (command != CONTIG_CLAIM) {
        result = -ENOTTY;
    } else if (run->pages) {
        result = -EBUSY;
    } else if (asked.pages == 0) {
        result = -EINVAL;
    } else {
        result = claim(asked.pages);
        if (result >= 0) {
            run->first = result;
            run->pages = asked.pages;
            result = 0;
        }
    }
    mutex_unlock(&run->lock);
    return result;
}

static const struct file_operations contig_file = {
    .owner = THIS_MODULE,
    .open = contig_open,
    .release = contig_release,
    .unlocked_ioctl = contig_ioctl,
    .llseek = noop_llseek,
};

static struct miscdevice contig_device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "contig",
    .mode = 0600,
    .fops = &contig_file,
};

module_misc_device(contig_device);
MODULE_DESCRIPTION("Contiguous memory by CMA's engine, to compare with gcma.ko");
MODULE_LICENSE("Dual MIT/GPL");
