//! [`Participants`]: one process' opening of a control region.

use crate::layout::{BARRIER_ASYMMETRIC, COUNTERS, Geometry};
use crate::local::{self, Local};
use crate::map::Map;
use crate::patience::Patience;
use crate::process::{self, State, Status};
use crate::word::Barrier;
use crate::{
    AttachError, Epoch, Intent, Lane, Pin, RevocablePin, Slot, SlotError, SlotId, intent, tenancy,
};
use mneme_sys::{Clock, Liveness, Region, SystemClock, Taken};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, compiler_fence, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sizes of a control region, fixed when it is created.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Identity of the data region that the control region serves.
    pub data_uuid: [u8; 16],
    /// Processes that may be attached at a time: 1 to 65,535.
    pub max_processes: u32,
    /// Threads that may have a slot at a time, all processes together: 1 to 65,535.
    pub max_threads: u16,
    /// Bytes of each slot's undo area: a multiple of 8, at most 16 MiB.
    pub undo_bytes: usize,
}

impl ControlOptions {
    /// 64 processes, 1,024 threads, undo areas of 8 KiB: about 10 MiB of address space, of which
    /// memory is used as slots are.
    #[must_use]
    pub fn new(data_uuid: [u8; 16]) -> ControlOptions {
        ControlOptions {
            data_uuid,
            max_processes: 64,
            max_threads: 1024,
            undo_bytes: 8 << 10,
        }
    }

    /// Bytes that a control region of these options needs.
    #[must_use]
    pub fn region_len(&self) -> usize {
        self.geometry().end()
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            max_processes: self.max_processes,
            max_threads: self.max_threads,
            undo_bytes: self.undo_bytes,
        }
    }
}

/// One process' opening of a control region: the way to slots, pins, epochs and to the dead.
///
/// A clone is another handle to the same opening. When the last one is dropped, all its threads'
/// slots are given back and the process is a participant no more. `Send` and `Sync`; in a forked
/// child, every call that would touch the region says [`SlotError::Forked`] or does nothing.
#[derive(Clone)]
pub struct Participants {
    opening: u64,
    inner: Arc<Inner>,
}

/// Index of the liveness lock that guards the region itself: opening, rebuilding, folding.
pub(crate) const REGION_LOCK: u32 = 0;

/// How long one waits for the region's own lock. Its holders do bounded work: who does not get
/// it meets a stopped one.
pub(crate) const REGION_LOCK_PATIENCE: Duration = Duration::from_secs(2);

static NEXT_OPENING: AtomicU64 = AtomicU64::new(1);

/// The state of one opening.
pub(crate) struct Inner {
    opening: u64,
    generation: u32,
    map: Map,
    liveness: Arc<dyn Liveness>,
    /// Index of this process' entry, and its incarnation. Set once, at attaching.
    me: OnceLock<(u16, u32)>,
    asymmetric: bool,
    clock: SystemClock,
}

/// The machine's barrier, as all participants of the region use it.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) fence: bool,
}

impl Barrier for Machine {
    #[inline(always)]
    fn light(&self) {
        if self.fence {
            // SYNC: pairs with the fence in `heavy` of any participant.
            fence(std::sync::atomic::Ordering::SeqCst);
        } else {
            // SYNC: pairs with the interrupt in `heavy` of any participant.
            compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }
    }

    fn heavy(&self) {
        mneme_sys::barrier::heavy();
    }
}

impl Inner {
    pub(crate) fn new(map: Map, liveness: Arc<dyn Liveness>, asymmetric: bool) -> Arc<Inner> {
        mneme_sys::fork::watch();
        Arc::new(Inner {
            // Relaxed: only its being unique matters.
            opening: NEXT_OPENING.fetch_add(1, Relaxed),
            generation: mneme_sys::fork::generation(),
            map,
            liveness,
            me: OnceLock::new(),
            asymmetric,
            clock: SystemClock,
        })
    }

    /// Makes this process a participant. The caller holds the region's own lock.
    pub(crate) fn join(&self, pid: u32) -> Result<(), AttachError> {
        for (entry, index) in self.map.processes().iter().zip(1_u16..) {
            let last = process::read(&entry.state);
            if last.state != State::Free {
                continue;
            }
            match self.liveness.claim(u32::from(index)) {
                Ok(()) => {}
                // Somebody is just leaving, or reaping.
                Err(mneme_sys::LivenessError::Held { .. }) => continue,
                Err(other) => return Err(other.into()),
            }
            mneme_sys::fault!("sync.attach.claimed");
            let incarnation = last.incarnation.wrapping_add(1);
            entry.pid.store(u64::from(pid), Relaxed);
            entry.attached_ms.store(self.clock.wall_ms(), Relaxed);
            process::write(
                &entry.state,
                Status {
                    state: State::Live,
                    incarnation,
                },
            );
            // Only one `join` runs on a fresh value.
            let _ = self.me.set((index, incarnation));
            return Ok(());
        }
        Err(AttachError::Full {
            max: self.map.geometry().max_processes,
        })
    }

    pub(crate) fn opening(&self) -> u64 {
        self.opening
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.generation != mneme_sys::fork::generation()
    }

    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    pub(crate) fn liveness(&self) -> &dyn Liveness {
        &*self.liveness
    }

    /// Index and incarnation of this process' entry; (0, 0) before it has attached.
    pub(crate) fn me(&self) -> (u16, u32) {
        self.me.get().copied().unwrap_or((0, 0))
    }

    pub(crate) fn fences(&self) -> bool {
        !self.asymmetric
    }

    pub(crate) fn barrier(&self) -> Machine {
        Machine {
            fence: !self.asymmetric,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    /// Takes the region's own lock, which the kernel drops for the dead.
    pub(crate) fn lock_region(&self) -> Result<Taken<'_>, AttachError> {
        lock_region(&*self.liveness)
    }

    pub(crate) fn claim_slot(&self) -> Result<(SlotId, u16), SlotError> {
        let (process, incarnation) = self.me();
        // From the lowest: the slots in use stay dense, and looks at all of them short.
        for (lines, id) in self.map.all_slots().iter().zip(1_u16..) {
            if !tenancy::read(&lines.owner).is_free() {
                continue;
            }
            // SYNC: pairs with the Acquire load in `Map::slots`: looks at the slots reach this one
            // before it can hold anything.
            self.map
                .header()
                .highest_slot
                .word
                .fetch_max(u64::from(id), AcqRel);
            mneme_sys::fault!("sync.slot.mark");
            if let Some(mine) = tenancy::claim(&lines.owner, process, incarnation) {
                mneme_sys::fault!("sync.slot.claimed");
                return Ok((SlotId(id), mine.number));
            }
        }
        Err(SlotError::TooManyThreads {
            max: self.map.geometry().max_threads,
        })
    }

    /// Gives back a slot of this process whose thread uses it no more. If the region's lock cannot
    /// be had, it is left to the end of the opening or to the reapers.
    pub(crate) fn release_slot(&self, id: SlotId) {
        let Some(lines) = self.map.slot(id) else {
            return;
        };
        let (process, incarnation) = self.me();
        let owner = tenancy::read(&lines.owner);
        if (owner.process, owner.incarnation) != (process, incarnation) {
            return;
        }
        mneme_sys::fault!("sync.release.begin");
        if self.fold_slots([id]).is_ok() {
            self.clear_slot(id);
        }
    }

    /// Clears a slot whose counters are folded, and frees it.
    pub(crate) fn clear_slot(&self, id: SlotId) {
        let Some(lines) = self.map.slot(id) else {
            return;
        };
        tenancy::vacate(&lines.words());
    }

    /// Whether nobody lives in the slot: its process is gone, or it has no owner.
    pub(crate) fn is_dead(&self, id: SlotId) -> bool {
        let Some(lines) = self.map.slot(id) else {
            return true;
        };
        let mut owner = tenancy::read(&lines.owner);
        loop {
            let dead = self.is_tenancy_dead(owner);
            let now = tenancy::read(&lines.owner);
            if now == owner {
                return dead;
            }
            owner = now;
        }
    }

    /// Whether the owner of that tenancy of the slot is gone.
    pub(crate) fn is_owner_dead(&self, id: SlotId, number: u16) -> bool {
        let Some(lines) = self.map.slot(id) else {
            return true;
        };
        let owner = tenancy::read(&lines.owner);
        owner.number != number || self.is_tenancy_dead(owner)
    }

    fn is_tenancy_dead(&self, owner: tenancy::Tenancy) -> bool {
        if owner.is_free() {
            return true;
        }
        if (owner.process, owner.incarnation) == self.me() {
            return false;
        }
        let Some(entry) = self.map.process(owner.process) else {
            return true;
        };
        let status = process::read(&entry.state);
        // A reaper that is at work holds the liveness lock, which looks alive.
        status.incarnation != owner.incarnation
            || status.state == State::Reaping
            || !self.liveness.is_alive(u32::from(owner.process))
    }

    /// The process that owns the slot, or 0.
    pub(crate) fn pid_of(&self, id: SlotId) -> u32 {
        self.map
            .slot(id)
            .and_then(|lines| self.map.process(tenancy::read(&lines.owner).process))
            .map_or(0, |entry| {
                u32::try_from(entry.pid.load(Relaxed)).unwrap_or(0)
            })
    }
}

/// See [`Inner::lock_region`].
pub(crate) fn lock_region(liveness: &dyn Liveness) -> Result<Taken<'_>, AttachError> {
    let clock = SystemClock;
    let now = || Duration::from_nanos(clock.now_ns());
    let mut patience = Patience::new(now(), REGION_LOCK_PATIENCE);
    loop {
        if let Some(taken) = liveness.try_take(REGION_LOCK)? {
            return Ok(taken);
        }
        if !patience.wait(now) {
            return Err(AttachError::Locked(REGION_LOCK_PATIENCE));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (index, incarnation) = self.me();
        // A forked child is not the participant; one declared dead (by a script) has reapers.
        if index == 0 || self.is_forked() || !self.liveness.is_alive(u32::from(index)) {
            return;
        }
        let mine: Vec<SlotId> = self
            .map
            .slots()
            .filter(|(_, lines)| {
                let owner = tenancy::read(&lines.owner);
                (owner.process, owner.incarnation) == (index, incarnation)
            })
            .map(|(id, _)| id)
            .collect();
        if self.fold_slots(mine.iter().copied()).is_ok() {
            for id in mine {
                self.clear_slot(id);
            }
            if let Some(entry) = self.map.process(index) {
                process::write(
                    &entry.state,
                    Status {
                        state: State::Free,
                        incarnation,
                    },
                );
            }
        }
        // Else the entry stays live with nobody behind it: the next reaper finishes.
        self.liveness.release(u32::from(index));
    }
}

impl Participants {
    pub(crate) fn from_inner(inner: Arc<Inner>) -> Participants {
        Participants {
            opening: inner.opening,
            inner,
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The calling thread's [`Local`]; about a nanosecond if it used this opening last.
    #[inline(always)]
    pub(crate) fn local(&self) -> Result<NonNull<Local>, SlotError> {
        if let Some(local) = local::cached(self.opening) {
            // SAFETY: the cache holds live boxes of this thread only.
            if !unsafe { local.as_ref() }.is_forked() {
                return Ok(local);
            }
        }
        local::find_or_claim(&self.inner)
    }

    /// The calling thread's slot, claimed on its first call and given back when the thread ends
    /// or the opening is closed. About a nanosecond.
    ///
    /// # Errors
    /// All slots taken; a forked child; a thread in its last destructors.
    #[inline]
    pub fn slot(&self) -> Result<Slot<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening.
        self.local()
            .map(|local| unsafe { Slot::new(&self.inner, local) })
    }

    /// Pins firmly: until the guard is dropped, nothing that could be reached is freed. Nests.
    /// Pin and unpin together take 1 to 3 ns.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin(&self) -> Result<Pin<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening, which the result borrows.
        self.local().map(|local| unsafe { Pin::enter(local) })
    }

    /// Pins revocably: a reclaimer that has waited for a second may take the pin away, and
    /// [`RevocablePin::leave`] then says so. What is read under it must be copied by racing
    /// copies and believed only after that.
    ///
    /// # Errors
    /// As [`slot`](Self::slot).
    #[inline]
    pub fn pin_revocable(&self) -> Result<RevocablePin<'_>, SlotError> {
        // SAFETY: the `Local` is this thread's and of this opening, which the result borrows.
        self.local()
            .map(|local| unsafe { RevocablePin::enter(local) })
    }

    /// The current epoch. An epoch is *over* for everybody once
    /// [`quiescent`](Self::quiescent) says so.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        // SYNC: pairs with the Release increment in `epoch::advance`.
        Epoch::from_u64(self.inner.map.header().epoch.word.load(Acquire))
    }

    /// Whether the process of that slot is dead, or the slot has no owner. A system call, unless
    /// the slot is this process'.
    ///
    /// The answer is about the slot's owner of now. Who judges the holder of a lock word reads
    /// the word first, asks, and then changes the word by an exchange from what was read.
    #[must_use]
    pub fn is_dead(&self, slot: SlotId) -> bool {
        !self.inner.is_forked() && self.inner.is_dead(slot)
    }

    /// The process that the slot belongs to; 0 if nobody has it.
    #[must_use]
    pub fn pid_of(&self, slot: SlotId) -> u32 {
        if self.inner.is_forked() {
            0
        } else {
            self.inner.pid_of(slot)
        }
    }

    /// What the thread of that slot, dead or alive, has announced in a lane.
    #[must_use]
    pub fn intent_of(&self, slot: SlotId, lane: Lane) -> Option<Intent> {
        if self.inner.is_forked() {
            return None;
        }
        intent::read_line(&self.inner.map.slot(slot)?.intents[lane as usize])
    }

    /// How often the control region was built or rebuilt. A data region that remembers the number
    /// notices that its control region has lost what it knew.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.map.header().incarnation.load(Relaxed)
    }

    /// Threads that may have a slot at a time.
    #[must_use]
    pub fn max_threads(&self) -> u16 {
        self.inner.map.geometry().max_threads
    }

    /// Number of counters in a slot: indices below it are valid.
    pub const COUNTERS: usize = COUNTERS;

    /// Whether the cheap side of the barrier is free here, as opposed to a full fence.
    #[must_use]
    pub fn is_asymmetric(&self) -> bool {
        // Relaxed: constant while anybody is attached.
        self.inner.map.header().barrier.load(Relaxed) == BARRIER_ASYMMETRIC
    }

    /// The control region.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.inner.map.region()
    }
}

impl std::fmt::Debug for Participants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (process, incarnation) = self.inner.me();
        f.debug_struct("Participants")
            .field("process", &process)
            .field("incarnation", &incarnation)
            .field("geometry", &self.inner.map.geometry())
            .finish_non_exhaustive()
    }
}
