/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * gcma.h: what a program asks of /dev/gcma. docs/design/gcma.md is the design.
 *
 * A claim is a run of pages of the module's area that are contiguous in physical memory. It is granted whenever it
 * fits beside the other claims, and never waits for what a cache has in its pages. It belongs to the open file: it ends
 * with GCMA_RELEASE, or when the last reference to the file goes, as at the death of its process.
 *
 * A claim of 512 pages (2 MiB) or more begins at a multiple of 2 MiB. Its pages are mapped by mmap(MAP_SHARED) at the
 * offset 4096 * first, by entries of 2 MiB where the mapping allows, and are zero when they are touched first.
 */
#ifndef GCMA_H
#define GCMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct gcma_claim {
    __u64 pages;     /* of 4 KiB; in: how many; GCMA_RELEASE ignores it */
    __u64 first;     /* its first page within the area; out of GCMA_CLAIM, in for GCMA_RELEASE */
    __u64 discarded; /* out of GCMA_CLAIM: pages that a cache lost by it */
};

struct gcma_state {
    __u64 pages;     /* of the area */
    __u64 claimed;
    __u64 lent;      /* that hold a block of a disk */
    __u64 hits;      /* blocks that were read from the area */
    __u64 misses;    /* blocks that were not there */
    __u64 stores;    /* blocks that were put there */
    __u64 discarded; /* blocks that claims took the page of */
};

/* Errors: EINVAL (no pages, or more than the area has), ENOMEM (no such run is free of claims). */
#define GCMA_CLAIM _IOWR('g', 1, struct gcma_claim)
/* Errors: ENOENT (no claim of this file begins there), EBUSY (a part of it is mapped). */
#define GCMA_RELEASE _IOW('g', 2, struct gcma_claim)
#define GCMA_STATE _IOR('g', 3, struct gcma_state)

/* Of /dev/contig, for comparison: claims by CMA's engine. They last as long as the file. */
#define CONTIG_CLAIM _IOWR('g', 16, struct gcma_claim)
#define CONTIG_RELEASE _IOW('g', 17, struct gcma_claim)

#endif
