//! [`WordLocks`]: the protocol of [`Rcx`](super::Rcx) over words of any kind, for those who run it
//! elsewhere than in memory. A simulator gives it words that cost what a machine's would.
//!
//! There is nothing here but the joints: who excludes whom, in what order, and when lanes are taken
//! is decided by the code that `Rcx` runs.

use super::lanes::{Chosen, LaneSet, NodeLane, Strategy};
use super::protocol::{self, Bound, Items, TakeLanes};
use super::reservation::{self, Reserved};
use mneme_sync::SlotId;
use mneme_sync::Word;
use mneme_sync::lock_word::{self, Attempt, Owner};
use mneme_sys::NodeId;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Item locks and lanes over `W`.
pub struct WordLocks<W> {
    items: Vec<W>,
    lanes: LaneSet<Vec<NodeLane<W>>>,
    when: TakeLanes,
    strategy: Strategy,
    notes: Vec<Note<W>>,
    handed_over: u64,
}

/// What a lane's threads and leaders note beside it when items are handed over within the node.
struct Note<W> {
    /// Not 0: a thread waits for the lane, or has, since its leader last looked.
    waited_for: W,
    /// Hand-overs in a row. The leader's alone.
    row: AtomicU64,
}

/// Items that are held, and the lanes of their leader.
pub struct WordGuard<'a, W: Word> {
    locks: &'a WordLocks<W>,
    held: Vec<usize>,
    lanes: Option<Chosen<'a, W>>,
    node: NodeId,
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
    /// `items` are the items' locks, `lanes` the two words of each lane, as many lanes for each of
    /// the `nodes`. All are zero. `None`: there are fewer lanes than nodes.
    pub fn new(
        items: Vec<W>,
        lanes: Vec<[W; 2]>,
        nodes: usize,
        when: TakeLanes,
        strategy: Strategy,
    ) -> Option<WordLocks<W>> {
        let note = |[lane, waited_for]: [W; 2]| {
            let row = AtomicU64::new(0);
            (NodeLane::new(lane), Note { waited_for, row })
        };
        let (lanes, notes) = lanes.into_iter().map(note).unzip();
        Some(WordLocks {
            items,
            lanes: LaneSet::over(lanes, nodes)?,
            when,
            strategy,
            notes,
            handed_over: 0,
        })
    }

    /// Leaders let items go for their own node, if another of its threads waits to lead: at most so
    /// often in a row.
    #[must_use]
    pub fn hand_over(self, most: u64) -> Self {
        WordLocks {
            handed_over: most,
            ..self
        }
    }

    /// The notes beside a node's lanes; none if nothing is handed over.
    fn notes_of(&self, node: NodeId) -> &[Note<W>] {
        match self.handed_over {
            0 => &[],
            _ => &self.notes[self.lanes.first_of(node)..],
        }
    }

    /// Whether a leader, which asks once before it lets its items go, should let them go for its
    /// node: a thread waits for one of its lanes, and the bound is not reached.
    fn hands_over(&self, lanes: &Chosen<'_, W>, node: NodeId) -> bool {
        let notes = self.notes_of(node);
        let notes = || lanes.stripes().filter_map(|stripe| notes.get(stripe));
        let is_waited_for = |note: &Note<W>| note.waited_for.load(Relaxed) != 0;
        let hands_over = notes().all(|note| note.row.load(Relaxed) < self.handed_over)
            && notes().any(is_waited_for);
        for note in notes() {
            let row = note.row.load(Relaxed);
            note.row
                .store(if hands_over { row + 1 } else { 0 }, Relaxed);
            if hands_over && is_waited_for(note) {
                // Those that go on waiting note it again.
                note.waited_for.store(0, Relaxed);
            }
        }
        hands_over
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
            node: waiter.node,
            wait: waiter.for_item,
            held: Vec::with_capacity(items.len()),
        };
        let Ok(lanes) = protocol::enter(&mut wanted, self.when, || {
            let ids = items.iter().map(|item| *item as u64);
            let lanes = self.lanes.choose(waiter.node, ids);
            let mut bound = Immortal {
                wait: waiter.for_lanes,
                notes: self.notes_of(waiter.node),
            };
            protocol::elect(&lanes, me, &self.strategy, &mut bound).then_some(lanes)
        });
        WordGuard {
            locks: self,
            held: wanted.held,
            lanes,
            node: waiter.node,
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
        let lanes = self.lanes.as_ref();
        let hands_over = lanes.is_some_and(|lanes| self.locks.hands_over(lanes, self.node));
        for item in self.held.iter().rev() {
            let item = &self.locks.items[*item];
            match hands_over {
                true => reservation::release_for(item, self.node),
                false => lock_word::release(item),
            }
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
    node: NodeId,
    wait: &'i mut dyn FnMut(),
    held: Vec<usize>,
}

impl<W: Word> Items for Wanted<'_, W> {
    type Error = Infallible;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn try_lock(&mut self, item: usize) -> bool {
        self.look(item, &mut Reserved::on(self.node, reservation::LOOKS))
    }

    fn lock(&mut self, item: usize) -> Result<(), Infallible> {
        let mut reserved = Reserved::on(self.node, reservation::LOOKS);
        while !self.look(item, &mut reserved) {
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

impl<W: Word> Wanted<'_, W> {
    fn look(&mut self, item: usize, reserved: &mut Reserved) -> bool {
        let item = self.items[item];
        let is_free = reserved.acquire(&self.locks.items[item], self.me) == Attempt::Clean;
        if is_free {
            self.held.push(item);
        }
        is_free
    }
}

/// Nobody dies.
struct Immortal<'a, W> {
    wait: &'a mut dyn FnMut() -> bool,
    notes: &'a [Note<W>],
}

impl<W: Word> Bound for Immortal<'_, W> {
    fn wait(&mut self, stripe: usize) -> bool {
        if let Some(note) = self.notes.get(stripe)
            && note.waited_for.load(Relaxed) == 0
        {
            note.waited_for.store(1, Relaxed);
        }
        (self.wait)()
    }

    fn is_dead(&self, _: Owner) -> bool {
        false
    }
}
