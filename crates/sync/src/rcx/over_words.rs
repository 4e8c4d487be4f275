//! [`WordLocks`]: the protocol of [`Rcx`](super::Rcx) over words of any kind, for those who run it
//! elsewhere than in memory. A simulator gives it words that cost what a machine's would.
//!
//! There is nothing here but the joints: who excludes whom, in what order, and when lanes are taken
//! is decided by the code that `Rcx` runs.

use super::lanes::{Chosen, LaneSet, NodeLane, Strategy};
use super::protocol::{self, Bound, Items, TakeLanes};
use crate::SlotId;
use crate::atomics::Word;
use crate::lock_word::{self, Attempt, Owner};
use mneme_sys::NodeId;
use std::convert::Infallible;

/// Item locks and lanes over `W`.
pub struct WordLocks<W> {
    items: Vec<W>,
    lanes: LaneSet<Vec<NodeLane<W>>>,
    when: TakeLanes,
    strategy: Strategy,
}

/// Items that are held, and the lanes of their leader.
pub struct WordGuard<'a, W: Word> {
    locks: &'a WordLocks<W>,
    held: Vec<usize>,
    lanes: Option<Chosen<'a, W>>,
}

/// A thread that locks, and how it waits.
pub struct Waiter<'a> {
    /// Its number, from 1 on.
    pub number: u16,
    /// The node that it runs on.
    pub node: NodeId,
    /// Waits a little for lanes; false when the bound is reached.
    pub for_lanes: &'a mut dyn FnMut() -> bool,
    /// Waits a little for an item.
    pub for_item: &'a mut dyn FnMut(),
}

impl<W: Word> WordLocks<W> {
    /// `items` are the items' locks, `lanes` as many for each of the `nodes`. All are zero. `None`:
    /// there are fewer lanes than nodes.
    pub fn new(
        items: Vec<W>,
        lanes: Vec<W>,
        nodes: usize,
        when: TakeLanes,
        strategy: Strategy,
    ) -> Option<WordLocks<W>> {
        let lanes = lanes.into_iter().map(NodeLane::new).collect();
        Some(WordLocks {
            items,
            lanes: LaneSet::over(lanes, nodes)?,
            when,
            strategy,
        })
    }

    /// Locks items, which are named in ascending order and once each.
    pub fn lock(&self, items: &[usize], waiter: &mut Waiter<'_>) -> WordGuard<'_, W> {
        let me = Owner {
            slot: SlotId(waiter.number),
            generation: 0,
        };
        let mut wanted = Wanted {
            locks: self,
            items,
            me,
            wait: waiter.for_item,
            held: Vec::with_capacity(items.len()),
        };
        let Ok(lanes) = protocol::enter(&mut wanted, self.when, || {
            let ids = items.iter().map(|item| *item as u64);
            let lanes = self.lanes.choose(waiter.node, ids);
            let mut bound = Immortal(waiter.for_lanes);
            protocol::elect(&lanes, me, &self.strategy, &mut bound).then_some(lanes)
        });
        WordGuard {
            locks: self,
            held: wanted.held,
            lanes,
        }
    }
}

impl<W: Word> WordGuard<'_, W> {
    /// Whether its thread was elected.
    #[must_use]
    pub fn led(&self) -> bool {
        self.lanes.is_some()
    }
}

impl<W: Word> Drop for WordGuard<'_, W> {
    fn drop(&mut self) {
        for item in self.held.iter().rev() {
            lock_word::release(&self.locks.items[*item]);
        }
        if let Some(lanes) = &self.lanes {
            protocol::step_down(lanes);
        }
    }
}

struct Wanted<'i, W> {
    locks: &'i WordLocks<W>,
    items: &'i [usize],
    me: Owner,
    wait: &'i mut dyn FnMut(),
    held: Vec<usize>,
}

impl<W: Word> Items for Wanted<'_, W> {
    type Error = Infallible;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn try_lock(&mut self, item: usize) -> bool {
        let item = self.items[item];
        let is_free = lock_word::acquire(&self.locks.items[item], self.me) == Attempt::Clean;
        if is_free {
            self.held.push(item);
        }
        is_free
    }

    fn lock(&mut self, item: usize) -> Result<(), Infallible> {
        while !self.try_lock(item) {
            (self.wait)();
        }
        Ok(())
    }

    fn release(&mut self) {
        while let Some(item) = self.held.pop() {
            lock_word::release(&self.locks.items[item]);
        }
    }
}

/// Nobody dies.
struct Immortal<'a>(&'a mut dyn FnMut() -> bool);

impl Bound for Immortal<'_> {
    fn wait(&mut self) -> bool {
        (self.0)()
    }

    fn is_dead(&self, _: Owner) -> bool {
        false
    }
}
