//! Making room: what a writer does that found none.
//!
//! It frees what is due, moves a victim's records if enough bytes are dead somewhere, and waits for
//! readers to leave, for a bounded time. If there is nothing to be gained the store is full, and it
//! says so at once; reads and removals go on, and after removals writes do again.

use std::time::Duration;

use mneme_arena::FRAME_BYTES;
use mneme_sync::{Holding, Slot, SlotId, Stalled};

use crate::compact::gain;
use crate::core::Core;
use crate::error::WriteError;
use crate::head::ROOM_TIMEOUT;
use crate::segment::State;

/// One writer's search for room.
#[derive(Debug)]
pub(crate) struct Room {
    wanted: u64,
    began: Option<u64>,
}

impl Room {
    /// A search for room for a record of `wanted` bytes.
    pub fn new(wanted: u64) -> Room {
        Room {
            wanted,
            began: None,
        }
    }

    /// The record has `wanted` bytes.
    pub fn want(&mut self, wanted: u64) {
        self.wanted = wanted;
    }
}

impl Core {
    /// Tries to make room; on `Ok` the caller tries its write again. The caller is not pinned.
    pub(crate) fn make_room(&self, slot: &Slot<'_>, room: &mut Room) -> Result<(), WriteError> {
        if slot.is_pinned() {
            // A `Value` of this thread is alive: its pin keeps any grace period from ending.
            return Err(self.out_of_memory(room.wanted));
        }
        self.reap(slot)?;
        let now = self.clock.now_ns();
        let began = *room.began.get_or_insert(now);
        if self.maintain(slot)? > 0 {
            return Ok(());
        }
        if self.compact(slot)? {
            // Its segment is free after a grace period, which seldom takes longer than this.
            self.stamp_segments();
            self.free_condemned(slot)?;
            return Ok(());
        }
        if self.is_full(room.wanted) {
            return Err(self.out_of_memory(room.wanted));
        }
        let since = Duration::from_nanos(now.saturating_sub(began));
        if since > ROOM_TIMEOUT {
            let pin = self.participants.stats().oldest_pin;
            let (pid, slot) = pin.map_or((0, SlotId::NONE), |p| (p.pid, p.slot));
            return Err(Stalled {
                pid,
                slot,
                since,
                what: Holding::Pin,
            }
            .into());
        }
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    }

    /// Whether neither what is free nor what compaction can win is enough for `wanted` bytes.
    ///
    /// Others may be compacting, or have just given back what is needed: then it is not full, and
    /// the caller tries again.
    fn is_full(&self, wanted: u64) -> bool {
        let stats = self.arena.stats();
        let reserve = self.tables.geometry.reserve_frames;
        let free = u64::from(stats.free).saturating_sub(reserve) * FRAME_BYTES;
        let gains = self.segments().map(|(_, info, word, state)| match state {
            State::Condemned => info.capacity(),
            State::Closed | State::Compacting if !word.large() => gain(info).unwrap_or(0),
            _ => 0,
        });
        !self.sweeps_due() && free + gains.sum::<u64>() < wanted.max(self.segment_bytes())
    }

    fn out_of_memory(&self, wanted: u64) -> WriteError {
        let live = self.segments().map(|(_, info, ..)| info.live()).sum();
        WriteError::OutOfMemory {
            wanted,
            live,
            capacity: self.mem.region().len() as u64,
        }
    }

    /// Frees what can be freed and starts the grace periods that are due; segments freed.
    pub(crate) fn maintain(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        if self.sweeps_due() {
            self.sweep(slot)?;
        }
        self.stamp_segments();
        self.free_condemned(slot)
    }
}
