//! Keeping log segments filled: resident memory follows the live bytes, at a bounded cost.
//!
//! The *fill* of a node is the live share of the bytes in its closed and open log segments.
//! Segments that compaction leaves as they are do not count: those of large records, and those in
//! which bulk records have left gaps. No copying of other records would win back what these waste.
//! While the fill is below a target, the maintainer empties the best victims, however much is free.
//! **The cost is bounded by processor time**: it takes a share of one processor, which grows from
//! the minimum at the target to the maximum at a threshold below it. It works in [slices](SLICE_NS)
//! and leaves the processor in between. A victim is moved in as many slices as it takes, and
//! between two of them no lock and no pin is held.
//!
//! Once no other thread has changed anything for [a second](IDLE_NS) the target rises, and the
//! share too, until something changes again. This is checked before each chunk of records. Changes
//! made in place, also of an expiry, count.
//!
//! It pauses in a store that is short of free frames, where compaction is due anyway and takes what
//! it needs; while expired records must not be dropped; and while a pin keeps the memory of more
//! segments than [`HELD_UP`] from being freed, because emptying further ones would take memory and
//! free none. [`Stats`](crate::Stats) have [the reason of the wait](CompactionWait).

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_sync::Slot;
use mneme_sys::{NodeId, TimeOf, cpu_time};

use crate::error::WriteError;
use crate::index::intent::{OPERATION_LANE, TRANSACTION_LANE};
use crate::log::head::Leave;
use crate::log::segment::State;
use crate::reclaim::Reclaim;
use crate::reclaim::compact::{Moved, Victim, stays};

/// How long it works before it leaves the processor to others, in nanoseconds.
const SLICE_NS: u64 = 250_000;
/// How long nothing must have been changed for a store to count as idle, in nanoseconds.
const IDLE_NS: u64 = 1_000_000_000;
/// The target of an idle store, unless its own is higher.
pub(crate) const IDLE_FILL: f64 = 0.97;
/// The highest target: above it every record would be moved many times.
pub(crate) const MAX_FILL: f64 = 0.95;
/// The share of a processor that compacts an idle store.
const IDLE_SHARE: f64 = 0.5;
/// The minimum time between two looks at all segments, in nanoseconds and as a multiple of the time
/// that a look takes.
const LOOK_NS: u64 = 10_000_000;
const LOOKS: u64 = 100;
/// The time between two looks for victims in an idle store that has none, in nanoseconds.
const IDLE_LOOK_NS: u64 = 100_000_000;
/// Victims that are emptied before their frames are freed: a grace period costs a barrier.
const BATCH: u32 = 4;
/// It pauses while emptied segments that wait for readers have more than one in this number of the
/// live bytes, and more than this number of bytes.
const HELD_UP: u64 = 8;
const HELD_UP_BYTES: u64 = 32 << 20;

/// How full a maintained store keeps its log segments, and what that may cost. Shares of a
/// processor and fills are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FillPolicy {
    /// Whether segments are emptied to save memory at all. If not, compaction waits until free
    /// frames run short, except for segments with few live bytes.
    pub active: bool,
    /// Compaction continues below this fill.
    pub target_fill: f64,
    /// At this fill and below, compaction takes its greatest share.
    pub least_fill: f64,
    /// If fewer bytes than this are stale, they are left alone.
    pub ignored_bytes: u64,
    /// The share of a processor that it takes at the target.
    pub least_share: f64,
    /// The share that it takes at the least fill.
    pub greatest_share: f64,
    /// Whether a store to which nothing is written is made as compact as can be.
    pub when_idle: bool,
}

impl Default for FillPolicy {
    fn default() -> FillPolicy {
        FillPolicy {
            active: true,
            target_fill: 0.8,
            least_fill: 0.5,
            ignored_bytes: 2 << 20,
            least_share: 0.01,
            greatest_share: 0.25,
            when_idle: true,
        }
    }
}

impl FillPolicy {
    /// The share of a processor at this `fill`. `None`: nothing is to be done.
    fn share(&self, fill: &Fill, idle: bool) -> Option<f64> {
        if !self.active || fill.winnable() < self.ignored_bytes {
            return None;
        }
        if idle && self.when_idle {
            return (fill.share() < self.target_fill.max(IDLE_FILL)).then_some(IDLE_SHARE);
        }
        let missing = self.target_fill - fill.share();
        if missing <= 0.0 {
            return None;
        }
        let span = (self.target_fill - self.least_fill).max(0.01);
        let more = (self.greatest_share - self.least_share).max(0.0) * (missing / span).min(1.0);
        Some((self.least_share + more).clamp(0.001, 0.9))
    }
}

/// What compaction to save memory waits for although the fill is below its target. Nothing is lost
/// meanwhile, and it continues by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactionWait {
    /// The store is nearly full: compaction frees what writes need.
    FreeFrames,
    /// Expired records must not be dropped, see [`LogStore::rest_expiry`](crate::LogStore).
    Expiry,
    /// Readers keep emptied log segments from being freed.
    Readers,
    /// There is no space for copies of records: the region's file system is full.
    Space,
}

impl CompactionWait {
    const ALL: [CompactionWait; 4] = [
        CompactionWait::FreeFrames,
        CompactionWait::Expiry,
        CompactionWait::Readers,
        CompactionWait::Space,
    ];

    /// The reason that [`Reclaim::note_wait`] has stored as this number.
    fn of(number: u8) -> Option<CompactionWait> {
        Self::ALL.into_iter().find(|wait| *wait as u8 + 1 == number)
    }
}

impl fmt::Display for CompactionWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompactionWait::FreeFrames => "the store is nearly full",
            CompactionWait::Expiry => {
                "expired records must not be dropped while changes are not kept"
            }
            CompactionWait::Readers => "readers keep emptied log segments from being freed",
            CompactionWait::Space => "the file system has no space for copies",
        })
    }
}

/// How a slice of compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// Its time ran out.
    Over,
    /// No segment is worth it.
    NoVictim,
    /// There was no space for copies.
    NoSpace,
    /// Others have all of the node's workers.
    NoWorker,
}

/// Live and other bytes in the log segments of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    pub live: u64,
    /// Dead records, and unused ends of closed segments.
    pub stale: u64,
    /// The parts of `live` and of `stale` in segments whose records stay where they are.
    pub settled: (u64, u64),
    /// Emptied segments that wait for readers.
    pub condemned: u64,
}

impl Fill {
    /// The live share of the bytes that compaction may move.
    fn share(&self) -> f64 {
        let live = self.live.saturating_sub(self.settled.0);
        match live + self.winnable() {
            0 => 1.0,
            all => live as f64 / all as f64,
        }
    }

    /// The stale bytes that compaction wins back.
    fn winnable(&self) -> u64 {
        self.stale.saturating_sub(self.settled.1)
    }

    fn is_held_up(&self) -> bool {
        self.condemned > HELD_UP_BYTES.max(self.live / HELD_UP)
    }
}

/// What a maintainer does for the fill of its node.
#[derive(Debug)]
pub(crate) struct FillKeeper {
    node: NodeId,
    victim: Option<Victim>,
    /// Victims that were emptied since their frames were last freed.
    emptied: u32,
    /// The result of the last look, and when the next is due, in nanoseconds.
    seen: Fill,
    look_ns: u64,
    /// When the next slice is due.
    due_ns: u64,
    /// A number that stands for all changes, at the time when it last differed, and that time.
    changes: u64,
    changed_ns: u64,
}

impl FillKeeper {
    pub fn new(node: NodeId) -> FillKeeper {
        FillKeeper {
            node,
            victim: None,
            emptied: 0,
            seen: Fill::default(),
            look_ns: 0,
            due_ns: 0,
            changes: 0,
            changed_ns: 0,
        }
    }

    /// Whether nothing was changed for a while.
    pub fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.changed_ns) >= IDLE_NS
    }
}

/// Processor time of this thread so far.
fn spent_ns() -> u64 {
    let time = cpu_time(TimeOf::Thread);
    (time.user + time.system).as_nanos() as u64
}

impl Reclaim {
    /// How full this opening keeps the log segments while it maintains.
    pub(crate) fn fill_policy(&self) -> FillPolicy {
        let policy = self.fill_policy.lock();
        *policy.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how full this opening keeps the log segments while it maintains.
    pub(crate) fn set_fill_policy(&self, policy: FillPolicy) {
        let default = FillPolicy::default();
        let or = |given: f64, default: f64| if given.is_finite() { given } else { default };
        let policy = FillPolicy {
            target_fill: or(policy.target_fill, default.target_fill).clamp(0.0, MAX_FILL),
            least_fill: or(policy.least_fill, default.least_fill),
            least_share: or(policy.least_share, default.least_share),
            greatest_share: or(policy.greatest_share, default.greatest_share),
            ..policy
        };
        let place = self.fill_policy.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// The fill of a node: a look at each of its log segments.
    pub(crate) fn fill(&self, node: NodeId) -> Fill {
        let mut fill = Fill::default();
        for (frame, info, word, state) in self.log().segments() {
            if self.log().arena.node_of(frame) != node {
                continue;
            }
            let capacity = info.capacity();
            let used = info.used().min(capacity);
            let dead = info.dead().min(used);
            let (live, stale) = match state {
                State::Condemned => {
                    fill.condemned += capacity;
                    continue;
                }
                State::Closed | State::Compacting => (used - dead, capacity - used + dead),
                _ => (used - dead, dead),
            };
            fill.live += live;
            fill.stale += stale;
            if stays(info, word) {
                fill.settled.0 += live;
                fill.settled.1 += stale;
            }
        }
        fill
    }

    /// Whether any node's fill is below the policy's target, by more than is ignored.
    pub(crate) fn is_below_target(&self) -> bool {
        let policy = self.fill_policy();
        let mut nodes = (0..self.log().arena.nodes()).map(NodeId);
        // A forked child has nothing mapped.
        !self.session().participants.is_forked()
            && nodes.any(|node| policy.share(&self.fill(node), false).is_some())
    }

    /// A number that differs after any other thread has changed any record: each change is
    /// announced. Compaction by others also counts, but is over soon.
    fn changes(&self, slot: &Slot<'_>) -> u64 {
        let lanes = [OPERATION_LANE, TRANSACTION_LANE];
        self.session().participants.announcements(&lanes, slot.id())
    }

    /// Notes what compaction of a node waits for.
    fn note_wait(&self, node: NodeId, wait: Option<CompactionWait>) {
        if let Some(noted) = self.fill_waits.get(usize::from(node.0)) {
            // Relaxed: nothing else hangs on it.
            noted.store(wait.map_or(0, |wait| wait as u8 + 1), Relaxed);
        }
    }

    /// What compaction to save memory waits for, if this opening maintains.
    pub(crate) fn compaction_wait(&self) -> Option<CompactionWait> {
        let mut waits = self.fill_waits.iter();
        waits.find_map(|noted| CompactionWait::of(noted.load(Relaxed)))
    }

    /// What compaction has to wait for now.
    fn must_wait(&self, seen: &Fill) -> Option<CompactionWait> {
        if self.wants_compaction() {
            return Some(CompactionWait::FreeFrames);
        }
        if self.records().expiry_rests() {
            return Some(CompactionWait::Expiry);
        }
        seen.is_held_up().then_some(CompactionWait::Readers)
    }

    /// A slice of work for the fill of the keeper's node, if one is due. Returns the time until the
    /// next one.
    pub(crate) fn keep_filled(
        &self,
        slot: &Slot<'_>,
        keeper: &mut FillKeeper,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Duration, WriteError> {
        let now = self.session().clock.now_ns();
        if now < keeper.due_ns {
            return Ok(Duration::from_nanos(keeper.due_ns - now));
        }
        if now >= keeper.look_ns {
            let (seen, changes) = (self.fill(keeper.node), self.changes(slot));
            // Neither changes by this thread's compaction. Removals by this thread change the live
            // bytes.
            if (changes, seen.live) != (keeper.changes, keeper.seen.live) {
                (keeper.changes, keeper.changed_ns) = (changes, now);
            }
            keeper.seen = seen;
            let took = self.session().clock.now_ns().saturating_sub(now);
            keeper.look_ns = now.saturating_add((took * LOOKS).max(LOOK_NS));
        }
        let idle = keeper.is_idle(now) && self.changes(slot) == keeper.changes;
        let share = self.fill_policy().share(&keeper.seen, idle);
        let wait = share.and_then(|_| self.must_wait(&keeper.seen));
        let Some(share) = share.filter(|_| wait.is_none()) else {
            self.note_wait(keeper.node, wait);
            if let Some(victim) = keeper.victim.take() {
                self.leave_victim(&victim);
            }
            if keeper.emptied > 0 || keeper.seen.condemned > 0 {
                keeper.emptied = 0;
                self.free_emptied(slot)?;
            }
            keeper.due_ns = now + LOOK_NS;
            return Ok(Duration::from_nanos(LOOK_NS));
        };
        let changes = keeper.changes;
        let before = spent_ns();
        let end = now.saturating_add(SLICE_NS);
        let goes_on = || {
            let in_time = self.session().clock.now_ns() < end && !stopped();
            in_time && (!idle || self.changes(slot) == changes)
        };
        let done = self.fill_slice(slot, keeper, &goes_on);
        let wait = matches!(done, Ok(Slice::NoSpace)).then_some(CompactionWait::Space);
        self.note_wait(keeper.node, wait);
        // Segments to which heads append may have stale bytes.
        let found = matches!(done, Ok(Slice::NoVictim)) && idle;
        let found = found && self.log().leave_segments(slot, Leave::Stale) > 0;
        let spent = spent_ns().saturating_sub(before).max(1_000);
        let mut rest = (spent as f64 * (1.0 - share) / share) as u64;
        if !matches!(done, Ok(Slice::Over)) && !found {
            // Nothing can be moved now, but the next closed segment can. In an idle store none is
            // closed.
            rest = rest.max(if idle { IDLE_LOOK_NS } else { LOOK_NS });
        }
        keeper.due_ns = self
            .session()
            .clock
            .now_ns()
            .saturating_add(rest.min(1_000_000_000));
        done.map(|_| Duration::from_nanos(rest))
    }

    /// Moves victims while `goes_on`.
    fn fill_slice(
        &self,
        slot: &Slot<'_>,
        keeper: &mut FillKeeper,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Slice, WriteError> {
        while goes_on() {
            let mut victim = match keeper.victim.take() {
                Some(victim) => victim,
                None => {
                    if keeper.emptied >= BATCH {
                        keeper.emptied = 0;
                        self.free_emptied(slot)?;
                    }
                    match self.take_victim(slot, keeper.node)? {
                        Some(victim) => victim,
                        None => {
                            keeper.emptied = 0;
                            // Most grace periods that begin now are over at once.
                            self.free_emptied(slot)?;
                            return Ok(Slice::NoVictim);
                        }
                    }
                }
            };
            match self.move_part(slot, &mut victim, goes_on) {
                Ok(Moved::All) => {
                    keeper.emptied += 1;
                }
                Ok(Moved::Part) => {
                    keeper.victim = Some(victim);
                    return Ok(Slice::Over);
                }
                Ok(Moved::NoWorker) => {
                    keeper.victim = Some(victim);
                    return Ok(Slice::NoWorker);
                }
                Ok(Moved::NoSpace) => return Ok(Slice::NoSpace),
                // The check reports a damaged one.
                Err(WriteError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Slice::Over)
    }

    /// Moves victims on all nodes until these have the wanted fill, or `budget` is over. Returns
    /// whether they have it.
    pub(crate) fn fill_for(&self, slot: &Slot<'_>, budget: Duration) -> Result<bool, WriteError> {
        let begin = self.session().clock.now_ns();
        let in_time = || u128::from(self.session().clock.now_ns() - begin) < budget.as_nanos();
        let policy = self.fill_policy();
        let mut filled = true;
        for node in (0..self.log().arena.nodes()).map(NodeId) {
            let wants = || policy.share(&self.fill(node), false).is_some();
            self.free_emptied(slot)?;
            // Bounded: while writers continue without a pause, some segment is always worth it.
            let most = self.log().segments().count();
            for _ in 0..most {
                if !wants() || !in_time() {
                    break;
                }
                let Some(mut victim) = self.take_victim(slot, node)? else {
                    break;
                };
                let moved = self.move_part(slot, &mut victim, &in_time)?;
                if matches!(moved, Moved::Part | Moved::NoWorker) {
                    self.leave_victim(&victim);
                    break;
                }
                self.free_emptied(slot)?;
            }
            filled &= !wants();
        }
        Ok(filled)
    }

    /// Gives up what the keeper has begun.
    pub(crate) fn leave_fill(&self, keeper: &mut FillKeeper) {
        self.note_wait(keeper.node, None);
        if let Some(victim) = keeper.victim.take() {
            self.leave_victim(&victim);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::cell::Cell;
    use std::sync::{Arc, Barrier};

    use mneme_sys::ManualClock;

    use super::*;
    use crate::region::policy::UpdatePolicy;
    use crate::{Expiry, LogStore};

    const RECORDS: u32 = 100_000;
    const SECOND: u64 = 1_000_000_000;

    /// A store of `RECORDS` values, one in `kept` of which is live, and its clock.
    fn store(kept: u32, policy: UpdatePolicy) -> (LogStore, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let builder = builder.update_policy(policy);
        let store = builder.clock(clock.clone()).open_private().unwrap();
        for i in 0..RECORDS {
            store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
        }
        for i in (0..RECORDS).filter(|i| i % kept > 0) {
            store.remove(&i.to_le_bytes()).unwrap();
        }
        (store, clock)
    }

    /// Slices of some chunks each, one second apart.
    fn keep(store: &LogStore, keeper: &mut FillKeeper, clock: &ManualClock, slices: u32) {
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        for _ in 0..slices {
            clock.advance_ns(SECOND);
            let chunks = Cell::new(0);
            let stopped = || chunks.replace(chunks.get() + 1) > 100;
            inner
                .reclaim()
                .keep_filled(&slot, keeper, &stopped)
                .unwrap();
        }
    }

    fn holds(store: &LogStore, kept: u32) {
        for i in 0..RECORDS {
            let value = store.get(&i.to_le_bytes()).unwrap();
            let expected = (i % kept == 0).then_some(&[7; 1000][..]);
            assert_eq!(value.as_deref(), expected, "{i}");
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn a_store_becomes_as_full_as_its_policy_says_and_stays_as_it_is_without_one() {
        let (store, clock) = store(3, UpdatePolicy::Append);
        let mut keeper = FillKeeper::new(NodeId(0));
        let fill = || store.inner().reclaim().fill(NodeId(0)).share();
        assert!(fill() < 0.5);
        let mut policy = FillPolicy {
            active: false,
            ..FillPolicy::default()
        };
        store.set_fill_policy(policy);
        keep(&store, &mut keeper, &clock, 50);
        assert_eq!(store.stats().moved_bytes, 0);
        (policy.active, policy.when_idle) = (true, false);
        store.set_fill_policy(policy);
        keep(&store, &mut keeper, &clock, 200);
        let filled = fill();
        assert!((0.8..0.97).contains(&filled), "{filled}");
        let stats = store.stats();
        let amplification = stats.write_amplification();
        assert!((1.05..1.5).contains(&amplification), "{stats:?}");
        policy.when_idle = true;
        store.set_fill_policy(policy);
        keep(&store, &mut keeper, &clock, 200);
        assert!(fill() > filled);
        holds(&store, 3);
    }

    #[test]
    fn a_change_of_any_kind_ends_idleness() {
        let (store, clock) = store(3, UpdatePolicy::InPlace);
        let mut keeper = FillKeeper::new(NodeId(0));
        let (inner, key) = (store.inner(), 0u32.to_le_bytes());
        // Of the same length, so that the value is overwritten in place.
        let overwrite = || store.put(&key, &[7; 1000]).unwrap();
        let expire = || {
            let until = Expiry::At(u64::MAX >> 1);
            assert!(store.set_expiry(&key, until).unwrap());
        };
        let transact = || {
            let set =
                store.transaction(|keys| -> Result<(), WriteError> { keys.put(&key, &[7; 1000]) });
            set.unwrap();
        };
        let bulk = || store.put(b"bulk", &[7; 200 << 10]).unwrap();
        let remove = || assert!(store.remove(b"bulk").unwrap());
        // The first changes of each kind have further effects.
        for change in [&overwrite, &expire] as [&(dyn Fn() + Sync); 2] {
            std::thread::scope(|scope| scope.spawn(change).join().unwrap());
        }
        let changes: [&(dyn Fn() + Sync); 5] = [&overwrite, &expire, &transact, &bulk, &remove];
        for (i, change) in changes.into_iter().enumerate() {
            keep(&store, &mut keeper, &clock, 3);
            assert!(keeper.is_idle(inner.session().clock.now_ns()), "{i}");
            std::thread::scope(|scope| scope.spawn(change).join().unwrap());
            keep(&store, &mut keeper, &clock, 1);
            assert!(!keeper.is_idle(inner.session().clock.now_ns()), "{i}");
        }
        // Reads do not count as changes.
        keep(&store, &mut keeper, &clock, 3);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(store.get(&key).unwrap().map(|v| v.len()), Some(1000)));
        });
        keep(&store, &mut keeper, &clock, 1);
        assert!(keeper.is_idle(inner.session().clock.now_ns()));
    }

    /// Emptying further segments would take memory and free none.
    #[test]
    fn compaction_for_memory_waits_for_a_reader_that_stays() {
        let (store, clock) = store(3, UpdatePolicy::Append);
        let mut keeper = FillKeeper::new(NodeId(0));
        let condemned = || store.inner().reclaim().fill(NodeId(0)).condemned;
        // Segments closed by now may be emptied although the reader stays.
        store.inner().log().stamp_segments();
        let (pinned, done) = (Barrier::new(2), Barrier::new(2));
        let (held_up, moved, later) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let value = store.get(&0u32.to_le_bytes()).unwrap();
                pinned.wait();
                done.wait();
                drop(value);
            });
            pinned.wait();
            keep(&store, &mut keeper, &clock, 200);
            let (held_up, moved) = (condemned(), store.stats().moved_bytes);
            let wait = store.stats().compaction_wait;
            assert_eq!(wait, Some(CompactionWait::Readers));
            keep(&store, &mut keeper, &clock, 50);
            let later = store.stats().moved_bytes;
            done.wait();
            (held_up, moved, later)
        });
        let most = HELD_UP_BYTES + u64::from(BATCH + 4) * (2 << 20);
        assert!((HELD_UP_BYTES..most).contains(&held_up), "{held_up}");
        assert_eq!(later, moved);
        keep(&store, &mut keeper, &clock, 300);
        assert_eq!(condemned(), 0);
        assert_eq!(store.stats().compaction_wait, None);
        assert!(store.inner().reclaim().fill(NodeId(0)).share() > 0.8);
        holds(&store, 3);
    }

    #[test]
    fn compaction_for_memory_gives_way_to_that_for_want_of_free_frames() {
        let (store, clock) = store(2, UpdatePolicy::Append);
        let fresh = |i: u32| (RECORDS + i).to_le_bytes();
        let (mut i, inner) = (0, store.inner());
        while !inner.reclaim().wants_compaction() {
            store.put(&fresh(i), &[7; 1000]).unwrap();
            i += 1;
        }
        let mut keeper = FillKeeper::new(NodeId(0));
        let moved = store.stats().moved_bytes;
        keep(&store, &mut keeper, &clock, 20);
        let stats = store.stats();
        let wait = Some(CompactionWait::FreeFrames);
        assert_eq!((stats.moved_bytes, stats.compaction_wait), (moved, wait));
        for i in 0..i {
            assert!(store.remove(&fresh(i)).unwrap());
        }
        store.compact().unwrap();
        keep(&store, &mut keeper, &clock, 1);
        assert_eq!(store.stats().compaction_wait, None);
        holds(&store, 2);
    }

    /// As while the disk of the change feed is full.
    #[test]
    fn compaction_for_memory_waits_while_expired_records_must_stay() {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let builder = builder.clock(clock.clone()).change_feed(true);
        let store = builder.open_private().unwrap();
        let mut keeper = FillKeeper::new(NodeId(0));
        let (mut feed, mut entered) = (store.change_feed().unwrap(), Vec::new());
        for i in 0..40_000u32 {
            let until = Expiry::At(if i % 3 == 0 { 1 << 40 } else { 2_000 });
            let key = (i % 7_000).to_le_bytes();
            store.put_until(&key, &[7; 1000], until).unwrap();
            entered.clear();
            let drained = feed.drain(usize::MAX, &mut entered).unwrap();
            feed.set_durable(drained.end).unwrap();
        }
        clock.set_wall_ms(3_000);
        store.rest_expiry(true);
        keep(&store, &mut keeper, &clock, 20);
        let stats = store.stats();
        let wait = Some(CompactionWait::Expiry);
        assert_eq!((stats.moved_bytes, stats.compaction_wait), (0, wait));
        store.rest_expiry(false);
        keep(&store, &mut keeper, &clock, 200);
        let stats = store.stats();
        let ignored = FillPolicy::default().ignored_bytes;
        assert!(
            stats.stale_bytes < ignored && stats.moved_bytes > 0,
            "{stats:?}"
        );
        assert_eq!(stats.compaction_wait, None);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn an_idle_store_has_nothing_stale_in_the_segments_that_heads_append_to() {
        let (store, clock) = store(2, UpdatePolicy::Append);
        let mut keeper = FillKeeper::new(NodeId(0));
        store.set_fill_policy(FillPolicy {
            ignored_bytes: 1,
            ..FillPolicy::default()
        });
        for i in 0..RECORDS {
            store.remove(&i.to_le_bytes()).unwrap();
        }
        keep(&store, &mut keeper, &clock, 100);
        let fill = store.inner().reclaim().fill(NodeId(0));
        assert!(fill.stale < 64 << 10 && fill.live == 0, "{fill:?}");
        assert_eq!(fill.condemned, 0);
        let stats = store.stats();
        assert!(stats.written_bytes > u64::from(RECORDS) * 1000, "{stats:?}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    /// The space between bulk records is reused in place. If it counted against the target,
    /// segments of short records would be moved for ever for their few stale bytes.
    #[test]
    fn stale_bytes_that_compaction_leaves_alone_move_no_other_records() {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.clock(clock.clone()).open_private().unwrap();
        store.set_fill_policy(FillPolicy {
            when_idle: false,
            ..FillPolicy::default()
        });
        let (bulk, short) = (|i: u32| (1 << 30 | i).to_le_bytes(), 40_000u32);
        for i in 0..400 {
            store.put(&bulk(i), &[7; 400 << 10]).unwrap();
        }
        for i in 0..short {
            store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
        }
        for i in (0..400).filter(|i| i % 3 == 0) {
            assert!(store.remove(&bulk(i)).unwrap());
        }
        for i in (0..short).step_by(10) {
            assert!(store.remove(&i.to_le_bytes()).unwrap());
        }
        assert!(store.stats().fill() < 0.78);
        let mut keeper = FillKeeper::new(NodeId(0));
        keep(&store, &mut keeper, &clock, 200);
        assert_eq!(store.stats().moved_bytes, 0);
        assert!(store.compact_for(std::time::Duration::MAX).unwrap());
        assert_eq!(store.stats().moved_bytes, 0);
        // Segments of short records that are worth it are moved all the same.
        for i in (0..short).filter(|i| i % 2 == 1) {
            assert!(store.remove(&i.to_le_bytes()).unwrap());
        }
        keep(&store, &mut keeper, &clock, 200);
        let moved = store.stats().moved_bytes;
        assert!((4 << 20..24 << 20).contains(&moved), "{moved}");
        assert!(store.compact_for(std::time::Duration::MAX).unwrap());
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn a_policy_of_no_numbers_costs_no_more_than_any_other() {
        let (store, clock) = store(3, UpdatePolicy::Append);
        let nan = f64::NAN;
        store.set_fill_policy(FillPolicy {
            least_fill: nan,
            least_share: nan,
            greatest_share: nan,
            ..FillPolicy::default()
        });
        let inner = store.inner();
        let fill = inner.reclaim().fill(NodeId(0));
        let share = inner.reclaim().fill_policy().share(&fill, false);
        assert!(share.is_some_and(|share| share <= 0.9), "{share:?}");
        store.set_fill_policy(FillPolicy {
            target_fill: nan,
            when_idle: false,
            ..FillPolicy::default()
        });
        let share = inner.reclaim().fill_policy().share(&fill, false);
        assert!(share.is_none_or(|share| share <= 0.9), "{share:?}");
        keep(&store, &mut FillKeeper::new(NodeId(0)), &clock, 10);
    }

    /// As while the thread that holds the worker is stopped.
    #[test]
    fn compaction_for_memory_rests_while_no_worker_is_idle() {
        let (store, clock) = store(3, UpdatePolicy::Append);
        let inner = store.inner();
        let mut keeper = FillKeeper::new(NodeId(0));
        keep(&store, &mut keeper, &clock, 3);
        let slot = inner.session().writer().unwrap();
        let workers = inner.reclaim().workers_of(NodeId(0)).count();
        let hold = |_| inner.reclaim().hold_worker(&slot, NodeId(0)).unwrap();
        let held: Vec<_> = (0..workers).map(hold).collect();
        let moved = store.stats().moved_bytes;
        for _ in 0..3 {
            clock.advance_ns(SECOND);
            let rest = inner
                .reclaim()
                .keep_filled(&slot, &mut keeper, &|| false)
                .unwrap();
            assert!(rest >= Duration::from_nanos(LOOK_NS), "{rest:?}");
        }
        assert_eq!(store.stats().moved_bytes, moved);
        drop(held);
        keep(&store, &mut keeper, &clock, 200);
        assert!(inner.reclaim().fill(NodeId(0)).share() > 0.8);
        holds(&store, 3);
    }
}
