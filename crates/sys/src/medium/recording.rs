//! A medium that records every operation in order, for [`CrashStates`](super::CrashStates).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{CrashState, Medium, MediumError, MemoryMedium, inside};
use crate::racy;

/// One operation on a medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Bytes were stored or written.
    Store {
        /// The offset of the first byte.
        at: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Lines were flushed.
    Flush(Range<u64>),
    /// A fence.
    Fence,
    /// A sync that succeeded.
    Sync,
    /// A sync that failed and left every `keep`-th dirty page dirty; the others became clean
    /// without having been written.
    FailedSync {
        /// 0 means that every dirty page is lost.
        keep: u64,
    },
    /// Clean pages were dropped from the cache: data that a failed sync lost are now lost for the
    /// program, too.
    DropCached,
    /// The length changed to this.
    Grow(u64),
    /// A mark set by the test, such as "commit n was reported durable".
    Mark(u64),
}

/// The history of a medium since it contained `image`.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The bytes that were durable at the start.
    pub image: Arc<Vec<u8>>,
    /// The operations since, in order.
    pub operations: Vec<Operation>,
}

impl Trace {
    /// This trace without its `index`-th operation, like a program that omitted it.
    #[must_use]
    pub fn without(&self, index: usize) -> Self {
        let mut twin = self.clone();
        twin.operations.remove(index);
        twin
    }

    /// The positions of the operations for which `wanted` returns true.
    pub fn positions(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<usize> {
        let each = self.operations.iter().enumerate();
        each.filter(|(_, op)| wanted(op)).map(|(i, _)| i).collect()
    }
}

/// Plain memory whose operations are recorded and can be made to fail.
///
/// ```
/// use mneme_sys::medium::{Medium, Operation, RecordingMedium};
/// let medium = RecordingMedium::new(1 << 20)?;
/// medium.grow(4096)?;
/// medium.store_word(0, 1);
/// medium.sync()?;
/// assert_eq!(medium.trace().operations.last(), Some(&Operation::Sync));
/// # Ok::<(), mneme_sys::medium::MediumError>(())
/// ```
#[derive(Debug)]
pub struct RecordingMedium {
    memory: MemoryMedium,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trace: Trace,
    /// The limit of the simulated file system in bytes.
    limit: Option<u64>,
    /// The number of syncs until one fails, and what that one loses.
    failing: Option<(u64, u64)>,
    poisoned: bool,
}

impl RecordingMedium {
    /// An empty medium that may grow to `max` bytes.
    ///
    /// # Errors
    /// [`MediumError::Region`].
    pub fn new(max: u64) -> Result<Self, MediumError> {
        Ok(Self {
            memory: MemoryMedium::new(max)?,
            state: Mutex::default(),
        })
    }

    /// A medium on which `image` is durable.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_image(max: u64, image: Arc<Vec<u8>>) -> Result<Self, MediumError> {
        let medium = Self::new(max)?;
        medium.memory.grow(image.len() as u64)?;
        medium.memory.store(0, &image);
        medium.lock().trace.image = image;
        Ok(medium)
    }

    /// The recorded operations.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.lock().trace.clone()
    }

    /// Adds [`Operation::Mark`].
    pub fn mark(&self, value: u64) {
        self.record(Operation::Mark(value));
    }

    /// From now on there is no space beyond `limit` bytes; `None` removes the limit.
    pub fn limit(&self, limit: Option<u64>) {
        self.lock().limit = limit;
    }

    /// Makes the `nth` sync from now (1 is the next) fail; see [`Operation::FailedSync`].
    pub fn fail_sync(&self, nth: u64, keep: u64) {
        self.lock().failing = Some((nth, keep));
    }

    /// The bytes as a program sees them.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len() as usize];
        // SAFETY: the whole committed memory, whose pages live as long as `self`.
        unsafe { racy::load(self.memory.base().as_ptr(), &mut bytes) };
        bytes
    }

    /// Makes this medium the result of a crash: the next program finds `state`, on the image of its
    /// trace, and recording starts again. If the medium already has that image, changed only by
    /// recorded operations, only the differences are copied.
    ///
    /// # Errors
    /// [`MediumError::Region`]: there is not enough memory.
    pub fn become_crashed(
        &self,
        states: &super::CrashStates,
        state: &CrashState,
    ) -> Result<(), MediumError> {
        let mut own = self.lock();
        let base = states.durable();
        self.memory.grow(state.len.max(base.len() as u64))?;
        let same = Arc::ptr_eq(&own.trace.image, &base);
        let touched = std::mem::take(&mut own.trace.operations);
        self.memory.set_committed();
        if same {
            let mut lines = BTreeSet::new();
            for op in &touched {
                if let Operation::Store { at, bytes } = op {
                    lines.extend(at / 64..=(at + bytes.len() as u64).saturating_sub(1) / 64);
                }
            }
            for line in lines {
                self.lay(&base, line * 64, 64);
            }
        } else {
            let old = own.trace.image.len().max(base.len()) as u64;
            // Bytes beyond both images were only ever stored by recorded operations.
            let ends = touched.iter().map(|op| match op {
                Operation::Store { at, bytes } => at + bytes.len() as u64,
                _ => 0,
            });
            self.lay(&base, 0, ends.max().unwrap_or(0).max(old));
            own.trace.image = base;
        }
        for &(at, word) in &state.words {
            self.memory.store(at, &word.to_le_bytes());
            own.trace.operations.push(Operation::Store {
                at,
                bytes: word.to_le_bytes().to_vec(),
            });
        }
        own.trace.operations.push(Operation::Grow(state.len));
        own.trace.operations.push(Operation::Sync);
        own.poisoned = false;
        own.failing = None;
        own.limit = None;
        self.memory.set_len(state.len);
        Ok(())
    }

    /// Copies `bytes` bytes at `at` from `image`, and zeros after its end.
    fn lay(&self, image: &[u8], at: u64, bytes: u64) {
        let (from, to) = (
            at.min(image.len() as u64),
            (at + bytes).min(image.len() as u64),
        );
        self.memory.store(from, &image[from as usize..to as usize]);
        if at + bytes > to {
            let start = at.max(to);
            self.memory
                .store(start, &vec![0; (at + bytes - start) as usize]);
        }
    }

    fn record(&self, operation: Operation) {
        self.lock().trace.operations.push(operation);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for RecordingMedium {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn max(&self) -> u64 {
        self.memory.max()
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        self.memory.store(at, bytes);
        self.record(Operation::Store {
            at,
            bytes: bytes.to_vec(),
        });
    }

    fn store_word(&self, at: u64, word: u64) {
        self.memory.store_word(at, word);
        self.record(Operation::Store {
            at,
            bytes: word.to_ne_bytes().to_vec(),
        });
    }

    fn flush(&self, range: Range<u64>) {
        self.record(Operation::Flush(range));
    }

    fn fence(&self) {
        self.record(Operation::Fence);
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        inside(at, bytes.len(), self.len())?;
        self.store(at, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        let mut state = self.lock();
        if state.poisoned {
            return Err(MediumError::Poisoned);
        }
        if let Some((left, keep)) = state.failing {
            if left <= 1 {
                state.failing = None;
                state.poisoned = true;
                let failed = Operation::FailedSync { keep };
                state.trace.operations.push(failed);
                return Err(MediumError::Sync(io::Error::other("a fault was injected")));
            }
            state.failing = Some((left - 1, keep));
        }
        state.trace.operations.push(Operation::Sync);
        Ok(())
    }

    fn grow(&self, to: u64) -> Result<(), MediumError> {
        if to <= self.len() {
            return Ok(());
        }
        if self.lock().limit.is_some_and(|limit| to > limit) {
            return Err(MediumError::NoSpace { wanted: to });
        }
        self.memory.grow(to)?;
        self.record(Operation::Grow(to));
        Ok(())
    }
}
