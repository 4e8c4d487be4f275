// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * One area of contiguous memory, and whose each of its pages is.
 *
 * A claim never waits: what is not claimed holds copies of what a disk has, at most. Claims are found in a bitmap,
 * under a mutex. The pages that are not claimed are in a list, the one to be reused next at its head, and those that
 * hold a block are in a hash table by their key; both are under a spinlock that a claim gives up each 2 MiB.
 */
#include <linux/bitmap.h>
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include "area.h"

#define NONE ((u32)~0)

struct frame {
    u64 key;
    u32 older, newer; /* neighbours in the list; NONE at its ends */
    u32 next;         /* of the same bucket */
    bool listed;      /* not claimed */
    bool lent;        /* holds the block `key` */
};

static unsigned long pages, first_pfn;
static struct frame *frames;

/* Which pages are claimed, and how many. */
static DEFINE_MUTEX(claims_lock);
static unsigned long *claimed_map;
static unsigned long claimed;

/* The list, the table and the counts. */
static DEFINE_SPINLOCK(lock);
static u32 oldest = NONE, newest = NONE;
static u32 *buckets;
static unsigned int bucket_bits;
static unsigned long lent;
static u64 hits, misses, stores, discards;

unsigned long area_pages(void)
{
    return pages;
}

unsigned long area_pfn(unsigned long page)
{
    return first_pfn + page;
}

void *area_address(unsigned long page)
{
    return page_address(pfn_to_page(first_pfn + page));
}

static void append(u32 at)
{
    frames[at].older = newest;
    frames[at].newer = NONE;
    if (newest != NONE)
        frames[newest].newer = at;
    else
        oldest = at;
    newest = at;
    frames[at].listed = true;
}

/* An empty page is the next to be used. */
static void prepend(u32 at)
{
    frames[at].newer = oldest;
    frames[at].older = NONE;
    if (oldest != NONE)
        frames[oldest].older = at;
    else
        newest = at;
    oldest = at;
    frames[at].listed = true;
}

static void unlist(u32 at)
{
    u32 older = frames[at].older, newer = frames[at].newer;

    if (older != NONE)
        frames[older].newer = newer;
    else
        oldest = newer;
    if (newer != NONE)
        frames[newer].older = older;
    else
        newest = older;
    frames[at].listed = false;
}

/* The word that names the page with this key, or the end of its bucket. */
static u32 *find(u64 key)
{
    u32 *at = &buckets[hash_64(key, bucket_bits)];

    while (*at != NONE && frames[*at].key != key)
        at = &frames[*at].next;
    return at;
}

static void forget(u32 *at)
{
    struct frame *frame = &frames[*at];

    *at = frame->next;
    frame->lent = false;
    lent--;
}

bool area_get(u64 key, void *to)
{
    unsigned long flags;
    u32 at;

    spin_lock_irqsave(&lock, flags);
    at = *find(key);
    if (at != NONE) {
        memcpy(to, area_address(at), PAGE_SIZE);
        unlist(at);
        append(at);
        hits++;
    } else {
        misses++;
    }
    spin_unlock_irqrestore(&lock, flags);
    return at != NONE;
}

void area_put(u64 key, const void *from)
{
    unsigned long flags;
    u32 *place, at;

    spin_lock_irqsave(&lock, flags);
    at = *find(key);
    if (at == NONE && oldest != NONE) {
        at = oldest;
        if (frames[at].lent)
            forget(find(frames[at].key));
        frames[at].key = key;
        frames[at].lent = true;
        lent++;
        place = &buckets[hash_64(key, bucket_bits)];
        frames[at].next = *place;
        *place = at;
        stores++;
    }
    if (at != NONE) {
        memcpy(area_address(at), from, PAGE_SIZE);
        unlist(at);
        append(at);
    }
    spin_unlock_irqrestore(&lock, flags);
}

void area_drop(u64 key)
{
    unsigned long flags;
    u32 *place, at;

    spin_lock_irqsave(&lock, flags);
    place = find(key);
    at = *place;
    if (at != NONE) {
        forget(place);
        unlist(at);
        prepend(at);
    }
    spin_unlock_irqrestore(&lock, flags);
}

void area_drop_all(u64 key, u64 mask)
{
    unsigned long at;

    for (at = 0; at < pages; at++) {
        bool is_it;

        spin_lock_irq(&lock);
        is_it = frames[at].lent && (frames[at].key & mask) == key;
        if (is_it) {
            forget(find(frames[at].key));
            unlist(at);
            prepend(at);
        }
        spin_unlock_irq(&lock);
        if (at % AREA_HUGE == 0)
            cond_resched();
    }
}

long area_claim(unsigned long wanted, u64 *discarded)
{
    unsigned long mask = wanted >= AREA_HUGE ? AREA_HUGE - 1 : 0, first, at, end;

    *discarded = 0;
    mutex_lock(&claims_lock);
    first = bitmap_find_next_zero_area(claimed_map, pages, 0, wanted, mask);
    if (first >= pages) {
        mutex_unlock(&claims_lock);
        return -ENOMEM;
    }
    bitmap_set(claimed_map, first, wanted);
    claimed += wanted;
    mutex_unlock(&claims_lock);

    /* Until its turn comes, a page may be lent once more. */
    for (at = first; at < first + wanted; at = end) {
        end = min(at + AREA_HUGE, first + wanted);
        spin_lock_irq(&lock);
        for (; at < end; at++) {
            if (frames[at].lent) {
                forget(find(frames[at].key));
                discards++;
                (*discarded)++;
            }
            unlist(at);
        }
        spin_unlock_irq(&lock);
        cond_resched();
    }
    return first;
}

void area_release(unsigned long first, unsigned long count)
{
    unsigned long at, end;

    for (at = first; at < first + count; at = end) {
        end = min(at + AREA_HUGE, first + count);
        spin_lock_irq(&lock);
        for (; at < end; at++)
            prepend(at);
        spin_unlock_irq(&lock);
        cond_resched();
    }
    /* Not before: the next claim takes pages out of the list. */
    mutex_lock(&claims_lock);
    bitmap_clear(claimed_map, first, count);
    claimed -= count;
    mutex_unlock(&claims_lock);
}

void area_state(struct gcma_state *state)
{
    mutex_lock(&claims_lock);
    state->claimed = claimed;
    mutex_unlock(&claims_lock);
    spin_lock_irq(&lock);
    state->pages = pages;
    state->lent = lent;
    state->hits = hits;
    state->misses = misses;
    state->stores = stores;
    state->discarded = discards;
    spin_unlock_irq(&lock);
}

/* Whether the engine of contiguous allocation may be asked for a range: all of it is memory of that zone. */
static bool may_ask_for(struct zone *zone, unsigned long pfn, unsigned long count)
{
    unsigned long end = pfn + count;

    for (; pfn < end; pfn++) {
        struct page *page;

        if (!pfn_valid(pfn))
            return false;
        page = pfn_to_page(pfn);
        if (page_zone(page) != zone || PageReserved(page) || PageHuge(page))
            return false;
    }
    return true;
}

/* From the top of each node's memory down: the kernel takes its own from there last. */
static int take(unsigned long count)
{
    static const enum zone_type zones[] = {ZONE_NORMAL, ZONE_DMA32};
    unsigned long step = max(AREA_HUGE, (unsigned long)pageblock_nr_pages), pfn;
    unsigned int kind;
    int node;

    for_each_online_node(node) {
        for (kind = 0; kind < ARRAY_SIZE(zones); kind++) {
            struct zone *zone = &NODE_DATA(node)->node_zones[zones[kind]];
            unsigned long start = ALIGN(zone->zone_start_pfn, step);

            if (!populated_zone(zone) || zone->spanned_pages < count)
                continue;
            pfn = ALIGN_DOWN(zone_end_pfn(zone) - count, step);
            for (; pfn >= start && pfn <= zone_end_pfn(zone); pfn -= step) {
                if (fatal_signal_pending(current))
                    return -EINTR;
                cond_resched();
                if (may_ask_for(zone, pfn, count) &&
                    alloc_contig_range(pfn, pfn + count, MIGRATE_MOVABLE, GFP_KERNEL | __GFP_NOWARN) == 0) {
                    first_pfn = pfn;
                    return 0;
                }
                if (pfn < step)
                    break;
            }
        }
    }
    return -ENOMEM;
}

int area_open(unsigned long count)
{
    unsigned long at;
    int result = take(count);

    if (result)
        return result;
    pages = count;
    bucket_bits = ilog2(count) + 1;
    frames = vzalloc(count * sizeof(*frames));
    buckets = vmalloc(sizeof(*buckets) << bucket_bits);
    claimed_map = bitmap_zalloc(count, GFP_KERNEL);
    if (!frames || !buckets || !claimed_map) {
        area_close();
        return -ENOMEM;
    }
    memset(buckets, 0xff, sizeof(*buckets) << bucket_bits);
    for (at = 0; at < count; at++)
        append(at);
    return 0;
}

void area_close(void)
{
    bitmap_free(claimed_map);
    vfree(buckets);
    vfree(frames);
    free_contig_range(first_pfn, pages);
}
