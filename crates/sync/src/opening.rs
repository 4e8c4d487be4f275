//! One process's opening of a control region, shared by all its handles.

use crate::atomics::Barrier;
use crate::backoff::Backoff;
use crate::control_region::ControlRegion;
use crate::layout::INTERESTS;
use crate::process::{self, OpeningName, SlotState, SlotStatus};
use crate::slot_owner::SlotOwner;
use crate::stalled::StalledHolders;
use crate::{AttachError, SlotError, SlotId, slot_owner};
use mneme_sys::barrier::{BarrierReach, BarrierRefused, Light};
use mneme_sys::{Clock, Liveness, Region, SystemClock, Taken};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The index of the liveness lock that guards the region itself: for opening, rebuilding and moving
/// counts.
pub(crate) const REGION_LOCK: u32 = 0;

/// How long to wait for the region's own lock. Its holders do a bounded amount of work, so one that
/// keeps it longer is stopped.
pub(crate) const REGION_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

static NEXT_OPENING: AtomicU64 = AtomicU64::new(1);

/// Slots that only reapers get: if dead threads hold all others, a reaper still needs one.
const KEPT_BACK: u16 = 4;

/// This process' identity in the region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Me {
    /// The index of its entry, from 1; 0 before it has attached.
    pub(crate) process: u16,
    /// The incarnation of the entry.
    pub(crate) incarnation: u32,
    /// The incarnation of the region.
    pub(crate) region: u64,
}

impl Me {
    pub(crate) fn owns(self, owner: SlotOwner) -> bool {
        (owner.process, owner.incarnation) == (self.process, self.incarnation)
    }

    pub(crate) fn name(self) -> OpeningName {
        OpeningName {
            process: self.process,
            incarnation: self.incarnation,
        }
    }
}

/// The state of one opening.
pub(crate) struct Inner {
    opening: u64,
    fork_generation: u32,
    control: ControlRegion,
    liveness: Arc<dyn Liveness>,
    /// Set once, at attaching.
    me: OnceLock<Me>,
    asymmetric: bool,
    clock: SystemClock,
    /// Slots of ended threads whose counts could not be moved to the base yet.
    unreleased: Mutex<Vec<SlotId>>,
    stalled_holders: StalledHolders,
    /// Repairs what dead threads left: see [`Participants::set_reaper`](crate::Participants).
    pub(crate) reaper: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The number of watch registrations of this opening, for each interest.
    pub(crate) watches: Mutex<[u64; INTERESTS]>,
}

/// The machine's barrier, in the form that all participants of the region use.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    light: Light,
    reach: BarrierReach,
}

/// How far a barrier must reach to cover every thread with a pin in the region.
pub(crate) fn reach(region: &Region) -> BarrierReach {
    if region.is_private() {
        BarrierReach::Process
    } else {
        BarrierReach::Machine
    }
}

impl Barrier for Machine {
    #[inline(always)]
    fn light(&self) {
        // SYNC: pairs with the heavy side of any participant.
        self.light.pass();
    }

    fn heavy(&self) -> Result<(), BarrierRefused> {
        mneme_sys::barrier::heavy(self.reach)
    }
}

/// A machine's barrier that is known to be [asymmetric](Machine::is_asymmetric).
pub(crate) struct Asymmetric<'a>(pub(crate) &'a Machine);

impl Barrier for Asymmetric<'_> {
    #[inline(always)]
    fn light(&self) {
        // SYNC: pairs with the heavy side of any participant, as in `Light::pass`.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    fn heavy(&self) -> Result<(), BarrierRefused> {
        self.0.heavy()
    }
}

impl Machine {
    /// Whether the light side has become a compiler fence, which it then stays.
    pub(crate) fn is_asymmetric(self) -> bool {
        self.light.is_free()
    }
}

impl Inner {
    pub(crate) fn new(
        control: ControlRegion,
        liveness: Arc<dyn Liveness>,
        asymmetric: bool,
    ) -> Arc<Inner> {
        crate::thread_slots::watch_forks();
        Arc::new(Inner {
            // Relaxed: it only has to be unique.
            opening: NEXT_OPENING.fetch_add(1, Relaxed),
            fork_generation: mneme_sys::fork::generation(),
            control,
            liveness,
            me: OnceLock::new(),
            asymmetric,
            clock: SystemClock,
            unreleased: Mutex::default(),
            stalled_holders: StalledHolders::default(),
            reaper: OnceLock::new(),
            watches: Mutex::default(),
        })
    }

    /// Makes this process a participant. The caller must hold the region's own lock.
    ///
    /// If no entry is free, a dead process's entry is taken over, so dead processes never keep
    /// living ones out. Its slots become orphans, which any participant reaps.
    pub(crate) fn join(&self, pid: u32) -> Result<(), AttachError> {
        if self.join_where(pid, |state| state == SlotState::Free)?
            || self.join_where(pid, |state| state != SlotState::Free)?
        {
            Ok(())
        } else {
            Err(self.full())
        }
    }

    /// Makes this process a participant with a free entry; a dead process's entry is not taken
    /// over.
    pub(crate) fn join_free(&self, pid: u32) -> Result<(), AttachError> {
        if self.join_where(pid, |state| state == SlotState::Free)? {
            Ok(())
        } else {
            Err(self.full())
        }
    }

    fn full(&self) -> AttachError {
        AttachError::Full {
            max: self.control.geometry().max_processes,
        }
    }

    fn join_where(&self, pid: u32, suits: fn(SlotState) -> bool) -> Result<bool, AttachError> {
        for (entry, index) in self.control.processes().iter().zip(1_u16..) {
            if !suits(process::read(&entry.state).state) {
                continue;
            }
            // `None`: the process is alive or just leaving, or somebody is reaping it.
            let Some(taken) = self.liveness.try_take(u32::from(index))? else {
                continue;
            };
            mneme_sys::fault!("sync.attach.claimed");
            let last = process::read(&entry.state);
            if !suits(last.state) {
                continue;
            }
            // The dead predecessor no longer watches.
            self.end_watches(index);
            let incarnation = last.incarnation.wrapping_add(1);
            entry.pid.store(u64::from(pid), Relaxed);
            entry.attached_ms.store(self.clock.wall_ms(), Relaxed);
            process::write(
                &entry.state,
                SlotStatus {
                    state: SlotState::Live,
                    incarnation,
                },
            );
            taken.keep();
            // Only one `join` succeeds on a fresh value.
            let region = self.control.header().incarnation.load(Relaxed);
            let _ = self.me.set(Me {
                process: index,
                incarnation,
                region,
            });
            return Ok(true);
        }
        Ok(false)
    }

    pub(crate) fn opening(&self) -> u64 {
        self.opening
    }

    pub(crate) fn fork_generation(&self) -> u32 {
        self.fork_generation
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.fork_generation != mneme_sys::fork::generation()
    }

    pub(crate) fn control(&self) -> &ControlRegion {
        &self.control
    }

    pub(crate) fn liveness(&self) -> &dyn Liveness {
        &*self.liveness
    }

    pub(crate) fn me(&self) -> Me {
        self.me.get().copied().unwrap_or_default()
    }

    pub(crate) fn is_asymmetric(&self) -> bool {
        self.asymmetric
    }

    pub(crate) fn barrier(&self) -> Machine {
        let reach = reach(self.control.region());
        let light = match self.asymmetric {
            true => Light::of(reach),
            false => Light::fence(),
        };
        Machine { light, reach }
    }

    pub(crate) fn stalled_holders(&self) -> &StalledHolders {
        &self.stalled_holders
    }

    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    /// Takes the region's own lock, which the kernel releases if the holder dies.
    pub(crate) fn lock_region(&self) -> Result<Taken<'_>, AttachError> {
        lock_region(&*self.liveness)
    }

    /// Takes a free slot. A thread that is about to reap may take one of those reserved for
    /// reapers.
    pub(crate) fn claim_slot(&self, reaping: bool) -> Result<(SlotId, u16), SlotError> {
        self.release_left_over(false);
        match self.claim_free_slot(reaping) {
            Err(SlotError::TooManyThreads { .. }) if self.release_left_over(true) => {
                self.claim_free_slot(reaping)
            }
            claimed => claimed,
        }
    }

    fn claim_free_slot(&self, reaping: bool) -> Result<(SlotId, u16), SlotError> {
        let me = self.me();
        let max = self.control.geometry().max_threads;
        let kept_back = if reaping { 0 } else { KEPT_BACK.min(max / 4) };
        // From the lowest: the slots in use stay dense, and scans of all slots short.
        for (lines, id) in self.control.all_slots().iter().zip(1..=max - kept_back) {
            if !slot_owner::read(&lines.owner).is_free() {
                continue;
            }
            // SYNC: pairs with the Acquire load in `ControlRegion::slots`: scans of the slots
            // include this one before it can hold anything.
            self.control
                .header()
                .highest_slot
                .word
                .fetch_max(u64::from(id), AcqRel);
            mneme_sys::fault!("sync.slot.mark");
            if let Some(mine) = slot_owner::claim(&lines.owner, me.process, me.incarnation) {
                mneme_sys::fault!("sync.slot.claimed");
                return Ok((SlotId(id), mine.generation));
            }
        }
        Err(SlotError::TooManyThreads { max })
    }

    /// Releases a slot of this process that its thread no longer uses. If the region's lock is not
    /// available, the next claim of a slot, the next reap or the end of the opening does it. A slot
    /// with an intent is left to the reapers, because a panic ended its thread's operation.
    pub(crate) fn release_slot(&self, id: SlotId) {
        let Some(lines) = self.control.slot(id) else {
            return;
        };
        if !self.me().owns(slot_owner::read(&lines.owner)) {
            return;
        }
        mneme_sys::fault!("sync.release.begin");
        if lines.is_announcing() {
            slot_owner::abandon(&lines.owner);
            return;
        }
        match self.fold_slots([id]) {
            Ok(()) => self.clear_slot(id),
            Err(_) => self.unreleased().push(id),
        }
    }

    /// Leaves a slot of this process to the reapers.
    pub(crate) fn abandon_slot(&self, id: SlotId) {
        if let Some(lines) = self.control.slot(id)
            && self.me().owns(slot_owner::read(&lines.owner))
        {
            slot_owner::abandon(&lines.owner);
        }
    }

    fn unreleased(&self) -> MutexGuard<'_, Vec<SlotId>> {
        // Each change of the list is one step, so it is consistent after a panic.
        self.unreleased
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the slots that [`release_slot`](Self::release_slot) could not, and returns whether
    /// there were any. Unless it may `wait`, it does nothing while the region's lock is held.
    pub(crate) fn release_left_over(&self, wait: bool) -> bool {
        let left = std::mem::take(&mut *self.unreleased());
        if left.is_empty() {
            return false;
        }
        // The lock is only probed: if somebody takes it in between, this waits.
        let may_fold = wait || !self.liveness.is_alive(REGION_LOCK);
        let folded = may_fold && self.fold_slots(left.iter().copied()).is_ok();
        if folded {
            left.into_iter().for_each(|id| self.clear_slot(id));
        } else {
            self.unreleased().extend(left);
        }
        folded
    }

    /// Clears and frees a slot whose counters have been moved.
    pub(crate) fn clear_slot(&self, id: SlotId) {
        let Some(lines) = self.control.slot(id) else {
            return;
        };
        slot_owner::vacate(&lines.words());
    }

    /// Whether the slot has no living owner: its process is gone, or it has no owner.
    pub(crate) fn is_dead(&self, id: SlotId) -> bool {
        let Some(lines) = self.control.slot(id) else {
            return true;
        };
        let mut owner = slot_owner::read(&lines.owner);
        loop {
            let dead = self.is_dead_owner(owner);
            let now = slot_owner::read(&lines.owner);
            if now == owner {
                return dead;
            }
            owner = now;
        }
    }

    /// Whether the slot's owner of that generation is gone.
    pub(crate) fn is_owner_dead(&self, id: SlotId, generation: u16) -> bool {
        let Some(lines) = self.control.slot(id) else {
            return true;
        };
        let owner = slot_owner::read(&lines.owner);
        owner.generation != generation || self.is_dead_owner(owner)
    }

    fn is_dead_owner(&self, owner: SlotOwner) -> bool {
        if owner.is_free() {
            return true;
        }
        if self.me().owns(owner) {
            return false;
        }
        let Some(entry) = self.control.process(owner.process) else {
            return true;
        };
        let status = process::read(&entry.state);
        // A reaper at work holds the liveness lock, so the process seems alive.
        status.incarnation != owner.incarnation
            || status.state == SlotState::Reaping
            || !self.liveness.is_alive(u32::from(owner.process))
    }

    /// Whether that opening still exists and its process is alive.
    pub(crate) fn is_open(&self, opening: OpeningName) -> bool {
        let stands = SlotState::Live;
        let entry = self.control.process(opening.process);
        entry.is_some_and(|entry| {
            let status = process::read(&entry.state);
            (status.state, status.incarnation) == (stands, opening.incarnation)
                && self.liveness.is_alive(u32::from(opening.process))
        })
    }

    /// The process that owns the slot, or 0.
    pub(crate) fn pid_of(&self, id: SlotId) -> u32 {
        if self.is_forked() {
            return 0;
        }
        self.control
            .slot(id)
            .and_then(|lines| self.control.process(slot_owner::read(&lines.owner).process))
            .map_or(0, |entry| {
                u32::try_from(entry.pid.load(Relaxed)).unwrap_or(0)
            })
    }
}

/// As [`Inner::lock_region`], before there is an opening.
pub(crate) fn lock_region(liveness: &dyn Liveness) -> Result<Taken<'_>, AttachError> {
    let clock = SystemClock;
    let now = || Duration::from_nanos(clock.now_ns());
    let mut backoff = Backoff::new(now(), REGION_LOCK_TIMEOUT);
    loop {
        if let Some(taken) = liveness.try_take(REGION_LOCK)? {
            return Ok(taken);
        }
        if !backoff.wait(now) {
            return Err(AttachError::Locked(REGION_LOCK_TIMEOUT));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let me = self.me();
        // A forked child is not the participant; if this process was declared dead (by a script),
        // reapers take care of it.
        let index = u32::from(me.process);
        if index == 0 || self.is_forked() || !self.liveness.is_alive(index) {
            return;
        }
        let mut mine = Vec::new();
        for (id, lines) in self.control.slots() {
            if !me.owns(slot_owner::read(&lines.owner)) {
                continue;
            }
            match lines.is_announcing() {
                true => slot_owner::abandon(&lines.owner),
                false => mine.push(id),
            }
        }
        if self.fold_slots(mine.iter().copied()).is_ok() {
            for id in mine {
                self.clear_slot(id);
            }
            // What is left to the reapers stays, and so does the entry.
            let orphaned = |owner: SlotOwner| owner.process == me.process;
            if let Some(entry) = self.control.process(me.process)
                && !self
                    .control
                    .slots()
                    .any(|(_, lines)| orphaned(slot_owner::read(&lines.owner)))
            {
                let free = SlotStatus {
                    state: SlotState::Free,
                    incarnation: me.incarnation,
                };
                process::write(&entry.state, free);
            }
        }
        // An entry that stays live without a process counts as a dead process's.
        self.liveness.release(index);
    }
}
