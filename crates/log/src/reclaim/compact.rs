//! Compaction: moving the live records out of a log segment, which frees its memory in one piece.
//!
//! A victim is the closed segment of greatest benefit, `(1 - u) * age / (1 + u)` at utilisation `u`
//! (Nibble §3.2), among those whose grace period is over: every record in it was published or
//! abandoned. Its records are walked from header to header. A record is live if the index of its
//! database names exactly its location. Live ones are copied to a survivors' head. *Then* the
//! bucket is locked, and the entry compared again and swapped. If a compactor loses the race to a
//! writer, its copy is dead. Readers never block this: the old bytes stay until the last of them
//! has unpinned.
//!
//! The age is the time since the segment was closed. (The paper's source uses the age of the data.
//! Then data that never changes becomes ever more attractive, and is moved again and again for
//! little gain: under zipfian load at 0.90 live that cost four tenths of the throughput.) The
//! data's age decides between a worker's two heads, one for young and one for old records, so that
//! data that seldom changes is kept apart from data that changes often.
//!
//! Work is divided by node. Each node has its own list of candidates. Survivors stay on their node
//! unless another node is much emptier. In that case they move there, so that writers find free
//! space on their own node again. Any thread may compact. The number of workers' heads limits how
//! many do so at once.

use std::sync::{MutexGuard, PoisonError};

use mneme_arena::{ArenaStats, Class, FRAME_BYTES, Frame};
use mneme_sync::Slot;
use mneme_sys::NodeId;

use crate::error::WriteError;
use crate::log::head::{Claim, END_SHARE, HeldHeads};
use crate::log::segment::{State, StateWord, frame_byte};
use crate::reclaim::Reclaim;
use crate::reclaim::evict::Cull;
use crate::reclaim::gaps::free_within;
use crate::reclaim::survivors::Walk;
use crate::region::layout::{Head, LogSegmentInfo};
use crate::region::mem::Loc;
use crate::region::record::Header;

/// One in this many closed segments becomes a candidate at a time. That is few enough that the
/// order in which they were found is still nearly right when the last of them is taken.
const CANDIDATE_SHARE: usize = 16;
/// Victims that are moved between two checks for what can be freed: a grace period costs a barrier.
const BATCH: usize = 4;
/// Bulk records may be moved for a writer that finds no other space if their share of their log
/// segment's bytes is at most one in this number.
const BULK_LIVE: u64 = 2;
/// Another node is much emptier if its free share is this much larger.
const MUCH: f64 = 0.25;

/// Victims of one node, the best last, as this process has found them.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    victims: Vec<(Frame, StateWord)>,
    /// Mean time of birth of the node's closed segments when they were last examined.
    born: u64,
}

/// A victim whose records are moved bit by bit by the thread that claimed it. Between two such
/// steps the thread holds no worker.
#[derive(Debug)]
pub(crate) struct Victim {
    frame: Frame,
    claimed: StateWord,
    old: bool,
    to: NodeId,
    /// The offset up to which its records have been moved.
    at: u64,
}

/// How far a victim was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// All of it: it is condemned.
    All,
    /// A part: the caller's time ran out.
    Part,
    /// Nothing: no worker was idle.
    NoWorker,
    /// There was no space for the rest: it is closed again.
    NoSpace,
}

/// The destination of survivors: a head that the caller holds, and the node on which its segments
/// are claimed.
pub(crate) struct CompactionTarget<'h> {
    pub head: &'h Head,
    pub claim: Claim,
}

impl Reclaim {
    /// Moves one victim's records, on the calling thread's node if there is a victim there, or
    /// finds lost large records. Returns false if no victim is worth it, or none is available now.
    pub(crate) fn compact(&self, slot: &Slot<'_>) -> Result<bool, WriteError> {
        // Done first: a segment whose large record is lost need not be counted again.
        let found = self.condemn_lost(slot) > 0;
        for &node in (self.log().arena).nodes_from(self.session().topology.current_node()) {
            if self.compact_node(slot, NodeId(node))? {
                return Ok(true);
            }
        }
        Ok(found)
    }

    /// Moves the records of up to a batch of `node`'s victims. Returns how many victims.
    pub(crate) fn compact_batch(&self, slot: &Slot<'_>, node: NodeId) -> Result<usize, WriteError> {
        let mut moved = 0;
        while moved < BATCH && self.compact_node(slot, node)? {
            moved += 1;
            let stats = self.log().arena.stats();
            if stats.free <= stats.reserved {
                // Writers that wait for free space get these frames at once.
                break;
            }
        }
        Ok(moved)
    }

    /// Moves the records of one victim on `node`.
    fn compact_node(&self, slot: &Slot<'_>, node: NodeId) -> Result<bool, WriteError> {
        let to = self.destination(node);
        let Some((first, _worker)) = self.hold_worker(slot, to) else {
            return Ok(false);
        };
        let Some((frame, word, old)) = self.claim_victim(slot, node, to) else {
            return Ok(false);
        };
        mneme_sys::fault!("compact.claimed");
        if !self.is_worth_moving(self.session().tables.info(frame), word, node != to) {
            return self.count_again(slot, frame).map(|()| true);
        }
        let lane = self.lane(
            first + u64::from(old) % self.session().tables.geometry.ages(),
            to,
        );
        self.compact_victim(slot, &lane, frame, word, None)
    }

    /// Claims the best victim on `node`, to be moved by [`move_part`](Self::move_part).
    pub(crate) fn take_victim(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
    ) -> Result<Option<Victim>, WriteError> {
        while let Some((frame, claimed, old)) = self.claim_victim(slot, node, node) {
            mneme_sys::fault!("compact.claimed");
            if self.is_worth_moving(self.session().tables.info(frame), claimed, false) {
                return Ok(Some(Victim {
                    frame,
                    claimed,
                    old,
                    to: node,
                    at: 0,
                }));
            }
            self.count_again(slot, frame)?;
        }
        Ok(None)
    }

    /// Continues to move a victim's records while `goes_on`. After [`Moved::All`],
    /// [`Moved::NoSpace`], or an error, the caller no longer has the victim.
    pub(crate) fn move_part(
        &self,
        slot: &Slot<'_>,
        victim: &mut Victim,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Moved, WriteError> {
        let Some((first, _worker)) = self.hold_worker(slot, victim.to) else {
            return Ok(Moved::NoWorker);
        };
        let head = first + u64::from(victim.old) % self.session().tables.geometry.ages();
        let (lane, frame) = (self.lane(head, victim.to), victim.frame);
        let mut rest = victim.at..u64::MAX;
        let walk = self.move_records_from(slot, &lane, frame, &mut rest, None, goes_on);
        victim.at = rest.start;
        if let Ok(Walk::Paused) = walk {
            return Ok(Moved::Part);
        }
        self.end_walk(frame, victim.claimed, walk)
            .map(|all| match all {
                true => Moved::All,
                false => Moved::NoSpace,
            })
    }

    /// Gives a victim up: it is closed again, as before it was claimed.
    pub(crate) fn leave_victim(&self, victim: &Victim) {
        let info = self.session().tables.info(victim.frame);
        info.step(|state| (state == State::Compacting).then_some(State::Closed));
    }

    /// Whether the records of a victim are moved, to another node if `leave`. A victim that is only
    /// suspect, or begins with a large record, is counted again instead. The free space between
    /// bulk records can be reused, so these are moved only from segments that have few of them.
    fn is_worth_moving(&self, info: &LogSegmentInfo, word: StateWord, leave: bool) -> bool {
        !stays(info, word) && (leave || gain(info, self.log().segment_bytes()).is_some())
    }

    /// Moves the bulk records of the log segment whose emptying costs the fewest bytes, if gaps of
    /// other segments have space for them. That frees frames for a record of `wanted` bytes,
    /// usually one that fits no gap. Returns false if no segment yields any.
    pub(crate) fn compact_bulk(&self, slot: &Slot<'_>, wanted: u64) -> Result<bool, WriteError> {
        let needed = match self.log().is_bulk(wanted) {
            true => wanted,
            false => 0,
        };
        let (mut all, mut free) = (Vec::new(), 0);
        for (frame, info, word, state) in self.log().segments() {
            if state != State::Closed || !word.bulk() || info.is_deprioritised() {
                continue;
            }
            free += free_within(info);
            if info.capacity() >= needed
                && gain(info, self.log().segment_bytes()).is_some()
                && self.log().grace_over(info)
            {
                all.push((info.live(), info.capacity(), frame, word));
            }
        }
        // The moved records must find places in the others.
        let fits = all
            .into_iter()
            .filter(|(_, capacity, ..)| *capacity <= free);
        let cheapest = fits.min_by_key(|(live, capacity, ..)| live * 1000 / capacity.max(&1));
        let Some((.., frame, word)) = cheapest else {
            return Ok(false);
        };
        self.compact_this(slot, frame, word)
    }

    /// Moves a large record with much dead or unused space after it, and the live records there. It
    /// is the last resort of a writer that finds no other space for a record of `wanted` bytes.
    /// Returns false if no large record would yield any.
    pub(crate) fn compact_large(&self, slot: &Slot<'_>, wanted: u64) -> Result<bool, WriteError> {
        let log = self.log();
        // The gain is the rest of the extent to which the large record moves; this CPU's head gets
        // it. If the head had as much before, large records would move one after the other for no
        // gain.
        let needed = (2 * log.left_at_head()?).max(wanted);
        if log.is_large(wanted) {
            return Ok(false);
        }
        let most = log
            .segments()
            .filter(|(_, info, word, state)| {
                *state == State::Closed && word.large() && log.grace_over(info)
            })
            .filter_map(|(frame, info, word, _)| {
                let gain = large_gain(info, log.segment_bytes())?;
                let _pin = slot.pin();
                // Checked again under the pin: until the pin ends, the record's frames are not
                // freed, so their memory is not given back to the machine.
                if info.state() != word {
                    return None;
                }
                let large = self
                    .session()
                    .mem
                    .record(Loc::of_byte(frame_byte(frame)))
                    .ok()?;
                let bytes = large.header().size();
                if bytes.next_multiple_of(FRAME_BYTES) - bytes <= needed {
                    return None;
                }
                // The gain for each byte that must be copied.
                Some((gain as f64 / info.live().max(1) as f64, frame, word))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, frame, word)) = most else {
            return Ok(false);
        };
        self.compact_this(slot, frame, word)
    }

    /// Moves the live records of the closed segment at `frame`, whose grace period is over,
    /// whatever the gain. Returns false if the segment is no longer closed, or there is no free
    /// space.
    pub(crate) fn compact_this(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        word: StateWord,
    ) -> Result<bool, WriteError> {
        let node = self.log().arena.node_of(frame);
        let Some((first, _worker)) = self.hold_worker(slot, node) else {
            return Ok(false);
        };
        let claimed = word.to(State::Compacting, Some(slot.id()));
        if !self.session().tables.info(frame).change(word, claimed) {
            return Ok(false);
        }
        mneme_sys::fault!("compact.large.claimed");
        self.compact_victim(slot, &self.lane(first, node), frame, claimed, None)
    }

    /// Reserves space for a record of a transaction that frees at least as much as it writes, and
    /// writes its header. The space is after the survivors in a compaction worker's head, where no
    /// other writer uses it, and in the frames that are reserved for compaction. A log segment for
    /// each worker stays free, so that compaction can continue. `None`: there is no such space, or
    /// no idle worker. The caller is pinned.
    pub(crate) fn reserve_for_removal(
        &self,
        slot: &Slot<'_>,
        header: Header,
    ) -> Result<Option<Loc>, WriteError> {
        let (size, node) = (header.size(), self.session().topology.current_node());
        if self.log().is_bulk(size) {
            return Ok(None);
        }
        let Some((first, _worker)) = self.hold_worker(slot, node) else {
            return Ok(None);
        };
        let (lane, geometry) = (self.lane(first, node), &self.session().tables.geometry);
        let kept = (geometry.workers() + 1) * geometry.segment_frames;
        if u64::from(self.log().arena.stats().free) < kept
            && !self.log().has_space(lane.head, size)?
        {
            return Ok(None);
        }
        let segment = (self.log()).segment_for(slot, lane.head, size, || lane.claim)?;
        let Some((frame, info)) = segment else {
            return Ok(None);
        };
        let mut loc = Loc::of_byte(0);
        let reserved = std::slice::from_mut(&mut loc);
        let done = info.append(&self.session().mem, frame, &[header], reserved, || {
            mneme_sys::fault!("log.reserve.header")
        })?;
        mneme_sys::fault!("log.reserve.bump");
        Ok((done > 0).then_some(loc))
    }

    /// The first head of an idle worker on `node`, and the lock by which the caller holds it and
    /// the worker's other heads.
    pub(crate) fn hold_worker<'s>(
        &'s self,
        slot: &Slot<'s>,
        node: NodeId,
    ) -> Option<(u64, HeldHeads<'s>)> {
        for worker in self.workers_of(node) {
            let heads = self.log().heads_of_worker(worker);
            let first = heads.start;
            let Some(held) = self.session().tables.head(first).lock.try_lock(slot) else {
                continue;
            };
            let heads = heads.map(|head| self.session().tables.head(head));
            return Some((first, self.log().inherit_heads(heads, held)));
        }
        None
    }

    pub(crate) fn lane(&self, head: u64, node: NodeId) -> CompactionTarget<'_> {
        CompactionTarget {
            head: self.session().tables.head(head),
            claim: Claim {
                class: Class::Reserved,
                node,
            },
        }
    }

    /// The workers whose heads are on `node`. If there are more nodes than workers, nodes share
    /// workers.
    pub(crate) fn workers_of(&self, node: NodeId) -> impl Iterator<Item = u64> {
        let (workers, node) = (self.session().tables.geometry.workers(), u64::from(node.0));
        let nodes = u64::from(self.log().arena.nodes());
        (node % workers..workers).step_by(nodes as usize)
    }

    /// The node to which the survivors of `node` go: `node` itself, or, if it is short of free
    /// frames, one that is much emptier.
    fn destination(&self, node: NodeId) -> NodeId {
        if self.log().arena.nodes() < 2 {
            return node;
        }
        let stats = self.log().arena.stats();
        if !self.is_short(&stats, node) {
            return node;
        }
        let share = |node: &NodeId| {
            let on = stats.nodes.get(usize::from(node.0));
            on.map_or(0.0, |n| f64::from(n.free) / f64::from(n.frames.max(1)))
        };
        (0..self.log().arena.nodes())
            .map(NodeId)
            .max_by(|a, b| share(a).total_cmp(&share(b)))
            .filter(|emptiest| share(emptiest) > share(&node) + MUCH)
            .unwrap_or(node)
    }

    fn candidates(&self, node: NodeId) -> MutexGuard<'_, Candidates> {
        // There is a list for every node of the arena. A list stays valid even if a thread panics.
        let i = usize::from(node.0) % self.candidates.len();
        self.candidates[i]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the closed segment of greatest benefit on `node`. Also returns whether its records
    /// are old.
    fn claim_victim(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        to: NodeId,
    ) -> Option<(Frame, StateWord, bool)> {
        let mut looked = false;
        loop {
            let (next, mean) = {
                let mut candidates = self.candidates(node);
                if candidates.victims.is_empty() {
                    if looked {
                        return None;
                    }
                    looked = true;
                    self.look_for_victims(node, node != to, &mut candidates);
                }
                (candidates.victims.pop()?, candidates.born)
            };
            let (frame, word) = next;
            let info = self.session().tables.info(frame);
            let is_worth = || self.is_worth_moving(info, word, node != to);
            // The segment is in another life, or is no longer worth a copy.
            if info.state() != word || !(is_worth() || info.is_suspect()) {
                continue;
            }
            mneme_sys::fault!("compact.chosen");
            let claimed = word.to(State::Compacting, Some(slot.id()));
            if info.change(word, claimed) {
                return Some((frame, claimed, info.born() < mean));
            }
        }
    }

    /// Examines all closed segments of `node`, and keeps the best. If their records leave the node,
    /// all of their memory counts as a gain.
    fn look_for_victims(&self, node: NodeId, leave: bool, found: &mut Candidates) {
        let now = self.session().clock.now_ns();
        let mut all: Vec<(f64, Frame, StateWord)> = Vec::new();
        let (mut closed, mut born) = (0u64, 0u128);
        for (frame, info, word, state) in self.log().segments() {
            if state != State::Closed || self.log().arena.node_of(frame) != node {
                continue;
            }
            let benefit = if word.large() {
                None
            } else {
                closed += 1;
                born += u128::from(info.born());
                let is_worth = self.is_worth_moving(info, word, leave);
                is_worth
                    .then(|| benefit(info, self.log().segment_bytes(), now, leave))
                    .flatten()
            };
            // Suspect segments come last: no gain is known there. Large ones are only counted
            // again.
            let benefit = benefit.or(info.is_suspect().then_some(0.0));
            if let Some(benefit) = benefit
                && self.log().grace_over(info)
            {
                all.push((benefit, frame, word));
            }
        }
        let keep = (all.len() / CANDIDATE_SHARE).max(1).min(all.len());
        if keep < all.len() {
            all.select_nth_unstable_by(keep, |a, b| b.0.total_cmp(&a.0));
            all.truncate(keep);
        }
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        found.victims.clear();
        found
            .victims
            .extend(all.into_iter().map(|(_, frame, word)| (frame, word)));
        found.born = (born / u128::from(closed.max(1))) as u64;
    }

    /// Walks a claimed victim. Condemns it if it is empty afterwards, otherwise closes it again.
    pub(crate) fn compact_victim(
        &self,
        slot: &Slot<'_>,
        to: &CompactionTarget<'_>,
        frame: Frame,
        claimed: StateWord,
        evict: Option<&mut Cull>,
    ) -> Result<bool, WriteError> {
        let walk = self.move_records(slot, to, frame, 0..u64::MAX, evict);
        self.end_walk(frame, claimed, walk)
    }

    fn end_walk(
        &self,
        frame: Frame,
        claimed: StateWord,
        walk: Result<Walk, WriteError>,
    ) -> Result<bool, WriteError> {
        let info = self.session().tables.info(frame);
        // A large record in front may have died meanwhile, which changes the state word.
        if let Ok(Walk::Empty) = walk {
            mneme_sys::fault!("compact.moved");
            loop {
                let now = info.state();
                if now.ordinary() != claimed.ordinary() || self.log().condemn(frame, now) {
                    break;
                }
            }
            mneme_sys::fault!("compact.condemned");
            return Ok(true);
        }
        if let Err(WriteError::Corrupt(_)) = walk {
            info.deprioritise();
            info.trust();
        }
        info.step(|state| (state == State::Compacting).then_some(State::Closed));
        walk.map(|_| false)
    }

    /// Whether compaction is due: fewer free frames than a few segments beyond the reserve.
    pub(crate) fn wants_compaction(&self) -> bool {
        let stats = self.log().arena.stats();
        u64::from(stats.free) < self.ahead(&stats)
    }

    /// As [`wants_compaction`](Self::wants_compaction), for the frames of one node.
    pub(crate) fn node_wants_compaction(&self, node: NodeId) -> bool {
        let stats = self.log().arena.stats();
        // If the store as a whole has free space, records only move from this node to another.
        self.is_short(&stats, node)
            && (u64::from(stats.free) < self.ahead(&stats) || self.destination(node) != node)
    }

    fn is_short(&self, stats: &ArenaStats, node: NodeId) -> bool {
        let frames = u64::from(stats.frames.max(1));
        let on = stats.nodes.get(usize::from(node.0));
        on.is_some_and(|on| u64::from(on.free) * frames < self.ahead(stats) * u64::from(on.frames))
    }

    /// Free frames that compaction keeps available.
    fn ahead(&self, stats: &ArenaStats) -> u64 {
        let few = 2 * self.session().tables.geometry.segment_frames;
        let frames = stats.frames.saturating_sub(self.log().arena.withheld());
        u64::from(stats.reserved) + (u64::from(frames) / 32).max(few)
    }
}

/// Whether the records of a segment stay where they are, however much of it is stale: see
/// `is_worth_moving`.
pub(crate) fn stays(info: &LogSegmentInfo, word: StateWord) -> bool {
    let many = || info.live() > info.capacity() / BULK_LIVE || info.is_deprioritised();
    word.large() || (word.bulk() && many())
}

/// How attractive a closed segment is as a victim (Nibble §3.2); `None` if a copy would gain
/// nothing.
fn benefit(info: &LogSegmentInfo, segment_bytes: u64, now: u64, leave: bool) -> Option<f64> {
    let gained = gain(info, segment_bytes);
    let u = match gained {
        Some(gain) => 1.0 - gain as f64 / info.capacity() as f64,
        None if leave => 1.0,
        None => return None,
    };
    let won = if leave { 1.0 } else { 1.0 - u };
    let age = now.saturating_sub(info.closed()) as f64 + 1.0;
    Some(won * age / (1.0 + u))
}

/// Bytes gained by compacting a closed segment, if they are worth a copy of the live ones.
///
/// An unused end counts only if it is longer than an ordinary closing leaves: the segment of the
/// copies would have as long an unused end.
pub(crate) fn gain(info: &LogSegmentInfo, segment_bytes: u64) -> Option<u64> {
    // A segment whose lengths are damaged is not moved.
    let used = info.written()?;
    let capacity = info.capacity().max(used);
    let tail = capacity - used;
    let gain = used - info.live().min(used)
        + if tail > segment_bytes / END_SHARE {
            tail
        } else {
            0
        };
    (gain >= capacity / 256).then_some(gain)
}

/// Bytes gained by moving the large record in front of a closed segment, if they are enough for a
/// log segment of small records.
pub(crate) fn large_gain(info: &LogSegmentInfo, segment_bytes: u64) -> Option<u64> {
    let gain = info.capacity().saturating_sub(info.live());
    (gain > segment_bytes / END_SHARE && gain > info.capacity() / 8).then_some(gain)
}
