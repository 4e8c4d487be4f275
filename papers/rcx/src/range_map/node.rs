//! A boundary in memory: its words, its lock, and its links on several levels.

use super::partition::{self, Boundary, Words};
use crate::Item;
use mneme_sync::RobustLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Levels of links. A node has a link on the next level with probability a quarter, so these are
/// enough for some ten million ranges; with more, searches get longer.
pub(crate) const LEVELS: usize = 12;

pub(crate) struct Node {
    words: Words<AtomicU64>,
    /// The link of the lowest level: the list of the ranges.
    next: AtomicPtr<Node>,
    /// Those of the levels above: shortcuts for searches, which may lead past nodes. Three nodes in
    /// four have none.
    shortcuts: Box<[AtomicPtr<Node>]>,
    /// On how many levels the node is linked. Changed under its lock, before it is linked and after
    /// it is unlinked.
    levels: AtomicUsize,
    lock: RobustLock,
    /// Where it comes in the order of locks. It says nothing about places.
    id: u64,
    /// Its own address, from its box: what links to it may also free it.
    own: AtomicPtr<Node>,
}

impl Node {
    /// A node with so many links, which lead to `next` for now, if there is one.
    pub(crate) fn new(id: u64, start: u64, value: u64, height: usize, next: *mut Node) -> Node {
        Node {
            words: Words {
                start: start.into(),
                value: value.into(),
                ..Words::default()
            },
            next: AtomicPtr::new(next),
            shortcuts: (1..height).map(|_| AtomicPtr::new(next)).collect(),
            levels: AtomicUsize::new(1),
            lock: RobustLock::new(),
            id,
            own: AtomicPtr::default(),
        }
    }

    /// Puts it where it stays.
    pub(crate) fn boxed(self) -> *mut Node {
        let own = Box::into_raw(Box::new(self));
        // SAFETY: just made.
        unsafe { &*own }.own.store(own, Relaxed);
        own
    }

    /// The address that [`boxed`](Self::boxed) gave out.
    pub(crate) fn own(&self) -> *mut Node {
        self.own.load(Relaxed)
    }

    /// The height of the node `id`: as if drawn at random.
    pub(crate) fn height(id: u64) -> usize {
        let mut random = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        random = (random ^ random >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        1 + ((random >> 32).trailing_zeros() as usize / 2).min(LEVELS - 1)
    }

    pub(crate) fn item(&self) -> Item<'_> {
        Item::new(self.id, &self.lock)
    }

    pub(crate) fn lock(&self) -> &RobustLock {
        &self.lock
    }

    pub(crate) fn start(&self) -> u64 {
        partition::start(self)
    }

    pub(crate) fn value(&self) -> u64 {
        partition::value(self)
    }

    pub(crate) fn is_removed(&self) -> bool {
        partition::is_removed(self)
    }

    /// The last one's start is the end of all ranges.
    pub(crate) fn is_last(&self) -> bool {
        self.start() == u64::MAX
    }

    /// The links this node has, linked or not.
    pub(crate) fn links(&self) -> usize {
        1 + self.shortcuts.len()
    }

    #[inline]
    fn link_of(&self, level: usize) -> &AtomicPtr<Node> {
        match level {
            0 => &self.next,
            _ => &self.shortcuts[level - 1],
        }
    }

    pub(crate) fn levels(&self) -> usize {
        self.levels.load(Relaxed)
    }

    pub(crate) fn set_levels(&self, levels: usize) {
        self.levels.store(levels, Relaxed);
    }

    /// The next node on a level, removed or not.
    pub(crate) fn next_on(&self, level: usize) -> &Node {
        // SYNC: pairs with the store in `link_on`: the node is seen whole.
        let next = self.link_of(level).load(Acquire);
        // SAFETY: it was linked after this thread's pin began, or its unlinking came after that of
        // a node for which the same holds; see "What a search may touch" in the design. Only the
        // last node has no next one, and nothing is asked of it.
        unsafe { &*next }
    }

    /// The next node on a level that is not removed.
    pub(crate) fn following_on(&self, level: usize) -> &Node {
        let mut next = self.next_on(level);
        while next.is_removed() {
            next = next.next_on(level);
        }
        next
    }

    pub(crate) fn link_on(&self, level: usize, next: &Node) {
        // SYNC: pairs with the load in `next_on`.
        self.link_of(level).store(next.own(), Release);
    }

    /// The pointer in a link, for one that has the map to itself.
    pub(crate) fn link(&self, level: usize) -> *mut Node {
        self.link_of(level).load(Relaxed)
    }
}

impl Boundary for Node {
    type Word = AtomicU64;

    fn words(&self) -> &Words<AtomicU64> {
        &self.words
    }

    fn next(&self) -> &Node {
        self.next_on(0)
    }

    fn set_next(&self, next: &Node) {
        self.link_on(0, next);
    }
}
