//! Words of the model checker.

use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64;

/// A word that keeps its orderings, or ignores them.
///
/// Loom misses schedules where a thread loads and then stores (loom issues 166 and 392). So every
/// access first touches a companion word by an unordered read-modify-write, for which loom explores
/// all orders.
#[derive(Debug)]
pub(super) struct Words<const ORDERED: bool> {
    word: AtomicU64,
    turn: AtomicU64,
}

impl<const ORDERED: bool> Words<ORDERED> {
    pub fn new(value: u64) -> Self {
        Self {
            word: AtomicU64::new(value),
            turn: AtomicU64::new(0),
        }
    }

    fn turn(&self, order: Ordering) -> (&AtomicU64, Ordering) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        let order = if ORDERED { order } else { Ordering::Relaxed };
        (&self.word, order)
    }

    pub fn load(&self, order: Ordering) -> u64 {
        let (word, order) = self.turn(order);
        word.load(order)
    }

    pub fn store(&self, value: u64, order: Ordering) {
        let (word, order) = self.turn(order);
        word.store(value, order);
    }

    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let (word, order) = self.turn(order);
        word.fetch_add(value, order)
    }

    pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        let (word, order) = self.turn(order);
        word.fetch_sub(value, order)
    }
}
