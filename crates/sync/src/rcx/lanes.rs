//! [`LaneSet`]: a word for each node and stripe of items, and the ways to take several at once.

use crate::atomics::Word;
use crate::lock_word::{self, Attempt, LockState, Owner};
use mneme_sys::{NodeId, Rtm, TransactionAborted};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Items that one call may elect a leader for. A call with more takes no lanes.
pub const LANE_ITEMS: usize = 8;

/// One lane: who leads on one node for one stripe of the items. A cache line of its own; zeroed
/// memory is a free lane.
#[repr(C, align(64))]
pub struct NodeLane<W = AtomicU64> {
    pub(crate) word: W,
}

const _: () = assert!(size_of::<NodeLane>() == 64);

// SAFETY: one atomic word, any value of which is a state of the lane, and padding.
unsafe impl mneme_sys::Shared for NodeLane {}

impl Default for NodeLane {
    fn default() -> NodeLane {
        NodeLane {
            word: AtomicU64::new(0),
        }
    }
}

/// The lanes of one [`Rcx`](super::Rcx): one for each node and stripe, beside the items and not in
/// them.
///
/// Stripes share lanes among items, so their number bounds the memory: 64 bytes a node and stripe.
/// Two items of one stripe are led together, which costs time and is otherwise harmless.
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
        let (nodes, stripes) = (nodes.max(1), stripes.max(1));
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
        let stripes = lanes.len().checked_div(nodes)?;
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
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.stripes
    }

    /// The lanes of these items on a node, ascending, each once. A node that the set was not made
    /// for shares the lanes of another one.
    pub(crate) fn choose(&self, node: NodeId, ids: impl Iterator<Item = u64>) -> Chosen<'_, W> {
        let first = usize::from(node.0) % self.nodes * self.stripes;
        let mut stripes = [usize::MAX; LANE_ITEMS];
        for (place, id) in stripes.iter_mut().zip(ids) {
            *place = self.stripe_of(id);
        }
        stripes.sort_unstable();
        let lanes: &[NodeLane<W>] = &self.lanes;
        let mut chosen = Chosen {
            words: [&lanes[first].word; LANE_ITEMS],
            len: 0,
        };
        for (i, stripe) in stripes.iter().enumerate() {
            if *stripe == usize::MAX {
                break;
            }
            if i == 0 || stripes[i - 1] != *stripe {
                chosen.words[chosen.len] = &lanes[first + stripe].word;
                chosen.len += 1;
            }
        }
        chosen
    }
}

/// The lanes that one call needs.
pub(crate) struct Chosen<'a, W> {
    words: [&'a W; LANE_ITEMS],
    len: usize,
}

impl<'a, W> Chosen<'a, W> {
    pub(crate) fn words(&self) -> &[&'a W] {
        &self.words[..self.len]
    }
}

/// Why an attempt took no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The lane of this number has an owner.
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
}

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
            Strategy::Rtm(rtm) => return transact(*rtm, lanes, me),
        }
        for (i, lane) in lanes.words().iter().enumerate() {
            if let Attempt::Busy(seen) = lock_word::acquire(*lane, me) {
                for taken in lanes.words()[..i].iter().rev() {
                    lock_word::release(*taken);
                }
                return Err(Refused::Busy(i, seen));
            }
            mneme_sys::fault!("sync.rcx.lane");
        }
        Ok(())
    }
}

/// All lanes in one transaction.
fn transact<W: Word>(rtm: Rtm, lanes: &Chosen<'_, W>, me: Owner) -> Result<(), Refused> {
    let take = |lane: &&W| !matches!(lock_word::acquire(*lane, me), Attempt::Busy(_));
    match rtm.run(|| lanes.words().iter().all(take)) {
        Ok(()) => Ok(()),
        Err(TransactionAborted::Capacity) => Err(Refused::Capacity),
        Err(TransactionAborted::Conflict) => Err(Refused::Conflict),
        Err(TransactionAborted::ByBody) => {
            // What the transaction saw is undone too: which lane is busy is looked up again.
            let states = lanes.words().iter().map(|lane| lock_word::look(*lane));
            let busy = states
                .enumerate()
                .find(|(_, state)| state.owner().is_some());
            Err(busy.map_or(Refused::Conflict, |(i, state)| Refused::Busy(i, state)))
        }
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Strategy::OrderedCas => "OrderedCas",
            Strategy::Scripted(_) => "Scripted",
            Strategy::Rtm(_) => "Rtm",
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
            let mut addresses: Vec<_> = chosen.words().iter().map(|w| *w as *const _).collect();
            assert!(addresses.is_sorted());
            addresses.dedup();
            assert_eq!(addresses.len(), chosen.words().len());
            let mut stripes: Vec<_> = (0..8).map(|id| lanes.stripe_of(id)).collect();
            stripes.sort_unstable();
            stripes.dedup();
            assert_eq!(addresses.len(), stripes.len());
        }
        let of = |node| {
            let chosen = lanes.choose(NodeId(node), [7].into_iter());
            std::ptr::from_ref(chosen.words()[0])
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
}
