//! Eviction: a full store that may evict frees space instead of refusing writes.
//!
//! The oldest part of the log is compacted, but records there that were not read since they were
//! written are removed instead of copied. Records that were read lose their marks and move to the
//! young end of the log. This is the clock algorithm over a log, or FIFO with reinsertion. Samples
//! decide what counts as read, see [`crate::records::access`].
//!
//! Policies that may evict only records with an expiry do not walk the log, where such records may
//! be few. They sample records at random places in the index, as Redis does, and remove the worst
//! of each sample. Ordinary compaction then frees the space. If few records have an expiry, a walk
//! through the index finds them. If none has, by the databases' counters, there is no search.
//!
//! Eviction begins when compaction could gain little. The maintainer does it ahead of need;
//! otherwise the writer that lacks space does it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_arena::{FRAME_BYTES, Frame};
use mneme_sync::Slot;
use mneme_sys::NodeId;
use mneme_sys::fault::without;

use crate::error::{ReadError, WriteError};
use crate::index::bucket::{Entry, TAG_BITS};
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::index::walk::HashOrder;
use crate::inner::{Anchor, anchor_key, collection_of};
use crate::log::segment::{State, StateWord, frame_byte};
use crate::reclaim::Reclaim;
use crate::reclaim::expiry_sweep::ExpirySweep;
use crate::records::publish::{Expect, KeyChange, Published};
use crate::region::layout::LogSegmentInfo;
use crate::region::mem::Loc;
use crate::region::record::{Header, Record};
use crate::region::space::KeyspaceId;

/// Which records a full store may evict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u64)]
#[non_exhaustive]
pub enum Evict {
    /// None: writes fail with `OutOfMemory`.
    #[default]
    None = 0,
    /// Those that were not read for the longest time.
    Lru = 1,
    /// Those that are read least often.
    Lfu = 2,
    /// Any.
    Random = 3,
    /// Of those with an expiry, the ones not read for the longest time.
    ExpiringLru = 4,
    /// Of those with an expiry, the ones read least often.
    ExpiringLfu = 5,
    /// Any that has an expiry.
    ExpiringRandom = 6,
    /// Those that expire soonest.
    ExpiringSoonest = 7,
}

/// Records that are examined for each one that is removed from a sample.
const SAMPLE: usize = 8;
/// Samples drawn in one round, each for a record to remove.
const ROUND: usize = 64;
/// The number of samples that take as long as [`STEP`] buckets of a walk.
const STEP_SAMPLES: usize = 8;
/// The number of random places without a record to evict after which a walk through the index
/// begins.
const VAIN: u32 = 100;
/// Buckets that a walk examines under one pin.
const STEP: u32 = 256;
/// If a step of a walk takes longer, in nanoseconds, it was not its buckets that took the time: the
/// thread had no processor.
const LONG_NS: u64 = 1_000_000;
/// The pause, in nanoseconds, after a walk that found nothing in the whole store.
const REST_NS: u64 = 100_000_000;
/// If compaction could gain less than this share of the store, records are evicted.
const LITTLE: u64 = 16;
/// Marks of the least often read record that is kept for its frequency.
const MOST_MARKS: u64 = 7;

impl Evict {
    const ALL: [Evict; 8] = [
        Evict::None,
        Evict::Lru,
        Evict::Lfu,
        Evict::Random,
        Evict::ExpiringLru,
        Evict::ExpiringLfu,
        Evict::ExpiringRandom,
        Evict::ExpiringSoonest,
    ];

    fn of_word(word: u64) -> Evict {
        let known = Evict::ALL.into_iter().find(|e| *e as u64 == word);
        known.unwrap_or_default()
    }

    /// Whether the policy depends on what was read.
    fn wants_samples(self) -> bool {
        matches!(
            self,
            Evict::Lru | Evict::Lfu | Evict::ExpiringLru | Evict::ExpiringLfu
        )
    }

    fn is_by_frequency(self) -> bool {
        matches!(self, Evict::Lfu | Evict::ExpiringLfu)
    }

    /// Whether only records with an expiry may be evicted.
    fn is_choosy(self) -> bool {
        matches!(
            self,
            Evict::ExpiringLru
                | Evict::ExpiringLfu
                | Evict::ExpiringRandom
                | Evict::ExpiringSoonest
        )
    }

    /// The marks of a record with `marks` that was read again. A frequency count rises with
    /// probability 1 in 2^marks.
    pub(crate) fn marked(self, marks: u64, dice: u64) -> u64 {
        if !self.is_by_frequency() {
            return 1;
        }
        let dice = dice.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if marks < MOST_MARKS && dice.trailing_zeros() as u64 >= marks {
            marks + 1
        } else {
            marks
        }
    }

    /// The new marks of a record that is kept when the walk reaches it. `None`: it is evicted.
    pub(crate) fn kept(self, marks: u64) -> Option<u64> {
        match self {
            Evict::Lru if marks > 0 => Some(0),
            Evict::Lfu if marks > 0 => Some(marks - 1),
            _ => None,
        }
    }

    /// How much a sampled record is worth keeping: the one worth least is removed.
    fn worth(self, header: Header, expires: u64) -> u64 {
        match self {
            Evict::ExpiringSoonest => expires,
            Evict::ExpiringRandom => 0,
            _ => header.marks(),
        }
    }
}

/// Records that may be evicted, each with its worth.
type Sample = Vec<(u64, Root, Entry)>;

/// This process' walk for records with an expiry.
#[derive(Debug, Default)]
pub(crate) struct ExpiringWalk {
    sweep: ExpirySweep,
    /// Since the walk last found a record: the nanoseconds that it took, and how often it has
    /// reached the end of the store.
    took_ns: u64,
    ends: u32,
    /// When the walk last continued.
    last_ns: u64,
    /// The walk found none in the whole store, and pauses until this time.
    rests_until_ns: u64,
}

impl ExpiringWalk {
    /// Resets the walk: there may now be records that it has not found.
    fn forget(&mut self) {
        (self.took_ns, self.ends) = (0, 0);
    }
}

/// The result of an attempt to evict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evicted {
    /// Records were removed.
    Some,
    /// Eviction is not due, or nothing may be evicted.
    Nothing,
    /// Another thread is evicting.
    Busy,
}

/// The policy of an eviction walk, and what the walk has removed.
pub(crate) struct Cull {
    pub policy: Evict,
    /// Stop removing bulk records at this number of removed bytes.
    pub enough: u64,
    /// Bytes of the records that were removed.
    pub bytes: u64,
}

impl Reclaim {
    /// Which records may be evicted.
    pub(crate) fn eviction(&self) -> Evict {
        Evict::of_word(self.session().tables.header().evict.load(Acquire))
    }

    /// Sets the eviction policy, for all participants.
    pub(crate) fn set_eviction(&self, policy: Evict) {
        let header = self.session().tables.header();
        // SYNC: pairs with the Acquire load in `eviction`.
        header.evict.store(policy as u64, Release);
        header
            .samples
            .store(u64::from(policy.wants_samples()), Relaxed);
    }

    /// Frees space by eviction, if that is due. The caller is not pinned.
    pub(crate) fn evict(&self, slot: &Slot<'_>) -> Result<Evicted, WriteError> {
        if !self.is_worn_out() {
            return Ok(Evicted::Nothing);
        }
        self.evict_for(slot, 0)
    }

    /// Frees space by eviction, if anything may be evicted, for a record of `wanted` bytes. The
    /// caller is not pinned.
    pub(crate) fn evict_for(&self, slot: &Slot<'_>, wanted: u64) -> Result<Evicted, WriteError> {
        let policy = self.eviction();
        if policy == Evict::None {
            return Ok(Evicted::Nothing);
        }
        self.fold_accesses(slot)?;
        if policy.is_choosy() {
            return self.evict_sampled(slot, policy);
        }
        // A walk over all segments takes one mark off each record.
        for _ in 0..2 * self.log().segments().count() {
            let evicted = self.evict_oldest(slot, policy, wanted)?;
            if evicted != Evicted::Nothing {
                return Ok(evicted);
            }
            // The next walk needs the space that this one has emptied.
            self.free_emptied(slot)?;
        }
        Ok(Evicted::Nothing)
    }

    /// Whether something may be evicted as soon as a grace period is over, or another thread has
    /// finished with it. A sampling policy waits for the space that is about to be free, and counts
    /// it as enough.
    pub(crate) fn may_forget_later(&self, slot: &Slot<'_>) -> Result<bool, ReadError> {
        let choosy = self.eviction().is_choosy();
        Ok(self.may_forget_any(slot)?
            && self
                .log()
                .segments()
                .any(|(_, info, _, state)| match state {
                    State::Closed => !choosy && !self.log().grace_over(info),
                    State::Compacting | State::Condemned => true,
                    _ => false,
                }))
    }

    /// Whether any record may be evicted, now or later. The caller is not pinned.
    pub(crate) fn may_forget_any(&self, slot: &Slot<'_>) -> Result<bool, ReadError> {
        match self.eviction() {
            Evict::None => Ok(false),
            policy if policy.is_choosy() => {
                let _pin = slot.pin();
                Ok(self.expiring_records()? > 0)
            }
            _ => Ok(true),
        }
    }

    /// The gain, in bytes, below which compaction counts as gaining little.
    fn little(&self) -> u64 {
        let withheld = u64::from(self.log().arena.withheld()) * FRAME_BYTES;
        self.log().capacity().saturating_sub(withheld) / LITTLE
    }

    /// Whether compaction alone could gain little.
    fn is_worn_out(&self) -> bool {
        let mut left = self.little();
        // The sum is needed only up to the limit.
        self.gains(false).all(|gain| {
            let little = gain < left;
            left = left.saturating_sub(gain);
            little
        })
    }

    /// Walks one log segment, of the nearest node that has one to evict from.
    fn evict_oldest(
        &self,
        slot: &Slot<'_>,
        policy: Evict,
        wanted: u64,
    ) -> Result<Evicted, WriteError> {
        let mut busy = false;
        for &node in (self.log().arena).nodes_from(self.session().topology.current_node()) {
            let Some((first, _worker)) = self.hold_worker(slot, NodeId(node)) else {
                busy = true;
                continue;
            };
            let lane = self.lane(first, NodeId(node));
            // Large records that were read are not copied: they are kept until the walk reaches
            // them again.
            while let Some((frame, word)) = self.choose_to_evict(NodeId(node), policy) {
                let info = self.session().tables.info(frame);
                if word.large() && self.spare_large(frame, info, word, policy)? {
                    continue;
                }
                let claimed = word.to(State::Compacting, Some(slot.id()));
                if info.change(word, claimed) {
                    mneme_sys::fault!("evict.claimed");
                    let mut walk = Cull {
                        policy,
                        enough: wanted.max(self.log().segment_bytes()),
                        bytes: 0,
                    };
                    self.compact_victim(slot, &lane, frame, claimed, Some(&mut walk))?;
                    return Ok(if walk.bytes > 0 {
                        Evicted::Some
                    } else {
                        Evicted::Nothing
                    });
                }
            }
        }
        Ok(if busy {
            Evicted::Busy
        } else {
            Evicted::Nothing
        })
    }

    /// The log segment of `node` that is walked next: the oldest, or any; a damaged one last.
    fn choose_to_evict(&self, node: NodeId, policy: Evict) -> Option<(Frame, StateWord)> {
        // Damaged segments are left alone while others will become due.
        let mut waits = false;
        let due = self.log().segments().filter(|(frame, info, _, state)| {
            let is_meant = *state == State::Closed && self.log().arena.node_of(*frame) == node;
            let is_due = is_meant && self.log().grace_over(info);
            waits |= is_meant && !is_due && !info.is_deprioritised();
            is_due
        });
        let dice = self.session().clock.now_ns();
        let chosen = due.min_by_key(|(frame, info, ..)| {
            let turn = if policy == Evict::Random {
                (u64::from(frame.0) ^ dice).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            } else {
                info.closed()
            };
            (info.is_deprioritised(), turn)
        });
        chosen
            .filter(|(_, info, ..)| !info.is_deprioritised() || !waits)
            .map(|(frame, _, word, _)| (frame, word))
    }

    /// Whether the large record at `frame` is kept where it is. If so, it then counts as young
    /// again.
    fn spare_large(
        &self,
        frame: Frame,
        info: &LogSegmentInfo,
        word: StateWord,
        policy: Evict,
    ) -> Result<bool, WriteError> {
        let _pin = self.session().participants.pin()?;
        // Checked again under the pin: until the pin ends the record stays where it is.
        if info.state() != word {
            return Ok(false);
        }
        let record = self.session().mem.record(Loc::of_byte(frame_byte(frame)));
        // The next eviction chooses another segment.
        let record = record.inspect_err(|_| info.deprioritise())?;
        let stays = self.spares(&record, policy);
        if stays {
            info.rejuvenate(self.session().clock.now_ns());
        }
        Ok(stays)
    }

    /// Whether a record that the walk has reached is kept. If so, its marks are lowered.
    pub(crate) fn spares(&self, record: &Record<'_>, policy: Evict) -> bool {
        if record.header().space().is_hidden() {
            // It is evicted with its main.
            return true;
        }
        let kept = policy.kept(record.header().marks());
        if let Some(marks) = kept {
            record.set_marks(marks);
        }
        kept.is_some()
    }

    /// Removes a record because it is the one least worth keeping, if it still is what `expect`
    /// says. Returns its bytes and those of the collection that it led to.
    pub(crate) fn forget(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        expect: Expect<'_>,
        record: &Record<'_>,
    ) -> Result<u64, WriteError> {
        let pin = slot.pin();
        let change = KeyChange {
            expect,
            evicting: true,
            ..KeyChange::removal(root, place, record.key())
        };
        mneme_sys::fault!("evict.chosen");
        let header = self.session().tables.header();
        // The check reports damage there.
        let bytes = record.header().size() + self.bytes_behind(record).unwrap_or(0);
        // Relaxed: statistics.
        match self.records().publish(slot, &pin, &change)? {
            Published::Removed => {
                header.evicted.fetch_add(1, Relaxed);
                header.evicted_bytes.fetch_add(bytes, Relaxed);
            }
            // The record had expired.
            Published::Absent => {
                header.expired.fetch_add(1, Relaxed);
            }
            _ => return Ok(0),
        }
        Ok(bytes)
    }

    /// Bytes of the collection that a record leads to, which a sweep frees once the record is gone.
    /// The caller is pinned.
    fn bytes_behind(&self, record: &Record<'_>) -> Result<u64, ReadError> {
        if !record.header().kind().is_large() || without("evict.bytes") {
            return Ok(0);
        }
        let Some(id) = collection_of(record.value()) else {
            return Ok(0);
        };
        let anchor = self.anchor_now(id)?;
        Ok(anchor.map_or(0, |anchor| anchor.bytes.saturating_add(anchor.tree.bytes)))
    }

    /// The present anchor of a collection. `None`: there is none, or it is damaged. The caller is
    /// pinned.
    pub(crate) fn anchor_now(&self, id: u64) -> Result<Option<Anchor>, ReadError> {
        let Some(root) = self.index().root(KeyspaceId::ANCHORS)? else {
            return Ok(None);
        };
        let key = anchor_key(id);
        let place = self.index().place(&key);
        let segment = self.session().mem.index_segment(root, place)?;
        let found = self.index().find(root, place, segment, &key)?;
        // No thread overwrites the record of an anchor.
        let anchor = found.and_then(|(found, _)| found);
        Ok(anchor.and_then(|found| Anchor::decode(found.record.value(), self.log().most_bytes())))
    }

    /// Removes the worst of samples of records with an expiry: of [`ROUND`] samples, but no more at
    /// once than makes the gain of compaction no longer little. A round is bounded by its work:
    /// bounded by the clock, a thread that seldom gets a processor would remove only one record.
    ///
    /// Samples are drawn at random. If that finds none because few records have an expiry, a walk
    /// follows that continues where the last one ended: one round of it finds all of them.
    fn evict_sampled(&self, slot: &Slot<'_>, policy: Evict) -> Result<Evicted, WriteError> {
        let mut sample = Sample::new();
        let (mut removed, mut bytes, mut few) = (0, 0, false);
        let mut budget = ROUND;
        if self.expiring_records()? == 0 {
            if let Ok(mut walk) = self.expiring_walk.try_lock() {
                walk.forget();
            }
            return Ok(Evicted::Nothing);
        }
        let enough = self.little();
        let is_all = loop {
            let _pin = slot.pin();
            sample.clear();
            if !few {
                self.draw(policy, &mut sample)?;
            }
            budget = budget.saturating_sub(1);
            if sample.is_empty() {
                few = true;
                budget = budget.saturating_sub(STEP_SAMPLES);
                let Ok(mut walk) = self.expiring_walk.try_lock() else {
                    // Another thread is evicting.
                    break false;
                };
                if !self.walk_on(policy, &mut walk, &mut sample)? {
                    break true;
                }
            }
            if let Some(&(_, root, entry)) = sample.iter().min_by_key(|s| s.0) {
                let record = self.session().mem.record(entry.loc())?;
                let place = self.index().place(record.key());
                // Its expiry may be removed in place: it is checked again under the lock.
                let expect = Expect::WithExpiry(entry.loc());
                let gone = self.forget(slot, root, place, expect, &record)?;
                removed += usize::from(gone > 0);
                bytes += gone;
            }
            if budget == 0 || bytes >= enough {
                break false;
            }
        };
        Ok(match (removed, is_all) {
            (1.., _) => Evicted::Some,
            (0, true) => Evicted::Nothing,
            (0, false) => Evicted::Busy,
        })
    }

    /// Records of all databases that have an expiry. The caller is pinned.
    fn expiring_records(&self) -> Result<u64, ReadError> {
        KeyspaceId::all().try_fold(0, |sum, space| Ok(sum + self.index().records_of(space)?.1))
    }

    /// Draws places at random until they hold enough records with an expiry. The caller is pinned.
    fn draw(&self, policy: Evict, sample: &mut Sample) -> Result<(), ReadError> {
        for _ in 0..VAIN {
            if sample.len() >= SAMPLE {
                break;
            }
            // Relaxed: any number will do.
            let dice = self
                .session()
                .tables
                .header()
                .dice
                .fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed)
                .wrapping_mul(0xd134_2543_de82_ef95);
            match self.sample_at(policy, dice ^ dice >> 29, sample) {
                // Others are drawn: damage is reported by the check, or by a walk.
                Ok(()) | Err(ReadError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Continues from bucket to bucket until one has records with an expiry, for a limited number
    /// of buckets. Returns false if it has passed the whole store without finding any, now or a
    /// short time ago. The caller is pinned.
    fn walk_on(
        &self,
        policy: Evict,
        walk: &mut ExpiringWalk,
        sample: &mut Sample,
    ) -> Result<bool, ReadError> {
        let now = self.session().clock.now_ns();
        if now < walk.rests_until_ns {
            return Ok(false);
        }
        if now.saturating_sub(walk.last_ns) > REST_NS {
            walk.forget();
        }
        walk.last_ns = now;
        let root = self.index().root(walk.sweep.space)?;
        let (partitions, at) = (self.index().partitions(), &mut walk.sweep.at);
        let mut budget = STEP;
        while let Some(root) = root
            && !at.is_over(partitions)
            && budget > 0
            && sample.is_empty()
        {
            budget -= 1;
            let before = *at;
            if let Err(error) = self.sample_bucket(root, policy, at, sample) {
                // Damage is reported once in a round: the next walk continues after it.
                if *at == before {
                    self.index().pass_by(root, at);
                }
                return Err(error);
            }
        }
        if root.is_none() || at.is_over(partitions) {
            walk.sweep.next_space();
            walk.ends += u32::from(walk.sweep.is_at_start());
        }
        let took = self.session().clock.now_ns().saturating_sub(now);
        walk.took_ns += took.min(LONG_NS);
        if !sample.is_empty() {
            walk.forget();
        } else if walk.ends >= 2 {
            // It began in the middle, so it has passed the whole store when it reaches an end the
            // second time.
            let rest = walk.took_ns.saturating_mul(10).max(REST_NS);
            walk.rests_until_ns = now.saturating_add(rest);
            walk.forget();
            return Ok(false);
        }
        Ok(true)
    }

    /// Adds the records with an expiry of one bucket, chosen by `dice`. The caller is pinned.
    fn sample_at(&self, policy: Evict, dice: u64, sample: &mut Sample) -> Result<(), ReadError> {
        let used = KeyspaceId::all()
            .map(|space| KeyspaceId::new(space.number().wrapping_add((dice >> 56) as u8)))
            .find_map(|space| self.index().root(space).transpose());
        let Some(root) = used.transpose()? else {
            return Ok(());
        };
        // Not the tag's bits: with those, some places would never be drawn.
        let partition = (dice >> 32) % self.index().partitions();
        let tag = (dice & ((1 << TAG_BITS) - 1)) as u32;
        let place = Place {
            partition: partition as u32,
            tag,
        };
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(());
        };
        // The whole bucket: otherwise its first records would seldom be drawn.
        let mut at = HashOrder::at(partition, u64::from(segment.first_of_home(tag)));
        self.sample_bucket(root, policy, &mut at, sample)
    }

    /// Adds the records with an expiry of the bucket at `at`, and moves `at` to the next one. The
    /// caller is pinned.
    fn sample_bucket(
        &self,
        root: Root,
        policy: Evict,
        at: &mut HashOrder,
        sample: &mut Sample,
    ) -> Result<(), ReadError> {
        let mut damage = Ok(());
        self.index().entries_here(root, at, |entry| {
            match self.session().mem.record(entry.loc()) {
                Ok(record) => {
                    let expires = record.expires();
                    if expires != 0 {
                        sample.push((policy.worth(record.header(), expires), root, entry));
                    }
                }
                Err(corrupt) => damage = Err(corrupt),
            }
        })?;
        Ok(damage?)
    }
}

const _: () = assert!(MOST_MARKS < 8, "three bits");

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;

    use mneme_sys::ManualClock;

    use super::*;
    use crate::records::expiry::Expiry;
    use crate::store::{LogStore, MIN_CAPACITY};

    /// Damage fails at most one of the writes that need an eviction, whichever record that would
    /// evict.
    #[test]
    fn a_damaged_record_does_not_keep_others_from_being_forgotten() {
        for evict in [Evict::Lru, Evict::Random, Evict::ExpiringLru] {
            for (size, records) in [(1_500_000, 30), (20_000, 2_500)] {
                let builder = LogStore::builder().capacity(MIN_CAPACITY).evict(evict);
                let store = builder.maintainer(false).open_private().unwrap();
                let value = vec![1; size];
                let put =
                    |i: u32| store.put_until(&i.to_le_bytes(), &value, Expiry::At(u64::MAX >> 1));
                (0..records).for_each(|i| put(i).unwrap());
                let inner = store.inner();
                let mut closed = inner
                    .log()
                    .segments()
                    .filter(|found| found.3 == State::Closed);
                let header = Loc::of_byte(frame_byte(closed.next().unwrap().0));
                inner.session().mem.word(header).unwrap().store(0, Relaxed);
                let refused = (records..3 * records).filter(|i| put(*i).is_err());
                let refused = refused.count();
                assert!(refused <= 1, "{evict:?}, {size} bytes: {refused} refused");
            }
        }
    }

    /// A walk that finds nothing pauses in proportion to the time that it took, not to the time
    /// during which other threads ran.
    #[test]
    fn a_walk_that_was_left_alone_does_not_rest_for_as_long() {
        let clock = Arc::new(ManualClock::new(1, 1));
        let builder = LogStore::builder()
            .capacity(MIN_CAPACITY)
            .clock(clock.clone());
        let store = builder.maintainer(false).open_private().unwrap();
        for i in 0..100_000u32 {
            store.put(&i.to_le_bytes(), b"v").unwrap();
        }
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        let mut walk = ExpiringWalk::default();
        let mut go_on = || {
            let _pin = slot.pin();
            let goes_on =
                (inner.reclaim()).walk_on(Evict::ExpiringLru, &mut walk, &mut Sample::new());
            (goes_on.unwrap(), walk.rests_until_ns)
        };
        assert!(go_on().0);
        clock.advance_ns(3_600_000_000_000);
        let rests_until = loop {
            if let (false, until) = go_on() {
                break until;
            }
        };
        assert_eq!(rests_until, inner.session().clock.now_ns() + REST_NS);
    }
}
