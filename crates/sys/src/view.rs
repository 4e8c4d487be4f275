//! [`View`]: a part of a file, mapped by one system call and unmapped by another, with nothing
//! around it.
//!
//! Data live in [`Region`](crate::Region)s, which reserve, grow and are sealed; a view serves as
//! the baseline in measurements.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::{io, slice};

/// A part of a file, shared with everybody who has it mapped. Unmapped when it is dropped. `Send`.
pub struct View {
    start: NonNull<u64>,
    bytes: usize,
}

// SAFETY: owned, and used by one thread at a time.
unsafe impl Send for View {}

impl View {
    /// Maps `bytes` bytes from `offset` on, for reading and writing. Both must be multiples of the
    /// page size, and the file must contain the range.
    ///
    /// # Errors
    /// Errors of the kernel.
    ///
    /// # Safety
    /// As long as the view exists, nobody may shorten the file, and nobody else may read or write
    /// these bytes.
    pub unsafe fn map(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                libc::MAP_SHARED,
                fd,
                offset,
            )
        };
        match NonNull::new(start.cast::<u64>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self {
                start: first,
                bytes,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The view's words.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: mapped over this length, aligned to a page, and used by nobody else, as promised
        // to `map`; any bits are a valid word.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes / 8) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_the_files_bytes() {
        let path = std::env::temp_dir().join(format!("mneme-view-{}", std::process::id()));
        std::fs::write(&path, vec![1; 3 * 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: the file belongs to the test.
        let mut view = unsafe { View::map(&file, 4096, 4096) }.unwrap();
        assert_eq!(view.words().len(), 512);
        view.words()[0] = u64::MAX;
        drop(view);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(bytes[4096..4104].iter().all(|byte| *byte == 255));
        assert_eq!((bytes[4095], bytes[4104]), (1, 1));
        // SAFETY: as above.
        assert!(unsafe { View::map(&file, 1, 4096) }.is_err());
    }
}
