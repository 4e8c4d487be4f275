//! Where durable bytes are stored: stores into a mapping, writes, and the operations that make them
//! survive a failure.
//!
//! The durability of a structure depends on the order of its stores, flushes and syncs. [`Medium`]
//! names these operations, so that the same code runs on a file ([`FileMedium`]), in plain memory
//! ([`MemoryMedium`]), and on a [`RecordingMedium`], which records every operation in order.
//! [`CrashStates`] then derives from such a [`Trace`] what may be found after a crash at any point.
//!
//! A structure of several files that only grow needs no mapping. It uses a [`Directory`], whose
//! files are [`Storage`]. Its counterpart for tests is a [`RecordingDirectory`]: the operations on
//! its files are those of a medium. [`DirectoryStates`] derives what each file may contain, as
//! [`CrashStates`] does, and which names lead to which file.

mod contents;
mod crash;
mod directory;
mod directory_states;
mod file;
#[cfg(not(miri))]
mod files;
mod memory;
mod recorded_directory;
mod recorded_mapping;
mod recording;

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crash::{CrashState, CrashStates, FailureModel};
pub use directory::{Directory, Storage};
pub use directory_states::{DirectoryState, DirectoryStates};
pub use file::FileMedium;
#[cfg(not(miri))]
pub use files::{DirectoryError, FileDirectory};
pub use memory::MemoryMedium;
pub use recorded_directory::{DirectoryOperation, DirectoryTrace, RecordingDirectory};
pub use recording::{Operation, RecordingMedium, Trace};

use crate::{RegionError, racy};

/// The size of a cache line in bytes: the unit of [`Medium::flush`].
pub const LINE: u64 = 64;

/// The size of a sector in bytes: the unit in which a block device keeps or loses writes.
pub const SECTOR: u64 = 512;

/// Durable bytes, visible as memory.
///
/// The bytes lie at [`base`](Medium::base) for the life of the medium. [`store`](Medium::store) and
/// [`store_word`](Medium::store_word) change them at once for every thread. What survives a failure
/// depends on the medium: a power failure keeps what was flushed and fenced (persistent memory) or
/// synced (files).
///
/// **Failed syncs are sticky.** After a failed [`sync`](Medium::sync) every later one fails with
/// [`MediumError::Poisoned`]: the kernel may have marked pages clean that were never written, and
/// it reports that only once. For the same reason, syncs wait for one another.
///
/// `Send + Sync`. A store is not ordered with other threads' stores to the same bytes.
pub trait Medium: Send + Sync + fmt::Debug {
    /// The address of the first byte. It is aligned to at least 4 KiB and never changes.
    fn base(&self) -> NonNull<u8>;

    /// The number of bytes that may be accessed.
    fn len(&self) -> u64;

    /// The maximum length in bytes.
    fn max(&self) -> u64;

    /// Whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores bytes into the mapping, in no particular order.
    ///
    /// # Panics
    /// If the range ends beyond [`len`](Medium::len), which is a bug of the caller.
    fn store(&self, at: u64, bytes: &[u8]);

    /// Stores one aligned word, which no failure tears. A Release store.
    ///
    /// # Panics
    /// As [`store`](Medium::store), or if `at` is not a multiple of 8.
    fn store_word(&self, at: u64, word: u64);

    /// Starts writing the lines of `range` back to persistent memory. Does nothing on a file,
    /// unless it was [opened for that](FileMedium::open_direct).
    ///
    /// # Panics
    /// As [`store`](Medium::store), if it does something.
    fn flush(&self, range: Range<u64>);

    /// Waits for the preceding flushes. Does nothing where these do nothing.
    fn fence(&self);

    /// Starts reading a range from the medium, for a reader that needs all of it soon; otherwise it
    /// would wait for each page. Has no other effect.
    fn read_ahead(&self, _range: Range<u64>) {}

    /// Writes bytes by a system call instead of through the mapping, where they become visible too.
    ///
    /// # Errors
    /// [`MediumError::Bounds`], [`MediumError::NoSpace`], [`MediumError::Os`].
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Waits until everything stored and written before, and the length, survives power loss.
    ///
    /// # Errors
    /// [`MediumError::Sync`] at the first failure, [`MediumError::Poisoned`] ever after.
    fn sync(&self) -> Result<(), MediumError>;

    /// Makes the medium at least `to` bytes long, with space reserved; new bytes are zero. The new
    /// length survives power loss after the next [`sync`](Medium::sync).
    ///
    /// # Errors
    /// [`MediumError::NoSpace`] (nothing changed, may be tried again), [`MediumError::Region`].
    fn grow(&self, to: u64) -> Result<(), MediumError>;

    /// Announces that `range`, whole frames of 2 MiB, is about to be used at random. A medium in
    /// memory may move it into huge pages, which takes milliseconds a frame. Changes no content;
    /// failures do not matter.
    fn settle(&self, _range: Range<u64>) {}

    /// Follows growth by another process that uses the same medium. Does nothing on one that no
    /// other process can use.
    ///
    /// # Errors
    /// [`MediumError::Region`], [`MediumError::Os`].
    fn follow(&self) -> Result<(), MediumError> {
        Ok(())
    }
}

/// Why an operation on a medium failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// A range ends beyond the medium.
    #[error("{bytes} bytes at offset {at} lie beyond the {len} bytes of the medium")]
    Bounds {
        /// The offset of the range.
        at: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The medium's length in bytes.
        len: u64,
    },
    /// There is no space for more bytes. Nothing changed; the operation may be tried again.
    #[error("no space to grow to {wanted} bytes")]
    NoSpace {
        /// The requested length in bytes.
        wanted: u64,
    },
    /// The mapping could not be created or grown.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A sync failed: what was stored since the last one may or may not survive.
    #[error("writing to the medium failed")]
    Sync(#[source] io::Error),
    /// An earlier sync failed.
    #[error("an earlier sync of the medium failed; nothing written since can be relied upon")]
    Poisoned,
    /// The file was removed while it was being written: its content is freed when it is closed.
    #[error("the file was removed while it was written")]
    Removed,
    /// A system call failed.
    #[error("cannot {what}")]
    Os {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Panics if `bytes` bytes at `at` end beyond `len`.
#[inline]
#[track_caller]
fn assert_inside(at: u64, bytes: usize, len: u64) {
    let end = at.checked_add(bytes as u64);
    assert!(
        end.is_some_and(|end| end <= len),
        "{bytes} bytes at offset {at} lie beyond the {len} bytes of the medium"
    );
}

/// As [`assert_inside`], but returns an error.
fn inside(at: u64, bytes: usize, len: u64) -> Result<(), MediumError> {
    let bytes = bytes as u64;
    if at.checked_add(bytes).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(MediumError::Bounds { at, bytes, len })
}

/// Stores `bytes` at offset `at` of a mapped medium, as [`Medium::store`].
///
/// # Panics
/// If the range ends beyond `len`.
///
/// # Safety
/// The `len` bytes from `base` must be mapped for writing, also during the whole call.
#[inline]
unsafe fn store(base: NonNull<u8>, len: u64, at: u64, bytes: &[u8]) {
    assert_inside(at, bytes.len(), len);
    // SAFETY: inside the mapping, by the assertion.
    unsafe { racy::store(bytes, base.as_ptr().add(at as usize)) }
}

/// Stores a word at offset `at` of a mapped medium, as [`Medium::store_word`].
///
/// # Panics
/// If the offset is not a multiple of 8, or lies beyond `len`.
///
/// # Safety
/// As for [`store`]; `base` must be a multiple of 8.
#[inline]
unsafe fn store_word(base: NonNull<u8>, len: u64, at: u64, word: u64) {
    assert_inside(at, 8, len);
    assert!(at.is_multiple_of(8), "offset {at} is no multiple of 8");
    // SAFETY: inside the mapping and aligned, by the assertions.
    let place = unsafe { AtomicU64::from_ptr(base.as_ptr().add(at as usize).cast()) };
    // SYNC: pairs with Acquire loads of the structure on the medium.
    place.store(word, Ordering::Release);
}
