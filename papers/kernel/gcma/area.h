/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The area's pages: claimed, or lent to the cache. claims.c and cache.c are above it.
 */
#ifndef AREA_H
#define AREA_H

#include <linux/blk_types.h>
#include <linux/types.h>
#include "gcma.h"

#define AREA_HUGE 512UL /* pages of 2 MiB */

int area_open(unsigned long pages);
void area_close(void);
unsigned long area_pages(void);
unsigned long area_pfn(unsigned long page);
void *area_address(unsigned long page);
void area_state(struct gcma_state *state);

/* The first page of a run that the caller then has alone; discards what is lent there. Or -ENOMEM. */
long area_claim(unsigned long pages, u64 *discarded);
void area_release(unsigned long first, unsigned long pages);

/* The cache. A key is a block of a disk; all of these may be called with interrupts off. */
bool area_get(u64 key, void *to);
void area_put(u64 key, const void *from);
void area_drop(u64 key);
/* Drops all keys that are equal in the bits of `mask`. May sleep. */
void area_drop_all(u64 key, u64 mask);

int claims_register(void);
void claims_unregister(void);
int cache_register(void);
void cache_unregister(void);

#endif
