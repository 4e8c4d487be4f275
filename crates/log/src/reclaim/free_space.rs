//! Freeing space: what a writer does that has found none.
//!
//! One ordered list names the ways to find space ([`WAYS`]), and one deadline bounds the search. If
//! there is nothing to gain, the store is full, and the write fails at once. If one thread blocks
//! the search for long, by its pin or by a lock, the write fails and names it. Reads and removals
//! continue, and after removals writes succeed again. Nibble has a reserve for compaction too
//! (§3.2). That any writer may compact is new here.

use std::sync::TryLockError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_arena::{FRAME_BYTES, Frame};
use mneme_sync::{Epoch, Holding, Progress, Slot, SlotId, Stalled};
use mneme_sys::NodeId;
use mneme_sys::fault::without;

use crate::error::{Corrupt, WriteError};
use crate::inner::SWEPT;
use crate::log::head::{END_SHARE, Leave, SPACE_TIMEOUT};
use crate::log::segment::{State, StateWord};
use crate::reclaim::Reclaim;
use crate::reclaim::compact::{gain, large_gain};
use crate::reclaim::evict::Evicted;
use crate::reclaim::gaps::Reuse;

/// One writer's search for free space.
#[derive(Debug)]
pub(crate) struct SpaceSearch {
    wanted: u64,
    /// The time that the search has taken. Work in between, such as a transaction's body, does not
    /// count.
    spent: Duration,
    /// How many rounds it has had.
    rounds: u32,
    /// Consecutive rounds with nothing to wait for and yet no free space.
    vain: u32,
    /// Whether the last round freed a part of collections whose keys are gone.
    swept: bool,
    /// Windows of frames emptied for this search.
    vacated: u32,
    /// Only free frames count: the space is for more than one record.
    frames_only: bool,
    /// There is a gap, but a thread blocked the last attempt to reuse it.
    held_up: bool,
    /// Windows between bulk records that the search has tried to clear.
    cleared: u32,
    /// Segments of bulk records that the search has tried to empty.
    emptied: u32,
    /// The pin that blocked the search when that was last checked.
    pin: Suspect<(SlotId, Epoch)>,
    /// The thread that was sweeping then, and what it was doing.
    sweeper: Suspect<(SlotId, Progress)>,
    /// The threads that held all compaction workers of a node then, and what they were doing.
    compactors: Suspect<Vec<(SlotId, Progress)>>,
}

/// What seems to block a search, since when, in nanoseconds, and how often it was seen since then.
#[derive(Debug)]
struct Suspect<T>(Option<(T, u64, u32)>);

impl<T: Clone + PartialEq> Suspect<T> {
    /// How long every look has found `seen`, if that is long enough to report it.
    fn look(&mut self, seen: Option<T>, now: u64) -> Option<(T, Duration)> {
        match &mut self.0 {
            Some((before, since, looks)) if seen.as_ref() == Some(&*before) => {
                *looks += 1;
                let since = Duration::from_nanos(now.saturating_sub(*since));
                (since > SPACE_TIMEOUT && *looks >= MIN_LOOKS).then(|| (before.clone(), since))
            }
            _ => {
                self.0 = seen.map(|seen| (seen, now, 1));
                None
            }
        }
    }
}

/// Condemned segments, in ascending order, and the ids of the dropped indexes that may name records
/// in them.
#[derive(Debug)]
pub(crate) struct Named {
    condemned: Vec<(Frame, StateWord)>,
    roots: Vec<u64>,
}

/// What a way to find space has gained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gain {
    /// Nothing: the next way is tried.
    None,
    /// Space is free, or will be after a grace period.
    Some,
    /// Nothing yet. The thread has waited a little, and the search begins again.
    Later,
}

impl Gain {
    fn of(gained: bool) -> Gain {
        match gained {
            true => Gain::Some,
            false => Gain::None,
        }
    }
}

/// A way to find space.
type Way = fn(&Reclaim, &Slot<'_>, &mut SpaceSearch) -> Result<Gain, WriteError>;

/// The ways to find space, in the order in which each round of a search tries them: the cheapest
/// comes first, and a round ends with the first that gains something.
const WAYS: [Way; 16] = [
    Reclaim::repair_dead,
    Reclaim::free_due,
    Reclaim::mind_pins,
    Reclaim::clear_way_for_index,
    Reclaim::reuse_gap_for_bulk,
    Reclaim::empty_window,
    Reclaim::sweep_collections,
    Reclaim::evict_some,
    Reclaim::compact_victim_of_any_node,
    Reclaim::shrink_index,
    Reclaim::move_bulk_records,
    Reclaim::sweep_all_collections,
    Reclaim::evict_for_bulk,
    Reclaim::reuse_gap_for_short,
    Reclaim::move_large_record,
    Reclaim::leave_large,
];

/// The number of rounds with nothing to wait for after which the search ends although space is
/// free. That space is not in one piece, or other threads always take it first.
pub(crate) const VAIN: u32 = 16;
/// The maximum number of windows that are emptied for one large record: other threads may take the
/// freed frames first.
const VACATED: u32 = 8;
/// The maximum number of windows between bulk records that one search tries to clear.
const CLEARED: u32 = 3;
/// The maximum number of segments of bulk records that one search tries to empty: each may be a
/// copy of 32 MiB.
const EMPTIED: u32 = 8;
/// The deadline of a search: how long a writer continues to free space that other threads take, or
/// that is not in one piece, before it fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// The number of rounds before the deadline can end a search. A thread that seldom gets a processor
/// has done little in ten seconds: there may be much that eviction has not reached.
const MIN_ROUNDS: u32 = 1_000;
/// The maximum time that counts for one round: after a pause of the process or machine the search
/// has had no more time, whatever the clock says.
const ROUND: Duration = Duration::from_secs(1);
/// How often the thread that blocks a search is seen before it is reported. After a pause of all
/// threads it has had no time.
const MIN_LOOKS: u32 = 8;

impl SpaceSearch {
    /// A search for free space for a record of `wanted` bytes.
    pub fn new(wanted: u64) -> SpaceSearch {
        SpaceSearch {
            wanted,
            spent: Duration::ZERO,
            rounds: 0,
            vain: 0,
            swept: false,
            vacated: 0,
            frames_only: false,
            held_up: false,
            cleared: 0,
            emptied: 0,
            pin: Suspect(None),
            sweeper: Suspect(None),
            compactors: Suspect(None),
        }
    }

    /// Frames that the record takes if it has an extent of its own.
    fn frames(&self) -> u32 {
        u32::try_from(self.wanted.div_ceil(FRAME_BYTES)).unwrap_or(u32::MAX)
    }

    /// Sets the record's size to `wanted` bytes.
    pub fn want(&mut self, wanted: u64) {
        self.wanted = wanted;
    }
}

/// Lets other threads run that free space, or that block this one.
fn pause() {
    std::thread::sleep(Duration::from_micros(100));
}

impl Reclaim {
    /// Tries to free space. On `Ok` the caller retries its write. The caller is not pinned.
    pub(crate) fn make_space(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<(), WriteError> {
        self.gain_space(slot, search).map(drop)
    }

    /// As [`Reclaim::make_space`]. Returns whether it freed anything; if not, it has waited a
    /// little.
    pub(crate) fn gain_space(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<bool, WriteError> {
        self.spend(search, |search| self.seek_space(slot, search))
    }

    /// Runs a part of a search and adds its duration to the search's time.
    fn spend<T>(&self, search: &mut SpaceSearch, work: impl FnOnce(&mut SpaceSearch) -> T) -> T {
        let began = self.session().clock.now_ns();
        let found = work(search);
        let took = Duration::from_nanos(self.session().clock.now_ns().saturating_sub(began));
        search.spent += took.min(ROUND);
        found
    }

    fn seek_space(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<bool, WriteError> {
        if !self.could_hold(search.wanted) {
            // No compaction or eviction would help.
            return Err(self.out_of_memory(search.wanted));
        }
        for way in WAYS {
            match way(self, slot, search)? {
                Gain::None => {}
                Gain::Some => return Ok(true),
                Gain::Later => return Ok(false),
            }
        }
        self.give_up_or_wait(slot, search)?;
        Ok(false)
    }

    fn repair_dead(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<Gain, WriteError> {
        self.session().reap(slot)?;
        search.rounds = search.rounds.saturating_add(1);
        if search.spent > DEADLINE && search.rounds > MIN_ROUNDS {
            return Err(self.out_of_memory(search.wanted));
        }
        Ok(Gain::None)
    }

    fn free_due(&self, slot: &Slot<'_>, _: &mut SpaceSearch) -> Result<Gain, WriteError> {
        Ok(Gain::of(self.maintain(slot)? > 0))
    }

    /// Frees a part of the collections whose keys this process has removed, in every other round:
    /// what it has freed before is gained by compaction first.
    fn sweep_collections(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        if std::mem::take(&mut search.swept) {
            let gain = self.compact_victim_of_any_node(slot, search)?;
            if gain != Gain::None {
                return Ok(gain);
            }
        }
        let gain = self.ask_for_sweep(slot, false);
        search.swept = gain == Gain::Some;
        Ok(gain)
    }

    /// Frees all collections whose keys are gone.
    fn sweep_all_collections(
        &self,
        slot: &Slot<'_>,
        _: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        Ok(self.ask_for_sweep(slot, true))
    }

    /// A collection that cannot be freed now does not end the search.
    fn ask_for_sweep(&self, slot: &Slot<'_>, is_thorough: bool) -> Gain {
        if without("space.sweep") {
            return Gain::None;
        }
        let store = self.session().callbacks();
        let swept = store.map(|store| store.sweep_collections(slot, is_thorough));
        Gain::of(matches!(swept, Some(Ok(true))))
    }

    /// Segments that are emptied after this wait for pins. The thread's own pin is that of a
    /// `Value`, for which it must not wait.
    fn mind_pins(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<Gain, WriteError> {
        self.session().revoke_stalled_pins();
        if !slot.is_pinned() {
            return Ok(Gain::None);
        }
        Err(match self.is_full(search.wanted) {
            true => self.out_of_memory(search.wanted),
            false => self.session().stalled_by_own_pin(slot),
        })
    }

    fn clear_way_for_index(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        Ok(match self.look_at_limbo(slot, search)? {
            true => Gain::Later,
            false => Gain::None,
        })
    }

    /// Makes a bulk record replace dead ones, if necessary after a few others have moved.
    fn reuse_gap_for_bulk(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        let is_meant = self.log().is_bulk(search.wanted) && !self.log().is_large(search.wanted);
        if search.frames_only || !is_meant {
            return Ok(Gain::None);
        }
        let head = self.log().bulk_head(self.session().topology.current_node());
        let mut reused = self.reuse_gap(slot, head, search.wanted)?;
        if reused == Reuse::NoGap && search.cleared < CLEARED {
            reused = self.clear_window(slot, head, search.wanted)?;
            search.cleared += u32::from(reused != Reuse::NotNow);
        }
        search.held_up = reused == Reuse::NotNow;
        Ok(Gain::of(reused == Reuse::Done))
    }

    /// Makes short records fill the space that dead bulk records have left.
    fn reuse_gap_for_short(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        if search.frames_only || self.log().is_bulk(search.wanted) {
            return Ok(Gain::None);
        }
        let head = self.log().head_of_cpu();
        let reused = self.reuse_gap(slot, head, search.wanted)?;
        search.held_up = reused == Reuse::NotNow;
        Ok(Gain::of(reused == Reuse::Done))
    }

    /// Empties a segment of bulk records, to use its frames for a record of any kind.
    fn move_bulk_records(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        if search.emptied == EMPTIED || self.log().is_large(search.wanted) {
            return Ok(Gain::None);
        }
        search.emptied += 1;
        let emptied = self.compact_bulk(slot, search.wanted)?;
        if emptied {
            self.free_emptied(slot)?;
        }
        Ok(Gain::of(emptied))
    }

    /// Evicts although much is free, because no free piece is long enough.
    fn evict_for_bulk(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        if !self.log().is_bulk(search.wanted) || self.log().is_large(search.wanted) {
            return Ok(Gain::None);
        }
        let evicted = self.evict_for(slot, search.wanted)?;
        self.free_emptied(slot)?;
        Ok(Gain::of(evicted == Evicted::Some))
    }

    /// Makes a run of free frames for a bulk or large record, if only the lack of a run prevents
    /// it.
    fn empty_window(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<Gain, WriteError> {
        let frames = search.frames();
        if !self.log().is_bulk(search.wanted)
            || search.vacated == VACATED
            || !self.lacks_run(frames)
        {
            return Ok(Gain::None);
        }
        search.vacated += 1;
        if self.log().leave_segments(slot, Leave::Every) > 0 {
            self.free_emptied(slot)?;
        }
        let moved = self.vacate(slot, frames)?;
        if moved {
            self.free_emptied(slot)?;
        }
        Ok(Gain::of(moved))
    }

    fn evict_some(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<Gain, WriteError> {
        // Eviction gains nothing for a large record if no run of frames between those of the index
        // is long enough.
        if self.log().is_bulk(search.wanted) && !self.could_lie(search.frames()) {
            return Ok(Gain::None);
        }
        Ok(match self.evict(slot)? {
            Evicted::Some => {
                self.free_emptied(slot)?;
                Gain::Some
            }
            Evicted::Busy => {
                self.mind_compactors(search)?;
                pause();
                Gain::Later
            }
            Evicted::Nothing => Gain::None,
        })
    }

    fn compact_victim_of_any_node(
        &self,
        slot: &Slot<'_>,
        _: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        let compacted = self.compact(slot)?;
        if compacted {
            // The segment is free after a grace period, which seldom takes longer than this.
            self.free_emptied(slot)?;
        }
        Ok(Gain::of(compacted))
    }

    fn shrink_index(&self, slot: &Slot<'_>, _: &mut SpaceSearch) -> Result<Gain, WriteError> {
        Ok(Gain::of(self.index().trim_index(slot)? > 0))
    }

    fn move_large_record(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<Gain, WriteError> {
        Ok(Gain::of(self.compact_large(slot, search.wanted)?))
    }

    /// Leaves the segments behind large records and those of bulk records, which then may be
    /// evicted, or emptied for short ones.
    fn leave_large(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<Gain, WriteError> {
        let gains = !self.log().is_bulk(search.wanted) || self.may_forget_any(slot)?;
        let left = gains && self.log().leave_segments(slot, Leave::BehindLarge) > 0;
        Ok(Gain::of(left))
    }

    /// The end of a round that has tried every way. Fails if the store is full, or if waiting will
    /// not help.
    fn give_up_or_wait(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<(), WriteError> {
        let later = self.may_forget_later(slot)?;
        let full = !later && self.is_full(search.wanted);
        if full && !self.may_forget_any(slot)? {
            return Err(self.out_of_memory(search.wanted));
        }
        // A store that may evict counts as full only after several rounds: what others have added
        // meanwhile, and what was read often, can be evicted in the next round.
        let awaited = later || (!full && (search.held_up || self.awaits_space()));
        search.vain = if awaited { 0 } else { search.vain + 1 };
        if search.vain > VAIN {
            return Err(self.out_of_memory(search.wanted));
        }
        self.may_wait(search)?;
        self.mind_compactors(search)?;
        pause();
        Ok(())
    }

    /// Frees space as long as it finds some, until `bytes` bytes are free. It is for callers that,
    /// without enough space, start all of their work again and leave as many dead bytes behind. For
    /// a few bytes one round is enough. Whatever this returns, the caller's next attempt may
    /// succeed; if it fails, the caller returns the `Stalled` that it got here.
    pub(crate) fn make_more_space(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
        bytes: u64,
    ) -> Result<(), WriteError> {
        if bytes <= self.log().segment_bytes() / END_SHARE {
            return Ok(());
        }
        let wanted = bytes + FRAME_BYTES + self.log().segment_bytes();
        let mut more = SpaceSearch {
            frames_only: true,
            ..SpaceSearch::new(search.wanted)
        };
        // Other threads may take the freed space.
        let mut rounds = 2 * wanted.div_ceil(self.log().segment_bytes()) + u64::from(VAIN);
        while self.free_bytes() < wanted && rounds > 0 {
            match self.gain_space(slot, &mut more) {
                Ok(true) => rounds -= 1,
                Ok(false) if more.spent > SPACE_TIMEOUT => break,
                Ok(false) => {}
                Err(WriteError::OutOfMemory { .. }) => {
                    search.spent += more.spent;
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Frees space until the store, which was larger while it was loaded, is within its capacity.
    pub(crate) fn return_to_capacity(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        let log = self.log();
        if log.extra_frames() == 0 {
            return Ok(());
        }
        log.end_extension()
            .map_err(|error| Corrupt::at(0, error.to_string()))?;
        let mut search = SpaceSearch::new(log.segment_bytes());
        // The reserve may be in use, as in any full store.
        while u64::from(log.arena.stats().free) < log.extra_frames() {
            if self.gain_space(slot, &mut search)? {
                search = SpaceSearch::new(log.segment_bytes());
            }
        }
        Ok(())
    }

    /// Waits a little for the readers of the index' old blocks if these leave no place in limbo for
    /// a change of shape. Returns false if there is a place. The caller is not pinned, or it would
    /// wait for itself.
    pub(crate) fn await_limbo(
        &self,
        slot: &Slot<'_>,
        search: &mut SpaceSearch,
    ) -> Result<bool, WriteError> {
        self.spend(search, |search| self.look_at_limbo(slot, search))
    }

    fn look_at_limbo(&self, slot: &Slot<'_>, search: &mut SpaceSearch) -> Result<bool, WriteError> {
        let Some(cleared) = self.index().clear_limbo(slot)? else {
            return Ok(false);
        };
        if slot.is_pinned() && !cleared {
            // A `Value` of this thread is alive.
            return Err(self.session().stalled_by_own_pin(slot));
        }
        if !cleared {
            self.session().revoke_stalled_pins();
            self.may_wait(search)?;
            if search.spent > DEADLINE {
                return Err(self.out_of_memory(search.wanted));
            }
            pause();
        }
        Ok(true)
    }

    /// Fails if one thread has blocked the search for long: by one and the same pin, or, if no
    /// reader is pinned, as a sweeper that makes no progress.
    fn may_wait(&self, search: &mut SpaceSearch) -> Result<(), WriteError> {
        let (now, pin) = (
            self.session().clock.now_ns(),
            self.session().participants.stats().oldest_pin,
        );
        let pinned = search.pin.look(pin.map(|pin| (pin.slot, pin.epoch)), now);
        let sweeper =
            (self.session().participants).holder_of(&self.session().tables.header().sweep);
        let sweeper = search.sweeper.look(sweeper, now);
        Err(match (pinned, sweeper) {
            (Some(((slot, _), since)), _) => self.blocked_by(slot, since, Holding::Pin),
            (None, Some(((slot, _), since))) if pin.is_none() => {
                self.blocked_by(slot, since, Holding::Lock)
            }
            _ => return Ok(()),
        })
    }

    /// Fails if the threads that hold all compaction workers of a node have made no progress for
    /// long: no other thread can compact or evict there.
    fn mind_compactors(&self, search: &mut SpaceSearch) -> Result<(), WriteError> {
        let holder = |worker| {
            let first = self.log().heads_of_worker(worker).start;
            self.session()
                .participants
                .holder_of(&self.session().tables.head(first).lock)
        };
        let all_of = |node| self.workers_of(NodeId(node)).map(holder).collect();
        let seen: Option<Vec<_>> = (0..self.log().arena.nodes()).find_map(all_of);
        let Some((stalled, since)) = search.compactors.look(seen, self.session().clock.now_ns())
        else {
            return Ok(());
        };
        let first = stalled.first();
        first.map_or(Ok(()), |&(slot, _)| {
            Err(self.blocked_by(slot, since, Holding::Lock))
        })
    }

    fn blocked_by(&self, slot: SlotId, since: Duration, what: Holding) -> WriteError {
        let pid = self.session().participants.pid_of(slot);
        Stalled {
            pid,
            slot,
            since,
            what,
        }
        .into()
    }

    /// Whether something is under way that will free space, or let it be compacted.
    fn awaits_space(&self) -> bool {
        let segment = self.log().segment_bytes();
        let header = self.session().tables.header();
        let is_swept = header.lost_mains.load(Relaxed) == SWEPT;
        header.sweeps_due()
            || (is_swept && !self.session().spares_collections.load(Relaxed))
            || self
                .log()
                .segments()
                .any(|(_, info, word, state)| match state {
                    State::Condemned | State::Compacting => true,
                    State::Closed if word.bulk() => {
                        info.is_suspect() || !self.log().grace_over(info)
                    }
                    State::Closed => {
                        info.is_suspect() || (!word.large() && gain(info, segment).is_some())
                    }
                    _ => false,
                })
    }

    /// Whether free space and what compaction can gain are together too little for `wanted` bytes.
    ///
    /// Other threads may be compacting, or have just freed what is needed. Then the store is not
    /// full, and the caller retries.
    pub(crate) fn is_full(&self, wanted: u64) -> bool {
        let free = self.free_bytes();
        let gains: u64 = self.gains(!self.log().is_bulk(wanted)).sum();
        let header = self.session().tables.header();
        // While a store is loaded, no collection is swept.
        let is_swept =
            header.lost_mains.load(Relaxed) == 0 || self.session().spares_collections.load(Relaxed);
        let is_swept = is_swept || without("space.noted");
        let is_known = !header.sweeps_due() && !self.log().has_suspects() && is_swept;
        is_known && free + gains < wanted.max(self.log().segment_bytes())
    }

    /// Bytes in free frames, without the reserve.
    fn free_bytes(&self) -> u64 {
        let stats = self.log().arena.stats();
        u64::from(stats.free.saturating_sub(stats.reserved)) * FRAME_BYTES
    }

    /// Whether an empty store of this size could hold `bytes` bytes.
    pub(crate) fn could_hold(&self, bytes: u64) -> bool {
        let stats = self.log().arena.stats();
        let without = stats.reserved.saturating_add(self.log().arena.withheld());
        bytes <= u64::from(stats.frames.saturating_sub(without)) * FRAME_BYTES
    }

    /// Bytes that compacting each log segment would free, or that it is about to free.
    /// `behind_large`: unused space after large records counts too.
    pub(crate) fn gains(&self, behind_large: bool) -> impl Iterator<Item = u64> {
        let segment = self.log().segment_bytes();
        self.log()
            .segments()
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
        let live = self.log().segments().map(|(_, info, ..)| info.live()).sum();
        WriteError::OutOfMemory {
            wanted,
            live,
            capacity: self.log().capacity(),
        }
    }

    /// Frees what can be freed and starts the grace periods that are due. Returns the number of
    /// segments freed.
    pub(crate) fn maintain(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        let unnamed = match self.session().tables.header().sweeps_due() {
            true => self.sweep_for_condemned(slot)?,
            false => Vec::new(),
        };
        self.log().leave_segments(slot, Leave::BehindTheGone);
        self.log().stamp_segments();
        self.log().free_condemned(slot, &unnamed)
    }

    /// Sweeps the dropped indexes that can be swept now. Returns the condemned segments that no
    /// dropped index can name any more.
    ///
    /// An index that was dropped after a segment was condemned does not name the segment. So
    /// condemned segments are noted together with the indexes that wait for their sweep at that
    /// time. Once these are swept, however many sweeps that takes, nothing names the segments,
    /// though other indexes were dropped meanwhile.
    fn sweep_for_condemned(&self, slot: &Slot<'_>) -> Result<Vec<(Frame, StateWord)>, WriteError> {
        let mut named = match self.named.try_lock() {
            Ok(named) => Some(named),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            // Another thread frees the segments that it has noted.
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(named) = named.as_mut().filter(|named| named.is_none()) {
            let condemned = self.log().condemned();
            // After the segments were seen: the list has all indexes that were dropped before.
            let roots = self.index().dropped_ids(slot)?;
            **named = Some(Named { condemned, roots });
        }
        self.index().sweep(slot)?;
        let Some(mut named) = named else {
            return Ok(Vec::new());
        };
        let left = self.index().dropped_ids(slot)?;
        let swept = named.take_if(|named| !named.roots.iter().any(|root| left.contains(root)));
        Ok(swept.map_or(Vec::new(), |swept| swept.condemned))
    }

    /// Starts the grace periods that are due and frees the segments whose grace period is over.
    /// Returns their number.
    pub(crate) fn free_emptied(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        self.log().stamp_segments();
        self.log().free_condemned(slot, &[])
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;

    use mneme_sync::Lane;
    use mneme_sys::ManualClock;

    use super::*;
    use crate::store::{LogStore, MIN_CAPACITY};

    #[test]
    fn a_pause_of_all_is_no_time_of_a_search() {
        let clock = Arc::new(ManualClock::new(1, 1));
        let hour = || clock.advance_ns(3_600_000_000_000);
        let store = LogStore::builder()
            .capacity(MIN_CAPACITY)
            .clock(clock.clone());
        let store = store.maintainer(false).open_private().unwrap();
        let mut search = SpaceSearch::new(0);
        store.inner().reclaim().spend(&mut search, |_| hour());
        assert!(search.spent < DEADLINE, "{:?}", search.spent);
        // It is not a suspect of the thread that blocks the search, either.
        let mut suspect = Suspect(None);
        let mut look = || suspect.look(Some(7), store.inner().session().clock.now_ns());
        assert_eq!(look(), None);
        hour();
        for _ in 2..MIN_LOOKS {
            assert_eq!(look(), None);
        }
        assert!(look().is_some());
    }

    /// The first failure of `look` in `rounds` rounds of 150 ms each.
    fn refusal(
        clock: &ManualClock,
        rounds: u32,
        mut look: impl FnMut() -> Result<(), WriteError>,
    ) -> Option<WriteError> {
        (0..rounds).find_map(|_| {
            clock.advance_ms(150);
            look().err()
        })
    }

    #[track_caller]
    fn names_the_holder(refused: Option<WriteError>, slot: &Slot<'_>) {
        match refused {
            Some(WriteError::Stalled(stalled)) => {
                assert_eq!((stalled.slot, stalled.what), (slot.id(), Holding::Lock));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Compactors block a search only if they have every worker and make no progress.
    #[test]
    fn a_compactor_that_goes_on_is_waited_for() {
        for (capacity, workers) in [(MIN_CAPACITY, 1), (192 << 20, 2)] {
            let clock = Arc::new(ManualClock::new(1, 1));
            let builder = LogStore::builder().capacity(capacity).clock(clock.clone());
            let store = builder.maintainer(false).open_private().unwrap();
            let inner = store.inner();
            assert_eq!(inner.session().tables.geometry.workers(), workers);
            let slot = inner.session().writer().unwrap();
            let mut search = SpaceSearch::new(0);
            let mut fails = |rounds| {
                refusal(&clock, rounds, || {
                    inner.reclaim().mind_compactors(&mut search)
                })
            };
            let hold = || inner.reclaim().hold_worker(&slot, NodeId(0)).unwrap();
            let _all_but_one: Vec<_> = (1..workers).map(|_| hold()).collect();
            assert!(fails(100).is_none(), "one is idle");
            for _ in 0..4 {
                let _held = hold();
                assert!(fails(12).is_none(), "it has taken the worker again");
            }
            let _held = hold();
            let intent = slot.intent(Lane::Txn);
            for key in 0..4 {
                intent.begin(7, &[key]);
                assert!(fails(12).is_none(), "it has announced another operation");
            }
            intent.clear();
            names_the_holder(fails(100), &slot);
        }
    }

    #[test]
    fn a_sweeper_that_goes_on_is_waited_for() {
        let clock = Arc::new(ManualClock::new(1, 1));
        let builder = LogStore::builder()
            .capacity(MIN_CAPACITY)
            .clock(clock.clone());
        let store = builder.maintainer(false).open_private().unwrap();
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        let mut search = SpaceSearch::new(0);
        let mut fails = |rounds| refusal(&clock, rounds, || inner.reclaim().may_wait(&mut search));
        let _held = inner
            .session()
            .tables
            .header()
            .sweep
            .try_lock(&slot)
            .unwrap();
        let intent = slot.intent(Lane::Txn);
        for shard in 0..4 {
            intent.begin(7, &[shard]);
            assert!(fails(12).is_none(), "it has come to another shard");
        }
        intent.clear();
        names_the_holder(fails(100), &slot);
    }
}
