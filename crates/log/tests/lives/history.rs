//! One history: a store in several openings, and the operations on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_log::{Evict, LogStore, UpdatePolicy};
use mneme_sys::{Clock, SystemClock};
use mneme_testkit::Random;

use crate::expected::{Kept, key};
use crate::memory::{self, Memory};

pub const DATABASES: usize = 3;
/// Keys of a database. If values have 12 KiB or more on average, a third of them fits.
pub const KEYS: u64 = 6000;
/// Bytes that a store may grow to.
pub const MAX: usize = 96 << 20;

/// Waits end as usual, and records expire when the test says so.
pub struct Calendar(pub AtomicU64);

impl Clock for Calendar {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One history: the store, and its expected content.
pub struct History {
    pub seed: u64,
    pub steps: u64,
    pub random: Random,
    pub calendar: Arc<Calendar>,
    pub openings: Vec<(u32, Arc<LogStore>)>,
    pub memory: Memory,
    pub processes: u32,
    pub evict: Evict,
    /// The percentage of its memory to which a store that must not evict is filled.
    pub fill: u64,
    pub stamps: u64,
    pub model: [BTreeMap<Vec<u8>, Kept>; DATABASES],
    pub refused: u64,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}, {:?}", self.seed, self.steps, self.evict);
        }
    }
}

impl History {
    pub fn new(seed: u64, evict: Evict, policy: UpdatePolicy) -> History {
        let mut random = Random::new(seed);
        let calendar = Arc::new(Calendar(AtomicU64::new(1_000_000)));
        let builder = LogStore::builder()
            .update_policy(policy)
            .evict(evict)
            .clock(Arc::clone(&calendar) as Arc<dyn Clock>);
        let (memory, store) = Memory::built(memory::CAPACITY, MAX, builder);
        History {
            seed,
            steps: 0,
            fill: 50 + random.below(43),
            random,
            calendar,
            memory,
            openings: vec![(1, Arc::new(store))],
            processes: 1,
            evict,
            stamps: 0,
            model: Default::default(),
            refused: 0,
        }
    }

    /// Any of the openings.
    pub fn store(&mut self) -> Arc<LogStore> {
        let i = self.random.below(self.openings.len() as u64);
        Arc::clone(&self.openings[i as usize].1)
    }
    /// A process opens the store, closes it, or dies.
    pub fn reopen(&mut self) {
        let i = self.random.below(self.openings.len() as u64) as usize;
        match self.random.below(5) {
            0..3 if self.openings.len() < 3 => self.open(),
            3 => {
                let (process, store) = self.openings.swap_remove(i);
                let name = self.any_name();
                if let Some(value) = store.database(name.0).unwrap().get(&name.1).unwrap() {
                    // A thread that dies releases no pin.
                    std::mem::forget(value);
                }
                self.memory.script.kill(process);
            }
            _ => drop(self.openings.swap_remove(i)),
        }
        if self.openings.is_empty() {
            self.open();
        }
        if self.random.one_in(2) {
            self.store().reap().unwrap();
        }
    }

    pub fn open(&mut self) {
        self.processes += 1;
        let store = self.memory.open(self.processes);
        assert_eq!(store.eviction(), self.evict);
        self.openings.push((self.processes, Arc::new(store)));
    }

    pub fn grow(&mut self) {
        let store = self.store();
        let stats = store.stats();
        let wanted = (stats.capacity + (2 << 20)).min(stats.max_capacity);
        assert_eq!(store.grow(wanted).unwrap(), wanted);
    }

    /// One change that does not swap databases.
    pub fn change(&mut self) {
        let name = self.any_name();
        match self.random.below(60) {
            0..20 => self.put(),
            20..29 => self.put_many(),
            29..36 => self.remove(name),
            36..38 => self.remove_many(40),
            38..46 => self.update(name),
            46..50 => self.set_expiry(name),
            50..56 => self.transact(),
            56 => drop(self.store().compact().unwrap()),
            57 if self.random.one_in(3) => self.grow(),
            _ => self.reopen(),
        }
    }

    pub fn step(&mut self) {
        self.steps += 1;
        let name = self.any_name();
        match self.random.below(100) {
            0..70 => self.change(),
            70..86 => self.get(name),
            86..92 => {
                let (db, keys) = self.some_names(100);
                self.get_many(db, &keys);
            }
            92 => self.scan(name.0, true),
            93 => drop(self.store().remove_expired().unwrap()),
            94 => {
                let other = self.random.below(DATABASES as u64) as usize;
                self.store().swap_databases(name.0, other).unwrap();
                self.model.swap(name.0, other);
            }
            95 if self.random.one_in(20) => {
                self.store().database(name.0).unwrap().clear().unwrap();
                self.model[name.0].clear();
            }
            _ => {
                self.calendar.0.fetch_add(self.random.below(200), Relaxed);
                self.expire();
            }
        }
    }

    /// Compares everything with the model.
    pub fn examine(&mut self) {
        for db in 0..DATABASES {
            self.scan(db, false);
            let keys: Vec<_> = (0..KEYS).map(key).collect();
            self.get_many(db, &keys);
        }
        let store = self.store();
        store.remove_expired().unwrap();
        for (db, model) in self.model.iter().enumerate() {
            assert_eq!(store.database(db).unwrap().len(), model.len() as u64);
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    pub fn run(&mut self, steps: u64) {
        for _ in 0..4 {
            (0..steps / 4).for_each(|_| self.step());
            self.reopen();
            self.examine();
        }
    }
}
