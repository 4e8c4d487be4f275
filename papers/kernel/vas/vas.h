/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * vas.h: what a program asks of /dev/mneme-vas. docs/design/vas.md is the design.
 *
 * A process maps its *window*, VAS_BYTES at VAS_WINDOW, from the open file:
 *
 *     mmap((void *)VAS_WINDOW, VAS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0)
 *
 * Spaces are file descriptors. One is either made of a file, whose pages it shows from the window's beginning, and may
 * be given to other processes; or it is made empty, and others are placed in it at multiples of 1 GiB, which the process
 * that made it alone enters. Until a space is entered, the window holds nothing: an access is SIGBUS. So is one behind a
 * space's bytes, and a write where the file was open to read only.
 */
#ifndef VAS_H
#define VAS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VAS_WINDOW (1UL << 46)
#define VAS_BYTES (1UL << 39)

#define VAS_UNIT (1UL << 30)

struct vas_make {
    __u64 bytes;   /* of the file that are mapped, from its beginning: a multiple of 4096 */
    __u64 most;    /* that VAS_EXTEND may reach; at least `bytes`, at most VAS_BYTES */
    __s32 file;    /* on tmpfs (memfd_create, /dev/shm), open to read at least; its pages stay in memory with the space */
    __u32 reserved;
};

struct vas_extend {
    __u64 bytes; /* a multiple of 4096, at least what the space has */
    __s32 space; /* made of a file, which is as long by now */
    __u32 reserved;
};

struct vas_place {
    __s32 into; /* a space made empty, by this process */
    __s32 what; /* a space made of a file; -1: nothing */
    __u32 first; /* its place, in units of VAS_UNIT */
    __u32 units; /* how many are replaced; behind `what` they show nothing */
};

struct vas_counts {
    __u64 renewals; /* times that threads' roots were renewed since a table that they lead to was to be freed */
    __u64 missed;   /* faults for an entry that came later */
    __u64 copied;   /* of these, those after which it was copied: all, unless the rules are off */
    __u64 hazards;  /* times that a table was freed to which a root in use still led: 0, unless the rules are off */
};

/* Makes a space; its descriptor. A file of -1, with 0 bytes: an empty one. EINVAL, EBADF; ENOMEM: the file's holes are
 * more than there is memory. */
#define VAS_MAKE _IOW('v', 1, struct vas_make)
/* Shows a space to all threads of the process; an argument of -1: none. EBADF; EINVAL: the window is not mapped here. */
#define VAS_ENTER _IO('v', 2)
/* Shows a space to the calling thread alone, whatever the others see; -1: what the others see. */
#define VAS_ENTER_THREAD _IO('v', 3)
#define VAS_COUNTS _IOR('v', 4, struct vas_counts)
/* Does nothing: what a call costs. */
#define VAS_NOTHING _IO('v', 5)
/* Maps more of a space's file, wherever the space is shown. As VAS_MAKE; what it has mapped by then stays. */
#define VAS_EXTEND _IOW('v', 6, struct vas_extend)
/* Replaces what lies at a place. When it returns, no thread sees what was there. EBADF, EINVAL. */
#define VAS_PLACE _IOW('v', 7, struct vas_place)

#endif
