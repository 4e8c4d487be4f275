//! Which participants live: the kernel's answer, never a timeout's.
//!
//! Each process that takes part in a shared region holds an *index*. While it lives it holds it;
//! when it dies, by whatever means, the kernel lets go. Others ask [`Liveness::is_alive`], and
//! one of them wins [`Liveness::try_take`] of a dead index and clears up what was left.

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
pub enum LivenessError {
    /// The index is held: by another process, by another opening in this process, or by this
    /// opening itself.
    #[error("participant index {index} is already held")]
    Held {
        /// The index asked for.
        index: u32,
    },
    /// This process is a forked child of the one that opened; it is nobody until it opens for
    /// itself.
    #[error("this process was forked from the one that attached; it must attach for itself")]
    Forked,
    /// This process was declared dead (scripted liveness only).
    #[error("this process has been killed")]
    Dead,
    /// The lock file may not be written by this process; a liveness lock is a write lock.
    #[error("the control file cannot be opened for writing, which liveness locks need")]
    NotWritable(#[source] io::Error),
    /// The kernel refused for another reason.
    #[error("cannot {what} the liveness lock")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// The kernel's word on which participants live. One value is one participant process' view;
/// it is shared by all threads of that process, and any method may be called by any of them.
pub trait Liveness: Send + Sync {
    /// Makes this process the holder of `index`, until [`release`](Self::release) or its death.
    ///
    /// # Errors
    /// [`LivenessError::Held`] if anybody holds it, this process included.
    fn claim(&self, index: u32) -> Result<(), LivenessError>;

    /// Whether somebody holds `index` and lives. Where that cannot be found out (a forked child,
    /// an error of the file system) the answer is `true`: the living are never taken for dead.
    fn is_alive(&self, index: u32) -> bool;

    /// Whether any of the indices is held by a living process: one question where the kernel
    /// answers for all at once.
    fn any_alive(&self, indices: RangeInclusive<u32>) -> bool {
        indices.into_iter().any(|index| self.is_alive(index))
    }

    /// Takes `index` over if nobody holds it or its holder is dead; `None` if it is held.
    ///
    /// While the returned value lives nobody else gets the index: not another process, not
    /// another thread of this one.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), but a held index is `Ok(None)`.
    fn try_take(&self, index: u32) -> Result<Option<Taken<'_>>, LivenessError>;

    /// Lets go of an index that this process holds. Does nothing for any other.
    fn release(&self, index: u32);
}

/// An index taken over from the dead (or from nobody); dropping it lets go.
#[must_use = "dropping it gives the index back at once"]
pub struct Taken<'a> {
    liveness: &'a dyn Liveness,
    index: u32,
}

impl<'a> Taken<'a> {
    /// For implementations of [`Liveness`]: wraps an index that `liveness` now holds, and will
    /// release it through [`Liveness::release`].
    pub fn new(liveness: &'a dyn Liveness, index: u32) -> Self {
        Self { liveness, index }
    }

    /// The index taken.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Keeps the index: this process is its holder from now on, as if it had claimed it, without
    /// a moment at which anybody else could.
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
