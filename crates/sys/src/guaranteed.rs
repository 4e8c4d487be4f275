//! Frames of a kernel module that guarantees contiguous memory (`papers/kernel/gcma`).
//!
//! A claim belongs to the open file, and the mapping keeps that: unmapping releases the frames, as
//! does the end of the process. `papers/kernel/gcma/gcma.h` is the module's interface. After GCMA
//! (Park's dissertation, chapter 2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const DEVICE: &str = "/dev/gcma";
const PAGE: usize = 4096;
/// `GCMA_CLAIM`.
const CLAIM: libc::c_ulong = 0xc018_6701;

/// `struct gcma_claim`.
#[repr(C)]
struct Claim {
    pages: u64,
    first: u64,
    discarded: u64,
}

const _: () = assert!(size_of::<Claim>() == 24);

/// Maps frames of the module over `len` bytes of reserved addresses, a multiple of a page. They are
/// one piece of physical memory.
///
/// # Errors
/// The module is not loaded, this process may not use it, or so many frames are not free of other
/// claims. The addresses are reserved then as before.
///
/// # Safety
/// The range is reserved by the caller (`PROT_NONE`), and nobody refers to it.
pub(crate) unsafe fn map(start: *mut u8, len: usize) -> io::Result<()> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let mut claim = Claim {
        pages: (len / PAGE) as u64,
        first: 0,
        discarded: 0,
    };
    // SAFETY: one `gcma_claim`.
    if unsafe { libc::ioctl(device.as_raw_fd(), CLAIM, &raw mut claim) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let from = claim.first.saturating_mul(PAGE as u64);
    let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let map = |rights, kind, file: libc::c_int, from| {
        let kind = kind | libc::MAP_FIXED;
        // SAFETY: the caller's promise.
        let at = unsafe { libc::mmap(start.cast(), len, rights, kind, file, from) };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    map(rights, libc::MAP_SHARED, device.as_raw_fd(), from).inspect_err(|_| {
        // Before Linux 6.12 a failure may leave a hole in the reservation.
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let _ = map(libc::PROT_NONE, reserved, -1, 0);
    })
}
