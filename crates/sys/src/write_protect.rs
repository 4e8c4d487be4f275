//! Memory whose ranges are protected from writes, by `userfaultfd`.
//!
//! **A write to a protected page waits until the page is given free**, by whoever reads
//! [`next_write`](WriteProtected::next_write). Protecting takes the lock of the process' mappings
//! shared, where `mprotect` takes it alone and divides mappings: threads that protect different
//! ranges go on beside each other. Linux 5.7.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// `UFFD_API`, and the requests of `linux/userfaultfd.h`, which is for x86-64 and aarch64 alike.
const API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const FEATURE_WRITE_PROTECT: u64 = 1;
const REGISTER_WRITE_PROTECT: u64 = 2;
const MODE_PROTECT: u64 = 1;
const USER_MODE_ONLY: libc::c_int = 1;
const EVENT_PAGE_FAULT: u8 = 0x12;

/// `uffdio_api`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads and writes it")]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `uffdio_register`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads and writes it")]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `uffdio_writeprotect`.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads and writes it")]
struct Protect {
    start: u64,
    len: u64,
    mode: u64,
}

/// `uffd_msg` of a page fault.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads and writes it")]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const _: () = assert!(size_of::<Message>() == 32);

/// Private memory of whole pages, zero at first, of which ranges can be protected from writes.
#[derive(Debug)]
pub struct WriteProtected {
    base: NonNull<u8>,
    len: usize,
    page: usize,
    /// `None`: by `mprotect`.
    faults: Option<OwnedFd>,
    stop: OwnedFd,
}

// SAFETY: the memory is shared as raw bytes, which whoever follows `base` vouches for; the rest are
// descriptors.
unsafe impl Send for WriteProtected {}
// SAFETY: as above; all calls are system calls.
unsafe impl Sync for WriteProtected {}

/// The result of a system call.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// A `userfaultfd`; where the process may have one for its own accesses alone, that.
fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let try_open = |flags: libc::c_int| {
        // SAFETY: it takes no pointer.
        let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let opened = libc::c_int::try_from(opened).unwrap_or(-1);
        // SAFETY: a descriptor that was opened here, and is nobody else's.
        checked(opened).map(|opened| unsafe { OwnedFd::from_raw_fd(opened) })
    };
    try_open(flags).or_else(|_| try_open(flags | USER_MODE_ONLY))
}

impl WriteProtected {
    /// Takes memory, touches all of it, and protects nothing yet.
    ///
    /// Where `vm.unprivileged_userfaultfd` is 0 and the process is not privileged, a system call
    /// that writes to a protected page (`read` into it) fails with `EFAULT` in place of waiting.
    ///
    /// # Errors
    /// There is no `userfaultfd` here, or not as much memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let faults = open()?;
        let mut api = Api {
            api: API,
            features: FEATURE_WRITE_PROTECT,
            ioctls: 0,
        };
        // SAFETY: one `uffdio_api`.
        checked(unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_API, &raw mut api) })?;
        let memory = Self::take(len, Some(faults))?;
        let mut register = Register {
            start: memory.base.as_ptr().addr() as u64,
            len: memory.len as u64,
            mode: REGISTER_WRITE_PROTECT,
            ioctls: 0,
        };
        if let Some(faults) = &memory.faults {
            // SAFETY: one `uffdio_register`, of this value's memory.
            checked(unsafe {
                libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut register)
            })?;
        }
        Ok(memory)
    }

    /// Memory that is protected by `mprotect`, to compare: a write to a protected page ends the
    /// process.
    ///
    /// # Errors
    /// There is not as much memory.
    pub fn by_mprotect(len: usize) -> io::Result<Self> {
        Self::take(len, None)
    }

    fn take(len: usize, faults: Option<OwnedFd>) -> io::Result<Self> {
        // SAFETY: a question.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let Some(len) = len.max(1).checked_next_multiple_of(page) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // SAFETY: it takes no pointer.
        let stop = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        // SAFETY: a descriptor that was opened here, and is nobody else's.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: new memory, anywhere.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // From here on it is unmapped by dropping it.
        let memory = Self {
            base,
            len,
            page,
            faults,
            stop,
        };
        // A huge page would be divided by the first range that is smaller. Where the kernel has
        // none, that is no error.
        // SAFETY: memory of this value.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        for at in (0..len).step_by(page) {
            // A page that is not there cannot be protected.
            // SAFETY: within the memory, which nobody else knows.
            unsafe { base.add(at).write_volatile(0) };
        }
        Ok(memory)
    }

    /// The first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes: whole pages.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it has a page at least")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page(&self) -> usize {
        self.page
    }

    /// Protects whole pages: a write that begins after this waits.
    ///
    /// # Errors
    /// No whole pages of this memory; what the kernel says.
    pub fn protect(&self, range: Range<usize>) -> io::Result<()> {
        self.change(range, MODE_PROTECT)
    }

    /// Gives whole pages free, and goes on with the writes that wait for them.
    ///
    /// # Errors
    /// As [`protect`](Self::protect).
    pub fn unprotect(&self, range: Range<usize>) -> io::Result<()> {
        self.change(range, 0)
    }

    fn change(&self, range: Range<usize>, mode: u64) -> io::Result<()> {
        let is_whole = range.start.is_multiple_of(self.page) && range.end.is_multiple_of(self.page);
        if !is_whole || range.is_empty() || range.end > self.len {
            let text = format!("{range:?} are no whole pages of {} bytes", self.len);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let Some(faults) = &self.faults else {
            let rights = match mode {
                MODE_PROTECT => libc::PROT_READ,
                _ => libc::PROT_READ | libc::PROT_WRITE,
            };
            // SAFETY: within this value's memory, whose users vouch for their writes.
            let at = unsafe { self.base.add(range.start) };
            // SAFETY: as above.
            let done = unsafe { libc::mprotect(at.as_ptr().cast(), range.len(), rights) };
            return checked(done).map(drop);
        };
        let mut protect = Protect {
            start: (self.base.as_ptr().addr() + range.start) as u64,
            len: range.len() as u64,
            mode,
        };
        loop {
            let descriptor = faults.as_raw_fd();
            // SAFETY: one `uffdio_writeprotect`, of this value's memory.
            let done = unsafe { libc::ioctl(descriptor, UFFDIO_WRITEPROTECT, &raw mut protect) };
            match checked(done) {
                // Another thread changes the process' mappings.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                done => return done.map(drop),
            }
        }
    }

    /// Waits for a write to a protected page: the page's offset. `None` after [`stop`](Self::stop).
    /// The page may have been given free meanwhile; several threads may wait here.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next_write(&self) -> io::Result<Option<usize>> {
        loop {
            // The kernel passes over a descriptor of -1.
            let faults = self.faults.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let wanted = |fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut wait = [wanted(faults), wanted(self.stop.as_raw_fd())];
            // SAFETY: two `pollfd`.
            match checked(unsafe { libc::poll(wait.as_mut_ptr(), 2, -1) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done?,
            };
            if wait[1].revents != 0 {
                return Ok(None);
            }
            let mut message = Message {
                event: 0,
                reserved: [0; 7],
                flags: 0,
                address: 0,
                thread: 0,
            };
            let (to, len) = ((&raw mut message).cast(), size_of::<Message>());
            // SAFETY: one message fits.
            let read = unsafe { libc::read(faults, to, len) };
            if read == -1 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    // Another thread has read it.
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            let address = usize::try_from(message.address).unwrap_or(0);
            let at = address.wrapping_sub(self.base.as_ptr().addr());
            if message.event == EVENT_PAGE_FAULT && at < self.len {
                return Ok(Some(at - at % self.page));
            }
        }
    }

    /// Ends all waiting in [`next_write`](Self::next_write), now and later.
    pub fn stop(&self) {
        // It fails only where the count is at its end, and then it is not 0.
        // SAFETY: it takes no pointer.
        unsafe { libc::eventfd_write(self.stop.as_raw_fd(), 1) };
    }
}

impl Drop for WriteProtected {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; nobody follows `base` any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
