/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * vas.h: what a program asks of /dev/mneme-vas. docs/design/vas.md is the design.
 *
 * A process maps its *window*, VAS_BYTES at VAS_WINDOW, from the open file:
 *
 *     mmap((void *)VAS_WINDOW, VAS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0)
 *
 * Spaces are file descriptors, which other processes may be given. Until a space is entered, the window holds nothing:
 * an access is SIGBUS. So is one behind a space's bytes.
 */
#ifndef VAS_H
#define VAS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VAS_WINDOW (1UL << 46)
#define VAS_BYTES (1UL << 39)

struct vas_make {
    __u64 bytes;   /* of the file that are mapped, from its beginning: a multiple of 4096 */
    __s32 file;    /* on tmpfs (memfd_create, /dev/shm), open to write; its pages stay in memory with the space */
    __s32 reserved;
};

struct vas_counts {
    __u64 renewals; /* times that threads' roots were renewed since a table that they lead to was to be freed */
    __u64 missed;   /* faults for an entry that came later */
    __u64 copied;   /* of these, those after which it was copied: all, unless the rules are off */
    __u64 hazards;  /* times that a table was freed to which a root in use still led: 0, unless the rules are off */
};

/* Makes a space; its descriptor. EINVAL, EBADF; ENOMEM: the file's holes are more than there is memory. */
#define VAS_MAKE _IOW('v', 1, struct vas_make)
/* Shows a space to all threads of the process; an argument of -1: none. EBADF; EINVAL: the window is not mapped here. */
#define VAS_ENTER _IO('v', 2)
/* Shows a space to the calling thread alone, whatever the others see; -1: what the others see. */
#define VAS_ENTER_THREAD _IO('v', 3)
#define VAS_COUNTS _IOR('v', 4, struct vas_counts)
/* Does nothing: what a call costs. */
#define VAS_NOTHING _IO('v', 5)

#endif
