//! One segment of an attachment: its lock, and the word in its header that says whether its
//! contents are consistent.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, compiler_fence};
use std::time::Duration;

use mneme_sync::{FencedGate, GateError, OpPin, Participants, Slot, SlotError, Sole};
use mneme_sys::{Access, RegionError, RegionHeader, fork};

use super::members::GrowingSegment;
use crate::map::Placed;
use crate::process_mapping::ProcessMapping;
use crate::segment::data::word::{self, state};
use crate::segment::{control, durable};
use crate::{EnterError, Segment, heap};

/// A segment whose lock is held exclusively. Dropped during a panic, it poisons the segment.
pub(super) struct ExclusiveSegment<'a> {
    changing: Changing<'a>,
    /// Released last.
    lock: Sole<'a>,
}

impl ExclusiveSegment<'_> {
    /// Ends the change; the segment is consistent.
    #[inline]
    pub(super) fn end(self) {
        mneme_sys::fault!("space.enter.done");
        self.changing.end();
        mneme_sys::fault!("space.enter.ended");
        drop(self.lock);
    }

    /// Ends in the middle of a change; the segment is poisoned.
    pub(super) fn abandon(self) {
        self.changing.abandon();
        drop(self.lock);
    }
}

/// One segment of an attachment.
pub(super) struct AttachedSegment {
    pub(super) placed: Arc<Placed>,
    pub(super) gate: FencedGate,
    pub(super) access: Access,
    /// Whether the segment's bytes outlive the machine.
    pub(super) durable: bool,
    /// Set once growing ahead of need was refused. From then on the segment grows only by what its
    /// heap needs.
    pub(super) growth_refused: AtomicBool,
}

impl AttachedSegment {
    pub(super) fn segment(&self) -> &Segment {
        self.placed.segment()
    }

    /// The segment for a section: exclusively held if the section may change it and this attachment
    /// may too.
    pub(super) fn present(&self, alone: bool) -> ProcessMapping {
        ProcessMapping {
            name: self.segment().name().as_str().into(),
            uuid: self.segment().uuid(),
            base: self.placed.first_byte(),
            len: AtomicUsize::new(self.placed.region().len()),
            exclusive: alone && self.access == Access::ReadWrite,
            ground: Arc::new(GrowingSegment(Arc::clone(&self.placed))),
        }
    }

    /// Takes the segment's lock exclusively and marks its header as being changed. The slot belongs
    /// to the calling thread.
    #[inline]
    pub(super) fn alone<'a>(
        &'a self,
        slot: &Slot<'a>,
        timeout: Duration,
    ) -> Result<ExclusiveSegment<'a>, EnterError> {
        let lock = self.gate.sole_within(slot, timeout)?;
        // The segment's header also records `OwnerDied`, and keeps it if the control file is lost.
        let died = lock.owner_died();
        let lock = lock.into_inner();
        let changing = self.begin(&lock, died)?;
        mneme_sys::fault!("space.enter.begun");
        Ok(ExclusiveSegment { changing, lock })
    }

    /// Begins to change the segment, unless it is poisoned. The lock must be held exclusively;
    /// `died` says whether a previous owner died.
    pub(super) fn begin(&self, alone: &Sole<'_>, died: bool) -> Result<Changing<'_>, EnterError> {
        if died || alone.met_dead() {
            control::reap(self.placed.participants());
        }
        let word = self.state()?;
        // SYNC: pairs with the Release stores of the last exclusive section.
        match word.load(Acquire) {
            state::WHOLE if self.is_of_this_boot()? => {}
            // This thread has the lock, so the section that wrote `CHANGING` is gone; for `WHOLE`,
            // the machine went down.
            state::CHANGING | state::WHOLE => {
                word.store(state::DIED, Release);
                return Err(poisoned(self.segment()));
            }
            _ => return Err(poisoned(self.segment())),
        }
        if died {
            // The owner died before it began to change the segment, or after it had ended.
            alone.repaired();
        }
        self.grow_ahead()?;
        self.note_unsynced()?;
        // If an error occurs before anything was changed, the segment is still consistent.
        Ok(Changing::begin(word, state::WHOLE))
    }

    /// Grows the segment if its heap has little memory left, while its header still says that it is
    /// consistent. The kernel may kill the process for lack of memory, and a death inside the
    /// section would poison the segment.
    #[inline]
    fn grow_ahead(&self) -> Result<(), RegionError> {
        let region = self.placed.region();
        let mut len = region.len();
        if RegionHeader::committed(region)? > len as u64 {
            len = region.refresh()?;
        }
        self.placed.reach(len)?;
        // SAFETY: mapped over this length, at its address, which is a multiple of 1 GiB.
        let wanted = unsafe { heap::growth_ahead(self.placed.first_byte(), len) };
        match wanted {
            // Relaxed: the flag is a hint.
            Some(bytes) if !self.growth_refused.load(Relaxed) => {
                let refused = self.placed.grow(bytes).is_err();
                self.growth_refused.store(refused, Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins to repair the segment, whatever state it is in. The lock must be held exclusively.
    pub(super) fn begin_mending(&self) -> Result<Changing<'_>, EnterError> {
        self.note_unsynced()?;
        Ok(Changing::begin(self.state()?, state::DIED))
    }

    /// Before anything is changed, records that the medium will not have all changes.
    #[inline]
    fn note_unsynced(&self) -> Result<(), RegionError> {
        if self.durable {
            durable::note_change(self.placed.region())?;
        }
        Ok(())
    }

    /// Writes the whole segment through to its medium, if it has one, and records that everything
    /// is on it. Nobody may change the segment meanwhile.
    pub(super) fn sync(&self) -> Result<(), RegionError> {
        if self.durable {
            durable::write_through(self.placed.region())?;
        }
        Ok(())
    }

    /// Whether no changes were lost, because the machine has not gone down since they were made or
    /// they had been written through.
    #[inline]
    fn is_of_this_boot(&self) -> Result<bool, RegionError> {
        if !self.durable {
            return Ok(true);
        }
        let word = RegionHeader::client_word(self.placed.region(), word::UNSYNCED)?;
        Ok(durable::is_of_this_boot(word, self.segment().meta()))
    }

    /// Takes the lock shared with other readers, if the segment is consistent.
    pub(super) fn beside<'a>(
        &'a self,
        slot: &Slot<'a>,
        timeout: Duration,
    ) -> Result<OpPin<'a>, EnterError> {
        // Checked with the lock held; otherwise the answer could be outdated at once.
        let is_whole = || {
            let word = RegionHeader::client_word(self.placed.region(), word::POISON)?;
            Ok(word == state::WHOLE && self.is_of_this_boot()?)
        };
        beside(
            self.placed.participants(),
            &self.gate,
            slot,
            timeout,
            self.segment(),
            is_whole,
        )
    }

    /// Extends the mapping if others have grown the segment. The lock must be held.
    #[inline]
    pub(super) fn follow(&self, present: &ProcessMapping) -> Result<(), RegionError> {
        let region = self.placed.region();
        let mut len = region.len();
        if RegionHeader::committed(region)? > len as u64 {
            len = region.refresh()?;
        }
        self.placed.reach(len)?;
        present.set_len(len);
        Ok(())
    }

    /// The header's word that says whether the segment is consistent.
    fn state(&self) -> Result<&AtomicU64, RegionError> {
        Ok(&RegionHeader::client(self.placed.region())?[word::POISON])
    }
}

fn poisoned(segment: &Segment) -> EnterError {
    EnterError::Poisoned {
        segment: segment.name().to_string(),
    }
}

/// Takes a segment's lock shared with other readers, if `is_whole` says that no process has left
/// the segment half changed.
///
/// If a writer died inside the segment, the segment's header says so. The lock's own `OwnerDied` is
/// cleared once the header has been examined.
#[inline]
pub(crate) fn beside<'a>(
    participants: &Participants,
    gate: &'a FencedGate,
    slot: &Slot<'a>,
    timeout: Duration,
    segment: &Segment,
    is_whole: impl Fn() -> Result<bool, EnterError>,
) -> Result<OpPin<'a>, EnterError> {
    let pin = loop {
        match gate.shared_within(slot, timeout) {
            Ok(pin) => break pin,
            Err(GateError::OwnerDied) => {
                let alone = gate.sole_within(slot, timeout)?.into_inner();
                control::reap(participants);
                if !is_whole()? {
                    return Err(poisoned(segment));
                }
                alone.repaired();
            }
            Err(GateError::Stalled(stalled)) => return Err(stalled.into()),
            // The slot belongs to the gate's own control region, of which this process is a
            // participant.
            Err(GateError::Foreign | GateError::Forked) => return Err(SlotError::Forked.into()),
        }
    };
    if is_whole()? {
        Ok(pin)
    } else {
        Err(poisoned(segment))
    }
}

/// A segment whose header says that it is being changed. Dropped during a panic, it poisons the
/// segment.
pub(crate) struct Changing<'a> {
    word: &'a AtomicU64,
    /// The state to store if this is dropped before the end.
    unfinished: u64,
    /// Counts forks: a child that is forked meanwhile must not store the state, and no longer has
    /// the word mapped.
    generation: u32,
    /// Whether the thread was already panicking at the beginning.
    unwinding: bool,
}

impl<'a> Changing<'a> {
    pub(crate) fn begin(word: &'a AtomicU64, unfinished: u64) -> Self {
        // SYNC: pairs with the Acquire loads of the next holder of the lock.
        word.store(state::CHANGING, Release);
        // If the process dies between two instructions, all stores before that point are visible,
        // because the compiler keeps their order.
        compiler_fence(SeqCst);
        Self {
            word,
            unfinished,
            generation: fork::generation(),
            unwinding: std::thread::panicking(),
        }
    }

    pub(crate) fn end(self) {
        self.leave(state::WHOLE);
        std::mem::forget(self);
    }

    /// Ends in the middle of the change.
    fn abandon(self) {
        self.leave(state::PANICKED);
        std::mem::forget(self);
    }

    fn leave(&self, as_what: u64) {
        compiler_fence(SeqCst);
        if self.generation == fork::generation() {
            // SYNC: pairs with the Acquire loads of the next holder of the lock.
            self.word.store(as_what, Release);
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.leave(if std::thread::panicking() && !self.unwinding {
            state::PANICKED
        } else {
            self.unfinished
        });
    }
}
