//! [`LaneSet`]: a word for each node and stripe of items, and the ways to take several at once.

use mneme_sync::Word;
use mneme_sync::lock_word::{self, Attempt, LockState, Owner};
use mneme_sys::{NodeId, Rtm, TransactionAborted};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a thread tries to become its node's leader. A few hand-overs between nodes: a thread
/// that has waited that long may as well compete for the items.
pub const LANE_TIMEOUT: Duration = Duration::from_micros(50);

/// Items that one call may elect a leader for. A call with more takes no lanes.
pub const LANE_ITEMS: usize = 8;

/// Stripes of a node at most: a set of them is a word.
pub(crate) const MOST_STRIPES: usize = 64;

/// One lane: who leads on one node for one stripe of the items. A cache line of its own; zeroed
/// memory is a free lane.
#[repr(C, align(64))]
pub struct NodeLane<W = AtomicU64> {
    word: W,
    /// Counted here, in a line of this node, and not in one that all nodes want.
    elections: AtomicU64,
    bypasses: AtomicU64,
    _rest: [AtomicU64; 5],
}

const _: () = assert!(size_of::<NodeLane>() == 8 * size_of::<AtomicU64>());

// SAFETY: `repr(C)`, atomics only, no padding (the assertion above counts the words), no drop.
unsafe impl mneme_sys::InRegion for NodeLane {}

impl<W> NodeLane<W> {
    /// A lane whose word, which is zero, lies here.
    pub(crate) fn new(word: W) -> NodeLane<W> {
        NodeLane {
            word,
            elections: AtomicU64::new(0),
            bypasses: AtomicU64::new(0),
            _rest: Default::default(),
        }
    }
}

impl Default for NodeLane {
    fn default() -> NodeLane {
        NodeLane::new(AtomicU64::new(0))
    }
}

/// The lanes of one [`Rcx`](super::Rcx): one for each node and stripe, beside the items and not in
/// them.
///
/// Stripes share lanes among items, so their number bounds the memory: 64 bytes a node and stripe.
/// There are 64 stripes at most. Two items of one stripe are led together, which costs time and is
/// otherwise harmless.
#[derive(Debug)]
pub struct LaneSet<S = Box<[NodeLane]>> {
    lanes: S,
    nodes: usize,
    stripes: usize,
}

impl LaneSet {
    /// Lanes of this process, at least one node and one stripe.
    #[must_use]
    pub fn new(nodes: usize, stripes: usize) -> LaneSet {
        let (nodes, stripes) = (nodes.max(1), stripes.clamp(1, MOST_STRIPES));
        LaneSet {
            lanes: (0..nodes * stripes).map(|_| NodeLane::default()).collect(),
            nodes,
            stripes,
        }
    }
}

impl<W, S: Deref<Target = [NodeLane<W>]>> LaneSet<S> {
    /// Lanes that lie elsewhere: zeroed memory that several processes share, for instance, all of
    /// which name the same number of nodes. `None`: there are fewer lanes than nodes, or no nodes.
    pub fn over(lanes: S, nodes: usize) -> Option<LaneSet<S>> {
        let stripes = lanes.len().checked_div(nodes)?.min(MOST_STRIPES);
        (stripes > 0).then_some(LaneSet {
            lanes,
            nodes,
            stripes,
        })
    }

    /// The stripe of an item.
    #[must_use]
    pub fn stripe_of(&self, id: u64) -> usize {
        // Neighbouring ids lie on different stripes.
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.stripes as u64) >> 32) as usize
    }

    /// The lanes of a node. One that the set was not made for shares those of another one.
    fn of(&self, node: NodeId) -> &[NodeLane<W>] {
        let first = self.first_of(node);
        &self.lanes[first..first + self.stripes]
    }

    /// The place of a node's first lane among all.
    pub(crate) fn first_of(&self, node: NodeId) -> usize {
        usize::from(node.0) % self.nodes * self.stripes
    }

    /// The lanes of these items on a node, each once.
    pub(crate) fn choose(&self, node: NodeId, ids: impl Iterator<Item = u64>) -> Chosen<'_, W> {
        let chosen = ids.fold(0, |chosen, id| chosen | 1 << self.stripe_of(id));
        Chosen {
            lanes: self.of(node),
            stripes: Stripes(chosen),
        }
    }

    /// Counts a call that went to its items without lanes.
    pub(crate) fn count_bypass(&self, node: NodeId) {
        self.of(node)[0].bypasses.fetch_add(1, Relaxed);
    }

    /// Elections and bypasses so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.lanes
            .iter()
            .fold((0, 0), |(elections, bypasses), lane| {
                let more = (lane.elections.load(Relaxed), lane.bypasses.load(Relaxed));
                (elections + more.0, bypasses + more.1)
            })
    }
}

/// Numbers of stripes, ascending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripes(u64);

impl Iterator for Stripes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros();
        self.0 &= self.0.checked_sub(1)?;
        Some(first as usize)
    }
}

impl DoubleEndedIterator for Stripes {
    #[inline]
    fn next_back(&mut self) -> Option<usize> {
        let last = self.0.checked_ilog2()?;
        self.0 ^= 1 << last;
        Some(last as usize)
    }
}

/// The lanes that one call needs.
pub(crate) struct Chosen<'a, W> {
    /// All of the node.
    lanes: &'a [NodeLane<W>],
    stripes: Stripes,
}

impl<'a, W> Chosen<'a, W> {
    pub(crate) fn stripes(&self) -> Stripes {
        self.stripes
    }

    pub(crate) fn word(&self, stripe: usize) -> &'a W {
        &self.lanes[stripe].word
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &'a W> {
        self.stripes.map(|stripe| self.word(stripe))
    }

    /// Counts that they were had, by the one that has them: no other writes that count.
    pub(crate) fn count_election(&self) {
        if let Some(first) = self.stripes().next() {
            let elections = &self.lanes[first].elections;
            elections.store(elections.load(Relaxed) + 1, Relaxed);
        }
    }
}

/// Why an attempt took no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The lane of this stripe has an owner.
    Busy(usize, LockState),
    /// A transaction met another one.
    Conflict,
    /// A transaction did not fit; it never will.
    Capacity,
}

/// Why a transaction aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// It met another one. The next try may succeed.
    Conflict,
    /// It did not fit. No try will succeed.
    Capacity,
}

/// How several lanes are taken at once: all of them or none.
///
/// Whatever it does, updates go on: after a bounded time the item locks are taken without lanes.
#[derive(Clone, Default)]
pub enum Strategy {
    /// One compare-and-exchange after the other, in ascending order; those taken are released if
    /// one is busy.
    #[default]
    OrderedCas,
    /// As [`OrderedCas`](Self::OrderedCas), but an attempt, of that number in its call, may be
    /// made to abort as a hardware transaction would. For tests and simulations.
    Scripted(Script),
    /// All of them as one hardware transaction. Where no transaction commits there is no [`Rtm`] to
    /// make it of. Written after the manual and never run, see there.
    Rtm(Rtm),
    /// As [`Rtm`](Self::Rtm), in transactions of a simulated machine.
    #[cfg(feature = "simulate")]
    Simulated(Transactions),
}

/// What runs a body as a transaction: all of its stores take place, or none.
#[cfg(feature = "simulate")]
pub type Transactions =
    Arc<dyn Fn(&mut dyn FnMut() -> bool) -> Result<(), TransactionAborted> + Send + Sync>;

/// What [`Strategy::Scripted`] asks before each attempt.
pub type Script = Arc<dyn Fn(u64) -> Option<Abort> + Send + Sync>;

impl Strategy {
    pub(crate) fn try_acquire_all<W: Word>(
        &self,
        lanes: &Chosen<'_, W>,
        me: Owner,
        attempt: u64,
    ) -> Result<(), Refused> {
        match self {
            Strategy::OrderedCas => {}
            Strategy::Scripted(script) => match script(attempt) {
                Some(Abort::Conflict) => return Err(Refused::Conflict),
                Some(Abort::Capacity) => return Err(Refused::Capacity),
                None => {}
            },
            Strategy::Rtm(rtm) => return transact(|body| rtm.run(body), lanes, me),
            #[cfg(feature = "simulate")]
            Strategy::Simulated(run) => return transact(|body| run(body), lanes, me),
        }
        for stripe in lanes.stripes() {
            if let Attempt::Busy(seen) = lock_word::acquire(lanes.word(stripe), me) {
                for taken in lanes.stripes().rev().filter(|taken| *taken < stripe) {
                    lock_word::release(lanes.word(taken));
                }
                return Err(Refused::Busy(stripe, seen));
            }
            mneme_sys::fault!("rcx.update.lane");
        }
        Ok(())
    }
}

/// All lanes in one transaction.
fn transact<W: Word>(
    run: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), TransactionAborted>,
    lanes: &Chosen<'_, W>,
    me: Owner,
) -> Result<(), Refused> {
    let take = |lane: &W| !matches!(lock_word::acquire(lane, me), Attempt::Busy(_));
    match run(&mut || lanes.words().all(take)) {
        Ok(()) => Ok(()),
        Err(TransactionAborted::Capacity) => Err(Refused::Capacity),
        Err(TransactionAborted::Conflict) => Err(Refused::Conflict),
        Err(TransactionAborted::ByBody) => {
            // What the transaction saw is undone too: which lane is busy is looked up again.
            let look = |stripe| (stripe, lock_word::look(lanes.word(stripe)));
            let mut states = lanes.stripes().map(look);
            let busy = states.find(|(_, state)| state.owner().is_some());
            Err(busy.map_or(Refused::Conflict, |(stripe, state)| {
                Refused::Busy(stripe, state)
            }))
        }
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Strategy::OrderedCas => "OrderedCas",
            Strategy::Scripted(_) => "Scripted",
            Strategy::Rtm(_) => "Rtm",
            #[cfg(feature = "simulate")]
            Strategy::Simulated(_) => "Simulated",
        })
    }
}

impl std::fmt::Debug for NodeLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let owner = lock_word::look(&self.word).owner();
        f.debug_tuple("NodeLane")
            .field(&owner.map(|owner| owner.slot))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_one_stripe_take_its_lane_once_and_lanes_ascend() {
        let lanes = LaneSet::new(3, 4);
        for node in 0..5_u16 {
            let chosen = lanes.choose(NodeId(node), 0..8);
            let mut stripes: Vec<_> = (0..8).map(|id| lanes.stripe_of(id)).collect();
            stripes.sort_unstable();
            stripes.dedup();
            assert_eq!(chosen.stripes().collect::<Vec<_>>(), stripes);
            assert!(chosen.words().map(std::ptr::from_ref).is_sorted());
            let downwards: Vec<_> = chosen.stripes().rev().collect();
            assert!(downwards.iter().eq(stripes.iter().rev()));
        }
        let of = |node| {
            let chosen = lanes.choose(NodeId(node), [7].into_iter());
            chosen.words().next().map(std::ptr::from_ref)
        };
        assert_ne!(of(0), of(1));
        assert_eq!(of(1), of(4), "a node more than there are lanes for");
    }

    #[test]
    fn no_lanes_are_made_of_too_little_memory() {
        let three = || (0..3).map(|_| NodeLane::default()).collect::<Vec<_>>();
        assert!(LaneSet::over(three(), 4).is_none());
        assert!(LaneSet::over(three(), 0).is_none());
        assert_eq!(LaneSet::over(three(), 2).unwrap().stripes, 1);
    }

    #[test]
    fn lanes_beyond_the_most_that_a_node_may_have_are_not_used() {
        let lanes = LaneSet::new(2, 1000);
        assert_eq!(lanes.lanes.len(), 2 * MOST_STRIPES);
        let lanes = (0..1000).map(|_| NodeLane::default()).collect::<Vec<_>>();
        let lanes = LaneSet::over(lanes, 2).unwrap();
        let all = lanes.choose(NodeId(1), 0..10_000);
        assert!(all.stripes().eq(0..MOST_STRIPES));
    }
}
