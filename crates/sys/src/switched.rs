//! Mappings that a kernel module shows and hides by an entry of page tables, where it is loaded.
//!
//! **A [`SwitchedFile`] that is shown lies at its address for all threads of the process, and one
//! that is hidden takes no address.** Showing one in another's place stores an entry for each GiB
//! and interrupts the CPUs that run the process; no mapping of the process changes. The module is
//! `papers/kernel/vas`; `papers/kernel/vas/vas.h` is its interface. After SpaceJMP (§4.1).

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const DEVICE: &str = "/dev/mneme-vas";
const BASE: usize = 1 << 46;
const LEN: usize = 1 << 39;
const UNIT: usize = 1 << 30;
const NOTHING: libc::c_int = -1;

/// `VAS_MAKE`, `VAS_ENTER`, `VAS_EXTEND` and `VAS_PLACE`.
const MAKE: libc::c_ulong = 0x4018_7601;
const ENTER: libc::c_ulong = 0x7602;
const EXTEND: libc::c_ulong = 0x4010_7606;
const PLACE: libc::c_ulong = 0x4010_7607;

/// `struct vas_make`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads it")]
struct Make {
    bytes: u64,
    most: u64,
    file: libc::c_int,
    reserved: u32,
}

/// `struct vas_extend`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads it")]
struct Extend {
    bytes: u64,
    space: libc::c_int,
    reserved: u32,
}

/// `struct vas_place`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads it")]
struct Place {
    into: libc::c_int,
    what: libc::c_int,
    first: u32,
    units: u32,
}

const _: () = assert!(size_of::<Make>() == 24 && size_of::<Extend>() == 16);
const _: () = assert!(size_of::<Place>() == 16);

/// A process's window of 512 GiB from 2^46 on, in which files are shown. A clone is another handle
/// to the same window, which ends with the last handle and the last file. `Send + Sync`. A forked
/// child does not have it.
#[derive(Debug, Clone)]
pub struct SwitchedWindow(Arc<Held>);

#[derive(Debug)]
struct Held {
    device: File,
    /// What the process has entered: files are placed in it.
    space: OwnedFd,
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the window was mapped for this value, and no file is shown in it any more.
        unsafe { libc::munmap(ptr::without_provenance_mut(BASE), LEN) };
    }
}

/// The result of a system call.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// A descriptor of a space.
fn make(device: &File, asked: &Make) -> io::Result<OwnedFd> {
    // SAFETY: one `vas_make`.
    let made = checked(unsafe { libc::ioctl(device.as_raw_fd(), MAKE, ptr::from_ref(asked)) })?;
    // SAFETY: a descriptor that was opened here, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

impl SwitchedWindow {
    /// Whether all of these addresses belong to the window.
    #[must_use]
    pub fn has(addresses: &Range<usize>) -> bool {
        addresses.start >= BASE && addresses.end <= BASE + LEN
    }

    /// Maps the window.
    ///
    /// # Errors
    /// The module is not loaded, or this process may not use it; something else is mapped there,
    /// for instance another window.
    pub fn open() -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let device = options.custom_flags(libc::O_CLOEXEC).open(DEVICE)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        let wanted = ptr::without_provenance_mut(BASE);
        // SAFETY: MAP_FIXED_NOREPLACE replaces nothing.
        let got = unsafe { libc::mmap(wanted, LEN, rights, kind, device.as_raw_fd(), 0) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let entered = make(
            &device,
            &Make {
                bytes: 0,
                most: 0,
                file: NOTHING,
                reserved: 0,
            },
        )
        .and_then(|space| {
            // SAFETY: it takes no pointer; the window is empty before and after.
            checked(unsafe { libc::ioctl(device.as_raw_fd(), ENTER, space.as_raw_fd()) })?;
            Ok(space)
        });
        match entered {
            Ok(space) => Ok(Self(Arc::new(Held { device, space }))),
            Err(refused) => {
                // SAFETY: it was mapped above.
                unsafe { libc::munmap(got, LEN) };
                Err(refused)
            }
        }
    }

    /// A file of shared memory (tmpfs) for a place in the window, hidden at first. Its first `len`
    /// bytes, whole pages, are brought into memory and stay there; it may grow to `max`. It is
    /// shown for writing if it is open for writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the place is not in the window, does not begin at a
    /// multiple of 1 GiB, or the file is on no tmpfs; there is not as much memory.
    pub fn file(
        &self,
        file: BorrowedFd<'_>,
        address: usize,
        len: usize,
        max: usize,
    ) -> io::Result<SwitchedFile> {
        let end = max
            .checked_next_multiple_of(UNIT)
            .and_then(|units| address.checked_add(units));
        let lies_within = end.is_some_and(|end| Self::has(&(address..end)));
        if !lies_within || !address.is_multiple_of(UNIT) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let asked = Make {
            bytes: len as u64,
            most: max as u64,
            file: file.as_raw_fd(),
            reserved: 0,
        };
        Ok(SwitchedFile {
            space: make(&self.0.device, &asked)?,
            window: self.clone(),
            address,
            max,
            len: AtomicUsize::new(len),
            shown: Mutex::new(false),
        })
    }

    fn place(&self, what: libc::c_int, of: &SwitchedFile) -> io::Result<()> {
        let asked = Place {
            into: self.0.space.as_raw_fd(),
            what,
            // Within the window, which has 512.
            first: ((of.address - BASE) / UNIT) as u32,
            units: of.max.div_ceil(UNIT) as u32,
        };
        let device = self.0.device.as_raw_fd();
        // SAFETY: one `vas_place`; what lies there belongs to files that the caller shows and
        // hides.
        checked(unsafe { libc::ioctl(device, PLACE, &raw const asked) }).map(drop)
    }
}

/// A file that is shown at its address in the window, or hidden. Dropping it hides it.
#[derive(Debug)]
pub struct SwitchedFile {
    window: SwitchedWindow,
    space: OwnedFd,
    address: usize,
    max: usize,
    len: AtomicUsize,
    shown: Mutex<bool>,
}

impl SwitchedFile {
    /// The address of its first byte, whose provenance covers all of it.
    #[must_use]
    pub fn first_byte(&self) -> NonNull<u8> {
        let base = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the window does not begin at 0.
        unsafe { NonNull::new_unchecked(base) }
    }

    /// Shows it, in place of anything else at its addresses.
    ///
    /// # Errors
    /// In a forked child, which has no window.
    ///
    /// # Safety
    /// Nobody may use a pointer or reference into another file that is shown there.
    pub unsafe fn show(&self) -> io::Result<()> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        self.window.place(self.space.as_raw_fd(), self)?;
        *shown = true;
        Ok(())
    }

    /// Hides it: its addresses hold nothing then. Does nothing if it is hidden.
    ///
    /// # Errors
    /// As [`show`](Self::show).
    ///
    /// # Safety
    /// Nobody may use a pointer or reference into it until it is shown again.
    pub unsafe fn hide(&self) -> io::Result<()> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown {
            self.window.place(NOTHING, self)?;
            *shown = false;
        }
        Ok(())
    }

    /// Follows a file that has grown to `len` bytes, whole pages. Does nothing if that many are
    /// mapped.
    ///
    /// # Errors
    /// The file is shorter, or that is more than its greatest size; there is not as much memory.
    #[inline]
    pub fn follow(&self, len: usize) -> io::Result<()> {
        // SYNC: pairs with the Release operation in `extend`.
        if self.len.load(Ordering::Acquire) >= len {
            return Ok(());
        }
        self.extend(len)
    }

    #[cold]
    fn extend(&self, len: usize) -> io::Result<()> {
        let _alone = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if self.len.load(Ordering::Relaxed) < len {
            let asked = Extend {
                bytes: len as u64,
                space: self.space.as_raw_fd(),
                reserved: 0,
            };
            let device = self.window.0.device.as_raw_fd();
            // SAFETY: one `vas_extend`.
            checked(unsafe { libc::ioctl(device, EXTEND, &raw const asked) })?;
            // SYNC: pairs with the Acquire load in `follow`.
            self.len.store(len, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for SwitchedFile {
    fn drop(&mut self) {
        // SAFETY: a value that is dropped is used by nobody.
        let _ = unsafe { self.hide() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_has_what_lies_within_it_alone() {
        assert!(SwitchedWindow::has(&(BASE..BASE + LEN)));
        assert!(!SwitchedWindow::has(&(BASE - 1..BASE + 1)));
        assert!(!SwitchedWindow::has(&(BASE..BASE + LEN + 1)));
    }
}
