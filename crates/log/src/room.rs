//! Making room: what a writer does that found none.
//!
//! It frees what is due, moves a victim's records if enough bytes are dead somewhere, and waits for
//! readers to leave, for a bounded time. If there is nothing to be gained the store is full, and it
//! says so at once; reads and removals go on, and after removals writes do again. A reserve for
//! compaction is Nibble's too (§3.2); that any writer may help himself is not.

use std::time::Duration;

use mneme_arena::FRAME_BYTES;
use mneme_sync::{Epoch, Holding, Slot, SlotId, Stalled};

use crate::compact::{gain, large_gain};
use crate::core::Core;
use crate::error::WriteError;
use crate::evict::Evicted;
use crate::head::{Leave, ROOM_TIMEOUT};
use crate::segment::State;

/// One writer's search for room.
#[derive(Debug)]
pub(crate) struct Room {
    wanted: u64,
    /// The time that it has taken. What is done between, a transaction's body perhaps, is none of it.
    spent: Duration,
    /// Rounds in a row after which there was nothing to wait for, and yet no room.
    vain: u32,
    /// Windows of frames emptied for it.
    vacated: u32,
    /// The oldest pin, when it was last looked at.
    pin: Option<(SlotId, Epoch)>,
}

/// Rounds without anything to wait for before free room that cannot be had is given up: it is not
/// in one piece, or others are always faster.
const VAIN: u32 = 16;
/// Windows that are emptied for one large record: others may be faster to what has become free.
const VACATED: u32 = 8;
/// How long a writer goes on making room, with success, that others take or that is not in one
/// piece, before it says so.
const DILIGENCE: Duration = Duration::from_secs(10);

impl Room {
    /// A search for room for a record of `wanted` bytes.
    pub fn new(wanted: u64) -> Room {
        Room {
            wanted,
            spent: Duration::ZERO,
            vain: 0,
            vacated: 0,
            pin: None,
        }
    }

    /// The record has `wanted` bytes.
    pub fn want(&mut self, wanted: u64) {
        self.wanted = wanted;
    }
}

impl Core {
    /// Tries to make room; on `Ok` the caller tries its write again. It holds no pin of its own.
    pub(crate) fn make_room(&self, slot: &Slot<'_>, room: &mut Room) -> Result<(), WriteError> {
        self.spend(room, |room| self.seek_room(slot, room))
    }

    /// Does something for a search, on its time.
    fn spend<T>(&self, room: &mut Room, search: impl FnOnce(&mut Room) -> T) -> T {
        let began = self.clock.now_ns();
        let found = search(room);
        room.spent += Duration::from_nanos(self.clock.now_ns().saturating_sub(began));
        found
    }

    fn seek_room(&self, slot: &Slot<'_>, room: &mut Room) -> Result<(), WriteError> {
        if !self.could_hold(room.wanted) {
            // Nothing that could be moved or forgotten would help.
            return Err(self.out_of_memory(room.wanted));
        }
        self.reap(slot)?;
        let since = room.spent;
        if since > DILIGENCE {
            return Err(self.out_of_memory(room.wanted));
        }
        if self.maintain(slot)? > 0 {
            return Ok(());
        }
        self.pass_by_the_still();
        if slot.is_pinned() {
            // A `Value` of this thread is alive: whatever were emptied now would wait for it.
            return Err(if self.is_full(room.wanted) {
                self.out_of_memory(room.wanted)
            } else {
                self.stalled_by_own_pin(slot)
            });
        }
        if self.look_at_limbo(slot, room)? {
            return Ok(());
        }
        let frames = u32::try_from(room.wanted.div_ceil(FRAME_BYTES)).unwrap_or(u32::MAX);
        if self.is_large(room.wanted) && room.vacated < VACATED && self.lacks_run(frames) {
            room.vacated += 1;
            if self.leave_segments(slot, Leave::Every) > 0 {
                self.free_emptied(slot)?;
            }
            if self.vacate(slot, frames)? {
                self.free_emptied(slot)?;
                return Ok(());
            }
        }
        // Between frames of the index that are too near nothing is won by forgetting.
        let could_lie = !self.is_large(room.wanted) || self.could_lie(frames);
        match could_lie
            .then(|| self.evict(slot))
            .transpose()?
            .unwrap_or(Evicted::Nothing)
        {
            Evicted::Some => {
                self.free_emptied(slot)?;
                return Ok(());
            }
            Evicted::Busy => {
                std::thread::sleep(Duration::from_micros(100));
                return Ok(());
            }
            Evicted::Nothing => {}
        }
        if self.compact(slot)? {
            // Its segment is free after a grace period, which seldom takes longer than this.
            self.free_emptied(slot)?;
            return Ok(());
        }
        if self.trim_index(slot)? > 0 || self.compact_large(slot, room.wanted)? {
            return Ok(());
        }
        let may_forget = self.may_forget_any(slot)?;
        if may_forget && self.leave_segments(slot, Leave::BehindLarge) > 0 {
            return Ok(());
        }
        let later = self.may_forget_later(slot)?;
        let full = !later && self.is_full(room.wanted);
        if full && !may_forget {
            return Err(self.out_of_memory(room.wanted));
        }
        // A store that may forget is full only after several looks: what others fill meanwhile, and
        // what was read often, can be forgotten at the next.
        let awaited = later || (!full && self.awaits_room());
        room.vain = if awaited { 0 } else { room.vain + 1 };
        if room.vain > VAIN {
            return Err(self.out_of_memory(room.wanted));
        }
        if since > ROOM_TIMEOUT
            && let Some(slot) = self.holds_up(room)
        {
            return Err(self.stalled_by_pin(slot, since));
        }
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    }

    /// Goes on making room while it finds some, until `bytes` bytes are free: for those who begin anew with all of it, and
    /// leave as much behind, if there is not enough. Of little what was made is enough.
    pub(crate) fn make_more_room(&self, slot: &Slot<'_>, wanted_at_once: u64, bytes: u64) {
        if !self.is_large(bytes) {
            return;
        }
        let mut room = Room::new(wanted_at_once);
        let wanted = bytes + FRAME_BYTES + self.segment_bytes();
        let is_lacking = || {
            let stats = self.arena.stats();
            u64::from(stats.free.saturating_sub(stats.reserved)) * FRAME_BYTES < wanted
        };
        // More would not help: then others take what becomes free.
        for _ in 0..2 * self.segments().count() {
            if !is_lacking() || self.make_room(slot, &mut room).is_err() {
                return;
            }
        }
    }

    /// Waits a little for the readers of the index' old blocks where these leave a change of shape no
    /// room; false: there is room. The caller is not pinned, or would wait for itself.
    pub(crate) fn await_limbo(&self, slot: &Slot<'_>, room: &mut Room) -> Result<bool, WriteError> {
        self.spend(room, |room| self.look_at_limbo(slot, room))
    }

    fn look_at_limbo(&self, slot: &Slot<'_>, room: &mut Room) -> Result<bool, WriteError> {
        let Some(cleared) = self.clear_limbo(slot)? else {
            return Ok(false);
        };
        if slot.is_pinned() && !cleared {
            // A `Value` of this thread is alive.
            return Err(self.stalled_by_own_pin(slot));
        }
        if !cleared {
            self.pass_by_the_still();
            let since = room.spent;
            if since > ROOM_TIMEOUT
                && let Some(slot) = self.holds_up(room)
            {
                return Err(self.stalled_by_pin(slot, since));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(true)
    }

    /// Who has kept one and the same pin while this writer waited; `NONE`: nobody reads, and yet a
    /// sweep does not go on.
    fn holds_up(&self, room: &mut Room) -> Option<SlotId> {
        let Some(oldest) = self.participants.stats().oldest_pin else {
            let sweeping = self.tables.header().sweep.owner().is_some();
            return sweeping.then_some(SlotId::NONE);
        };
        let seen = (oldest.slot, oldest.epoch);
        (room.pin.replace(seen) == Some(seen)).then_some(oldest.slot)
    }

    fn stalled_by_pin(&self, slot: SlotId, since: Duration) -> WriteError {
        let sweeper = self.tables.header().sweep.owner();
        let (slot, what) = match sweeper.filter(|_| slot == SlotId::NONE) {
            // Nobody reads, and yet nothing is freed.
            Some(sweeper) => (sweeper, Holding::Lock),
            None => (slot, Holding::Pin),
        };
        Stalled {
            pid: self.participants.pid_of(slot),
            slot,
            since,
            what,
        }
        .into()
    }

    /// Said at once: to wait would be to wait for oneself.
    pub(crate) fn stalled_by_own_pin(&self, slot: &Slot<'_>) -> WriteError {
        Stalled {
            pid: self.participants.pid_of(slot.id()),
            slot: slot.id(),
            since: Duration::ZERO,
            what: Holding::OwnPin,
        }
        .into()
    }

    /// Whether something is under way that will give room back, or let it be won.
    fn awaits_room(&self) -> bool {
        let segment = self.segment_bytes();
        self.sweeps_due()
            || self.segments().any(|(_, info, word, state)| match state {
                State::Condemned | State::Compacting => true,
                State::Closed if !word.large() => gain(info, segment).is_some(),
                _ => false,
            })
    }

    /// Whether neither what is free nor what compaction can win is enough for `wanted` bytes.
    ///
    /// Others may be compacting, or have just given back what is needed: then it is not full, and
    /// the caller tries again.
    pub(crate) fn is_full(&self, wanted: u64) -> bool {
        let stats = self.arena.stats();
        let reserve = u64::from(stats.reserved);
        let free = u64::from(stats.free).saturating_sub(reserve) * FRAME_BYTES;
        let gains: u64 = self.gains(!self.is_large(wanted)).sum();
        !self.sweeps_due() && free + gains < wanted.max(self.segment_bytes())
    }

    /// Whether the store is large enough for so many bytes, were nothing else in it.
    pub(crate) fn could_hold(&self, bytes: u64) -> bool {
        let stats = self.arena.stats();
        let without = stats.reserved.saturating_add(self.arena.withheld());
        bytes <= u64::from(stats.frames.saturating_sub(without)) * FRAME_BYTES
    }

    /// What each log segment gives back once it is compacted, or is about to; with what lies unused
    /// behind large records, or without.
    pub(crate) fn gains(&self, behind_large: bool) -> impl Iterator<Item = u64> {
        let segment = self.segment_bytes();
        self.segments()
            .map(move |(_, info, word, state)| match state {
                State::Condemned => info.capacity(),
                State::Closed | State::Compacting if !word.large() => {
                    gain(info, segment).unwrap_or(0)
                }
                State::Closed | State::Compacting if behind_large => {
                    large_gain(info, segment).unwrap_or(0)
                }
                _ => 0,
            })
    }

    pub(crate) fn out_of_memory(&self, wanted: u64) -> WriteError {
        let live = self.segments().map(|(_, info, ..)| info.live()).sum();
        WriteError::OutOfMemory {
            wanted,
            live,
            capacity: self.capacity(),
        }
    }

    /// Frees what can be freed and starts the grace periods that are due; segments freed.
    pub(crate) fn maintain(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        if self.sweeps_due() {
            self.sweep(slot)?;
        }
        self.leave_segments(slot, Leave::BehindTheGone);
        self.free_emptied(slot)
    }

    /// Starts the grace periods that are due and frees what has lived through its own; segments freed.
    pub(crate) fn free_emptied(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        self.stamp_segments();
        self.free_condemned(slot)
    }
}
