//! After a death: the next thread to take the arena's lock repairs what the dead owner left half
//! done, and [`Arena::repair`] frees extents that a dead thread had claimed but not adopted.
//!
//! The two use different information. The lock's next owner may follow several deaths and needs
//! none of their intents, because the descriptors are sufficient. A tail without its head belongs
//! to a claim that was not finished, or to a release that had begun, and is free in either case;
//! frames beyond the end belong to a growth that did not take effect; bitmap and tree are
//! recomputed. O(frames), once per death inside the lock.
//!
//! The intent adds the one thing that descriptors cannot show: that a release was requested whose
//! first descriptor had not been changed yet. It names the run's generation, so repairing twice, or
//! much later, does nothing.

use crate::OpenError;
use crate::RepairError;
use crate::arena::Arena;
use crate::descriptor::{State, Status};
use crate::frame::{Extent, FRAME_BYTES, Frame};
use crate::free_runs::WORD_FRAMES;
use crate::zone::planned;
use mneme_sync::{DeadSlot, Guard, Intent, Lane, Slot, SlotId, Stalled};
use mneme_sys::{RegionError, RegionHeader};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// The kinds of intents in the arena's lane. Their words are: first frame, frames, generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum ArenaIntent {
    /// The run is being claimed.
    Claim = 1,
    /// The run is being released.
    Release = 2,
    /// A run whose claimer is dead is being freed unless it is adopted.
    TakeBack = 3,
    /// The words are: old end, new end. The descriptors show how far it came.
    Grow = 4,
}

/// What [`Arena::repair`] freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// The number of extents that the dead thread had claimed without adopting, or was releasing.
    pub extents: u32,
    /// The number of their frames.
    pub frames: u32,
}

/// Holds the arena's lock. If the thread unwinds, the next owner repairs.
pub(crate) struct Locked<'a>(Guard<'a>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.needs_repair();
        }
    }
}

impl Arena {
    /// Takes the arena's lock, and repairs what a dead owner left.
    pub(crate) fn lock<'a, E>(&'a self, slot: &Slot<'a>) -> Result<Locked<'a>, E>
    where
        E: From<Stalled> + From<RegionError>,
    {
        self.participants.admit(slot)?;
        let acquired = self.lock_word()?.lock(slot)?;
        let died = acquired.owner_died();
        let locked = Locked(acquired.into_inner());
        if died {
            self.restore()?;
            locked.0.repaired();
        }
        Ok(locked)
    }

    /// Frees what the dead thread had claimed but not adopted, and finishes what it was releasing.
    ///
    /// To be called for every dead slot, from the repair function given to
    /// [`Participants::reap`](mneme_sync::Participants::reap), *after* the tenant's own repair has
    /// adopted or unlinked what the dead thread was linking. Idempotent, even if the repairing
    /// thread itself dies. O(frames). Takes the arena's lock only if the dead thread left something
    /// here; otherwise it does not wait for a stopped holder.
    ///
    /// # Errors
    /// The lock or a slot is not available; repair again.
    pub fn repair(&self, dead: &DeadSlot<'_>) -> Result<Repaired, RepairError> {
        self.repair_slot(dead.id(), dead.intent(Lane::Arena))
    }

    fn repair_slot(&self, dead: SlotId, intent: Option<Intent>) -> Result<Repaired, RepairError> {
        let slot = self.participants.slot()?;
        let table = self.table()?;
        let mut repaired = Repaired::default();
        let releases = intent.is_some_and(|intent| intent.kind == ArenaIntent::Release as u16);
        // Extents that the dead thread claimed carry its slot's number until they are freed here.
        let has_claimed = || {
            let frames = self.geometry.first_frame..self.end_frame();
            let mut statuses = frames.filter_map(|frame| table.get(frame)?.status());
            statuses.any(|status| status.state == State::Claimed && status.owner == dead.0)
        };
        if !releases && self.lock_word()?.owner() != Some(dead) && !has_claimed() {
            return Ok(repaired);
        }
        let guard = self.lock::<RepairError>(&slot)?;
        mneme_sys::fault!("arena.repair.locked");
        if let Some(intent) = intent.filter(|intent| intent.kind == ArenaIntent::Release as u16)
            && let [Ok(start), Ok(frames), Ok(generation)] =
                [0, 1, 2].map(|word| u32::try_from(intent.words[word]))
            && let Some(range) = self.range_of(Extent {
                start: Frame(start),
                frames,
            })
            && let Some(run) = table.run_of(start)
            && (run.range(), run.status.generation) == (range.clone(), generation)
        {
            self.take_back(
                &slot,
                ArenaIntent::Release,
                range,
                generation,
                &mut repaired,
            )?;
        }
        let mut frame = self.geometry.first_frame;
        while frame < self.end_frame() {
            let Some(run) = table.run_of(frame).filter(|run| run.head == frame) else {
                frame += 1;
                continue;
            };
            if run.status.state == State::Claimed && run.status.owner == dead.0 {
                self.take_back(
                    &slot,
                    ArenaIntent::TakeBack,
                    run.range(),
                    run.status.generation,
                    &mut repaired,
                )?;
            }
            frame += run.frames;
        }
        drop(guard);
        mneme_sys::fault!("arena.repair.unlocked");
        Ok(repaired)
    }

    /// Frees a dead thread's run; with `TakeBack`, unless it has been adopted. Only for the holder
    /// of the lock.
    fn take_back(
        &self,
        slot: &Slot<'_>,
        kind: ArenaIntent,
        range: Range<u32>,
        generation: u32,
        repaired: &mut Repaired,
    ) -> Result<(), RegionError> {
        let (table, frames) = (self.table()?, range.end - range.start);
        let intent = slot.intent(Lane::Arena);
        intent.begin(
            kind as u16,
            &[
                u64::from(range.start),
                u64::from(frames),
                u64::from(generation),
            ],
        );
        mneme_sys::fault!("arena.repair.intent");
        let freed = table.free_run(
            range.clone(),
            generation,
            kind == ArenaIntent::TakeBack,
            || {
                mneme_sys::fault!("arena.repair.descriptor");
            },
        );
        if freed {
            self.derive(range)?;
            repaired.extents += 1;
            repaired.frames += frames;
        }
        mneme_sys::fault!("arena.repair.summary");
        intent.clear();
        Ok(())
    }

    /// Repairs everything that an owner of the lock may have left half done. Only for the holder of
    /// the lock; idempotent.
    pub(crate) fn restore(&self) -> Result<(), RegionError> {
        mneme_sys::fault!("arena.restore.begin");
        let table = self.table()?;
        let end = self.end_frame();
        for frame in self.geometry.first_frame..end {
            let Some(descriptor) = table.get(frame) else {
                break;
            };
            match descriptor.status() {
                // Under the lock nobody else changes runs, so a tail that leads to no run is the
                // remainder of one.
                Some(status) if status.state == State::Tail && table.run_of(frame).is_none() => {
                    descriptor.set(Status::free(status.generation));
                    mneme_sys::fault!("arena.restore.descriptor");
                }
                _ => {}
            }
        }
        // A growth writes descriptors in ascending order before it takes effect.
        for descriptor in table.0.iter().skip(end as usize) {
            if descriptor
                .status()
                .is_some_and(|status| status.state == State::Absent)
            {
                break;
            }
            descriptor.set(Status {
                state: State::Absent,
                ..Status::free(0)
            });
        }
        RegionHeader::set_committed(&self.region, u64::from(end) * FRAME_BYTES)?;
        self.store_zones(&planned(&self.raw_zones()?, end, end, self.nodes()))?;
        mneme_sys::fault!("arena.restore.zones");
        self.derive(0..self.geometry.max_frames)?;
        mneme_sys::fault!("arena.restore.summary");
        Ok(())
    }

    /// Computes bitmap and tree of these frames, widened to whole words, from the descriptors. Only
    /// for the holder of the lock.
    pub(crate) fn derive(&self, frames: Range<u32>) -> Result<(), RegionError> {
        let (table, summary) = (self.table()?, self.summary()?);
        let (first, end) = (self.geometry.first_frame, self.end_frame());
        let lending = self.lending()?;
        for index in frames.start / WORD_FRAMES..frames.end.div_ceil(WORD_FRAMES) {
            let (mut bits, mut idle) = (0u64, 0u64);
            for bit in 0..WORD_FRAMES {
                let frame = index * WORD_FRAMES + bit;
                let status = table.get(frame).and_then(|descriptor| descriptor.status());
                let Some(status) = status.filter(|_| (first..end).contains(&frame)) else {
                    continue;
                };
                // Only `mask_filling` removes frames that are being filled, because it knows what
                // to put back.
                let in_tree = match (status.state, &lending) {
                    (State::Filling, Some(lending)) => lending.is_in_tree(frame),
                    (state, _) => state.is_claimable(),
                };
                bits |= u64::from(in_tree) << bit;
                idle |= u64::from(status.is_spare()) << bit;
            }
            summary.set_word(index as usize, bits);
            if let Some(word) = lending.and_then(|lending| lending.idle().get(index as usize)) {
                // Relaxed: it is a hint.
                word.store(idle, Relaxed);
            }
        }
        summary.refresh(frames);
        Ok(())
    }

    /// Recovers an arena that *nobody else has open*. Resets the lock, lets the tenant `settle` its
    /// own part (adopt or unlink extents that were being linked; claims and releases work as
    /// usual), and frees what nobody has adopted. It records this incarnation of the control region
    /// last, so a recovery that dies is started again. O(frames).
    ///
    /// # Errors
    /// Errors of `settle` and of the region. The arena then still has to be recovered.
    pub fn recover_around<E: From<OpenError>>(
        &self,
        settle: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.reset_lock()?;
        mneme_sys::fault!("arena.recover.reset");
        settle()?;
        Ok(self.take_back_all()?)
    }

    /// Nobody else has the arena open, so the lock's owner no longer exists.
    fn reset_lock(&self) -> Result<(), OpenError> {
        self.lock_word()?.orphan();
        for node in self.lending()?.iter().flat_map(|lending| lending.nodes()) {
            node.lock.orphan();
        }
        let slot = self.participants.slot()?;
        let _guard = self.lock::<OpenError>(&slot)?;
        Ok(self.restore()?)
    }

    /// Frees everything that was not adopted.
    fn take_back_all(&self) -> Result<(), OpenError> {
        let slot = self.participants.slot()?;
        let guard = self.lock::<OpenError>(&slot)?;
        let table = self.table()?;
        for frame in self.geometry.first_frame..self.end_frame() {
            if let Some(run) = table
                .run_of(frame)
                .filter(|run| run.head == frame && run.status.state == State::Claimed)
            {
                table.free_run(run.range(), run.status.generation, true, || ());
                mneme_sys::fault!("arena.recover.freed");
            }
        }
        self.end_lending()?;
        self.derive(0..self.geometry.max_frames)?;
        mneme_sys::fault!("arena.recover.derived");
        // Last: a recovery that died before is started again.
        self.header()?
            .incarnation
            .store(self.participants.incarnation(), Relaxed);
        mneme_sys::fault!("arena.recover.marked");
        drop(guard);
        Ok(())
    }
}
