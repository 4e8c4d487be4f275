// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * gcma.ko: guaranteed contiguous memory. `insmod gcma.ko area_mb=64` takes the area, rmmod gives it back.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include "area.h"

static unsigned int area_mb = 64;
module_param(area_mb, uint, 0444);
MODULE_PARM_DESC(area_mb, "MiB of the area, a multiple of 2 (default 64)");

static int __init gcma_init(void)
{
    unsigned long pages = (unsigned long)area_mb << (20 - PAGE_SHIFT);
    int result;

    if (area_mb == 0 || pages % AREA_HUGE || pages > totalram_pages() / 2 || pages > U32_MAX / 2) {
        pr_err("gcma: area_mb=%u: a multiple of 2, and at most half of the memory\n", area_mb);
        return -EINVAL;
    }
    result = area_open(pages);
    if (result) {
        pr_err("gcma: no %u MiB of memory are contiguous\n", area_mb);
        return result;
    }
    result = cache_register();
    if (result)
        goto close;
    result = claims_register();
    if (result)
        goto unregister;
    pr_info("gcma: an area of %u MiB from page %#lx\n", area_mb, area_pfn(0));
    return 0;

unregister:
    cache_unregister();
close:
    area_close();
    return result;
}

static void __exit gcma_exit(void)
{
    claims_unregister();
    cache_unregister();
    area_close();
}

module_init(gcma_init);
module_exit(gcma_exit);
MODULE_DESCRIPTION("Contiguous memory that is granted at once, and caches a disk's blocks until then");
MODULE_LICENSE("Dual MIT/GPL");
