//! Where durable bytes go: stores into a mapping, writes, and what makes them survive a failure.
//!
//! A structure that survives power loss is an order of stores, flushes and syncs. [`Medium`] names
//! these operations, so that the same code runs on a file ([`FileMedium`]), in plain memory
//! ([`MemoryMedium`]), and on a [`RecordingMedium`], which keeps every operation in order.
//! [`CrashStates`] then derives from such a [`Trace`] what may be found after a crash at any point.
//!
//! A structure of several files that only grow needs no mapping. It goes through a [`Directory`],
//! whose files are [`Storage`]. Its twin for tests is a [`RecordingDirectory`]: the operations on
//! its files are those of a medium, and [`DirectoryStates`] derives what each may hold as
//! [`CrashStates`] does, and which names lead to which.

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

/// Bytes of a cache line: the unit of [`Medium::flush`].
pub const LINE: u64 = 64;

/// Bytes of a sector: the unit in which a block device keeps or loses writes.
pub const SECTOR: u64 = 512;

/// Durable bytes, visible as memory.
///
/// The bytes lie at [`base`](Medium::base) for the life of the medium. [`store`](Medium::store) and
/// [`store_word`](Medium::store_word) change them at once for every thread; what survives a failure
/// depends on the medium: a power failure keeps what was flushed and fenced (persistent memory) or
/// synced (files).
///
/// **Failed syncs are sticky.** After a failed [`sync`](Medium::sync) every later one fails with
/// [`MediumError::Poisoned`]: the kernel may have marked pages clean that were never written, and
/// it reports that once. So one sync waits for another.
///
/// `Send + Sync`. A store orders nothing against stores of other threads to the same bytes.
pub trait Medium: Send + Sync + fmt::Debug {
    /// The first byte. Aligned to 4 KiB at least, and the same for the life of the medium.
    fn base(&self) -> NonNull<u8>;

    /// Bytes that may be touched.
    fn len(&self) -> u64;

    /// Bytes that it may grow to.
    fn max(&self) -> u64;

    /// Whether there is nothing to touch yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores bytes into the mapping. No order within `bytes` is promised.
    ///
    /// # Panics
    /// If the range ends beyond [`len`](Medium::len): the caller has lost track of its own layout.
    fn store(&self, at: u64, bytes: &[u8]);

    /// Stores one aligned word, which no failure tears. A Release store.
    ///
    /// # Panics
    /// As [`store`](Medium::store), or if `at` is no multiple of 8.
    fn store_word(&self, at: u64, word: u64);

    /// Starts writing the lines of `range` back to persistent memory. Does nothing on a file, but
    /// for one that was [opened for that](FileMedium::open_direct).
    ///
    /// # Panics
    /// There, as [`store`](Medium::store).
    fn flush(&self, range: Range<u64>);

    /// Waits for the flushes before it. Does nothing where these do nothing.
    fn fence(&self);

    /// Begins to bring a range in, for a reader that needs all of it soon: page by page it would
    /// wait for each. Changes nothing else, and nothing where there is nothing to bring in.
    fn read_ahead(&self, _range: Range<u64>) {}

    /// Writes bytes by a system call rather than into the mapping; it sees them too.
    ///
    /// # Errors
    /// [`MediumError::Bounds`], [`MediumError::NoSpace`], [`MediumError::Os`].
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Waits until all that was stored and written before, and the length, survives power loss.
    ///
    /// # Errors
    /// [`MediumError::Sync`] at the first failure, [`MediumError::Poisoned`] ever after.
    fn sync(&self) -> Result<(), MediumError>;

    /// Makes it at least `to` bytes long, with space reserved; what is new is zero. The new length
    /// survives power loss after the next [`sync`](Medium::sync).
    ///
    /// # Errors
    /// [`MediumError::NoSpace`] (nothing changed, may be tried again), [`MediumError::Region`].
    fn grow(&self, to: u64) -> Result<(), MediumError>;

    /// Says that `range`, whole frames of 2 MiB, is about to be used at random. A medium in memory
    /// may lay it into huge pages, which takes milliseconds a frame. No content changes, and
    /// nothing that fails matters.
    fn settle(&self, _range: Range<u64>) {}

    /// Follows growth by another process that has the same medium. Does nothing on one that no
    /// other process can have.
    ///
    /// # Errors
    /// [`MediumError::Region`], [`MediumError::Os`].
    fn follow(&self) -> Result<(), MediumError> {
        Ok(())
    }
}

/// Why an operation on a medium failed.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// A range ends beyond the medium.
    #[error("{bytes} bytes at offset {at} lie beyond the {len} bytes of the medium")]
    Bounds {
        /// Where the range begins.
        at: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The medium's length in bytes.
        len: u64,
    },
    /// No space for more bytes. Nothing changed; it may be tried again.
    #[error("no space to grow to {wanted} bytes")]
    NoSpace {
        /// The length asked for.
        wanted: u64,
    },
    /// The mapping could not be made or grown.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A sync failed: what was stored since the last one may or may not survive.
    #[error("the medium did not take what was written to it")]
    Sync(#[source] io::Error),
    /// An earlier sync failed.
    #[error("an earlier sync of the medium failed; nothing written since can be relied upon")]
    Poisoned,
    /// The file was removed while it was written: what it holds goes with its last opening.
    #[error("the file was removed while it was written")]
    Removed,
    /// A system call failed.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
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

/// As [`assert_inside`], for callers that answer with an error.
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
/// A range that ends beyond `len`.
///
/// # Safety
/// From `base` on `len` bytes are mapped for writing, and stay so during the call.
#[inline]
unsafe fn store(base: NonNull<u8>, len: u64, at: u64, bytes: &[u8]) {
    assert_inside(at, bytes.len(), len);
    // SAFETY: inside of what is mapped, by the assertion.
    unsafe { racy::store(bytes, base.as_ptr().add(at as usize)) }
}

/// Stores a word at offset `at` of a mapped medium, as [`Medium::store_word`].
///
/// # Panics
/// An offset that is no multiple of 8, or one beyond `len`.
///
/// # Safety
/// As for [`store`]; `base` is a multiple of 8.
#[inline]
unsafe fn store_word(base: NonNull<u8>, len: u64, at: u64, word: u64) {
    assert_inside(at, 8, len);
    assert!(at.is_multiple_of(8), "offset {at} is no multiple of 8");
    // SAFETY: inside of what is mapped and aligned, by the assertions.
    let place = unsafe { AtomicU64::from_ptr(base.as_ptr().add(at as usize).cast()) };
    // SYNC: pairs with Acquire loads of the structure that lies on the medium.
    place.store(word, Ordering::Release);
}
