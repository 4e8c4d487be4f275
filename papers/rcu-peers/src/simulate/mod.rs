//! **A simulation**: updates of lists and hash tables on machines of several nodes that are not at
//! hand. What locks is the real code, [`WordLocks`] and the cohort lock, over words that cost what
//! a directory of caches makes them cost; the structure around them is a list over such words.
//! RCU-HTM and its fallbacks exist only here, because they need transactions.

pub(crate) mod machine;

pub use machine::{Costs, Shape};

use crate::cohort::{Cohort, IN_A_ROW, Spin};
use machine::{CostedWord, Machine};
use mneme_rcx::rcx::{Waiter, WordLocks};
use mneme_rcx::{Abort, Strategy, TakeLanes};
use mneme_sync::Word;
use mneme_sys::{NodeId, TransactionAborted};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What RCU-HTM does with an update whose transaction aborts (§3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Tries ten times, then takes a lock.
    Ten,
    /// Tries until it succeeds, or 200 times: else some runs would not end.
    Retry,
    /// Gives the update up.
    Forgive,
    /// Tries again after a conflict, and takes a lock after anything else.
    Advised,
}

/// How updates are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `Rcx`.
    Rcx(TakeLanes),
    /// As `Rcx`, lanes first, all of a node by one transaction, as in the paper.
    Transactions,
    /// As `Transactions`, each of which aborts.
    Aborting,
    /// As `Rcx`, with items handed over within a node.
    HandOver,
    /// As `Rcx`, and no lane is ever had: the nodes' own locks, in order.
    Items,
    /// A lock a bucket.
    Lock,
    /// A cohort lock a bucket.
    Cohort,
    /// Transactions.
    Htm(Fallback),
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The machine.
    pub shape: Shape,
    /// Its costs.
    pub costs: Costs,
    /// Buckets, and keys in each to begin with.
    pub buckets: usize,
    /// See above.
    pub keys: usize,
    /// Updates in 100 operations.
    pub updates: u64,
    /// Operations of each thread.
    pub operations: u64,
    /// What an operation costs beside its words: drawing the key, the pin.
    pub work: u64,
    /// What an update costs besides: the new node.
    pub update_work: u64,
    /// Where the random streams begin.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Operations a microsecond.
    pub rate: f64,
    /// Aborted transactions in 100 updates.
    pub aborts: f64,
    /// Those of them that did not fit.
    pub too_large: f64,
    /// Elections in 100 updates.
    pub elections: f64,
}

/// How long lanes are waited for, in nanoseconds.
const LANE_TIMEOUT: u64 = mneme_rcx::LANE_TIMEOUT.as_nanos() as u64;
/// Between two looks at what is busy.
const PAUSE: u64 = 20;
const STRIPES: usize = 64;
/// Where [`Fallback::Retry`] is given up.
const TRIES: u64 = 200;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

struct Node {
    next: CostedWord,
    mark: CostedWord,
}

/// The numbers of transactions that were aborted because their reads had changed or a lane was
/// busy. Those that aborted themselves are not counted.
#[derive(Default)]
struct Aborts {
    all: AtomicU64,
    too_large: AtomicU64,
}

impl Aborts {
    fn count(&self, why: TransactionAborted) {
        self.all
            .fetch_add(u64::from(why != TransactionAborted::ByBody), Relaxed);
        self.too_large
            .fetch_add(u64::from(why == TransactionAborted::Capacity), Relaxed);
    }
}

/// Lists: a node for each key there may be, then the buckets' heads, then the end of all.
struct Lists {
    setting: Setting,
    mechanism: Mechanism,
    machine: Arc<Machine>,
    nodes: Vec<Node>,
    items: WordLocks<CostedWord>,
    locks: Vec<Spin<CostedWord>>,
    cohorts: Vec<Cohort<CostedWord>>,
    aborts: Arc<Aborts>,
    elections: AtomicU64,
    updates: AtomicU64,
    changes: AtomicU64,
}

/// Runs one simulation; the same setting always has the same outcome.
///
/// # Panics
/// If an update was lost: the mechanism does not exclude.
pub fn simulate(mechanism: Mechanism, setting: Setting) -> Outcome {
    let lists = Lists::new(mechanism, setting);
    let before = lists.count();
    let time = lists.machine.run(|me| lists.work(me));
    let changed = lists.changes.load(Relaxed).cast_signed();
    assert_eq!(
        lists.count().cast_signed(),
        before.cast_signed() + changed,
        "{mechanism:?} lost an update"
    );
    let operations = setting.operations * setting.shape.threads as u64;
    let in_100 = |count: &AtomicU64| {
        100.0 * count.load(Relaxed) as f64 / (lists.updates.load(Relaxed) as f64).max(1.0)
    };
    Outcome {
        rate: operations as f64 * 1e3 / time as f64,
        aborts: in_100(&lists.aborts.all),
        too_large: in_100(&lists.aborts.too_large),
        elections: in_100(&lists.elections),
    }
}

impl Lists {
    fn new(mechanism: Mechanism, setting: Setting) -> Lists {
        let machine = Machine::new(setting.shape, setting.costs);
        let all = 2 * setting.buckets * setting.keys;
        let end = all + setting.buckets;
        let lines: Vec<usize> = (0..=end).map(|_| machine.line()).collect();
        let word = |line: usize, value| CostedWord::new(line, value);
        let node = |line: &usize| Node {
            next: word(*line, end as u64),
            mark: word(*line, 1),
        };
        let lanes = setting.shape.nodes * STRIPES;
        let lane = |_| {
            let line = machine.line();
            [word(line, 0), word(line, 0)]
        };
        let lanes = (0..lanes).map(lane).collect();
        let when = match mechanism {
            Mechanism::Rcx(when) => when,
            Mechanism::Transactions | Mechanism::Aborting => TakeLanes::Always,
            _ => TakeLanes::WhenBusy,
        };
        let items = lines.iter().map(|line| word(*line, 0)).collect();
        let nodes = setting.shape.nodes;
        let aborts = Arc::new(Aborts::default());
        let strategy = match mechanism {
            Mechanism::Items => Strategy::Scripted(Arc::new(|_| Some(Abort::Capacity))),
            Mechanism::Aborting => {
                let aborts = Arc::clone(&aborts);
                Strategy::Scripted(Arc::new(move |_| {
                    machine::abort_here();
                    aborts.count(TransactionAborted::Conflict);
                    Some(Abort::Conflict)
                }))
            }
            Mechanism::Transactions => {
                let aborts = Arc::clone(&aborts);
                Strategy::Simulated(Arc::new(move |body| {
                    machine::transact_here(body).inspect_err(|why| aborts.count(*why))
                }))
            }
            _ => Strategy::OrderedCas,
        };
        let handed_over = match mechanism {
            Mechanism::HandOver => IN_A_ROW,
            _ => 0,
        };
        let items = WordLocks::new(items, lanes, nodes, when, strategy);
        let cohort = |_| {
            let mut line = 0;
            Cohort::new(nodes, |begins| {
                if begins {
                    line = machine.line();
                }
                word(line, 0)
            })
        };
        let lists = Lists {
            nodes: lines.iter().map(node).collect(),
            items: items
                .unwrap_or_else(|| unreachable!("there are lanes for each node"))
                .hand_over(handed_over),
            locks: (0..setting.buckets)
                .map(|_| Spin(word(machine.line(), 0)))
                .collect(),
            cohorts: (0..setting.buckets).map(cohort).collect(),
            machine,
            mechanism,
            setting,
            aborts,
            elections: AtomicU64::new(0),
            updates: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        };
        for head in all..=end {
            lists.nodes[head].mark.store(0, Relaxed);
        }
        let mut random = Random(setting.seed);
        let mut left = all / 2;
        while left > 0 {
            let key = random.below(all as u64) as usize;
            let (before, next) = lists.find(key);
            if next != key {
                lists.nodes[key].next.store(next as u64, Relaxed);
                lists.nodes[key].mark.store(0, Relaxed);
                lists.nodes[before].next.store(key as u64, Relaxed);
                left -= 1;
            }
        }
        lists
    }

    fn end(&self) -> usize {
        self.nodes.len() - 1
    }

    fn bucket(&self, key: usize) -> usize {
        key % self.setting.buckets
    }

    fn find(&self, key: usize) -> (usize, usize) {
        let mut before = self.end() - self.setting.buckets + self.bucket(key);
        loop {
            let next = self.nodes[before].next.load(Relaxed) as usize;
            // The end's number is greater than all keys.
            if next >= key {
                return (before, next);
            }
            before = next;
        }
    }

    /// Keys in all lists, which must be in order.
    fn count(&self) -> u64 {
        let mut count = 0;
        for bucket in 0..self.setting.buckets {
            let mut at = self.end() - self.setting.buckets + bucket;
            let mut last = None;
            loop {
                at = self.nodes[at].next.load(Relaxed) as usize;
                if at == self.end() {
                    break;
                }
                assert!(last < Some(at), "a list is out of order");
                last = Some(at);
                count += 1;
            }
        }
        count
    }

    fn work(&self, me: usize) {
        let setting = &self.setting;
        let mut random = Random(setting.seed ^ (me as u64 + 1) << 32);
        let all = 2 * setting.buckets * setting.keys;
        for _ in 0..setting.operations {
            let key = random.below(all as u64) as usize;
            let drawn = random.below(200);
            self.machine.pass(me, setting.work);
            if drawn >= 2 * setting.updates {
                self.find(key);
                continue;
            }
            self.updates.fetch_add(1, Relaxed);
            self.machine.pass(me, setting.update_work);
            let inserts = drawn < setting.updates;
            if self.update(me, key, inserts) {
                let change = if inserts { 1 } else { u64::MAX };
                self.changes.fetch_add(change, Relaxed);
            }
        }
    }

    /// Puts a key in or takes it out; whether that changed anything.
    fn update(&self, me: usize, key: usize, inserts: bool) -> bool {
        let wait = || self.machine.pass(me, PAUSE);
        let bucket = self.bucket(key);
        match self.mechanism {
            Mechanism::Rcx(_)
            | Mechanism::Transactions
            | Mechanism::Aborting
            | Mechanism::HandOver
            | Mechanism::Items => self.update_by_leaders(me, key, inserts),
            Mechanism::Htm(fallback) => self.update_by_transactions(me, key, inserts, fallback),
            Mechanism::Lock => {
                self.locks[bucket].lock(wait);
                let changed = self.update_alone(key, inserts);
                self.locks[bucket].unlock();
                changed
            }
            Mechanism::Cohort => {
                let node = me / self.setting.shape.threads_a_node;
                let held = self.cohorts[bucket].lock(node, wait);
                let changed = self.update_alone(key, inserts);
                self.cohorts[bucket].unlock(held);
                changed
            }
        }
    }

    fn update_alone(&self, key: usize, inserts: bool) -> bool {
        let (before, next) = self.find(key);
        let changes = (next == key) != inserts;
        if changes {
            self.change(before, next, key, inserts);
        }
        changes
    }

    fn change(&self, before: usize, next: usize, key: usize, inserts: bool) {
        if inserts {
            self.nodes[key].next.store(next as u64, Relaxed);
            self.nodes[key].mark.store(0, Relaxed);
            self.nodes[before].next.store(key as u64, Relaxed);
        } else {
            let behind = self.nodes[key].next.load(Relaxed);
            self.nodes[before].next.store(behind, Relaxed);
            self.nodes[key].mark.store(1, Relaxed);
        }
    }

    /// Whether what was found is so still. As long as a node is followed by another, that is not
    /// removed.
    fn is_so(&self, before: usize, next: usize) -> bool {
        self.nodes[before].mark.load(Relaxed) == 0
            && self.nodes[before].next.load(Relaxed) == next as u64
    }

    fn update_by_leaders(&self, me: usize, key: usize, inserts: bool) -> bool {
        loop {
            let (before, next) = self.find(key);
            if (next == key) == inserts {
                return false;
            }
            let began = self.machine.now(me);
            let mut waiter = Waiter {
                number: me as u16 + 1,
                node: NodeId((me / self.setting.shape.threads_a_node) as u16),
                for_lanes: &mut || {
                    self.machine.pass(me, PAUSE);
                    self.machine.now(me) - began < LANE_TIMEOUT
                },
                for_item: &mut || self.machine.pass(me, PAUSE),
            };
            let both = [before.min(next), before.max(next)];
            let items = if inserts { &[before][..] } else { &both };
            let guard = self.items.lock(items, &mut waiter);
            self.elections.fetch_add(u64::from(guard.led()), Relaxed);
            if self.is_so(before, next) {
                self.change(before, next, key, inserts);
                return true;
            }
        }
    }

    fn update_by_transactions(
        &self,
        me: usize,
        key: usize,
        inserts: bool,
        fallback: Fallback,
    ) -> bool {
        let lock = &self.locks[self.bucket(key)];
        for attempt in 1_u64.. {
            while lock.0.load(Relaxed) != 0 {
                self.machine.pass(me, PAUSE);
            }
            let (before, next) = self.find(key);
            if (next == key) == inserts {
                return false;
            }
            let done = self.machine.transact(me, || {
                let is_so = lock.0.load(Relaxed) == 0 && self.is_so(before, next);
                if is_so {
                    self.change(before, next, key, inserts);
                }
                is_so
            });
            let Err(aborted) = done else {
                return true;
            };
            self.aborts.count(aborted);
            if aborted == TransactionAborted::ByBody {
                // What was found has changed: no fault of the transaction's.
                continue;
            }
            match fallback {
                Fallback::Forgive => return false,
                Fallback::Ten if attempt >= 10 => break,
                Fallback::Advised if aborted == TransactionAborted::Capacity => break,
                // It may go on for ever; a run has to end.
                Fallback::Retry if attempt >= TRIES => return false,
                _ => {}
            }
        }
        lock.lock(|| self.machine.pass(me, PAUSE));
        let changed = self.update_alone(key, inserts);
        lock.unlock();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Mechanism; 12] = [
        Mechanism::Transactions,
        Mechanism::Aborting,
        Mechanism::Items,
        Mechanism::HandOver,
        Mechanism::Rcx(TakeLanes::WhenBusy),
        Mechanism::Rcx(TakeLanes::Always),
        Mechanism::Lock,
        Mechanism::Cohort,
        Mechanism::Htm(Fallback::Ten),
        Mechanism::Htm(Fallback::Retry),
        Mechanism::Htm(Fallback::Forgive),
        Mechanism::Htm(Fallback::Advised),
    ];

    fn setting() -> Setting {
        Setting {
            shape: Shape {
                nodes: 2,
                threads_a_node: 2,
                threads: 4,
            },
            costs: Costs {
                slack: 50,
                ..Costs::PLAUSIBLE
            },
            buckets: 1,
            keys: 4,
            updates: 60,
            operations: 40,
            work: 10,
            update_work: 40,
            seed: 1,
        }
    }

    /// Few keys and many updates: the run itself asserts that none is lost.
    #[test]
    fn every_mechanism_excludes_on_the_simulated_machine() {
        for mechanism in ALL {
            let outcome = simulate(mechanism, setting());
            assert!(outcome.rate > 0.0);
            assert_eq!(
                simulate(mechanism, setting()),
                outcome,
                "{mechanism:?}: by its seed"
            );
        }
    }

    /// One item a lane, and several threads that want it: some transactions meet, most commit.
    #[test]
    fn leaders_are_elected_by_transactions_that_commit_and_that_meet() {
        let mut setting = setting();
        setting.operations = 200;
        let outcome = simulate(Mechanism::Transactions, setting);
        assert!(outcome.aborts > 0.0, "{outcome:?}");
        assert!(outcome.elections > outcome.aborts, "{outcome:?}");
        assert_eq!(outcome.too_large, 0.0);
    }

    #[test]
    fn a_leader_whose_transaction_does_not_fit_is_not_elected_and_its_update_ends() {
        let mut tight = setting();
        tight.costs.capacity = 1;
        let outcome = simulate(Mechanism::Transactions, tight);
        // A removal has two lanes, an insertion one.
        assert!(outcome.too_large > 0.0, "{outcome:?}");
        assert!(outcome.elections > 0.0, "{outcome:?}");
        let roomy = simulate(Mechanism::Transactions, setting());
        assert!(outcome.elections < roomy.elections, "{outcome:?} {roomy:?}");
    }

    #[test]
    fn transactions_that_do_not_fit_end_by_the_lock() {
        let mut tight = setting();
        tight.costs.capacity = 1;
        for fallback in [Fallback::Ten, Fallback::Advised] {
            let outcome = simulate(Mechanism::Htm(fallback), tight);
            assert!(outcome.aborts > 0.0, "{fallback:?}");
        }
    }

    #[test]
    fn a_dearer_way_between_nodes_costs_time() {
        let mut dear = setting();
        dear.costs.remote_percent = 900;
        // Transactions that meet at such a distance abort each other for ever.
        for mechanism in &ALL[..8] {
            let mechanism = *mechanism;
            let (near, far) = (simulate(mechanism, setting()), simulate(mechanism, dear));
            assert!(far.rate < near.rate, "{mechanism:?}");
        }
    }

    /// Simulated time, which does not depend on the machine that simulates.
    #[test]
    fn updates_whose_transactions_all_abort_take_little_longer_than_without() {
        let mut list = setting();
        list.keys = 32;
        for updates in [20, 40] {
            list.updates = updates;
            let cas = simulate(Mechanism::Rcx(TakeLanes::Always), list);
            let aborting = simulate(Mechanism::Aborting, list);
            assert!(aborting.elections > 0.0);
            let ratio = aborting.rate / cas.rate;
            assert!(ratio > 0.8, "{updates} % updates: {ratio}");
        }
    }

    #[test]
    fn lanes_are_taken_where_items_are_wanted_at_once() {
        let always = simulate(Mechanism::Rcx(TakeLanes::Always), setting());
        assert!(always.elections > 0.0);
        let mut alone = setting();
        alone.shape.threads = 1;
        let alone = simulate(Mechanism::Rcx(TakeLanes::WhenBusy), alone);
        assert_eq!(alone.elections, 0.0);
    }
}
