//! A cohort lock (Dice, Marathe, Shavit, 2012): a lock a node, and one between the nodes, which a
//! node keeps for some owners in a row. Over words of any kind, so that it can be simulated.

use mneme_sync::Word;
use mneme_sys::Topology;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Owners of one node in a row, at most, while another node may be waiting.
pub(crate) const IN_A_ROW: u64 = 64;

/// Looks at a lock before the thread gives up its CPU.
const LOOKS: u32 = 64;

/// A lock of one word.
#[repr(align(128))]
pub struct Spin<W>(pub W);

impl<W: Word> Spin<W> {
    /// Waits until it is free; `wait` between two looks.
    pub fn lock(&self, mut wait: impl FnMut()) {
        // SYNC: pairs with the store in `unlock`.
        while self.0.load(Relaxed) != 0 || self.0.compare_exchange(0, 1, Acquire, Relaxed).is_err()
        {
            wait();
        }
    }

    /// Lets go.
    pub fn unlock(&self) {
        self.0.store(0, Release);
    }
}

/// A node's lock. Its other words are written by its owner and those that wait.
pub struct Local<W> {
    lock: Spin<W>,
    waiting: W,
    /// Owners since the node got the lock between the nodes; 0: it has not got it.
    row: W,
}

/// The lock between the nodes, and one of each. The twin that forgets to note that its node has
/// given up the former is wrong: two nodes get in.
pub struct Cohort<W, const NOTES: bool = true> {
    between: Spin<W>,
    nodes: Vec<Local<W>>,
}

impl<W: Word, const NOTES: bool> Cohort<W, NOTES> {
    /// A free one for so many nodes. `word` makes words of zero, each call beginning a line of its
    /// own if it says so.
    pub fn new(nodes: usize, mut word: impl FnMut(bool) -> W) -> Self {
        let between = Spin(word(true));
        let mut local = || Local {
            lock: Spin(word(true)),
            waiting: word(false),
            row: word(false),
        };
        Cohort {
            between,
            nodes: (0..nodes).map(|_| local()).collect(),
        }
    }

    /// Waits until it is free, for a thread on a node.
    pub fn lock(&self, node: usize, mut wait: impl FnMut()) -> &Local<W> {
        let node = &self.nodes[node % self.nodes.len()];
        node.waiting.fetch_add(1, Relaxed);
        node.lock.lock(&mut wait);
        node.waiting.fetch_add(u64::MAX, Relaxed);
        if node.row.load(Relaxed) == 0 {
            self.between.lock(wait);
        }
        node
    }

    /// Lets go, of the node's lock with or without the one between the nodes.
    pub fn unlock(&self, node: &Local<W>) {
        let row = node.row.load(Relaxed) + 1;
        let hands_over = row < IN_A_ROW && node.waiting.load(Relaxed) > 0;
        let keeps = hands_over || !NOTES;
        node.row.store(if keeps { row } else { 0 }, Relaxed);
        if !hands_over {
            self.between.unlock();
        }
        node.lock.unlock();
    }
}

/// The lock in memory.
pub struct CohortLock {
    cohort: Cohort<AtomicU64>,
    topology: Arc<dyn Topology>,
}

impl CohortLock {
    /// A free one.
    pub fn new(topology: Arc<dyn Topology>) -> Self {
        Self {
            cohort: Cohort::new(topology.nodes(), |_| AtomicU64::new(0)),
            topology,
        }
    }

    /// Waits until it is free.
    pub fn lock(&self) -> CohortGuard<'_> {
        let mut looks = 0;
        let wait = || {
            looks += 1;
            match looks < LOOKS {
                true => spin_loop(),
                false => std::thread::yield_now(),
            }
        };
        let node = usize::from(self.topology.current_node().0);
        CohortGuard {
            cohort: &self.cohort,
            node: self.cohort.lock(node, wait),
        }
    }
}

/// Holds it.
pub struct CohortGuard<'a> {
    cohort: &'a Cohort<AtomicU64>,
    /// The thread may run elsewhere by now.
    node: &'a Local<AtomicU64>,
}

impl Drop for CohortGuard<'_> {
    fn drop(&mut self) {
        self.cohort.unlock(self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::machine::{CostedWord, Machine};
    use crate::simulate::{Costs, Shape};
    use std::sync::atomic::AtomicBool;

    /// Whether two were in at once, for threads of two simulated nodes, which run in an order that
    /// the costs decide.
    fn two_get_in<const NOTES: bool>(remote_percent: u64, slack: u64) -> bool {
        let shape = Shape {
            nodes: 2,
            threads_a_node: 2,
            threads: 4,
        };
        let costs = Costs {
            remote_percent,
            slack,
            ..Costs::PLAUSIBLE
        };
        let machine = Machine::new(shape, costs);
        let mut line = 0;
        let cohort = Cohort::<CostedWord, NOTES>::new(shape.nodes, |begins| {
            if begins {
                line = machine.line();
            }
            CostedWord::new(line, 0)
        });
        let (inside, two) = (AtomicU64::new(0), AtomicBool::new(false));
        machine.run(|me| {
            for _ in 0..20 {
                let held = cohort.lock(me / shape.threads_a_node, || machine.pass(me, 20));
                two.fetch_or(inside.fetch_add(1, Relaxed) > 0, Relaxed);
                machine.pass(me, 70);
                inside.fetch_sub(1, Relaxed);
                cohort.unlock(held);
                machine.pass(me, 130 * me as u64);
            }
        });
        two.into_inner()
    }

    #[test]
    fn one_owner_at_a_time_and_the_twin_lets_two_in() {
        let mut twins = 0;
        for remote_percent in [200, 300, 500] {
            for slack in [0, 50, 100] {
                assert!(!two_get_in::<true>(remote_percent, slack));
                twins += u32::from(two_get_in::<false>(remote_percent, slack));
            }
        }
        assert!(twins > 0);
    }
}
