//! A medium that is a mapped file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Medium, MediumError, assert_inside, inside, store, store_word};
use crate::files::{FsKind, fs_kind_of};
use crate::region::{RegionError, collapses_shared_memory};
use crate::syncs::Syncs;
use crate::{Access, PagePolicy, Region, WriteBack};

/// A mapped file. One sync is one `fdatasync`, on tmpfs too.
///
/// The mapping is advised against readahead and huge pages: for a structure that is read at random,
/// they would read, and a sync would write, far more than was accessed. On tmpfs nothing is read or
/// written, and [`Medium::settle`] moves the file into huge pages if the kernel has them. Growth
/// reserves the space in the file system, so a full disk is an error of [`Medium::grow`] and not a
/// SIGBUS. A media error under the mapping *is* a SIGBUS.
#[derive(Debug)]
pub struct FileMedium {
    region: Region,
    file: File,
    syncs: Syncs,
    /// The length of the mapping that has been advised, in bytes.
    advised: AtomicU64,
    /// The instruction that writes cache lines back, if stores become durable that way.
    write_back: Option<WriteBack>,
}

/// One `fdatasync` of a file. **A failure is sticky**, see [`Medium`].
pub(super) fn sync(syncs: &Syncs, file: &File) -> Result<(), MediumError> {
    let synced = syncs.run(|| file.sync_data());
    synced.map_err(|error| error.map_or(MediumError::Poisoned, MediumError::Sync))
}

/// The error of an operation that needs space.
pub(super) fn full_or(what: &'static str, wanted: u64) -> impl FnOnce(io::Error) -> MediumError {
    move |source| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => MediumError::NoSpace { wanted },
        _ => MediumError::Os { what, source },
    }
}

/// The number of bytes that the kernel is asked to read at once. Of larger requests it may omit the
/// rest, beyond the maximum size of one request to the disk (`max_sectors_kb`) or its readahead.
const AHEAD: u64 = 128 << 10;

fn size(max: u64) -> Result<usize, RegionError> {
    usize::try_from(max).map_err(|_| RegionError::Unsupported {
        what: "a file beyond the address space",
    })
}

impl FileMedium {
    /// Maps `file`, which may be empty and may grow to `max` bytes.
    ///
    /// # Errors
    /// [`MediumError::Region`], [`MediumError::Os`].
    pub fn open(file: File, access: Access, max: u64) -> Result<Self, MediumError> {
        let max = size(max)?;
        let duplicate = file.try_clone().map_err(|source| MediumError::Os {
            what: "duplicate the file's descriptor",
            source,
        })?;
        let policy = match fs_kind_of(&file) {
            Ok(FsKind::Memory) => PagePolicy::Thp,
            _ => PagePolicy::Small,
        };
        let region = Region::map(OwnedFd::from(duplicate), access, max, policy)?;
        Self::of(region, file, None)
    }

    /// Maps `file` for writing, so that [`flush`](Medium::flush) and [`fence`](Medium::fence) write
    /// the CPU's cache back by its best instruction ([`WriteBack`]). In memory (tmpfs) the data
    /// then survive only the process, at the cost of persistent memory. On persistent memory, on a
    /// file system mounted with `dax`, the mapping is `MAP_SYNC`, and what was fenced survives
    /// power loss.
    ///
    /// # Errors
    /// As [`open`](Self::open); `Unsupported` for a file on another medium, which cache lines do
    /// not reach without a sync, and on a CPU without such instructions.
    pub fn open_direct(file: File, max: u64) -> Result<Self, MediumError> {
        let best = WriteBack::available().pop();
        let write_back = best.ok_or(RegionError::Unsupported {
            what: "writing cache lines back on this CPU",
        })?;
        let max = size(max)?;
        let duplicate = file.try_clone().map_err(|source| MediumError::Os {
            what: "duplicate the file's descriptor",
            source,
        })?;
        let region = Region::map_direct(OwnedFd::from(duplicate), max, PagePolicy::Thp)?;
        Self::of(region, file, Some(write_back))
    }

    fn of(region: Region, file: File, write_back: Option<WriteBack>) -> Result<Self, MediumError> {
        let medium = Self {
            region,
            file,
            syncs: Syncs::default(),
            advised: AtomicU64::new(0),
            write_back,
        };
        medium.advise()?;
        Ok(medium)
    }

    /// Writes the file's dirty pages and drops the clean ones, so that the next reads come from the
    /// medium and not from pages that a failed sync left behind.
    ///
    /// # Errors
    /// [`MediumError::Sync`], [`MediumError::Os`].
    pub fn drop_cached_pages(file: &File) -> Result<(), MediumError> {
        use std::os::fd::AsRawFd;
        file.sync_data().map_err(MediumError::Sync)?;
        // SAFETY: a valid descriptor and integers; 0, 0 means the whole file.
        let code =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code == 0 {
            return Ok(());
        }
        Err(MediumError::Os {
            what: "drop the file's cached pages",
            source: std::io::Error::from_raw_os_error(code),
        })
    }

    /// Advises the part that has been mapped since the last call.
    fn advise(&self) -> Result<(), MediumError> {
        let len = self.len();
        let from = self.advised.load(Ordering::Relaxed);
        if len <= from {
            return Ok(());
        }
        // SAFETY: the range is mapped; `from` and `len` are multiples of the page size.
        let done = unsafe {
            libc::madvise(
                self.region.base().add(from as usize).cast(),
                (len - from) as usize,
                libc::MADV_RANDOM,
            )
        };
        if done != 0 {
            return Err(MediumError::Os {
                what: "advise the kernel against readahead",
                source: std::io::Error::last_os_error(),
            });
        }
        self.advised.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }
}

impl Medium for FileMedium {
    #[inline]
    fn base(&self) -> NonNull<u8> {
        self.region.first_byte()
    }

    #[inline]
    fn len(&self) -> u64 {
        self.region.len() as u64
    }

    fn max(&self) -> u64 {
        self.region.max() as u64
    }

    #[inline]
    fn store(&self, at: u64, bytes: &[u8]) {
        // SAFETY: the region has `len` committed bytes, in whole pages.
        unsafe { store(self.base(), self.len(), at, bytes) }
    }

    #[inline]
    fn store_word(&self, at: u64, word: u64) {
        // SAFETY: the region has `len` committed bytes, in whole pages.
        unsafe { store_word(self.base(), self.len(), at, word) }
    }

    fn flush(&self, range: Range<u64>) {
        if let Some(write_back) = self.write_back {
            let len = (range.end - range.start) as usize;
            assert_inside(range.start, len, self.len());
            // SAFETY: inside the mapping, by the assertion.
            unsafe {
                let first = self.base().as_ptr().add(range.start as usize);
                write_back.write_back_at(first, len);
            }
        }
    }

    fn fence(&self) {
        if self.write_back.is_some() {
            WriteBack::fence();
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        inside(at, bytes.len(), self.len())?;
        let wanted = at + bytes.len() as u64;
        self.file
            .write_all_at(bytes, at)
            .map_err(full_or("write to the file", wanted))
    }

    fn sync(&self) -> Result<(), MediumError> {
        sync(&self.syncs, &self.file)
    }

    fn read_ahead(&self, range: Range<u64>) {
        use std::os::fd::AsRawFd;
        for at in range.clone().step_by(AHEAD as usize) {
            let len = AHEAD.min(range.end - at);
            let advice = libc::POSIX_FADV_WILLNEED;
            // SAFETY: a valid descriptor and integers.
            unsafe { libc::posix_fadvise(self.file.as_raw_fd(), at as i64, len as i64, advice) };
        }
    }

    fn grow(&self, to: u64) -> Result<(), MediumError> {
        if to > self.max() {
            return Err(MediumError::NoSpace { wanted: to });
        }
        self.region.grow(to as usize).map_err(|e| match e {
            RegionError::NoSpace { .. } => MediumError::NoSpace { wanted: to },
            other => MediumError::Region(other),
        })?;
        self.advise()
    }

    fn settle(&self, range: Range<u64>) {
        if !self.region.is_on_medium() && collapses_shared_memory() {
            // The file has its space, so if this fails, memory comes on first touch, in small
            // pages.
            let _ = self
                .region
                .prefault(range.start as usize..range.end as usize);
        }
    }

    fn follow(&self) -> Result<(), MediumError> {
        self.region.refresh()?;
        self.advise()
    }
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::files::SHARED_MEMORY;

    const FRAMES: u64 = 8 << 20;

    /// The number of bytes in huge pages of a file in this directory that was settled, and of a
    /// second mapping that has read it.
    fn huge_bytes(directory: &str) -> [usize; 2] {
        let path = format!("{directory}/mneme-medium-pages-{}", std::process::id());
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let medium = FileMedium::open(open(), Access::ReadWrite, FRAMES).unwrap();
        let reader = FileMedium::open(open(), Access::ReadOnly, FRAMES).unwrap();
        std::fs::remove_file(&path).unwrap();
        medium.grow(FRAMES / 2).unwrap();
        medium.store_word(8, 7);
        medium.grow(FRAMES).unwrap();
        medium.settle(0..FRAMES);
        reader.follow().unwrap();
        reader.region.prefault(0..FRAMES as usize).unwrap();
        // SAFETY: inside the medium; nobody else stores there.
        assert_eq!(unsafe { reader.base().add(8).cast::<u64>().read() }, 7);
        [&medium, &reader].map(|medium| medium.region.pages().huge_bytes)
    }

    #[test]
    fn cache_lines_are_flushed_where_they_reach_the_medium_and_refused_elsewhere() {
        let open = |directory: &str| {
            let path = format!("{directory}/mneme-medium-direct-{}", std::process::id());
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            let file = options.open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            FileMedium::open_direct(file, FRAMES)
        };
        if WriteBack::available().is_empty() {
            return;
        }
        let medium = open(SHARED_MEMORY).unwrap();
        medium.grow(FRAMES).unwrap();
        medium.store(100, &[7; 300]);
        medium.flush(100..400);
        medium.flush(FRAMES - 1..FRAMES);
        medium.fence();
        // SAFETY: inside the medium; nobody else stores there.
        let byte = unsafe { medium.base().add(399).read() };
        assert_eq!(byte, 7);
        let disk = env!("CARGO_MANIFEST_DIR");
        if crate::files::fs_kind(std::path::Path::new(disk)).unwrap() == FsKind::Other {
            let refused = open(disk);
            let unsupported = matches!(
                refused,
                Err(MediumError::Region(RegionError::Unsupported { .. }))
            );
            assert!(unsupported || refused.is_ok(), "{refused:?}");
        }
    }

    #[test]
    fn memory_comes_in_huge_pages_where_the_kernel_has_them_and_a_disk_in_small_ones() {
        let memory = Region::memfd("pages", 1, FRAMES as usize, PagePolicy::Thp).unwrap();
        memory.grow(FRAMES as usize).unwrap();
        memory.prefault(0..FRAMES as usize).unwrap();
        if memory.pages().huge_bytes > 0 {
            let [own, others] = huge_bytes(SHARED_MEMORY);
            assert!(own > 0 && others > 0, "{own} and {others} bytes");
        }
        let disk = env!("CARGO_MANIFEST_DIR");
        if crate::files::fs_kind(std::path::Path::new(disk)).unwrap() == FsKind::Other {
            assert_eq!(huge_bytes(disk), [0, 0]);
        }
    }
}
