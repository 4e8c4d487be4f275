/*
 * mneme.h: segments and address spaces that outlive every process, and the stores that servers serve.
 *
 * A SEGMENT is a named range of memory with an address of its own, the same in every process, so that pointers from
 * one part of it to another stay true. A SPACE (VAS) is a named set of segments. A process ATTACHES a space and a
 * thread SWITCHES into it: then it holds the lock of every segment of the space, shared where the segment is attached
 * for reading, alone where it is attached for writing, until it switches out.
 *
 * The functions are those of SpaceJMP (El Hajj et al., ASPLOS 2016, figure 3; figure 40 of El Hajj's and Merritt's
 * longer treatment). C11 or later, C++11 or later, Linux, 64 bits. docs/c-api.md is the guide.
 *
 * A STORE holds records, bytes under keys, in a segment of its own: what `mneme serve` serves, or one that a program
 * made. An attached program reads and writes the same records as the server and its clients, without a socket. Its part of
 * this header is the last one; docs/guides/local-clients.md is its guide.
 *
 * FAILURE. Functions that return an int return 0, or -1 on failure; those that return an id or a pointer return NULL on
 * failure. mneme_code() and mneme_error() say why, for the calling thread. Nothing here ends the process, and no
 * argument but a wrong pointer can: an id or handle that is stale, of another kind or made up is MNEME_EHANDLE. Each
 * function's comment names the codes peculiar to it; MNEME_EINVAL, _EHANDLE, _EPERM, _EIO, _EDAMAGED, _EFORKED,
 * _EREGISTRY and _EINTERNAL can come from any.
 *
 * THREADS. Any function may be called by any thread at any time. What a thread is switched into concerns that thread
 * alone. A thread that ends while it is inside, or calls exit() there, leaves the segments it could change POISONED,
 * for they may be half changed; so does a process that is killed. After longjmp the thread is still inside. Nothing
 * here is for signal handlers. A thread must not be cancelled within a call, not even at a cancellation point, which
 * would end the process: keep it from that with pthread_setcancelstate(). A call needs up to 64 KiB of stack.
 *
 * A thread that has used the library and is ending has no part in it any more: in destructors of thread-specific data
 * and, of the thread that calls exit() or returns from main(), in functions of atexit() and destructors of static
 * objects, calls that enter something, read or write are MNEME_EINVAL.
 *
 * PROCESSES. Names are global; ids and handles are this process' own. A child made by fork() without exec() can use
 * neither what its parent attached nor attach anything itself (MNEME_EFORKED). One made by _Fork() or a bare clone(),
 * which no library hears of, must exec() at once: until it has, others take a parent that was killed for alive.
 */
#ifndef MNEME_H
#define MNEME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------------------------------ */

/* A space, a segment, and an attached space, as this process knows them. Values to compare and to pass back; they
 * point to nothing. NULL is none. However often a space or segment is found, its id is one. */
typedef struct mneme_vas *vasid_t;
typedef struct mneme_segment *segid_t;
typedef struct mneme_attached *vhandle_t;

/* An attached store, or one of its databases. */
typedef struct mneme_store *mneme_store_t;

/* Memory that is held in reserve, and is a cache meanwhile. */
typedef struct mneme_cache *mneme_cache_t;

/* The dissertation's names. */
typedef vasid_t vid_t;
typedef segid_t sid_t;
typedef vhandle_t vh_t;

/* ---- Constants -------------------------------------------------------------------------------------------------- */

/* The release, as 0x00MMmmpp. mneme_version() is that of the library that is linked. */
#define MNEME_VERSION 0x000100

#define MNEME_READ 1
#define MNEME_WRITE 2

/* For vas_switch(): the process' own address space, in which the thread is inside of nothing but what it attached to
 * CURRENT there. */
#define MNEME_PRIMARY ((vhandle_t)1)
/* For seg_attach() and seg_detach(): what the calling thread is in now. */
#define MNEME_CURRENT ((vhandle_t)2)

/* What seg_alloc_in() keeps the bytes in. */
#define SEG_SHARED 0 /* memory, gone at the next start of the machine */
#define SEG_HUGE 1   /* memory in pages of 2 MiB */
#define SEG_FILE 2   /* a file in a directory of your choice */
#define SEG_DAX 3    /* a file on persistent memory */

/* Commands of seg_ctl(). */
#define SEG_STAT 1    /* seg_stat_t *: what it is at this moment */
#define SEG_CHMOD 2   /* permissions, as of seg_alloc() */
#define SEG_GROW 3    /* bytes: at least so many are committed */
#define SEG_ACCEPT 4  /* none: it is whole, you vouch for that. Ends poisoning */
#define SEG_REBUILD 5 /* none: empty it, with a new heap and no root. Ends poisoning */
#define SEG_CHECK 6   /* none: verify its heap */
#define SEG_RESTORE 7 /* segid_t: give it the contents of a clone, or of what it is a clone of. Ends poisoning */
#define SEG_SYNC 8    /* none: write it through to its medium, if that outlives the machine, and wait for it */

/* Commands of vas_ctl(). */
#define VAS_STAT 1  /* vas_stat_t *: what it is at this moment */
#define VAS_CHMOD 2 /* permissions, as of vas_create() */

/* What mneme_code() says. The numbers stay. */
#define MNEME_OK 0
#define MNEME_EINVAL 1      /* an argument is impossible: NULL, no mode, no command, no block */
#define MNEME_EHANDLE 2     /* no such id or handle: stale, of another kind, or made up */
#define MNEME_ENAME 3       /* no name: 1 to 200 bytes of UTF-8, no '/', no control character, no '.' at the front;
                             * of a new segment also no letter behind a '~', as the server names what it keeps */
#define MNEME_ENOTFOUND 4   /* nothing has that name; a member or an attached segment is not there */
#define MNEME_EEXIST 5      /* something has that name; it is a member already */
#define MNEME_EADDRESS 6    /* the address cannot be had: see seg_alloc() */
#define MNEME_EOVERLAP 7    /* two segments of one space claim the same addresses */
#define MNEME_ENOMEM 8      /* no memory, no free space in the segment, the file system or the registry's window */
#define MNEME_EPERM 9       /* permissions forbid it */
#define MNEME_EREADONLY 10  /* the segment was entered, or the store attached, for reading only */
#define MNEME_EBUSY 11      /* in use: by a living process, or by a thread of this one */
#define MNEME_ESTALLED 12   /* the holder of a lock lives and does not leave, or died and what it left is not in
                             * order yet: the text names it. Try again */
#define MNEME_EPOISONED 13  /* somebody died while changing it: SEG_REBUILD, _RESTORE or _ACCEPT. A store: the machine
                             * went down while it was open on a disk */
#define MNEME_EOUTSIDE 14   /* the thread is not inside of the segment */
#define MNEME_EINSIDE 15    /* the thread is inside of something: vas_switch(PRIMARY) first */
#define MNEME_EAMBIGUOUS 16 /* several segments are writable here: name one with seg_malloc() */
#define MNEME_EROOT 17      /* the root was made by a program with types, and is not for this one */
#define MNEME_ESTALE 18     /* it was removed, or made anew under its name */
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

/* The code of the last call that failed in this thread; MNEME_OK before the first. Calls that succeed leave it, but for
 * seg_root(), whose NULL may be an answer. */
int mneme_code(void);

/* The text that belongs to it: English, one line, of arbitrary length; with MNEME_OK an empty one. Valid until the
 * thread's next call that fails. Never NULL. */
const char *mneme_error(void);

/* The version of the library. */
uint32_t mneme_version(void);

/* ---- The registry ----------------------------------------------------------------------------------------------- */

/* Works in the registry in this directory from now on, and makes it if there is none. Without this call it is
 * $MNEME_DIR, else /dev/shm/mneme-<uid>-registry; opened
 * with the first call that needs it. Ids of another registry stay valid. MNEME_EREGISTRY. */
int mneme_registry(const char *directory);

/* The addresses in which the registry's segments lie: the first, and how many bytes. Either pointer may be NULL. */
int mneme_window(void **base, size_t *bytes);

/* How long vas_switch() waits for each lock, in milliseconds; 1000 unless set. For spaces attached from now on. */
int mneme_timeout(uint32_t milliseconds);

/* ---- Spaces ----------------------------------------------------------------------------------------------------- */

/* Permissions, of spaces and of segments: a file's, in octal (0660); or READ, or READ|WRITE, for the owner alone. The
 * papers' decimal 660 is read as 0660 too: a number above 0777 whose digits are octal ones. There is no right to
 * execute, and none to write without reading: other numbers are MNEME_EINVAL. */

/* The space of that name. MNEME_ENOTFOUND, _ENAME. */
vasid_t vas_find(const char *name);

/* Makes a space without segments. A user who may read it may attach it; one who may write it may change which segments it has.
 * MNEME_EEXIST, _ENAME, _ENOMEM. */
vasid_t vas_create(const char *name, unsigned perms);

/* Makes a space with the same segments and permissions: `name~1`, or the next number that is free. */
vasid_t vas_clone(vasid_t vid);

/* A clone under a name of your choice. MNEME_EEXIST, _ENAME. */
vasid_t vas_clone_as(vasid_t vid, const char *name);

/* Removes a space; its segments stay, its id is stale. MNEME_EBUSY while a living process has it attached. */
int vas_delete(vasid_t vid);

/* Attaches a space: maps its segments, touches nothing of them and takes no lock. Each call makes another handle. Later
 * changes of the space are followed by each vas_switch(). MNEME_EPERM, _ENOTFOUND or _ESTALE (a member is gone). */
vhandle_t vas_attach(vasid_t vid);

/* Attaches with what the space gives (MNEME_READ|MNEME_WRITE), or for reading only (MNEME_READ). */
vhandle_t vas_attach_as(vasid_t vid, int access);

/* Gives up a handle. Other threads that are inside stay so until they leave. MNEME_EINSIDE if the calling thread is. */
int vas_detach(vhandle_t vh);

/* Switches the calling thread: leaves where it is, and enters the attached space, or the primary one. Returns with the
 * locks of its segments held, alone where the space gives writing. Entering again what one is in leaves and enters it.
 * MNEME_ESTALLED, _EPOISONED, _EBUSY (threads of this process are inside of other segments with the same addresses),
 * _ENOTFOUND, _ESTALE, _EPERM (following the space's changes); the thread is inside of nothing then, unless the
 * handle is none (MNEME_EHANDLE), which changes nothing. */
int vas_switch(vhandle_t vh);

/* Enters to read only (MNEME_READ): beside other readers, whatever the space gives. */
int vas_switch_as(vhandle_t vh, int access);

/* Where the calling thread is: a handle, or PRIMARY. */
vhandle_t vas_current(void);

/* What everybody who attaches the space may do with a segment of it. MNEME_ENOTFOUND. */
int vas_access(vasid_t vid, segid_t sid, int access);

/* Calls `each` with every space's name, in order, until it returns something else than 0. Returns the number of calls,
 * or -1. The name is valid during the call; `each` may call anything here, and must not throw. */
int vas_list(int (*each)(const char *name, void *data), void *data);

/* Calls `each` with every segment of a space, and what may be done with it. */
int vas_members(vasid_t vid, int (*each)(const char *name, int access, void *data), void *data);

/* What a space is at a moment. */
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

/* Makes a segment that can grow to `bytes` bytes, 1 MiB at least, rounded up to 2 MiB. It takes addresses for all of
 * them, in steps of 1 GiB; memory for 2 MiB, and for the rest when its heap needs it (or by SEG_GROW). `base` NULL: the
 * registry chooses an address that no other segment has. Otherwise its first byte lies there: in the registry's window
 * (mneme_window) and at a multiple of 1 GiB, or it is MNEME_EADDRESS; two segments may have one address, and cannot be
 * in one space then. MNEME_EEXIST, _ENAME, _ENOMEM. */
segid_t seg_alloc(const char *name, const void *base, size_t bytes, unsigned perms);

/* Makes a segment in SEG_SHARED, SEG_HUGE, SEG_FILE or SEG_DAX; `directory` for the last two, else NULL. MNEME_EBACKING. */
segid_t seg_alloc_in(const char *name, const void *base, size_t bytes, unsigned perms, int backing,
                     const char *directory);

/* The segment of that name. MNEME_ENOTFOUND, _ENAME. */
segid_t seg_find(const char *name);

/* Makes a segment with the same contents, at the same address: `name~1`, or the next number that is free. Nobody
 * changes the original meanwhile. MNEME_ESTALLED, _EPOISONED, _ENOMEM; _ESTALLED too if the calling thread itself is
 * inside of it to write. */
segid_t seg_clone(segid_t sid);

/* A clone under a name of your choice. MNEME_EEXIST, _ENAME. */
segid_t seg_clone_as(segid_t sid, const char *name);

/* Removes a segment and what it holds; its id is stale. MNEME_EBUSY while a living process has it attached. */
int seg_delete(segid_t sid);

/* seg_attach(vid, sid): for all who attach the space, now or later; the others have it with their next switch.
 * seg_attach(vh, sid): for this handle alone. seg_attach(CURRENT, sid): for the handle that the calling thread is in
 * or, in the primary space, for this thread. Read-only if the segment's permissions have nobody write it. A calling
 * thread that is inside of what is changed leaves and enters it, so that the segment is there; if that fails, as
 * vas_switch() does, it is inside of nothing though the segment is attached. seg_detach() likewise.
 * MNEME_EEXIST, _EOVERLAP, _ENOTFOUND (detach), _EPERM. */
int seg_attach_vas(vasid_t vid, segid_t sid);
int seg_attach_handle(vhandle_t vh, segid_t sid);
int seg_detach_vas(vasid_t vid, segid_t sid);
int seg_detach_handle(vhandle_t vh, segid_t sid);

/* As vas_list(), for segments. */
int seg_list(int (*each)(const char *name, void *data), void *data);

/* What a segment is at a moment. */
typedef struct seg_stat {
    void *base;            /* its first byte; NULL if it has no address of its own */
    uint64_t size;         /* committed bytes */
    uint64_t max_size;     /* bytes to which it may grow */
    uint32_t mode;         /* permissions */
    int32_t poisoned;      /* 1: it needs SEG_REBUILD, _RESTORE or _ACCEPT, and somebody has noticed */
    unsigned char uuid[16]; /* its identity, which no other segment ever has */
    char name[208];
} seg_stat_t;

/* seg_ctl(sid, command) or seg_ctl(sid, command, argument): SEG_STAT and the others above. SEG_ACCEPT and those after it
 * wait for the lock as vas_switch() does, and are MNEME_EINSIDE in a thread that is inside of anything. */
int seg_control(segid_t sid, int command, uintptr_t argument);

/* ---- What lies in a segment ------------------------------------------------------------------------------------- */

/* The heap of the one segment that the calling thread may write where it is: MNEME_EOUTSIDE or _EREADONLY if there is
 * none, _EAMBIGUOUS if there are several. Aligned to 16 bytes. A block lives until somebody frees it, in any process.
 * MNEME_ENOMEM if the segment is full. */
void *vas_malloc(size_t bytes);
void *vas_calloc(size_t count, size_t bytes);

/* As realloc(): in whatever segment the block is; NULL is vas_malloc(). The block stays as it was on failure. */
void *vas_realloc(void *block, size_t bytes);

/* Gives a block back, of whatever segment the thread is inside of to write. NULL does nothing. What is no block, as one
 * that is free already, is MNEME_EINVAL and changes nothing. */
int vas_free(void *block);

/* Bytes that a block really has; 0 if it is none, or not here. */
size_t vas_usable_size(const void *block);

/* Blocks of the segment named. `align` is a power of two up to 2 MiB. */
void *seg_malloc(segid_t sid, size_t bytes);
void *seg_calloc(segid_t sid, size_t count, size_t bytes);
void *seg_aligned_alloc(segid_t sid, size_t align, size_t bytes);

/* The block from which others find all that the segment holds. The thread must be inside of the segment. NULL with
 * mneme_code() == MNEME_OK: there is none yet. MNEME_EROOT. */
void *seg_root(segid_t sid);

/* Makes a block of the segment's heap its root, or with NULL none; what was the root is not freed. MNEME_EROOT if a
 * program with types made the one that is there, MNEME_EINVAL if it is no block. Free a root when another one, or none,
 * has taken its place: until then the segment would be damaged (MNEME_EDAMAGED). */
int seg_set_root(segid_t sid, void *block);

/* ---- Which segment a pointer belongs to -------------------------------------------------------------------------- */

/* The pointer, for use in that attached space: a clone's pointers lead to the original's addresses, and the other way
 * round, so that a program which means the other one says so. Checks of pointers (docs/guides/c-checks.md) take its word
 * for it. NULL gives NULL. MNEME_EOUTSIDE if the address belongs to no segment of the space; with PRIMARY, neither to the
 * process itself nor to a segment that the thread attached there. */
void *vas_cast(void *pointer, vhandle_t vh);

/* What mneme_place() says of an address. */
#define MNEME_COMMON 0    /* no segment can be there: stack, globals, malloc's heap, code */
#define MNEME_INSIDE 1    /* it lies in a segment that the calling thread is inside of */
#define MNEME_OUTSIDE 2 /* segments lie there, but the thread is not inside of one that does */

/* A segment that the calling thread is inside of. */
typedef struct mneme_place {
    void *base;       /* its first byte */
    size_t bytes;     /* that are mapped now */
    uint64_t segment; /* its identity in this process: not 0, and another than that of its clones */
    int32_t access;   /* MNEME_READ, or MNEME_READ|MNEME_WRITE */
    int32_t reserved;
} mneme_place_t;

/* Where an address lies. After MNEME_INSIDE, `*place` says in what, unless `place` is NULL. Changes neither mneme_code()
 * nor mneme_error(). */
int mneme_place(const void *address, mneme_place_t *place);

/* The identity, as in mneme_place_t, of the segment that an attached space has at an address: 0 if it has none there, or if
 * the handle is none. Changes neither mneme_code() nor mneme_error(). */
uint64_t mneme_segment_at(vhandle_t vh, const void *address);

/* A count that changes whenever what the calling thread is inside of does: answers of mneme_place() hold until then. It
 * may be read at any time until the thread ends. */
const uint64_t *mneme_sections(void);

/* Two numbers: segments of this process lie from the first address on, and before the second. Both are 0 until a
 * registry is opened; they may change whenever another one is. */
const uint64_t *mneme_bounds(void);

/* ---- Stores ----------------------------------------------------------------------------------------------------- */

/* Keys are up to 65,535 bytes of any kind, values up to 1 GiB; an address may be NULL where the length is 0. Values are copied,
 * in and out. A call on one key is atomic, for all processes; a batch is not as a whole. Functions that look for a key
 * return 1 if it is there (was there), 0 if not, -1 on failure. Reads wait for nobody, but for a change of several keys at
 * one instant; writes wait a bounded time, MNEME_ESTALLED. All of this can be MNEME_ENOMEM where more than 1,020 threads
 * use a store, or where this process has no memory for a copy of a value, of which nothing has taken place then; writes are
 * MNEME_EREADONLY where it was attached for reading.
 *
 * The programs' functions run on copies and with nothing held: they may take their time and call anything here. They must
 * not throw; after longjmp the memory of the call is lost, no more. A call whose function runs while the store is detached
 * is MNEME_EHANDLE, if it needs the store once more.
 *
 * A process that is killed leaves the store whole: each call took place or did not. A forked child must not use the store,
 * which may give back what mneme_get_alloc() gave, and exec. */

/* A flag beside MNEME_READ and MNEME_WRITE: this process does not maintain the store. Otherwise one of those that attached
 * for writing does so in threads of its own: compaction, expiry, what the dead leave. */
#define MNEME_NO_MAINTAINER 4

/* How records are updated, fixed when a store is made. */
#define MNEME_APPEND 0
#define MNEME_IN_PLACE 1

/* What a full store forgets. */
#define MNEME_EVICT_NONE 0 /* nothing: writes are MNEME_ENOMEM */
#define MNEME_EVICT_LRU 1
#define MNEME_EVICT_LFU 2
#define MNEME_EVICT_RANDOM 3
#define MNEME_EVICT_EXPIRING_LRU 4 /* these four: only what has an expiry */
#define MNEME_EVICT_EXPIRING_LFU 5
#define MNEME_EVICT_EXPIRING_RANDOM 6
#define MNEME_EVICT_EXPIRING_SOONEST 7

/* For a time of expiry, which is in wall-clock milliseconds since 1970: it does not expire. */
#define MNEME_NEVER 0

/* Attaches the store of that name: MNEME_READ, or MNEME_READ|MNEME_WRITE. `default` is what `mneme serve` serves unless told
 * otherwise. Takes 50 us, whatever the store holds. With MNEME_READ the data is mapped read-only. Each call makes another
 * handle, of database 0. MNEME_ENOTFOUND, _ENAME, _EPERM, _EINVAL (the segment holds no store), _EBUSY (it is attached 64
 * times, by all processes together), _EPOISONED. */
mneme_store_t mneme_attach(const char *name, int flags);

/* Attaches in the registry of this directory; NULL is that of mneme_registry(). */
mneme_store_t mneme_attach_in(const char *directory, const char *name, int flags);

/* What a new store shall be. Everything 0 is what is usual. */
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

/* Makes a store, whole or not at all, and attaches it for writing. NULL: with all that is usual. MNEME_EEXIST, _ENAME,
 * _ENOMEM, _EBACKING. seg_delete() removes it. */
mneme_store_t mneme_create(const char *name, const mneme_options_t *options);

/* Makes one, or attaches the one that is there for writing, as it is. */
mneme_store_t mneme_open(const char *name, const mneme_options_t *options);

/* The handle of another database of an attached store, 0 to 63: the same one each time. MNEME_EINVAL. */
mneme_store_t mneme_database(mneme_store_t store, unsigned number);

/* Gives up a store by any handle of it: all are stale then. Calls of other threads that are under way end as usual. */
int mneme_detach(mneme_store_t store);

/* Copies the value to the buffer and stores its length. If it is longer than the buffer: MNEME_ESHORT, the length is stored,
 * and nothing copied. Buffer NULL and capacity 0: the length alone, which costs the same for values of any length. The key may
 * not lie in the buffer or in the place for the length: MNEME_EINVAL, here and in every function of one key. */
int mneme_get(mneme_store_t store, const void *key, size_t key_length, void *buffer, size_t capacity, size_t *length);

/* Copies the value to memory of its own, with a NUL behind it that does not count. Give that back with mneme_free().
 * `length` may be NULL. */
int mneme_get_alloc(mneme_store_t store, const void *key, size_t key_length, void **value, size_t *length);

/* Gives back what mneme_get_alloc() gave. NULL does nothing. */
void mneme_free(void *value);

/* Copies what there is of the value from byte `at` on to the buffer, as far as that reaches, and stores the length of the whole
 * value. What is not asked for is not copied. */
int mneme_read_part(mneme_store_t store, const void *key, size_t key_length, size_t at, void *buffer, size_t capacity,
                    size_t *length);

/* For mneme_write_part(): behind the value's last byte. */
#define MNEME_AT_END ((size_t)-1)

/* Writes bytes into the value from byte `at` on, as one step, and tells how long it is then; 0 or -1. Where it ends before it
 * becomes longer, with zeros in between; a key that is not there becomes one. Its expiry stays. Of a value above 4 KiB this
 * costs what the part costs, unless something has read all of it since the last change. */
int mneme_write_part(mneme_store_t store, const void *key, size_t key_length, size_t at, const void *part,
                     size_t part_length, size_t *length);

/* Whether the key is there. */
int mneme_contains(mneme_store_t store, const void *key, size_t key_length);

/* Stores the value in place of an older one and its expiry; 0 or -1. MNEME_ENOMEM: the store is full. */
int mneme_put(mneme_store_t store, const void *key, size_t key_length, const void *value, size_t length);

/* Stores a value until then; what has expired already makes the key absent. */
int mneme_put_until(mneme_store_t store, const void *key, size_t key_length, const void *value, size_t length,
                    uint64_t expires);

/* Removes the key. */
int mneme_remove(mneme_store_t store, const void *key, size_t key_length);

/* When the key expires, or MNEME_NEVER. */
int mneme_expiry(mneme_store_t store, const void *key, size_t key_length, uint64_t *expires);

/* Sets when the key expires, or MNEME_NEVER. */
int mneme_set_expiry(mneme_store_t store, const void *key, size_t key_length, uint64_t expires);

/* What a function for mneme_update() may decide. */
#define MNEME_KEEP 0    /* leave it as it is */
#define MNEME_REPLACE 1 /* store what it put into the mneme_change_t */
#define MNEME_REMOVE 2  /* remove it */

/* What mneme_update() did. */
#define MNEME_ABSENT 0   /* the key was not there and is not */
#define MNEME_KEPT 1     /* it is there as before */
#define MNEME_INSERTED 2 /* it is new */
#define MNEME_REPLACED 3 /* it has another value or expiry */
#define MNEME_REMOVED 4  /* it is gone */

/* A change that is wanted. */
typedef struct mneme_change {
    const void *value; /* valid until the function is called again, or mneme_update() returns */
    size_t length;
    uint64_t expires; /* as before the change, unless the function sets it */
} mneme_change_t;

/* Changes a key by its present value, as one step. `decide` is given a copy of the value (NULL: there is none), and answers
 * MNEME_KEEP or another; what it decides takes place if value and expiry are still the same, else it is asked again. */
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

/* Calls `each` for each key in order, with its value or NULL, until it returns something else than 0. Several times as fast
 * as single calls. Copies the values of 32 keys at a time. */
int mneme_get_many(mneme_store_t store, const mneme_bytes_t *keys, size_t count,
                   int (*each)(size_t index, const void *value, size_t length, void *data), void *data);

/* Stores each pair in order; later ones win. Tells how many were stored, which on failure are the first ones. `stored` may
 * be NULL. */
int mneme_put_many(mneme_store_t store, const mneme_pair_t *pairs, size_t count, size_t *stored);

/* Removes each key. Tells how many were there, unless it fails; and how many were tried, which on failure are the first
 * ones. Either may be NULL. */
int mneme_remove_many(mneme_store_t store, const mneme_bytes_t *keys, size_t count, size_t *removed, size_t *tried);

/* Where a scan begins, and where it has ended. */
#define MNEME_SCAN_START UINT64_C(0)
#define MNEME_SCAN_END UINT64_MAX

/* Calls `each` for about `count` records from the cursor on, and moves the cursor behind them. From start to end every
 * record that is there all the time comes at least once. If `each` returns something else than 0 it is not called again,
 * and the cursor stays: the same records come with the next call. */
int mneme_scan(mneme_store_t store, uint64_t *cursor, size_t count,
               int (*each)(const void *key, size_t key_length, const void *value, size_t length, void *data),
               void *data);

/* Hashes: fields with values under one key, which a server's clients reach by HSET and HGET. The functions above are for
 * strings, but for mneme_contains(), _remove(), _remove_many(), _expiry() and _set_expiry(), and those of put, which take
 * the place of what there is; mneme_scan() leaves hashes out. What meets a value of another kind is MNEME_EINVAL, and
 * changes nothing. Each call looks through the whole hash, and a change stores it anew. */

/* Copies the value of a field to the buffer, as mneme_get() does that of a key. */
int mneme_hash_get(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                   void *buffer, size_t capacity, size_t *length);

/* Sets a field of the hash, which is made where there is no key; 1: the field is new, 0: it was there, -1. */
int mneme_hash_set(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                   const void *value, size_t length);

/* Sets all fields, as one step; later ones win. Tells how many were new; `added` may be NULL. */
int mneme_hash_set_many(mneme_store_t store, const void *key, size_t key_length, const mneme_pair_t *pairs, size_t count,
                        size_t *added);

/* Removes a field; the last one takes the key with it. */
int mneme_hash_remove(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length);

/* Adds to the integer in a field, which is 0 where there is none, and tells the sum; 0 or -1. `sum` may be NULL.
 * MNEME_EINVAL: the value is no integer of 64 bits, or the sum would be none. */
int mneme_hash_increment(mneme_store_t store, const void *key, size_t key_length, const void *field, size_t field_length,
                         int64_t by, int64_t *sum);

/* How many fields the hash has: 0 where there is no key, -1 on failure. */
int64_t mneme_hash_length(mneme_store_t store, const void *key, size_t key_length);

/* Calls `each` with each field and its value, copies of one instant, until it returns something else than 0; 0 or -1. */
int mneme_hash_each(mneme_store_t store, const void *key, size_t key_length,
                    int (*each)(const void *field, size_t field_length, const void *value, size_t length, void *data),
                    void *data);

/* How many records the database holds, some of which may have expired; -1 on failure. */
int64_t mneme_length(mneme_store_t store);

/* Empties the database. */
int mneme_clear(mneme_store_t store);

/* Makes the store so large, at least, while others use it. MNEME_ENOMEM. */
int mneme_grow(mneme_store_t store, uint64_t bytes);

/* Sets what a full store forgets, for all processes. */
int mneme_set_eviction(mneme_store_t store, int evict);

/* What a store is at a moment; live, stale, index, head, overhead and free bytes are its capacity. */
typedef struct mneme_stat {
    uint64_t capacity;
    uint64_t max_capacity;
    uint64_t records; /* in all databases */
    uint64_t live_bytes;
    uint64_t stale_bytes; /* of removed and replaced records: compaction wins them back */
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

/* Verifies everything, beside readers and writers; as long as reading all keys takes. MNEME_EDAMAGED: the text tells what is
 * wrong. Tells the number of records seen; `records` may be NULL. Needs a store that was attached for writing. */
int mneme_check(mneme_store_t store, uint64_t *records);

/* ---- Memory in reserve, and a cache in it ----------------------------------------------------------------------- */

/* Takes `bytes` of address space in frames of 2 MiB, 4 MiB at least, for this process alone. What the program has not claimed
 * is a cache of about `records` records: copies of what it can read again elsewhere. Memory is taken as it is used. */
mneme_cache_t mneme_cache_create(uint64_t bytes, uint64_t records);

/* The cache in the memory that an attached store does not need, which all programs that attach it share. The store takes memory
 * back at once, as it needs it, and lends only what it used before. MNEME_EINVAL: it was made without `lend_mib` or
 * `mneme serve --lend-memory`. If the store was attached with MNEME_READ alone the cache is looked up and not changed
 * (MNEME_EREADONLY). The memory stays attached until the cache is destroyed, whatever becomes of the store's handle. */
mneme_cache_t mneme_cache_open(mneme_store_t store);

/* Gives everything up, with what is claimed; of an attached store's cache this handle alone. Calls of other threads that are
 * under way end as usual. */
int mneme_cache_destroy(mneme_cache_t cache);

/* Copies the value of a key to the buffer, as mneme_get(): from the cache, or as `fetch` reads it elsewhere. That is called on
 * a miss, and answers 1 if it has stored where the value lies (until it is called again or this call ends) and its length, 0 if
 * there is none; with something else this call fails, MNEME_EINVAL. NULL: the cache alone is asked. A lookup may miss at any
 * time; 0: nobody has it. If the key is put or removed during `fetch`, the cache does not take what that returns. */
int mneme_cache_get(mneme_cache_t cache, const void *key, size_t key_length, void *buffer, size_t capacity, size_t *length,
                    int (*fetch)(const void **value, size_t *length, void *data), void *data);

/* For a value that has changed elsewhere: when this returns, no lookup finds an older one. 1: the cache has taken it. 0: it has
 * not, for another thread was putting or nothing is idle. Key and value have 2 MiB less 16 bytes together at most. */
int mneme_cache_put(mneme_cache_t cache, const void *key, size_t key_length, const void *value, size_t length);

/* For a value that has changed or is gone: when this returns, no lookup finds it. */
int mneme_cache_remove(mneme_cache_t cache, const void *key, size_t key_length);

/* Removes everything. */
int mneme_cache_clear(mneme_cache_t cache);

/* Bounds the memory that the cache may have, from now on; an attached store's for all programs. */
int mneme_cache_limit(mneme_cache_t cache, uint64_t bytes);

/* Takes so many bytes, in one piece that begins at a multiple of 2 MiB, at once and whatever the cache has there. The content
 * is anything. MNEME_ENOMEM: so much is claimed already, or lies apart; MNEME_EINVAL: nothing is asked for, or more than there
 * is, or the memory is an attached store's, which claims it alone. */
void *mneme_cache_claim(mneme_cache_t cache, uint64_t bytes);

/* Gives back what mneme_cache_claim() gave, for the cache to use. */
int mneme_cache_release(mneme_cache_t cache, void *memory);

/* What a cache is at a moment. */
typedef struct mneme_cache_stat {
    uint64_t bytes;         /* that can be claimed or lent */
    uint64_t claimed_bytes; /* by the program */
    uint64_t lent_bytes;    /* to the cache */
    uint64_t hits;
    uint64_t misses;
    uint64_t kept;     /* records that were put and taken */
    uint64_t dropped;  /* and that were not taken */
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
