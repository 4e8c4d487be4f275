//! One segment of an attachment: its lock, and the word in its header that says whether it is
//! whole.

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
use crate::segment::{control, durable, grow_region};
use crate::{EnterError, Segment, heap};

/// A segment with its lock held exclusively. Dropped in unwinding, it poisons the segment.
pub(super) struct ExclusiveSegment<'a> {
    changing: Changing<'a>,
    /// Given back last.
    lock: Sole<'a>,
}

impl ExclusiveSegment<'_> {
    /// Leaves the segment whole.
    #[inline]
    pub(super) fn end(self) {
        mneme_sys::fault!("space.enter.done");
        self.changing.end();
        mneme_sys::fault!("space.enter.ended");
        drop(self.lock);
    }

    /// Leaves the segment in the middle of a change.
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
    /// Its bytes outlive the machine.
    pub(super) durable: bool,
    /// Growth ahead of need was refused once. From then on it grows by what its heap needs.
    pub(super) growth_refused: AtomicBool,
}

impl AttachedSegment {
    pub(super) fn segment(&self) -> &Segment {
        self.placed.segment()
    }

    /// The segment as sections have it: exclusively, if they may change it and this attachment may.
    pub(super) fn present(&self, alone: bool) -> ProcessMapping {
        ProcessMapping {
            name: self.segment().name().as_str().into(),
            uuid: self.segment().uuid(),
            base: self.placed.region().first_byte(),
            len: AtomicUsize::new(self.placed.region().len()),
            exclusive: alone && self.access == Access::ReadWrite,
            ground: Arc::new(GrowingSegment(Arc::clone(&self.placed))),
        }
    }

    /// Takes its lock exclusively; from now on the header says that the segment is being changed.
    /// The slot is the thread's.
    #[inline]
    pub(super) fn alone<'a>(
        &'a self,
        slot: &Slot<'a>,
        timeout: Duration,
    ) -> Result<ExclusiveSegment<'a>, EnterError> {
        let lock = self.gate.sole_within(slot, timeout)?;
        // `OwnerDied` is in the segment's header too, where it outlives the control file.
        let died = lock.owner_died();
        let lock = lock.into_inner();
        let changing = self.begin(&lock, died)?;
        mneme_sys::fault!("space.enter.begun");
        Ok(ExclusiveSegment { changing, lock })
    }

    /// With the lock held exclusively, of which owners may have died: begins to change the segment,
    /// unless it is poisoned.
    pub(super) fn begin(&self, alone: &Sole<'_>, died: bool) -> Result<Changing<'_>, EnterError> {
        if died || alone.met_dead() {
            control::reap(self.placed.participants());
        }
        let word = self.state()?;
        // SYNC: pairs with the Release stores of the last exclusive section.
        match word.load(Acquire) {
            state::WHOLE if self.is_of_this_boot()? => {}
            // The section that wrote it is gone, for this thread has the lock; or the machine went
            // down.
            state::CHANGING | state::WHOLE => {
                word.store(state::DIED, Release);
                return Err(poisoned(self.segment()));
            }
            _ => return Err(poisoned(self.segment())),
        }
        if died {
            // The owner died before it began to change the segment, or after the end.
            alone.repaired();
        }
        self.grow_ahead()?;
        self.note_unsynced()?;
        // An error before anything was changed leaves it whole.
        Ok(Changing::begin(word, state::WHOLE))
    }

    /// Takes memory for a heap that has little left, while the segment is still called whole: the
    /// kernel may kill the process for it, and a death inside the section would poison the segment.
    #[inline]
    fn grow_ahead(&self) -> Result<(), RegionError> {
        let region = self.placed.region();
        let mut len = region.len();
        if RegionHeader::committed(region)? > len as u64 {
            len = region.refresh()?;
        }
        // SAFETY: mapped over this length, at its address, which is a multiple of 1 GiB.
        let wanted = unsafe { heap::growth_ahead(region.first_byte(), len) };
        match wanted {
            // Relaxed: a hint.
            Some(bytes) if !self.growth_refused.load(Relaxed) => {
                let refused = grow_region(region, bytes).is_err();
                self.growth_refused.store(refused, Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// With the lock held exclusively, whatever state the segment is in: begins to mend it.
    pub(super) fn begin_mending(&self) -> Result<Changing<'_>, EnterError> {
        self.note_unsynced()?;
        Ok(Changing::begin(self.state()?, state::DIED))
    }

    /// Notes that what is on the medium is not all, before anything is changed.
    #[inline]
    fn note_unsynced(&self) -> Result<(), RegionError> {
        if self.durable {
            durable::note_change(self.placed.region())?;
        }
        Ok(())
    }

    /// Writes all of the segment through to its medium, where it has one, and notes that all is
    /// there. Nobody changes it meanwhile.
    pub(super) fn sync(&self) -> Result<(), RegionError> {
        if self.durable {
            durable::write_through(self.placed.region())?;
        }
        Ok(())
    }

    /// Whether the machine has not gone down since with changes that nobody had written through.
    #[inline]
    fn is_of_this_boot(&self) -> Result<bool, RegionError> {
        if !self.durable {
            return Ok(true);
        }
        let word = RegionHeader::client_word(self.placed.region(), word::UNSYNCED)?;
        Ok(durable::is_of_this_boot(word, self.segment().meta()))
    }

    /// Takes the lock shared with other readers, if the segment is whole.
    pub(super) fn beside<'a>(
        &'a self,
        slot: &Slot<'a>,
        timeout: Duration,
    ) -> Result<OpPin<'a>, EnterError> {
        // With the lock held, or the answer is of a moment.
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

    /// Follows growth by others. With the lock held.
    #[inline]
    pub(super) fn follow(&self, present: &ProcessMapping) -> Result<(), RegionError> {
        let region = self.placed.region();
        let mut len = region.len();
        if RegionHeader::committed(region)? > len as u64 {
            len = region.refresh()?;
        }
        present.set_len(len);
        Ok(())
    }

    /// The header's word that says whether the segment is whole.
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
/// Where a writer died inside, the segment's header says so. The lock's own `OwnerDied` is cleared
/// once that header was examined.
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
            // The slot is of the gate's own control region, and this process its participant.
            Err(GateError::Foreign | GateError::Forked) => return Err(SlotError::Forked.into()),
        }
    };
    if is_whole()? {
        Ok(pin)
    } else {
        Err(poisoned(segment))
    }
}

/// A segment whose header says that it is being changed. Dropped in unwinding, it poisons the
/// segment.
pub(crate) struct Changing<'a> {
    word: &'a AtomicU64,
    /// What it is called if this is dropped before the end.
    unfinished: u64,
    /// Of forks: a child that is born meanwhile has no part in it, and nothing where the word was.
    generation: u32,
    /// The thread was panicking already when it began.
    unwinding: bool,
}

impl<'a> Changing<'a> {
    pub(crate) fn begin(word: &'a AtomicU64, unfinished: u64) -> Self {
        // SYNC: pairs with the Acquire loads of the next holder of the lock.
        word.store(state::CHANGING, Release);
        // A death between two instructions shows all stores before it: the compiler keeps the
        // order.
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

    /// Ends it in the middle.
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
