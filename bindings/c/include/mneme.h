/*
 * mneme.h: segments and address spaces that outlive every process, and the stores that servers
 * serve.
 *
 * A SEGMENT is a named range of memory with an address of its own, the same in every process, so
 * that pointers from one part of it to another stay true. A SPACE (VAS) is a named set of segments.
 * A process ATTACHES a space and a thread SWITCHES into it: then it holds the lock of every segment
 * of the space, shared where the segment is attached for reading, alone where it is attached for
 * writing, until it switches out.
 *
 * The functions are those of SpaceJMP (El Hajj et al., ASPLOS 2016, figure 3; figure 40 of El
 * Hajj's and Merritt's longer treatment). C11 or later, C++11 or later, Linux, 64 bits.
 * docs/c-api.md is the guide.
 *
 * A STORE holds records, bytes under keys, in a segment of its own: what `mneme serve` serves, or
 * one that a program made. An attached program reads and writes the same records as the server and
 * its clients, without a socket. Its part of this header is the last one;
 * docs/guides/local-clients.md is its guide.
 *
 * FAILURE. Functions that return an int return 0, or -1 on failure; those that return an id or a
 * pointer return NULL on failure. mneme_code() and mneme_error() say why, for the calling thread.
 * Nothing here ends the process, and no argument but a wrong pointer can: an id or handle that is
 * stale, of another kind or made up is MNEME_EHANDLE. Each function's comment names the codes that
 * it alone has; MNEME_EINVAL, _EHANDLE, _EPERM, _EIO, _EDAMAGED, _EFORKED, _EREGISTRY and
 * _EINTERNAL can come from any.
 *
 * THREADS. Any thread may call any function at any time. A switch affects the calling thread alone.
 * A thread that ends while it is inside a space, or calls exit() there, leaves the segments that it
 * could change POISONED, because they may be half changed; so does a process that is killed. After
 * longjmp the thread is still inside. No function here is safe in a signal handler. A thread must
 * not be cancelled within a call, not even at a cancellation point: that ends the process.
 * pthread_setcancelstate() prevents it. A call needs up to 64 KiB of stack.
 *
 * A thread that is ending cannot use the library any more: calls that enter a space, read or write
 * fail with MNEME_EINVAL in destructors of thread-specific data and, in the thread that calls
 * exit() or returns from main(), in functions of atexit() and destructors of static objects.
 *
 * PROCESSES. Names are global; ids and handles are this process' own. A child made by fork()
 * without exec() can use neither what its parent attached nor attach anything itself
 * (MNEME_EFORKED). One made by _Fork() or a bare clone(), which the library cannot notice, must
 * exec() at once: until then, a parent that was killed still counts as alive.
 */
#ifndef MNEME_H
#define MNEME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------------------------------ */

/* A space, a segment, and an attached space, as this process knows them. Values to compare and to
 * pass back; they point to nothing. NULL means none. A space or segment has the same id however
 * often it is found. */
typedef struct mneme_vas *vasid_t;
typedef struct mneme_segment *segid_t;
typedef struct mneme_attached *vhandle_t;

/* An attached store, or one of its databases. */
typedef struct mneme_store *mneme_store_t;

/* Reserved memory that serves as a cache until it is needed. */
typedef struct mneme_cache *mneme_cache_t;

/* The dissertation's names. */
typedef vasid_t vid_t;
typedef segid_t sid_t;
typedef vhandle_t vh_t;

/* ---- Constants -------------------------------------------------------------------------------------------------- */

/* The version of this header, as 0x00MMmmpp. mneme_version() returns that of the linked library. */
#define MNEME_VERSION 0x000100

#define MNEME_READ 1
#define MNEME_WRITE 2

/* For vas_switch(): the process' own address space. There a thread is inside no segment but those
 * that it attached to CURRENT. */
#define MNEME_PRIMARY ((vhandle_t)1)
/* For seg_attach() and seg_detach(): the handle that the calling thread is in now. */
#define MNEME_CURRENT ((vhandle_t)2)

/* Where seg_alloc_in() keeps the bytes. */
#define SEG_SHARED 0 /* memory, gone at the next start of the machine */
#define SEG_HUGE 1   /* memory in pages of 2 MiB */
#define SEG_FILE 2   /* a file in a directory of your choice */
#define SEG_DAX 3    /* a file on persistent memory */

/* Commands of seg_ctl(). */
#define SEG_STAT 1    /* seg_stat_t *: its state */
#define SEG_CHMOD 2   /* permissions, as of seg_alloc() */
#define SEG_GROW 3    /* bytes: commit at least as many */
#define SEG_ACCEPT 4  /* none: accept its contents as they are. Ends poisoning */
#define SEG_REBUILD 5 /* none: empty it, with a new heap and no root. Ends poisoning */
#define SEG_CHECK 6   /* none: verify its heap */
#define SEG_RESTORE 7 /* segid_t: copy the contents of its clone or its original. Ends poisoning */
#define SEG_SYNC 8    /* none: write it through to its medium, if that outlives the machine, and wait for it */

/* Commands of vas_ctl(). */
#define VAS_STAT 1  /* vas_stat_t *: its state */
#define VAS_CHMOD 2 /* permissions, as of vas_create() */

/* The codes that mneme_code() returns. Their numbers never change. */
#define MNEME_OK 0
#define MNEME_EINVAL 1      /* an argument is invalid: NULL, or no mode, command or block */
#define MNEME_EHANDLE 2     /* no such id or handle: stale, of another kind, or made up */
#define MNEME_ENAME 3       /* not a name: 1 to 200 bytes of UTF-8 without '/' and control characters, not beginning
                             * with '.'; a new segment's has no letter behind a '~' (the server uses such names) */
#define MNEME_ENOTFOUND 4   /* nothing has that name; the segment is no member, or is not attached */
#define MNEME_EEXIST 5      /* something has that name already; the segment is a member already */
#define MNEME_EADDRESS 6    /* the address is not available: see seg_alloc() */
#define MNEME_EOVERLAP 7    /* two segments of one space claim the same addresses */
#define MNEME_ENOMEM 8      /* no memory, no free space in the segment, the file system or the registry's window */
#define MNEME_EPERM 9       /* permissions forbid it */
#define MNEME_EREADONLY 10  /* the segment was entered, or the store attached, for reading only */
#define MNEME_EBUSY 11      /* in use: by a living process, or by a thread of this one */
#define MNEME_ESTALLED 12   /* a living process holds a lock for too long, or the repair after a dead one is not
                             * finished: the text names it. Try again */
#define MNEME_EPOISONED 13  /* a process died while changing it: SEG_REBUILD, _RESTORE or _ACCEPT. A store: the
                             * machine went down while it was open on a disk */
#define MNEME_EOUTSIDE 14   /* the thread is not inside the segment */
#define MNEME_EINSIDE 15    /* the thread is inside a space or segment: vas_switch(PRIMARY) first */
#define MNEME_EAMBIGUOUS 16 /* several segments are writable here: name one with seg_malloc() */
#define MNEME_EROOT 17      /* a program with typed roots made the root: C cannot use it */
#define MNEME_ESTALE 18     /* it was removed, or another one has its name now */
#define MNEME_EFORKED 19    /* a forked child may not use what its parent attached */
#define MNEME_EDAMAGED 20   /* a file is damaged, or of another version */
#define MNEME_EREGISTRY 21  /* the registry cannot be opened or worked on */
#define MNEME_EBACKING 22   /* this machine does not have that kind of memory */
#define MNEME_EIO 23        /* the operating system failed otherwise */
#define MNEME_EINTERNAL 24  /* a defect of this library */
#define MNEME_ESHORT 25      /* the buffer is too small for the value; its length was stored */

/* The paper's short names, unless MNEME_NO_SHORT_NAMES is defined. */
#ifndef MNEME_NO_SHORT_NAMES
#ifndef READ
#define READ MNEME_READ
#endif
#ifndef WRITE
#define WRITE MNEME_WRITE
#endif
#ifndef PRIMARY
#define PRIMARY MNEME_PRIMARY
#endif
#ifndef CURRENT
#define CURRENT MNEME_CURRENT
#endif
#endif

/* ---- What went wrong -------------------------------------------------------------------------------------------- */

/* The code of this thread's last call that failed; MNEME_OK before the first. Calls that succeed
 * leave it unchanged, except for seg_root() of a segment without a root: it sets MNEME_OK. */
int mneme_code(void);

/* The message of the last failure: English, one line, of any length; empty with MNEME_OK. Valid
 * until the thread's next call that fails. Never NULL. */
const char *mneme_error(void);

/* The version of the library. */
uint32_t mneme_version(void);

/* ---- The registry ----------------------------------------------------------------------------------------------- */

/* Uses the registry in this directory from now on; creates it if there is none. The default is
 * $MNEME_DIR, else /dev/shm/mneme-<uid>-registry, which the first call that needs a registry opens.
 * Ids of the former registry stay valid. MNEME_EREGISTRY. */
int mneme_registry(const char *directory);

/* The range of addresses that the registry's segments lie in: the first one, and the number of
 * bytes. Either pointer may be NULL. */
int mneme_window(void **base, size_t *bytes);

/* How long vas_switch() waits for each lock, in milliseconds; default 1000. Applies to spaces
 * attached from now on. */
int mneme_timeout(uint32_t milliseconds);

/* ---- Spaces ----------------------------------------------------------------------------------------------------- */

/* Permissions, of spaces and of segments: a file's, in octal (0660); or READ, or READ|WRITE, for
 * the owner alone. The papers' decimal 660 is read as 0660 too: a number above 0777 whose digits
 * are octal ones. There is no right to execute, and none to write without reading: other numbers
 * are MNEME_EINVAL. */

/* The space of that name. MNEME_ENOTFOUND, _ENAME. */
vasid_t vas_find(const char *name);

/* Makes a space without segments. A user who may read it may attach it; one who may write it may
 * change which segments it has. MNEME_EEXIST, _ENAME, _ENOMEM. */
vasid_t vas_create(const char *name, unsigned perms);

/* Makes a space with the same segments and permissions: `name~1`, or the next number that is free.
 * */
vasid_t vas_clone(vasid_t vid);

/* A clone under a name of your choice. MNEME_EEXIST, _ENAME. */
vasid_t vas_clone_as(vasid_t vid, const char *name);

/* Removes a space; its segments stay, its id is stale. MNEME_EBUSY while a living process has it
 * attached. */
int vas_delete(vasid_t vid);

/* Attaches a space: maps its segments, touches nothing of them and takes no lock. Each call makes
 * another handle. Each vas_switch() takes over later changes of the space. MNEME_EPERM, _ENOTFOUND
 * or _ESTALE (a member is gone). */
vhandle_t vas_attach(vasid_t vid);

/* Attaches with the access that the space grants (MNEME_READ|MNEME_WRITE), or for reading only
 * (MNEME_READ). */
vhandle_t vas_attach_as(vasid_t vid, int access);

/* Releases a handle. Other threads that are inside stay there until they leave. MNEME_EINSIDE if
 * the calling thread is inside. */
int vas_detach(vhandle_t vh);

/* Switches the calling thread: leaves the space that it is in, and enters the attached one, or the
 * primary one. Returns with the locks of its segments held, exclusively where the space grants
 * writing. A switch into the current space leaves and enters it. MNEME_ESTALLED, _EPOISONED, _EBUSY
 * (threads of this process are inside other segments with the same addresses), _ENOTFOUND, _ESTALE,
 * _EPERM (while taking over the space's changes): the thread is then in no space. MNEME_EHANDLE
 * changes nothing. */
int vas_switch(vhandle_t vh);

/* As vas_switch(); with MNEME_READ it takes all locks shared, whatever access the space grants. */
int vas_switch_as(vhandle_t vh, int access);

/* The handle that the calling thread is in, or PRIMARY. */
vhandle_t vas_current(void);

/* Sets the access that the space grants to one of its segments, for all that attach it.
 * MNEME_ENOTFOUND. */
int vas_access(vasid_t vid, segid_t sid, int access);

/* Calls `each` with every space's name, in order, until it does not return 0. Returns the number of
 * calls, or -1. The name is valid during the call. `each` may call any function of this header, and
 * must not throw. */
int vas_list(int (*each)(const char *name, void *data), void *data);

/* Calls `each` with every segment of a space, and the access that the space grants. */
int vas_members(vasid_t vid, int (*each)(const char *name, int access, void *data), void *data);

/* The state of a space. */
typedef struct vas_stat {
    uint64_t version;      /* counts its changes, from 1 */
    uint32_t mode;         /* permissions */
    uint32_t members;      /* segments */
    unsigned char uuid[16]; /* its identity, which no other space ever has */
    char name[208];
} vas_stat_t;

/* vas_ctl(command, vid) or vas_ctl(command, vid, argument): VAS_STAT, VAS_CHMOD. */
int vas_control(int command, vasid_t vid, uintptr_t argument);

/* ---- Segments --------------------------------------------------------------------------------------------------- */

/* Makes a segment that can grow to `bytes` bytes, 1 MiB at least, rounded up to 2 MiB. It takes
 * addresses for all of them, in steps of 1 GiB; memory for 2 MiB, and for the rest when its heap
 * needs it (or by SEG_GROW). `base` NULL: the registry chooses an address that no other segment
 * has. Otherwise its first byte lies there: in the registry's window (mneme_window) and at a
 * multiple of 1 GiB, else MNEME_EADDRESS; two segments may have the same address, but not in one
 * space. MNEME_EEXIST, _ENAME, _ENOMEM. */
segid_t seg_alloc(const char *name, const void *base, size_t bytes, unsigned perms);

/* Makes a segment in SEG_SHARED, SEG_HUGE, SEG_FILE or SEG_DAX; `directory` for the last two, else
 * NULL. MNEME_EBACKING. */
segid_t seg_alloc_in(const char *name, const void *base, size_t bytes, unsigned perms, int backing,
                     const char *directory);

/* The segment of that name. MNEME_ENOTFOUND, _ENAME. */
segid_t seg_find(const char *name);

/* Makes a segment with the same contents, at the same address: `name~1`, or the next number that is
 * free. The original does not change meanwhile. MNEME_ESTALLED (also if the calling thread itself
 * is inside it for writing), _EPOISONED, _ENOMEM. */
segid_t seg_clone(segid_t sid);

/* A clone under a name of your choice. MNEME_EEXIST, _ENAME. */
segid_t seg_clone_as(segid_t sid, const char *name);

/* Removes a segment with its contents; its id is stale. MNEME_EBUSY while a living process has it
 * attached. */
int seg_delete(segid_t sid);

/* seg_attach(vid, sid): for all processes that attach the space, now or later; those that have
 * attached it see the segment after their next switch. seg_attach(vh, sid): for this handle alone.
 * seg_attach(CURRENT, sid): for the handle that the calling thread is in or, in the primary space,
 * for this thread. The segment is read-only if its permissions let nobody write. A calling thread
 * that is inside the changed space leaves and enters it, so that the segment is there; if that
 * fails, as vas_switch() can, the segment is attached and the thread is in no space. seg_detach()
 * likewise. MNEME_EEXIST, _EOVERLAP, _ENOTFOUND (detach), _EPERM. */
int seg_attach_vas(vasid_t vid, segid_t sid);
int seg_attach_handle(vhandle_t vh, segid_t sid);
int seg_detach_vas(vasid_t vid, segid_t sid);
int seg_detach_handle(vhandle_t vh, segid_t sid);

/* As vas_list(), for segments. */
int seg_list(int (*each)(const char *name, void *data), void *data);

/* The state of a segment. */
typedef struct seg_stat {
    void *base;            /* its first byte; NULL if it has no address of its own */
    uint64_t size;         /* committed bytes */
    uint64_t max_size;     /* bytes to which it may grow */
    uint32_t mode;         /* permissions */
    int32_t poisoned;      /* 1: it needs SEG_REBUILD, _RESTORE or _ACCEPT, as far as is known */
    unsigned char uuid[16]; /* its identity, which no other segment ever has */
    char name[208];
} seg_stat_t;

/* seg_ctl(sid, command) or seg_ctl(sid, command, argument): SEG_STAT and the others above.
 * SEG_ACCEPT and those below it wait for the lock as vas_switch() does, and fail with MNEME_EINSIDE
 * in a thread that is inside any space. */
int seg_control(segid_t sid, int command, uintptr_t argument);

/* ---- What lies in a segment ------------------------------------------------------------------------------------- */

/* Allocates from the heap of the one segment that the calling thread may write: MNEME_EOUTSIDE or
 * _EREADONLY if there is none, _EAMBIGUOUS if there are several. Aligned to 16 bytes. A block lives
 * until it is freed, by any process. MNEME_ENOMEM if the segment is full. */
void *vas_malloc(size_t bytes);
void *vas_calloc(size_t count, size_t bytes);

/* As realloc(), in the segment that the block is in; NULL is vas_malloc(). On failure the block
 * stays as it was. */
void *vas_realloc(void *block, size_t bytes);

/* Frees a block of a segment that the thread may write. NULL does nothing. A pointer to no block,
 * or to one that is free already, is MNEME_EINVAL and changes nothing. */
int vas_free(void *block);

/* The bytes that a block really has; 0 if it is no block, or its segment is not entered. */
size_t vas_usable_size(const void *block);

/* Blocks of the segment named. `align` is a power of two up to 2 MiB. */
void *seg_malloc(segid_t sid, size_t bytes);
void *seg_calloc(segid_t sid, size_t count, size_t bytes);
void *seg_aligned_alloc(segid_t sid, size_t align, size_t bytes);

/* The segment's root: the block that leads to all others. The thread must be inside the segment.
 * NULL with mneme_code() == MNEME_OK: there is no root yet. MNEME_EROOT. */
void *seg_root(segid_t sid);

/* Makes a block of the segment's heap its root, or removes the root with NULL; the former root is
 * not freed. MNEME_EROOT if a program with typed roots made it, MNEME_EINVAL if `block` is no
 * block. Free a root only after it has been replaced or removed: a segment whose root is free is
 * damaged (MNEME_EDAMAGED). */
int seg_set_root(segid_t sid, void *block);

/* ---- Which segment a pointer belongs to -------------------------------------------------------------------------- */

/* The pointer, for use in that attached space. A segment and its clone have the same addresses: by
 * this call a program says which one it means, and the checks of pointers (docs/guides/c-checks.md)
 * accept it. NULL gives NULL. MNEME_EOUTSIDE if the address belongs to no segment of the space;
 * with PRIMARY, neither to the process itself nor to a segment that the thread attached there. */
void *vas_cast(void *pointer, vhandle_t vh);

/* Answers of mneme_place(). */
#define MNEME_COMMON 0    /* no segment can be there: stack, globals, malloc's heap, code */
#define MNEME_INSIDE 1    /* it lies in a segment that the calling thread is inside */
#define MNEME_OUTSIDE 2 /* segments lie there, but the thread is inside none of them */

/* A segment that the calling thread is inside. */
typedef struct mneme_place {
    void *base;       /* its first byte */
    size_t bytes;     /* mapped now */
    uint64_t segment; /* its identity in this process: not 0, and different from its clones' */
    int32_t access;   /* MNEME_READ, or MNEME_READ|MNEME_WRITE */
    int32_t reserved;
} mneme_place_t;

/* Where an address lies. After MNEME_INSIDE, `*place` describes the segment, unless `place` is
 * NULL. Changes neither mneme_code() nor mneme_error(). */
int mneme_place(const void *address, mneme_place_t *place);

/* The identity, as in mneme_place_t, of the segment that an attached space has at an address: 0 if
 * it has none there, or if the handle is none. Changes neither mneme_code() nor mneme_error(). */
uint64_t mneme_segment_at(vhandle_t vh, const void *address);

/* A count that changes whenever the set of segments that the calling thread is inside changes:
 * until then answers of mneme_place() hold. It may be read until the thread ends. */
const uint64_t *mneme_sections(void);

/* Two addresses: all segments of this process lie at or above the first and below the second. Both
 * are 0 until a registry is opened, and may change when another one is. */
const uint64_t *mneme_bounds(void);

/* ---- Stores ----------------------------------------------------------------------------------------------------- */

/* Keys are up to 65,535 bytes of any kind, values up to 1 GiB; an address may be NULL where the
 * length is 0. Values are copied, in and out. A call on one key is atomic, for all processes; a
 * batch is not as a whole. Functions that look for a key return 1 if it is there (was there), 0 if
 * not, -1 on failure. Reads wait only for a change of several keys that is being committed; writes
 * wait a bounded time, then MNEME_ESTALLED. Any call can fail with MNEME_ENOMEM if more than 1,020
 * threads use the store, or if this process has no memory for a copy of a value; it has then
 * changed nothing. Writes are MNEME_EREADONLY if the store was attached for reading.
 *
 * Callbacks run on copies, and no lock is held: they may take long and call any function of this
 * header. They must not throw; a longjmp out of one leaks the memory of the call and does no other
 * harm. If the store is detached while a callback runs, the call fails with MNEME_EHANDLE if it
 * needs the store again.
 *
 * A process that is killed leaves the store whole: each call took effect as a whole, or not at all.
 * A forked child must not use the store, but may mneme_free() values and exec(). */

/* A flag beside MNEME_READ and MNEME_WRITE: this process does not maintain the store. Otherwise one
 * of the processes that attached it for writing does, in threads of its own: compaction, expiry,
 * repair after processes that died. */
#define MNEME_NO_MAINTAINER 4

/* How records are updated, fixed when a store is made. */
#define MNEME_APPEND 0
#define MNEME_IN_PLACE 1

/* Which records a full store evicts. */
#define MNEME_EVICT_NONE 0 /* none: writes are MNEME_ENOMEM */
#define MNEME_EVICT_LRU 1
#define MNEME_EVICT_LFU 2
#define MNEME_EVICT_RANDOM 3
#define MNEME_EVICT_EXPIRING_LRU 4 /* these four: only records with an expiry */
#define MNEME_EVICT_EXPIRING_LFU 5
#define MNEME_EVICT_EXPIRING_RANDOM 6
#define MNEME_EVICT_EXPIRING_SOONEST 7

/* No expiry. Other times of expiry are milliseconds of the wall clock since 1970. */
#define MNEME_NEVER 0

/* Attaches the store of that name: MNEME_READ, or MNEME_READ|MNEME_WRITE. `default` is what `mneme
 * serve` serves unless told otherwise. Takes 50 us, whatever the store holds. With MNEME_READ the
 * data is mapped read-only. Each call makes another handle, of database 0. MNEME_ENOTFOUND, _ENAME,
 * _EPERM, _EINVAL (the segment holds no store), _EBUSY (it is attached 64 times, by all processes
 * together), _EPOISONED. */
mneme_store_t mneme_attach(const char *name, int flags);

/* Attaches in the registry of this directory; NULL is that of mneme_registry(). */
mneme_store_t mneme_attach_in(const char *directory, const char *name, int flags);

/* The options of a new store. 0 is the default of each. */
typedef struct mneme_options {
    uint64_t capacity;     /* bytes, everything included, 64 MiB at least; 0: 1 GiB. Memory is taken as it is used */
    uint64_t max_capacity; /* bytes to which it may grow, which its tables are laid out for; 0: four times the capacity */
    const char *registry;  /* a directory; NULL: that of mneme_registry() */
    const char *directory; /* for SEG_FILE and SEG_DAX */
    int32_t backing;       /* SEG_SHARED or another */
    uint32_t perms;        /* as of seg_alloc(); 0: 0600 */
    int32_t policy;        /* MNEME_APPEND or MNEME_IN_PLACE */
    int32_t evict;         /* MNEME_EVICT_NONE or another */
    int32_t flags;         /* 0 or MNEME_NO_MAINTAINER */
    int32_t lend_mib;      /* MiB that it lends to mneme_cache_open() while it does not need them; 0: none, for its whole life */
} mneme_options_t;

/* Makes a store, whole or not at all, and attaches it for writing. NULL: with the default options.
 * MNEME_EEXIST, _ENAME, _ENOMEM, _EBACKING. seg_delete() removes it. */
mneme_store_t mneme_create(const char *name, const mneme_options_t *options);

/* As mneme_create(); if the store exists, attaches it for writing, as it is. */
mneme_store_t mneme_open(const char *name, const mneme_options_t *options);

/* The handle of another database of an attached store, 0 to 63: the same one each time.
 * MNEME_EINVAL. */
mneme_store_t mneme_database(mneme_store_t store, unsigned number);

/* Detaches a store by any of its handles; all of them are stale then. Calls of other threads that
 * are under way end as usual. */
int mneme_detach(mneme_store_t store);

/* Copies the value to the buffer and stores its length. If it is longer than the buffer:
 * MNEME_ESHORT, the length is stored, and nothing copied. Buffer NULL and capacity 0: the length
 * alone, which costs the same for values of any length. The key may not lie in the buffer or in the
 * place for the length: MNEME_EINVAL, here and in every function of one key. */
int mneme_get(mneme_store_t store, const void *key, size_t key_length, void *buffer, size_t capacity, size_t *length);

/* Copies the value to newly allocated memory, with a NUL behind it that does not count. Free it
 * with mneme_free(). `length` may be NULL. */
int mneme_get_alloc(mneme_store_t store, const void *key, size_t key_length, void **value, size_t *length);

/* Frees a value from mneme_get_alloc(). NULL does nothing. */
void mneme_free(void *value);

/* Copies the part of the value that begins at byte `at` to the buffer, as much as fits, and stores
 * the length of the whole value. The rest of the value costs nothing. */
int mneme_read_part(mneme_store_t store, const void *key, size_t key_length, size_t at, void *buffer, size_t capacity,
                    size_t *length);

/* For mneme_write_part(): behind the value's last byte. */
#define MNEME_AT_END ((size_t)-1)

/* Writes bytes into the value from byte `at` on, atomically, and stores its new length; 0 or -1. A
 * value that ends before `at` is filled with zeros; an absent key is created. The expiry stays.
 * With a value above 4 KiB the cost is that of the part, unless the whole value was read since the
 * last change. */
int mneme_write_part(mneme_store_t store, const void *key, size_t key_length, size_t at, const void *part,
                     size_t part_length, size_t *length);

/* Whether the key is there. */
int mneme_contains(mneme_store_t store, const void *key, size_t key_length);

/* Stores the value in place of an older one and its expiry; 0 or -1. MNEME_ENOMEM: the store is
 * full. */
int mneme_put(mneme_store_t store, const void *key, size_t key_length, const void *value, size_t length);

/* Stores a value that expires at that time; a time in the past makes the key absent. */
int mneme_put_until(mneme_store_t store, const void *key, size_t key_length, const void *value, size_t length,
                    uint64_t expires);

/* Removes the key. */
int mneme_remove(mneme_store_t store, const void *key, size_t key_length);

/* When the key expires, or MNEME_NEVER. */
int mneme_expiry(mneme_store_t store, const void *key, size_t key_length, uint64_t *expires);

/* Sets when the key expires, or MNEME_NEVER. */
int mneme_set_expiry(mneme_store_t store, const void *key, size_t key_length, uint64_t expires);

/* What the callback of mneme_update() may return. */
#define MNEME_KEEP 0    /* leave it as it is */
#define MNEME_REPLACE 1 /* store the mneme_change_t */
#define MNEME_REMOVE 2  /* remove it */

/* Results of mneme_update(). */
#define MNEME_ABSENT 0   /* the key was not there and is not */
#define MNEME_KEPT 1     /* it is there as before */
#define MNEME_INSERTED 2 /* it is new */
#define MNEME_REPLACED 3 /* it has another value or expiry */
#define MNEME_REMOVED 4  /* it is gone */

/* A new value and expiry. */
typedef struct mneme_change {
    const void *value; /* valid until the function is called again, or mneme_update() returns */
    size_t length;
    uint64_t expires; /* as before the change, unless the function sets it */
} mneme_change_t;

/* Changes a key depending on its value, atomically. `decide` gets a copy of the value (NULL: the
 * key is absent) and returns MNEME_KEEP, _REPLACE or _REMOVE. If another writer was faster, it is
 * called again. */
int mneme_update(mneme_store_t store, const void *key, size_t key_length,
                 int (*decide)(const void *old, size_t length, mneme_change_t *change, void *data), void *data);

/* Bytes somewhere, and a record. */
typedef struct mneme_bytes {
    const void *at;
    size_t length;
} mneme_bytes_t;

typedef struct mneme_pair {
    mneme_bytes_t key;
    mneme_bytes_t value;
} mneme_pair_t;

/* Calls `each` for each key in order, with its value or NULL, until it does not return 0. Several
 * times as fast as single calls. Copies the values of 32 keys at a time. */
int mneme_get_many(mneme_store_t store, const mneme_bytes_t *keys, size_t count,
                   int (*each)(size_t index, const void *value, size_t length, void *data), void *data);

/* Stores each pair in order; later ones win. `*stored`: how many were stored; on failure these are
 * the first ones. `stored` may be NULL. */
int mneme_put_many(mneme_store_t store, const mneme_pair_t *pairs, size_t count, size_t *stored);

/* Removes each key, in order. `*removed`: how many were there, unless the call fails. `*tried`: how
 * many were tried; on failure these are the first ones. Either may be NULL. */
int mneme_remove_many(mneme_store_t store, const mneme_bytes_t *keys, size_t count, size_t *removed, size_t *tried);

/* Where a scan begins, and where it has ended. */
#define MNEME_SCAN_START UINT64_C(0)
#define MNEME_SCAN_END UINT64_MAX

/* Calls `each` for about `count` records from the cursor on, and moves the cursor behind them. From
 * start to end every record that is there all the time comes at least once. If `each` does not
 * return 0 it is not called again, and the cursor stays: the next call visits the same records. */
int mneme_scan(mneme_store_t store, uint64_t *cursor, size_t count,
               int (*each)(const void *key, size_t key_length, const void *value, size_t length, void *data),
               void *data);

/* Hashes, lists, sets and sorted sets: many values under one key, which a server's clients reach,
 * too. The functions above are for strings, except that mneme_contains(), _remove(),
 * _remove_many(), _expiry() and _set_expiry() take any value, and the functions of put replace it.
 * mneme_scan() leaves all but strings out. A call that meets a value of another kind is
 * MNEME_EINVAL and changes nothing.
 *
 * Where there is no key, each of them is empty; one that loses its last element takes the key with
 * it. Each call is atomic, also with several elements: it takes effect as a whole, or fails and
 * changes nothing. Fields and members are up to 65,527 bytes of any kind, values and items up to
 * about 1 GiB; any of them may be empty, and a longer one is MNEME_EINVAL. All elements that a
 * callback is to get are copied before it is called.
 *
 * A call on a small one, of some 2 KiB, looks through all of it. Of large ones, a call on a hash or
 * a set costs the same at any size, one on a list or a sorted set takes time in proportion to the
 * logarithm of its length, for each element that it names; exceptions are mentioned. */

/* Hashes: fields with values, which clients reach by HSET and HGET. */

/* Copies the value of a field to the buffer, as mneme_get() does that of a key. */
int mneme_hash_get(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                   void *buffer, size_t capacity, size_t *length);

/* Sets a field; 1: it is new, 0: it was there, -1. */
int mneme_hash_set(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                   const void *value, size_t length);

/* Sets all fields; later ones win; 0 or -1. `*added`: how many were new; `added` may be NULL. */
int mneme_hash_set_many(mneme_store_t store, const void *key, size_t key_length, const mneme_pair_t *pairs, size_t count,
                        size_t *added);

/* Removes a field. */
int mneme_hash_remove(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length);

/* Adds to the integer in a field, which is 0 if the field is absent, and stores the sum; 0 or -1.
 * `sum` may be NULL. MNEME_EINVAL: the value is no integer of 64 bits, or the sum would be none. */
int mneme_hash_increment(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                         int64_t by, int64_t *sum);

/* The number of fields; -1 on failure. */
int64_t mneme_hash_length(mneme_store_t store, const void *key, size_t key_length);

/* Calls `each` with each field and its value, copies of one instant, until it does not return 0; 0
 * or -1. */
int mneme_hash_each(mneme_store_t store, const void *key, size_t key_length,
                    int (*each)(const void *field, size_t field_length, const void *value, size_t length, void *data),
                    void *data);

/* Lists: items in an order, which clients reach by LPUSH and RPOP. An index counts from 0, a
 * negative one from the end: -1 is the last item. */
#define MNEME_FRONT 0
#define MNEME_BACK 1

/* Adds items at an end, one after the other, so that the last one becomes the outermost; the length
 * of the list then, or -1. */
int64_t mneme_list_push(mneme_store_t store, const void *key, size_t key_length, int end, const mneme_bytes_t *items,
                        size_t count);

/* Removes the item at an end and copies it to the buffer, which may not be NULL; 1, 0: the list is
 * empty, or -1. If it is longer than the buffer: MNEME_ESHORT, the length is stored, and the item
 * stays. `length` may be NULL. */
int mneme_list_pop(mneme_store_t store, const void *key, size_t key_length, int end, void *buffer, size_t capacity,
                   size_t *length);

/* Copies the item at an index to the buffer, as mneme_get() does the value of a key; 0: the list
 * has no such item. */
int mneme_list_get(mneme_store_t store, const void *key, size_t key_length, int64_t index, void *buffer,
                   size_t capacity, size_t *length);

/* Gives the item at an index another value; 1, 0: the list has no such item, or -1. */
int mneme_list_set(mneme_store_t store, const void *key, size_t key_length, int64_t index, const void *item,
                   size_t length);

/* Removes items that equal this one: the first `count` of them from an end; 0: all. How many there
 * were, or -1. It looks through the items up to the last one that it removes. */
int64_t mneme_list_remove(mneme_store_t store, const void *key, size_t key_length, int end, size_t count,
                          const void *item, size_t length);

/* Removes all items but those from index `first` to `last`, both of which stay; 0 or -1. */
int mneme_list_trim(mneme_store_t store, const void *key, size_t key_length, int64_t first, int64_t last);

/* The length of the list; -1 on failure. */
int64_t mneme_list_length(mneme_store_t store, const void *key, size_t key_length);

/* Calls `each` with the items from index `first` to `last`, copies of one instant, until it does not
 * return 0; 0 or -1. 0 and -1: all. */
int mneme_list_each(mneme_store_t store, const void *key, size_t key_length, int64_t first, int64_t last,
                    int (*each)(const void *item, size_t length, void *data), void *data);

/* Sets: byte strings, each once, which clients reach by SADD. */

/* Adds a member; 1: it is new, 0: it was there, -1. */
int mneme_set_add(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length);

/* Adds all members; 0 or -1. `*added`: how many were new; `added` may be NULL. */
int mneme_set_add_many(mneme_store_t store, const void *key, size_t key_length, const mneme_bytes_t *members,
                       size_t count, size_t *added);

/* Removes a member. */
int mneme_set_remove(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length);

/* Whether it is a member. */
int mneme_set_contains(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length);

/* The number of members; -1 on failure. */
int64_t mneme_set_length(mneme_store_t store, const void *key, size_t key_length);

/* Calls `each` with each member, copies of one instant, until it does not return 0; 0 or -1. */
int mneme_set_each(mneme_store_t store, const void *key, size_t key_length,
                   int (*each)(const void *member, size_t length, void *data), void *data);

/* Sorted sets: members with scores, in the order of these and then of their bytes, which clients
 * reach by ZADD. A score may be infinite; one that is not a number is MNEME_EINVAL, also as a sum or
 * a bound. */

/* A member and its score. */
typedef struct mneme_scored {
    mneme_bytes_t member;
    double score;
} mneme_scored_t;

/* Gives a member a score; 1: it is new, 0: it was there, -1. */
int mneme_sorted_set_set(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length,
                         double score);

/* Gives all members their scores; later ones win; 0 or -1. `*added`: how many were new; `added` may
 * be NULL. */
int mneme_sorted_set_set_many(mneme_store_t store, const void *key, size_t key_length, const mneme_scored_t *members,
                              size_t count, size_t *added);

/* Adds to the score of a member, which is 0 if it is new, and stores the sum; 0 or -1. `sum` may be
 * NULL. */
int mneme_sorted_set_increment(mneme_store_t store, const void *key, size_t key_length, const void *member,
                               size_t length, double by, double *sum);

/* Removes a member. */
int mneme_sorted_set_remove(mneme_store_t store, const void *key, size_t key_length, const void *member,
                            size_t length);

/* Removes the members with scores from `low` to `high`, as mneme_sorted_set_count() counts them; how
 * many there were, or -1. */
int64_t mneme_sorted_set_remove_score(mneme_store_t store, const void *key, size_t key_length, double low, double high);

/* Removes the member with the lowest score (MNEME_FRONT) or with the highest one (MNEME_BACK), as
 * mneme_list_pop() does an item, and stores its score. `length` and `score` may be NULL. */
int mneme_sorted_set_pop(mneme_store_t store, const void *key, size_t key_length, int end, void *buffer,
                         size_t capacity, size_t *length, double *score);

/* Stores the score of a member; 1, 0: it is none, or -1. `score` may be NULL. */
int mneme_sorted_set_score(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length,
                           double *score);

/* Stores how many members lie before this one, or behind it if `reverse` is not 0; 1, 0: it is none,
 * or -1. `rank` may be NULL. */
int mneme_sorted_set_rank(mneme_store_t store, const void *key, size_t key_length, const void *member, size_t length,
                          int reverse, uint64_t *rank);

/* The number of members; -1 on failure. */
int64_t mneme_sorted_set_length(mneme_store_t store, const void *key, size_t key_length);

/* How many members have scores from `low` to `high`, both of which belong to the range (nextafter()
 * leaves one out; -INFINITY and INFINITY bound nothing); -1 on failure. */
int64_t mneme_sorted_set_count(mneme_store_t store, const void *key, size_t key_length, double low, double high);

/* Calls `each` with the members from rank `first` to `last` and their scores, copies of one instant,
 * until it does not return 0; 0 or -1. Ranks count as the indices of a list do. If `reverse` is not
 * 0, the order and the ranks begin with the highest score. */
int mneme_sorted_set_each(mneme_store_t store, const void *key, size_t key_length, int64_t first, int64_t last,
                          int reverse, int (*each)(const void *member, size_t length, double score, void *data),
                          void *data);

/* As mneme_sorted_set_each(), with the members whose scores lie from `low` to `high`. */
int mneme_sorted_set_each_score(mneme_store_t store, const void *key, size_t key_length, double low, double high,
                                int reverse, int (*each)(const void *member, size_t length, double score, void *data),
                                void *data);

/* How many records the database holds, some of which may have expired; -1 on failure. */
int64_t mneme_length(mneme_store_t store);

/* Empties the database. */
int mneme_clear(mneme_store_t store);

/* Grows the store to at least so many bytes, while others use it. MNEME_ENOMEM. */
int mneme_grow(mneme_store_t store, uint64_t bytes);

/* Sets which records a full store evicts, for all processes. */
int mneme_set_eviction(mneme_store_t store, int evict);

/* The state of a store. Live, stale, index, head, overhead and free bytes add up to its capacity.
 * */
typedef struct mneme_stat {
    uint64_t capacity;
    uint64_t max_capacity;
    uint64_t records; /* in all databases */
    uint64_t live_bytes;
    uint64_t stale_bytes; /* of removed and replaced records: compaction frees them */
    uint64_t index_bytes;
    uint64_t head_bytes;
    uint64_t overhead_bytes;
    uint64_t free_bytes;
    uint64_t reserve_bytes; /* of the free ones, those that only compaction may take */
    uint64_t moved_bytes;   /* by compaction, since it was made */
    uint64_t evicted;       /* records, since it was made */
    uint64_t evicted_bytes;
    int32_t writable;      /* 1: it was attached for writing */
    int32_t maintains;     /* 1: this process maintains it at the moment */
    int32_t outlives_boot; /* 0: it is memory, gone at the next start of the machine */
    int32_t policy;
    int32_t evict;
    int32_t reserved;
    unsigned char uuid[16]; /* of its segment */
    char name[208];
} mneme_stat_t;

int mneme_stat(mneme_store_t store, mneme_stat_t *stat);

/* Verifies the whole store, beside readers and writers; takes as long as reading all keys.
 * MNEME_EDAMAGED: the text says what is wrong. `*records`: the number of records seen; `records`
 * may be NULL. The store must be attached for writing. */
int mneme_check(mneme_store_t store, uint64_t *records);

/* ---- Memory in reserve, and a cache in it ----------------------------------------------------------------------- */

/* Takes `bytes` of address space in frames of 2 MiB, 4 MiB at least, for this process alone. The
 * part that the program has not claimed is a cache of about `records` records, which it can read
 * again elsewhere. Memory is taken as it is used. */
mneme_cache_t mneme_cache_create(uint64_t bytes, uint64_t records);

/* The cache in the memory that an attached store does not need, which all programs that attach it
 * share. The store takes memory back at once when it needs it, and lends only memory that it used
 * before. MNEME_EINVAL: it was made without `lend_mib` or `mneme serve --lend-memory`. If the store
 * was attached with MNEME_READ alone the cache is looked up and not changed (MNEME_EREADONLY). The
 * memory stays attached until the cache is destroyed, whatever becomes of the store's handle. */
mneme_cache_t mneme_cache_open(mneme_store_t store);

/* Destroys the cache and what is claimed of it; of an attached store's cache only this handle.
 * Calls of other threads that are under way end as usual. */
int mneme_cache_destroy(mneme_cache_t cache);

/* Copies the value of a key to the buffer, as mneme_get(): from the cache, or from `fetch`, which
 * is called on a miss. It returns 1 if it has stored the value's address (valid until it is called
 * again or this call ends) and length, 0 if there is no value; anything else makes this call fail
 * with MNEME_EINVAL. `fetch` NULL: only the cache is looked up. A lookup may miss at any time. If
 * the key is put or removed during `fetch`, the cache does not take the fetched value. */
int mneme_cache_get(mneme_cache_t cache, const void *key, size_t key_length, void *buffer, size_t capacity, size_t *length,
                    int (*fetch)(const void **value, size_t *length, void *data), void *data);

/* For a value that has changed elsewhere: when this returns, no lookup finds an older one. 1: the
 * cache has taken it. 0: it has not, because another thread was putting or no memory is idle. Key
 * and value have 2 MiB less 16 bytes together at most. */
int mneme_cache_put(mneme_cache_t cache, const void *key, size_t key_length, const void *value, size_t length);

/* For a value that has changed or is gone: when this returns, no lookup finds it. */
int mneme_cache_remove(mneme_cache_t cache, const void *key, size_t key_length);

/* Removes everything. */
int mneme_cache_clear(mneme_cache_t cache);

/* Limits the memory of the cache from now on; that of an attached store's cache for all programs.
 * */
int mneme_cache_limit(mneme_cache_t cache, uint64_t bytes);

/* Claims contiguous memory that begins at a multiple of 2 MiB, at once: what the cache has there is
 * discarded. The content is undefined. MNEME_ENOMEM: too much is claimed already, or the rest is
 * not contiguous; MNEME_EINVAL: `bytes` is 0 or more than there is, or the memory is an attached
 * store's, which only the store claims. */
void *mneme_cache_claim(mneme_cache_t cache, uint64_t bytes);

/* Gives claimed memory back to the cache. */
int mneme_cache_release(mneme_cache_t cache, void *memory);

/* The state of a cache. */
typedef struct mneme_cache_stat {
    uint64_t bytes;         /* can be claimed or lent */
    uint64_t claimed_bytes; /* by the program */
    uint64_t lent_bytes;    /* to the cache */
    uint64_t hits;
    uint64_t misses;
    uint64_t kept;     /* puts that the cache has taken */
    uint64_t dropped;  /* puts that it has not taken */
    uint64_t discards; /* frames that claims took from the cache */
    uint64_t claims;
    uint64_t claim_p50_ns; /* half of the claims took no longer */
    uint64_t claim_p999_ns;
    uint64_t claim_max_ns;
} mneme_cache_stat_t;

int mneme_cache_stat(mneme_cache_t cache, mneme_cache_stat_t *stat);

#ifdef __cplusplus
} /* extern "C" */

inline int seg_attach(vasid_t vid, segid_t sid) { return seg_attach_vas(vid, sid); }
inline int seg_attach(vhandle_t vh, segid_t sid) { return seg_attach_handle(vh, sid); }
inline int seg_detach(vasid_t vid, segid_t sid) { return seg_detach_vas(vid, sid); }
inline int seg_detach(vhandle_t vh, segid_t sid) { return seg_detach_handle(vh, sid); }
#else
#define seg_attach(to, sid) _Generic((to), vasid_t: seg_attach_vas, vhandle_t: seg_attach_handle)((to), (sid))
#define seg_detach(of, sid) _Generic((of), vasid_t: seg_detach_vas, vhandle_t: seg_detach_handle)((of), (sid))
#endif

/* An argument may be a number or a pointer, or be left out. */
#define seg_ctl(...) MNEME_FOURTH_(__VA_ARGS__, MNEME_SEG_CTL3_, MNEME_SEG_CTL2_, MNEME_NONE_, 0)(__VA_ARGS__)
#define vas_ctl(...) MNEME_FOURTH_(__VA_ARGS__, MNEME_VAS_CTL3_, MNEME_VAS_CTL2_, MNEME_NONE_, 0)(__VA_ARGS__)
#define MNEME_FOURTH_(a, b, c, fourth, ...) fourth
#define MNEME_SEG_CTL2_(sid, command) seg_control((sid), (command), 0)
#define MNEME_SEG_CTL3_(sid, command, argument) seg_control((sid), (command), (uintptr_t)(argument))
#define MNEME_VAS_CTL2_(command, vid) vas_control((command), (vid), 0)
#define MNEME_VAS_CTL3_(command, vid, argument) vas_control((command), (vid), (uintptr_t)(argument))

#endif
