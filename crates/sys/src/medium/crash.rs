//! The possible contents of a medium after a crash.
//!
//! The medium is a row of *units*: sectors of a file, or lines of persistent memory. Each unit has
//! its content as of some instant between its last guaranteed one and the crash. Units are
//! independent of each other, and so is the length. A unit may also be torn: a mixture, at 8 bytes,
//! of its contents as of two instants. Words of 8 bytes are never torn.
//!
//! | | unit | guaranteed |
//! |---|---|---|
//! | [`FailureModel::File`] | sector of 512 bytes | what was stored before the last sync |
//! | [`FailureModel::Dax`] | line of 64 bytes | what was stored before a flush of the line that a fence followed |
//!
//! For persistent memory only the stores after the guaranteed ones can be torn, and they arrive in
//! order: a line's content is always a prefix of its stores, of which the last may be partial.

use std::sync::Arc;

use super::contents::CrashContents;
use super::{Operation, Trace};

/// The failures that a structure must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureModel {
    /// Power loss with a file on a block device.
    File,
    /// Power loss with persistent memory.
    Dax,
}

/// The result of one crash, as the difference to [`CrashStates::durable`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrashState {
    /// The medium's length.
    pub len: u64,
    /// Words that differ from the durable image, by offset; little-endian.
    pub words: Vec<(u64, u64)>,
}

/// The states in which a medium may be found after a crash, at a point that moves forward through a
/// [`Trace`].
///
/// ```
/// use mneme_sys::medium::{CrashStates, FailureModel, Medium, RecordingMedium};
/// let medium = RecordingMedium::new(1 << 20)?;
/// medium.grow(4096)?;
/// medium.sync()?;
/// medium.store_word(0, 1);
/// medium.store_word(512, 2);
/// let trace = medium.trace();
/// let mut states = CrashStates::new(&trace, FailureModel::File);
/// while states.advance() {}
/// // Neither word arrived, or one of them, or both.
/// assert_eq!(states.all(100).unwrap().len(), 4);
/// # Ok::<(), mneme_sys::medium::MediumError>(())
/// ```
#[derive(Debug)]
pub struct CrashStates<'t> {
    trace: &'t Trace,
    /// The number of operations before the crash.
    at: usize,
    contents: CrashContents,
    mark: u64,
}

impl<'t> CrashStates<'t> {
    /// A crash before the first operation.
    #[must_use]
    pub fn new(trace: &'t Trace, model: FailureModel) -> Self {
        Self {
            trace,
            at: 0,
            contents: CrashContents::new(trace.image.clone(), model),
            mark: 0,
        }
    }

    /// The number of operations before the crash.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The last [`Operation::Mark`] before the crash; 0 if there is none.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// The bytes to which every state is a difference.
    #[must_use]
    pub fn durable(&self) -> Arc<Vec<u8>> {
        self.contents.durable().clone()
    }

    /// Moves the crash to the point after the next operation. `false` at the end of the trace.
    pub fn advance(&mut self) -> bool {
        let Some(operation) = self.trace.operations.get(self.at) else {
            return false;
        };
        self.at += 1;
        match operation {
            Operation::Mark(value) => self.mark = *value,
            other => self.contents.apply(other),
        }
        true
    }

    /// Every state without torn units, if there are at most `limit`. Also states in which *one*
    /// unit is torn in its last store (for a sector: in all its stores), in each way that leaves
    /// out one word or keeps one word, while the other units have either nothing or everything.
    #[must_use]
    pub fn all(&self, limit: usize) -> Option<Vec<CrashState>> {
        self.contents.all(limit)
    }

    /// One random state: each unit as of an instant of its own, some of them torn. `random` returns
    /// 64 random bits.
    pub fn sample(&self, random: impl FnMut() -> u64) -> CrashState {
        self.contents.sample(random)
    }
}
