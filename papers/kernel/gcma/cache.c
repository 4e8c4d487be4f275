// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The device-mapper target "gcma": a disk's blocks of 4 KiB, of which copies lie in pages that nobody has claimed.
 *
 *     dmsetup create NAME --table "0 SECTORS gcma DISK"
 *
 * Writing goes through: a copy is dropped when a write begins and made when the disk has it, so that the disk never
 * lacks what a claim discards. No copy may be older than the disk, and requests for one block may overlap. Blocks
 * therefore share slots, which know how many writes are under way and when the last one began or ended:
 *
 * - what was read is kept if no write of the slot began, ended or was under way since the reading began;
 * - what was written is kept if no other write of the slot was under way at any time during its own.
 */
#include <linux/bio.h>
#include <linux/device-mapper.h>
#include <linux/hash.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include "area.h"

#define BLOCK_SECTORS (PAGE_SIZE >> SECTOR_SHIFT)
#define REQUEST_BLOCKS 64 /* of a request at most; larger ones are divided */

/* A key: the number of the disk, and of the block. */
#define DISK_SHIFT 48
#define DISK_MASK (~0ULL << DISK_SHIFT)

#define SLOT_BITS 12
struct slot {
    u64 changed; /* when a write began or ended */
    u32 writes;  /* under way */
    bool mixed;  /* several were, since there was none */
};

struct disk {
    struct dm_dev *device;
    u64 key;
    spinlock_t lock;
    u64 now;
    struct slot slots[1 << SLOT_BITS];
};

struct request {
    struct bvec_iter all; /* what `cache_end_io` has to look at */
    u64 began;
};

static DEFINE_IDA(numbers);

static struct slot *slot_of(struct disk *disk, u64 block)
{
    return &disk->slots[hash_64(block, SLOT_BITS)];
}

static void write_begins(struct disk *disk, u64 block)
{
    struct slot *slot = slot_of(disk, block);
    unsigned long flags;

    spin_lock_irqsave(&disk->lock, flags);
    slot->mixed |= slot->writes++ != 0;
    slot->changed = ++disk->now;
    area_drop(disk->key | block);
    spin_unlock_irqrestore(&disk->lock, flags);
}

/* `page`: what was written, if it is the whole block and the disk has it. */
static void write_ends(struct disk *disk, u64 block, const void *page)
{
    struct slot *slot = slot_of(disk, block);
    unsigned long flags;

    spin_lock_irqsave(&disk->lock, flags);
    if (page && !slot->mixed)
        area_put(disk->key | block, page);
    if (--slot->writes == 0)
        slot->mixed = false;
    slot->changed = ++disk->now;
    spin_unlock_irqrestore(&disk->lock, flags);
}

static void read_ends(struct disk *disk, u64 block, const void *page, u64 began)
{
    struct slot *slot = slot_of(disk, block);
    unsigned long flags;

    spin_lock_irqsave(&disk->lock, flags);
    if (slot->writes == 0 && slot->changed <= began)
        area_put(disk->key | block, page);
    spin_unlock_irqrestore(&disk->lock, flags);
}

/* The next part of a request: up to the end of a block, of a page and of a piece of memory. */
static struct bio_vec next_part(struct bio *bio, struct bvec_iter at)
{
    struct bio_vec part = bio_iter_iovec(bio, at);
    unsigned int left = (BLOCK_SECTORS - at.bi_sector % BLOCK_SECTORS) << SECTOR_SHIFT;

    part.bv_len = min(part.bv_len, left);
    return part;
}

/* Writes are counted once a part, at their beginning and their end. */
#define each_part(bio, part, at, all)                                     \
    for (at = (all); at.bi_size && (part = next_part(bio, at), true); \
         bio_advance_iter(bio, &at, part.bv_len))

static u64 block_of(struct bvec_iter at)
{
    return at.bi_sector / BLOCK_SECTORS;
}

/* Reads the request from the area if all of it is there. */
static bool read_copies(struct disk *disk, struct bio *bio)
{
    struct bvec_iter at;
    struct bio_vec part;

    each_part(bio, part, at, bio->bi_iter) {
        if (part.bv_len != PAGE_SIZE)
            return false;
    }
    each_part(bio, part, at, bio->bi_iter) {
        void *page = bvec_kmap_local(&part);
        bool is_there = area_get(disk->key | block_of(at), page);

        kunmap_local(page);
        if (!is_there)
            return false;
        flush_dcache_page(part.bv_page);
    }
    return true;
}

static int cache_map(struct dm_target *target, struct bio *bio)
{
    struct disk *disk = target->private;
    struct request *request = dm_per_bio_data(bio, sizeof(*request));
    struct bvec_iter at;
    struct bio_vec part;

    bio_set_dev(bio, disk->device->bdev);
    bio->bi_iter.bi_sector = dm_target_offset(target, bio->bi_iter.bi_sector);
    request->all = bio->bi_iter;
    request->began = READ_ONCE(disk->now);
    if (!bio_has_data(bio)) {
        request->all.bi_size = 0;
    } else if (bio_op(bio) == REQ_OP_WRITE) {
        each_part(bio, part, at, request->all)
            write_begins(disk, block_of(at));
    } else if (bio_op(bio) == REQ_OP_READ && read_copies(disk, bio)) {
        request->all.bi_size = 0;
        bio_endio(bio);
        return DM_MAPIO_SUBMITTED;
    }
    return DM_MAPIO_REMAPPED;
}

static int cache_end_io(struct dm_target *target, struct bio *bio, blk_status_t *error)
{
    struct disk *disk = target->private;
    struct request *request = dm_per_bio_data(bio, sizeof(*request));
    bool is_write = bio_op(bio) == REQ_OP_WRITE;
    struct bvec_iter at;
    struct bio_vec part;

    if (!is_write && (bio_op(bio) != REQ_OP_READ || *error))
        return DM_ENDIO_DONE;
    each_part(bio, part, at, request->all) {
        bool is_whole = part.bv_len == PAGE_SIZE && !*error;
        void *page = bvec_kmap_local(&part);

        if (is_write)
            write_ends(disk, block_of(at), is_whole ? page : NULL);
        else if (is_whole)
            read_ends(disk, block_of(at), page, request->began);
        kunmap_local(page);
    }
    return DM_ENDIO_DONE;
}

static int cache_make(struct dm_target *target, unsigned int count, char **words)
{
    struct disk *disk;
    int result, number;

    if (count != 1) {
        target->error = "one argument is needed, the disk";
        return -EINVAL;
    }
    if (target->len % BLOCK_SECTORS || target->len / BLOCK_SECTORS > ~DISK_MASK) {
        target->error = "the length is no multiple of 4 KiB, or too large";
        return -EINVAL;
    }
    disk = kvzalloc(sizeof(*disk), GFP_KERNEL);
    if (!disk)
        return -ENOMEM;
    number = ida_alloc_max(&numbers, U16_MAX, GFP_KERNEL);
    if (number < 0) {
        kvfree(disk);
        return number;
    }
    disk->key = (u64)number << DISK_SHIFT;
    spin_lock_init(&disk->lock);
    result = dm_get_device(target, words[0], dm_table_get_mode(target->table), &disk->device);
    if (!result) {
        target->private = disk;
        target->per_io_data_size = sizeof(struct request);
        target->num_flush_bios = 1;
        result = dm_set_target_max_io_len(target, REQUEST_BLOCKS * BLOCK_SECTORS);
        if (!result)
            return 0;
        dm_put_device(target, disk->device);
    } else {
        target->error = "there is no such disk";
    }
    ida_free(&numbers, number);
    kvfree(disk);
    return result;
}

static void cache_end(struct dm_target *target)
{
    struct disk *disk = target->private;

    /* Before the number is given to another disk. */
    area_drop_all(disk->key, DISK_MASK);
    ida_free(&numbers, disk->key >> DISK_SHIFT);
    dm_put_device(target, disk->device);
    kvfree(disk);
}

static int cache_iterate(struct dm_target *target, iterate_devices_callout_fn each, void *data)
{
    struct disk *disk = target->private;

    return each(target, disk->device, 0, target->len, data);
}

static void cache_limits(struct dm_target *target, struct queue_limits *limits)
{
    limits->logical_block_size = max_t(unsigned int, limits->logical_block_size, PAGE_SIZE);
    limits->physical_block_size = max_t(unsigned int, limits->physical_block_size, PAGE_SIZE);
    limits->io_min = max_t(unsigned int, limits->io_min, PAGE_SIZE);
}

static void cache_status(struct dm_target *target, status_type_t kind, unsigned int flags, char *result,
                         unsigned int maxlen)
{
    struct disk *disk = target->private;
    unsigned int sz = 0; /* named in DMEMIT */

    if (kind == STATUSTYPE_TABLE)
        DMEMIT("%s", disk->device->name);
    else
        *result = '\0';
}

static struct target_type cache_target = {
    .name = "gcma",
    .version = {1, 0, 0},
    .module = THIS_MODULE,
    .ctr = cache_make,
    .dtr = cache_end,
    .map = cache_map,
    .end_io = cache_end_io,
    .iterate_devices = cache_iterate,
    .io_hints = cache_limits,
    .status = cache_status,
};

int cache_register(void)
{
    return dm_register_target(&cache_target);
}

void cache_unregister(void)
{
    dm_unregister_target(&cache_target);
}
