//! [`Rcx`]: the update side of read-copy-update, for machines with several NUMA nodes.
//!
//! **While an [`RcxGuard`] lives, no other thread of any participant holds one of its items.**
//! Readers never see any of it: they pin, follow links, and unpin.
//!
//! A lock word that threads of several nodes want at once wanders between the nodes' caches, and
//! each hand-over costs as much as many updates. Here the threads of a node first elect a *leader*
//! for the items, by words that only this node touches (*lanes*). Then the leaders, at most one a
//! node, compete for the items' own locks.
//!
//! # When to use which
//!
//! | structure | take |
//! |---|---|
//! | one value, read all the time, replaced now and then | [`Rcu`](mneme_sync::Rcu) |
//! | updates that touch one place, rarely the same one | a [`RobustLock`](mneme_sync::RobustLock) each |
//! | linked items, updates that lock several, hot ones among them, several nodes | `Rcx` |
//! | one node only | `Rcx` takes no lanes there and is a way to lock several items in order |
//!
//! # Usage
//!
//! An update finds its items under a pin, locks them, *reads again* whether they are still what it
//! found, changes them, and retires what it has unlinked.
//!
//! ```
//! use mneme_rcx::{Item, Rcx};
//! use mneme_sync::{ControlOptions, Participants, RobustLock};
//! use mneme_sys::SyntheticTopology;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! struct Account {
//!     lock: RobustLock,
//!     balance: AtomicU64,
//! }
//! let account = |n| Account { lock: RobustLock::new(), balance: AtomicU64::new(n) };
//! let accounts = [account(100), account(0)];
//!
//! let participants = Participants::private(ControlOptions::new([7; 16]))?;
//! let rcx = Rcx::new(&participants, Arc::new(SyntheticTopology::new(2, 2)));
//! // In any order: they are locked by their ids.
//! let guard = rcx.lock([Item::new(1, &accounts[1].lock), Item::new(0, &accounts[0].lock)])?;
//! assert!(!guard.owner_died());
//! accounts[0].balance.store(60, Relaxed);
//! accounts[1].balance.store(40, Relaxed);
//! # drop(guard);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - *Exclusion* is the item locks' alone. A lane that is lost, stuck or taken twice costs time.
//! - *Progress*: lanes are tried for at most [`LANE_TIMEOUT`]; then the item locks are waited for,
//!   each at most the [timeout](Rcx::timeout) per owner. A stopped leader delays others of its node
//!   and stripe by that bound, and never blocks items that it does not hold.
//! - *No circle of waiting*: items are locked in ascending order, a nested set after all that its
//!   thread holds, or [`RcxError::OutOfOrder`].
//! - *Death*: a dead leader's lanes are freed by the next thread that finds them busy. Its items
//!   report [`Acquired::OwnerDied`], as a [`RobustLock`](mneme_sync::RobustLock) does.
//! - A thread may migrate between lock and unlock: the guard knows its lanes.
//!
//! # Cost
//!
//! By default an update that finds its items free takes no lane ([`TakeLanes::WhenBusy`]). Lanes
//! are left out altogether on a machine of one node, for more than [`LANE_ITEMS`] items, and while
//! the thread holds another guard. Each lane is 64 bytes a node and stripe, and none lies in an
//! item. `cargo run --release -p mneme-rcx --example update_cost` measures.
//!
//! After Park's dissertation (an HTM-based NUMA-aware RCU extension), §3.3.2, with lanes made
//! advisory: taken literally, the scheme there can deadlock (`docs/design/rcx.md`).

mod guard;
pub(crate) mod item;
pub(crate) mod lanes;
mod nesting;
#[cfg(feature = "simulate")]
mod over_words;
pub(crate) mod protocol;
#[cfg(any(test, feature = "simulate"))]
pub(crate) mod reservation;

pub use guard::RcxGuard;
pub use item::{Item, ItemLock, ItemSet};
pub use lanes::{Abort, LANE_ITEMS, LANE_TIMEOUT, LaneSet, NodeLane, Script, Strategy};
#[cfg(feature = "simulate")]
pub use over_words::{Waiter, WordGuard, WordLocks};
pub use protocol::TakeLanes;

use guard::Led;
use item::{Taken, Wanted};
use mneme_sync::lock_word::Owner;
use mneme_sync::{Acquired, Backoff, LOCK_TIMEOUT, Participants, Slot, SlotError, Stalled};
use mneme_sys::Topology;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Stripes of the lanes that [`Rcx::new`] makes: 4 KiB a node.
const STRIPES: usize = 64;

/// Locks for items that are read without locks; see the [module](self).
pub struct Rcx<S = Box<[NodeLane]>> {
    participants: Participants,
    topology: Arc<dyn Topology>,
    lanes: LaneSet<S>,
    several_nodes: bool,
    when: TakeLanes,
    strategy: Strategy,
    timeout: Duration,
    lane_timeout: Duration,
}

/// What the threads that use these lanes have come to so far. Calls that found their items free,
/// and calls on a machine of one node, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RcxStats {
    /// Calls that took their lanes.
    pub elections: u64,
    /// Calls that went to the items without: after the [bound](LANE_TIMEOUT), within another
    /// guard, or with too many items.
    pub bypasses: u64,
}

/// Why items could not be locked. Nothing is held then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RcxError {
    /// The thread holds a later item, or this one.
    #[error("this thread holds item {held}; a nested set begins after it, and {wanted} does not")]
    OutOfOrder {
        /// The latest item that the thread holds.
        held: u64,
        /// The first one that it wants.
        wanted: u64,
    },
    /// Two items of different locks have one id.
    #[error("two items have the id {0}")]
    SameId(u64),
    /// An owner lives and does not let go.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The thread has no slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
}

impl Rcx {
    /// Locks for items of these participants' structures, with lanes of this process.
    ///
    /// Every thread that locks an item should use one `Rcx`. Several are correct, for the item
    /// locks exclude; each then elects leaders of its own.
    #[must_use]
    pub fn new(participants: &Participants, topology: Arc<dyn Topology>) -> Rcx {
        let lanes = LaneSet::new(topology.nodes(), STRIPES);
        Rcx::with_lanes(participants, topology, lanes)
    }
}

impl<S: Deref<Target = [NodeLane]>> Rcx<S> {
    /// As [`Rcx::new`], with lanes that the caller has made, in memory that several processes share
    /// for instance.
    #[must_use]
    pub fn with_lanes(
        participants: &Participants,
        topology: Arc<dyn Topology>,
        lanes: LaneSet<S>,
    ) -> Rcx<S> {
        Rcx {
            participants: participants.clone(),
            several_nodes: topology.nodes() > 1,
            topology,
            lanes,
            when: TakeLanes::default(),
            strategy: Strategy::default(),
            timeout: LOCK_TIMEOUT,
            lane_timeout: LANE_TIMEOUT,
        }
    }

    /// When lanes are taken; [`TakeLanes::WhenBusy`] unless this says otherwise.
    #[must_use]
    pub fn take_lanes(self, when: TakeLanes) -> Self {
        Rcx { when, ..self }
    }

    /// How lanes are taken; [`Strategy::OrderedCas`] unless this says otherwise.
    #[must_use]
    pub fn strategy(self, strategy: Strategy) -> Self {
        Rcx { strategy, ..self }
    }

    /// How long each living owner of an item is waited for; a second unless this says otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Rcx { timeout, ..self }
    }

    /// How long lanes are tried for; [`LANE_TIMEOUT`] unless this says otherwise.
    #[must_use]
    pub fn lane_timeout(self, lane_timeout: Duration) -> Self {
        Rcx {
            lane_timeout,
            ..self
        }
    }

    /// Locks all items of a set, which it sorts. An item that is named twice is locked once.
    ///
    /// [`Acquired::OwnerDied`]: the owner of at least one item died with it, or a panic ended its
    /// change; [`RcxGuard::died`] says which.
    ///
    /// # Errors
    /// [`RcxError`]; nothing is held then.
    #[inline]
    pub fn lock<'a, I: ItemSet<'a>>(
        &'a self,
        mut set: I,
    ) -> Result<Acquired<RcxGuard<'a, I>>, RcxError> {
        let slot = self.participants.slot()?;
        let pin = slot.pin();
        let held = item::sort(set.items_mut())?;
        let items = set.items().get(..held).unwrap_or_default();
        let place = match (items.first(), items.last()) {
            (Some(first), Some(last)) => Some(nesting::enter(first.id, last.id)?),
            _ => None,
        };
        let nested = place.as_ref().is_some_and(nesting::Place::is_nested);
        let mut wanted = Wanted::new(items, &slot, self.timeout);
        let elect = || self.elect(items, &slot, nested);
        let led = protocol::enter(&mut wanted, self.when, elect)?;
        let owner_died = wanted.keep();
        // Made here and stored once: what is stored before and copied now is waited for.
        let guard = RcxGuard {
            taken: Taken::new(set, held, slot),
            led,
            _pin: pin,
            _place: place,
        };
        Ok(match owner_died {
            true => Acquired::OwnerDied(guard),
            false => Acquired::Clean(guard),
        })
    }

    /// Makes the calling thread its node's leader for the items.
    #[cold]
    fn elect<L>(&self, items: &[Item<'_, L>], slot: &Slot<'_>, nested: bool) -> Option<Led<'_>> {
        if !self.several_nodes || items.is_empty() {
            return None;
        }
        let node = self.topology.current_node();
        if nested || items.len() > LANE_ITEMS {
            self.lanes.count_bypass(node);
            return None;
        }
        let lanes = self.lanes.choose(node, items.iter().map(|item| item.id));
        let mut bound = LaneBound {
            limit: self.lane_timeout,
            backoff: None,
            participants: &self.participants,
            is_over: false,
        };
        if !protocol::elect(&lanes, slot.owner(), &self.strategy, &mut bound) {
            self.lanes.count_bypass(node);
            return None;
        }
        lanes.count_election();
        Some(Led {
            lanes,
            node,
            fork_generation: mneme_sys::fork::generation(),
        })
    }

    /// The lanes.
    #[must_use]
    pub fn lanes(&self) -> &LaneSet<S> {
        &self.lanes
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> RcxStats {
        let (elections, bypasses) = self.lanes.counts();
        RcxStats {
            elections,
            bypasses,
        }
    }
}

/// The wait for lanes.
struct LaneBound<'a> {
    limit: Duration,
    /// From the first wait on: an election that meets nobody reads no clock.
    backoff: Option<Backoff>,
    participants: &'a Participants,
    is_over: bool,
}

impl protocol::Bound for LaneBound<'_> {
    fn wait(&mut self, _: usize) -> bool {
        let now = || self.participants.now();
        let backoff = self
            .backoff
            .get_or_insert_with(|| Backoff::new(now(), self.limit));
        self.is_over = !backoff.wait(now);
        !self.is_over
    }

    fn is_dead(&self, owner: Owner) -> bool {
        // Asked at the end too, so that the next call does not wait for the dead.
        (self.is_over || self.backoff.as_ref().is_some_and(Backoff::has_spun))
            && self.participants.is_owner_dead(owner)
    }
}

impl<S: Deref<Target = [NodeLane]>> std::fmt::Debug for Rcx<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rcx")
            .field("take_lanes", &self.when)
            .field("strategy", &self.strategy)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
