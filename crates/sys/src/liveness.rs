//! Which participants are alive: determined by the kernel, never by a timeout.
//!
//! Each process that participates in a shared region holds an *index* as long as it lives; when it
//! dies, by whatever means, the kernel releases the index. Others call [`Liveness::is_alive`]. One
//! of them wins [`Liveness::try_take`] of a dead process's index and cleans up after it.

mod ofd;
mod scripted;

use std::io;
use std::ops::RangeInclusive;

pub use ofd::{ChildrensByte, OfdLiveness, SharedByte};
#[cfg(not(miri))]
pub(crate) use ofd::{after_fork_in_child, after_fork_in_parent, before_fork, lock_bytes};
pub use scripted::{ScriptedLiveness, ScriptedProcess};

/// Why an index could not be claimed or examined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LivenessError {
    /// The index is held: by another process, by another opening in this process, or by this
    /// opening itself.
    #[error("participant index {index} is already held")]
    Held {
        /// The index.
        index: u32,
    },
    /// This process was forked from the one that opened; it must open for itself.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
    /// This process was declared dead (scripted liveness only).
    #[error("this process has been killed")]
    Dead,
    /// This process may not write the lock file, and a liveness lock is a write lock.
    #[error("the control file cannot be opened for writing, which liveness locks need")]
    NotWritable(#[source] io::Error),
    /// The kernel refused for another reason.
    #[error("cannot {what} the liveness lock")]
    Os {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Reports which participants are alive, as the kernel knows it. A value belongs to one
/// participating process and is shared by its threads, any of which may call any method.
pub trait Liveness: Send + Sync {
    /// Makes this process the holder of `index`, until [`release`](Self::release) or its death.
    ///
    /// # Errors
    /// [`LivenessError::Held`] if any process holds it, including this one.
    fn claim(&self, index: u32) -> Result<(), LivenessError>;

    /// Whether a living process holds `index`. If that cannot be determined (in a forked child, or
    /// because of an error of the file system), the result is `true`: a living process is never
    /// considered dead.
    fn is_alive(&self, index: u32) -> bool;

    /// Whether a living process holds any of the indices. A single query if the kernel can answer
    /// for all at once.
    fn any_alive(&self, indices: RangeInclusive<u32>) -> bool {
        indices.into_iter().any(|index| self.is_alive(index))
    }

    /// Takes `index` over if nobody holds it or its holder is dead; `None` if it is held.
    ///
    /// As long as the returned value exists, nobody else gets the index: neither another process
    /// nor another thread of this one.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), except that a held index is `Ok(None)`.
    fn try_take(&self, index: u32) -> Result<Option<Taken<'_>>, LivenessError>;

    /// Releases an index that this process holds. Does nothing for any other.
    fn release(&self, index: u32);
}

/// An index taken over from a dead process (or from nobody); dropping it releases it.
#[must_use = "dropping it gives the index back at once"]
pub struct Taken<'a> {
    liveness: &'a dyn Liveness,
    index: u32,
}

impl<'a> Taken<'a> {
    /// For implementations of [`Liveness`]: wraps an index that `liveness` now holds, and which is
    /// released through [`Liveness::release`].
    pub fn new(liveness: &'a dyn Liveness, index: u32) -> Self {
        Self { liveness, index }
    }

    /// The index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Keeps the index: this process is its holder from now on, as if it had claimed it, and nobody
    /// else can take it in between.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.liveness.release(self.index);
    }
}

impl std::fmt::Debug for Taken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").field("index", &self.index).finish()
    }
}
