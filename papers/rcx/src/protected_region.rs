//! [`ProtectedRegion`]: memory that knows which of its chunks were written, by any code.
//!
//! **No write is lost**: what is written after a chunk was taken as clean makes it dirty again, and
//! the write takes place only then. What was written before is in the memory when
//! [`take`](ProtectedRegion::take) returns. Threads that take or open different chunks go on beside
//! each other.
//!
//! A clean chunk is protected from writes ([`WriteProtected`]), and a [`RangeMap`] says which
//! chunks are clean and which are dirty. A write to a clean chunk waits while a thread of the
//! region makes it dirty, some microseconds, once a chunk. A program that is about to write says so
//! by [`open`](ProtectedRegion::open), which costs less.
//!
//! # Usage
//!
//! ```
//! use mneme_rcx::ProtectedRegion;
//! use mneme_sync::{ControlOptions, Participants};
//! use mneme_sys::SyntheticTopology;
//! use std::sync::Arc;
//!
//! let participants = Participants::private(ControlOptions::new([7; 16]))?;
//! let topology = Arc::new(SyntheticTopology::new(1, 1));
//! let Ok(region) = ProtectedRegion::new(&participants, topology, 1 << 20, 1 << 16) else {
//!     return Ok(()); // No `userfaultfd` here.
//! };
//! region.write(100_000, b"new")?;
//! region.write(70_000, b"new")?;
//! assert_eq!(region.dirty()?, [65536..131_072]);
//!
//! // A snapshot's next step: what was written since the last one.
//! assert_eq!(region.take(0..region.len())?, [65536..131_072]);
//! assert!(region.dirty()?.is_empty());
//! let mut byte = [0; 3];
//! region.read(100_000, &mut byte)?;
//! assert_eq!(&byte, b"new");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why no write is lost
//!
//! A chunk's protection and what the map says of it change together, under the lock of its
//! *stripe*, which all that change it take: [`take`](ProtectedRegion::take), `open`, and the thread
//! that answers writes. `take` protects first and calls the chunk clean then, the others call it
//! dirty first and give it free then. So a chunk that the map calls clean is protected at any time
//! when nobody holds its stripe, and a write to a protected chunk waits until its stripe was held.
//! An update of the map that fails leaves a chunk dirty that is protected: it is written as before,
//! or taken once too often.
//!
//! The lock is not the map's own: a system call of some microseconds within would make neighbours
//! wait, because an update locks the ranges beside its own.
//!
//! After Park's dissertation, §3.3.3 (RCXVM), which let a kernel's `mprotect` of different ranges
//! go on at the same time. A kernel's `mprotect` still excludes all others; `userfaultfd` takes the
//! same lock shared. `mneme-bench protect` measures.

use crate::{RangeError, RangeMap};
use mneme_sync::{Participants, SlotError};
use mneme_sys::{Topology, WriteProtected, racy};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What the map says of a chunk.
const CLEAN: u8 = 0;
const DIRTY: u8 = 1;

/// Locks of chunks: a chunk's number modulo this.
const STRIPES: usize = 64;

/// Why a call was refused. Nothing was lost then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectedError {
    /// There is no `userfaultfd`, or no memory.
    #[error("memory that is protected by userfaultfd (Linux 5.7 and later): {0}")]
    Unavailable(#[source] io::Error),
    /// A chunk is whole pages, one at least.
    #[error("chunks of {chunk} bytes are no whole pages of {page}")]
    Chunk {
        /// Bytes that were asked for.
        chunk: usize,
        /// Bytes of a page.
        page: usize,
    },
    /// The region ends before that.
    #[error("bytes {start} to {end} are not within {len}")]
    Beyond {
        /// The first byte.
        start: usize,
        /// The first byte behind.
        end: usize,
        /// The region's length.
        len: usize,
    },
    /// The system call failed.
    #[error("protecting memory: {0}")]
    System(#[source] io::Error),
    /// The map's ranges could not be changed.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The thread has no slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
}

/// Memory that knows which of its chunks were written; see the [module](self).
pub struct ProtectedRegion {
    shared: Arc<Shared>,
    answering: Option<JoinHandle<()>>,
}

struct Shared {
    memory: WriteProtected,
    chunk: usize,
    states: RangeMap<u8>,
    stripes: [Mutex<()>; STRIPES],
    is_over: AtomicBool,
}

impl ProtectedRegion {
    /// Zeros, of whole chunks, `len` bytes at least. All of it is clean. All memory is taken at
    /// once.
    ///
    /// # Errors
    /// [`ProtectedError::Chunk`], [`ProtectedError::Unavailable`].
    pub fn new(
        participants: &Participants,
        topology: Arc<dyn Topology>,
        len: usize,
        chunk: usize,
    ) -> Result<Self, ProtectedError> {
        let whole = len.max(1).checked_next_multiple_of(chunk.max(1));
        let none = || ProtectedError::Unavailable(io::ErrorKind::OutOfMemory.into());
        let memory = WriteProtected::new(whole.ok_or_else(none)?);
        let memory = memory.map_err(ProtectedError::Unavailable)?;
        let page = memory.page();
        if chunk == 0 || !chunk.is_multiple_of(page) {
            return Err(ProtectedError::Chunk { chunk, page });
        }
        let states = RangeMap::new(participants, topology);
        states.map(0..memory.len() as u64, CLEAN)?;
        let all = 0..memory.len();
        memory.protect(all).map_err(ProtectedError::System)?;
        let stripes = std::array::from_fn(|_| Mutex::new(()));
        let shared = Arc::new(Shared {
            memory,
            chunk,
            states,
            stripes,
            is_over: AtomicBool::new(false),
        });
        let answers = Arc::clone(&shared);
        let answering = thread::Builder::new()
            .name("mneme-protect".to_owned())
            .spawn(move || answers.answer())
            .map_err(ProtectedError::Unavailable)?;
        Ok(Self {
            shared,
            answering: Some(answering),
        })
    }

    /// Bytes: whole chunks.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it has a chunk at least")]
    pub fn len(&self) -> usize {
        self.shared.memory.len()
    }

    /// The first byte. Code that follows it vouches for its accesses; all writes are noticed.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.shared.memory.base()
    }

    /// Copies bytes to the region. Beside other threads that read or write there, words are whole.
    ///
    /// # Errors
    /// [`ProtectedError::Beyond`].
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), ProtectedError> {
        self.shared.within(at, at.saturating_add(bytes.len()))?;
        // SAFETY: within the memory, whose safe accesses are all by `racy`.
        unsafe { racy::store(bytes, self.base().as_ptr().add(at)) };
        Ok(())
    }

    /// Copies bytes from the region.
    ///
    /// # Errors
    /// [`ProtectedError::Beyond`].
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), ProtectedError> {
        self.shared.within(at, at.saturating_add(bytes.len()))?;
        // SAFETY: as in `write`.
        unsafe { racy::load(self.base().as_ptr().add(at), bytes) };
        Ok(())
    }

    /// The chunks that are dirty now, as ranges in ascending order.
    ///
    /// # Errors
    /// The thread has no slot.
    pub fn dirty(&self) -> Result<Vec<Range<usize>>, ProtectedError> {
        self.shared.dirty_within(0..self.len())
    }

    /// Makes the dirty chunks of a range clean, and returns them in ascending order. A write that
    /// has begun before is in the memory then, or makes its chunk dirty again.
    ///
    /// # Errors
    /// [`ProtectedError::Beyond`]; what the kernel and the map say. All that was dirty is dirty
    /// then, unless they say so once more.
    pub fn take(&self, range: Range<usize>) -> Result<Vec<Range<usize>>, ProtectedError> {
        let range = self.shared.chunks(range)?;
        let mut taken = Vec::new();
        match self.shared.take(range, &mut taken) {
            Ok(()) => Ok(taken),
            Err(error) => {
                for part in taken {
                    self.open(part)?;
                }
                Err(error)
            }
        }
    }

    /// Makes the chunks of a range dirty, so that writes to them do not wait.
    ///
    /// # Errors
    /// [`ProtectedError::Beyond`]; what the kernel and the map say.
    pub fn open(&self, range: Range<usize>) -> Result<(), ProtectedError> {
        let range = self.shared.chunks(range)?;
        let _alone = self.shared.lock(&range);
        self.shared.open(range)
    }
}

impl Drop for ProtectedRegion {
    fn drop(&mut self) {
        // Relaxed: the thread looks again and again.
        self.shared.is_over.store(true, Relaxed);
        self.shared.memory.stop();
        if let Some(answering) = self.answering.take() {
            // It does not panic.
            let _ = answering.join();
        }
    }
}

impl Shared {
    fn within(&self, start: usize, end: usize) -> Result<(), ProtectedError> {
        let len = self.memory.len();
        match start <= end && end <= len {
            true => Ok(()),
            false => Err(ProtectedError::Beyond { start, end, len }),
        }
    }

    /// The chunks with these bytes, of which there is one at least.
    fn chunks(&self, range: Range<usize>) -> Result<Range<usize>, ProtectedError> {
        let Range { start, end } = range;
        if start >= end {
            let len = self.memory.len();
            return Err(ProtectedError::Beyond { start, end, len });
        }
        self.within(start, end)?;
        Ok(start - start % self.chunk..end.next_multiple_of(self.chunk))
    }

    /// The locks of some chunks, in order.
    fn lock(&self, chunks: &Range<usize>) -> Vec<MutexGuard<'_, ()>> {
        let numbers = chunks.start / self.chunk..chunks.end / self.chunk;
        let has = |stripe: &usize| {
            numbers.len() >= STRIPES || numbers.clone().any(|number| number % STRIPES == *stripe)
        };
        let stripes = (0..STRIPES).filter(has);
        // It guards nothing that a panic could leave half done.
        let lock = |stripe: usize| self.stripes[stripe].lock();
        stripes
            .map(|stripe| lock(stripe).unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    fn mark(&self, chunks: &Range<usize>, state: u8) -> Result<(), RangeError> {
        let range = chunks.start as u64..chunks.end as u64;
        self.states.protect(range, state)
    }

    fn dirty_within(&self, chunks: Range<usize>) -> Result<Vec<Range<usize>>, ProtectedError> {
        let reader = self.states.read()?;
        let (mut found, mut at) = (Vec::new(), chunks.start as u64);
        while at < chunks.end as u64 {
            let range = reader.find(at);
            let end = range.end.min(chunks.end as u64);
            if range.value == Some(DIRTY) {
                // Addresses of this process' memory.
                found.push(at as usize..end as usize);
            }
            at = end;
        }
        Ok(found)
    }

    fn take(
        &self,
        chunks: Range<usize>,
        taken: &mut Vec<Range<usize>>,
    ) -> Result<(), ProtectedError> {
        for part in self.dirty_within(chunks)? {
            let _alone = self.lock(&part);
            // Another thread may have taken some of it since.
            for part in self.dirty_within(part)? {
                let protected = self.memory.protect(part.clone());
                protected.map_err(ProtectedError::System)?;
                self.mark(&part, CLEAN)?;
                match taken.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => taken.push(part),
                }
            }
        }
        Ok(())
    }

    /// The caller has the locks of these chunks.
    fn open(&self, chunks: Range<usize>) -> Result<(), ProtectedError> {
        self.mark(&chunks, DIRTY)?;
        let opened = self.memory.unprotect(chunks);
        opened.map_err(ProtectedError::System)
    }

    /// Answers writes to clean chunks until the region goes.
    fn answer(&self) {
        // An error would come again at once: the writer waits no longer than until the region goes.
        while let Ok(Some(at)) = self.memory.next_write() {
            let start = at - at % self.chunk;
            let chunk = start..start + self.chunk;
            let _alone = self.lock(&chunk);
            // Its ranges are locked by another thread, or there is no slot at the moment: the
            // writer must not go on before its chunk is dirty.
            while self.open(chunk.clone()).is_err() && !self.is_over.load(Relaxed) {
                thread::yield_now();
            }
        }
    }
}
