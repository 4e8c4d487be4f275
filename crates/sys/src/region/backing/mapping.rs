//! The calls that fill a part of the reservation and choose its pages.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use super::super::{Access, FRAME, PageKind, PagePolicy, RegionError};
use super::file::offset;
use super::reservation::Reservation;
use super::{os, page_size, settings};
use crate::guaranteed;

/// Uses guaranteed frames if they are wanted and granted; the pool if it has pages; otherwise
/// ordinary memory with the advice that the policy implies.
pub(super) fn commit_anonymous(
    place: &Reservation,
    range: &Range<usize>,
    policy: PagePolicy,
) -> Result<PageKind, RegionError> {
    if policy == PagePolicy::Guaranteed {
        let start = place.at(range.start).cast();
        // SAFETY: the range lies in our reservation after the committed part, so nobody refers to
        // it.
        if unsafe { guaranteed::map(start, range.len()) }.is_ok() {
            return Ok(PageKind::HugeTlb);
        }
    }
    if policy.wants_pool() && settings::hugetlb_free() >= range.len() {
        // Without MAP_NORESERVE this reserves all the pages in the pool, or fails.
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        if map_fixed(
            place,
            range,
            Access::ReadWrite,
            flags,
            -1,
            "take huge pages",
        )
        .is_ok()
        {
            return Ok(PageKind::HugeTlb);
        }
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range lies in our reservation after the committed part, so nobody refers to it.
    if unsafe { libc::mprotect(place.at(range.start), range.len(), protection) } != 0 {
        return Err(os("commit memory", range.len()));
    }
    Ok(advise_pages(place, range, policy))
}

/// Maps a file or memory over a part of the reservation that is not committed.
pub(super) fn map_fixed(
    place: &Reservation,
    range: &Range<usize>,
    access: Access,
    flags: libc::c_int,
    fd: libc::c_int,
    what: &'static str,
) -> Result<(), RegionError> {
    let protection = match access {
        Access::ReadOnly => libc::PROT_READ,
        Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    };
    let from = if fd >= 0 { offset(range.start) } else { 0 };
    let map = |protection, flags, fd, from| {
        // SAFETY: the range lies in our reservation after the committed part, so nobody refers to
        // it.
        let mapped = unsafe {
            libc::mmap(
                place.at(range.start),
                range.len(),
                protection,
                flags | libc::MAP_FIXED,
                fd,
                from,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    map(protection, flags, fd, from).map_err(|source| {
        // Before Linux 6.12 a failure may leave a hole in the reservation. This closes it before
        // another mapping is placed there; if even that fails, nothing can be done.
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let _ = map(libc::PROT_NONE, reserved, -1, 0);
        RegionError::from_os(what, range.len(), source)
    })
}

/// Advises the kernel which pages to use on touch; returns what it will probably provide.
pub(super) fn advise_pages(
    place: &Reservation,
    range: &Range<usize>,
    policy: PagePolicy,
) -> PageKind {
    // A kernel without THP refuses the advice, which changes nothing.
    match policy {
        PagePolicy::Small => {
            advise(place, range, libc::MADV_NOHUGEPAGE);
            PageKind::Small
        }
        PagePolicy::Huge | PagePolicy::Guaranteed | PagePolicy::Thp => {
            if advise(place, range, libc::MADV_HUGEPAGE) {
                PageKind::Thp
            } else {
                PageKind::Small
            }
        }
    }
}

pub(super) fn advise(place: &Reservation, range: &Range<usize>, advice: libc::c_int) -> bool {
    // SAFETY: the range is ours, and no advice given here changes its content.
    unsafe { libc::madvise(place.at(range.start), range.len(), advice) == 0 }
}

/// Frees the pages of private memory; returns whether the kernel did. It reads as zeros afterwards.
pub(super) fn discard(place: &Reservation, range: &Range<usize>) -> bool {
    // SAFETY: the range belongs to the caller alone; its bytes become zeros.
    unsafe { libc::madvise(place.at(range.start), range.len(), libc::MADV_DONTNEED) == 0 }
}

const MADV_COLLAPSE: libc::c_int = 25;

/// Makes a frame a huge page by `MADV_COLLAPSE`; returns whether it is one now. If it is huge
/// already, this costs nothing. If it cannot be collapsed, it is unchanged (kernels older than 6.1
/// refuse all). So the caller collapses frame by frame, and one that fails does not affect the
/// others.
///
/// An empty frame is refused too; one page in it is enough. Measured on Linux 6.18 with huge pages
/// off for shared memory, for a GiB that the machine had just freed: 0.15 s this way, 1.2 s if all
/// pages are first allocated and populated, 0.75 s if they are only allocated.
pub(super) fn collapse(place: &Reservation, frame: &Range<usize>) -> bool {
    let collapses = || advise(place, frame, MADV_COLLAPSE);
    // A page was busy for a moment.
    let is_busy = || io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
    collapses() || (is_busy() && collapses())
}

/// Whether the kernel collapses shared memory that was allocated in small pages: tried on two
/// frames, which takes some milliseconds.
pub(super) fn can_collapse() -> bool {
    let tried = || -> Result<bool, RegionError> {
        let file = super::file::create_memfd("mneme-collapse", 0)?;
        file.set_len(2 * FRAME as u64)
            .map_err(|source| RegionError::from_os("lengthen the file", FRAME, source))?;
        let place = Reservation::new(2 * FRAME)?;
        let range = 0..FRAME;
        map_fixed(
            &place,
            &range,
            Access::ReadWrite,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            "map the file",
        )?;
        touch(&place, &range, Access::ReadWrite);
        Ok(advise(&place, &range, MADV_COLLAPSE))
    };
    tried().unwrap_or(false)
}

/// Touches every page without changing it.
pub(super) fn touch(place: &Reservation, range: &Range<usize>, access: Access) {
    use std::sync::atomic::AtomicU8;
    for at in range.clone().step_by(page_size()) {
        // SAFETY: committed bytes; the accesses are atomic and change nothing.
        let byte = unsafe { &*place.at(at).cast::<AtomicU8>() };
        // Relaxed: for the side effect on the page table alone.
        std::hint::black_box(match access {
            Access::ReadOnly => byte.load(Ordering::Relaxed),
            Access::ReadWrite => byte.fetch_or(0, Ordering::Relaxed),
        });
    }
}
