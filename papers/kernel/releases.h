/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What changed in the kernel between 6.1 and 6.12.
 */
#ifndef RELEASES_H
#define RELEASES_H

#include <linux/mm.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
    vma->vm_flags |= flags;
}
#endif

/* What a fault for a huge page says of its size. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
typedef enum page_entry_size fault_size;
#define IS_OF_PMD(size) ((size) == PE_SIZE_PMD)
#else
typedef unsigned int fault_size;
#define IS_OF_PMD(size) ((size) == HPAGE_PMD_ORDER)
#endif

/* The notice of secondary TLBs. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define arch_invalidate_secondary_tlbs invalidate_range
#endif

#endif
