//! Clients that wait for keys: **one that has fallen asleep is woken by every later change that
//! makes its key ready**, and of those that wait for a key the first to come is woken first.
//!
//! A client *falls asleep*: it is entered in the queues of its keys and counted, passes a full
//! fence, and *looks*: it runs its command once more. A thread that may have made a key ready
//! *commits*, passes a full fence, and *asks* whether anybody is counted. So the client sees the
//! commit in its look, or the thread sees the client. A thread that sees one takes it out of all
//! queues and tells its thread, which has the client look again. If the look finds nothing, the
//! client falls asleep again, in its old place, and looks once more.
//!
//! A client that looks passes over the keys for which another one has waited longer: that one is
//! asleep, and is woken by what comes, or is about to look. When a client leaves, whatever the
//! reason, it wakes the next one for each of its keys that is there.
//!
//! The models in `models` run this file under a model checker.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicUsize, Mutex, MutexGuard, fence};

/// Where a client is that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// Its thread.
    pub thread: usize,
    /// The place of its connection in its thread's slab.
    pub key: usize,
    /// Its number.
    pub client: u64,
}

/// Why a client is not to wait any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// As if its time were up.
    TimedOut,
    /// With an error.
    Unblocked,
}

/// What a client waits for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    pub database: usize,
    /// Of clients that wait for values of different types the first of each is woken.
    pub kind: u8,
    /// In the order of the command; it may name one twice.
    pub keys: Vec<Box<[u8]>>,
}

/// All clients that wait.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    /// Clients that are asleep.
    asleep: AtomicUsize,
    /// Those of them that wait for a key with this hash; one counts for each of its keys.
    marks: Box<[AtomicUsize]>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number of the client.
    waiters: BTreeMap<u64, Waiter>,
    queues: HashMap<Box<[u8]>, Queue>,
}

/// The clients that wait for a key.
#[derive(Debug, Default)]
struct Queue {
    all: BTreeSet<Place>,
    asleep: BTreeSet<Place>,
}

/// A client in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    database: usize,
    kind: u8,
    number: u64,
    client: u64,
}

#[derive(Debug)]
struct Waiter {
    sleeper: Sleeper,
    awaited: Awaited,
    place: Place,
    is_asleep: bool,
    ended: Option<WaitEnd>,
}

impl WaitQueues {
    /// Empty ones, with so many marks.
    pub fn new(marks: usize) -> Self {
        Self {
            asleep: AtomicUsize::new(0),
            marks: (0..marks).map(|_| AtomicUsize::new(0)).collect(),
            table: Mutex::new(Table::default()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, key: &[u8]) -> &AtomicUsize {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        &self.marks[(hash >> 32) as usize % self.marks.len()]
    }

    /// Makes a client fall asleep, as the last in the queues of its keys if it has not waited
    /// before, else in its old place. It is to look once more afterwards. Whether it sleeps: its
    /// wait may have been ended.
    pub fn fall_asleep(&self, sleeper: Sleeper, awaited: impl FnOnce() -> Awaited) -> bool {
        let mut table = self.table();
        let Table {
            next,
            waiters,
            queues,
        } = &mut *table;
        let client = sleeper.client;
        let waiter = waiters.entry(client).or_insert_with(|| {
            *next += 1;
            let awaited = awaited();
            let place = Place {
                database: awaited.database,
                kind: awaited.kind,
                number: *next,
                client,
            };
            for key in &awaited.keys {
                queues.entry(key.clone()).or_default().all.insert(place);
            }
            Waiter {
                sleeper,
                awaited,
                place,
                is_asleep: false,
                ended: None,
            }
        });
        if waiter.ended.is_some() {
            return false;
        }
        if !std::mem::replace(&mut waiter.is_asleep, true) {
            for key in &waiter.awaited.keys {
                let queue = queues.entry(key.clone()).or_default();
                if queue.asleep.insert(waiter.place) {
                    // SYNC: pairs with the load in `wake_first`, by the fences.
                    self.mark(key).fetch_add(1, Ordering::Relaxed);
                }
            }
            // SYNC: pairs with the load in `is_anybody_asleep`, by the fences.
            self.asleep.fetch_add(1, Ordering::Relaxed);
        }
        drop(table);
        // SYNC: pairs with the fence in `is_anybody_asleep`.
        fence(Ordering::SeqCst);
        true
    }

    /// Whether another client has waited longer than `client` for `key`, which is to pass it over
    /// then.
    pub fn is_preceded(&self, client: u64, key: &[u8]) -> bool {
        let table = self.table();
        let Some(waiter) = table.waiters.get(&client) else {
            return false;
        };
        let Some(queue) = table.queues.get(key) else {
            return false;
        };
        let first = Place {
            number: 0,
            client: 0,
            ..waiter.place
        };
        queue.all.range(first..waiter.place).next().is_some()
    }

    /// Whether a key that was made ready before may concern anybody.
    #[inline]
    pub fn is_anybody_asleep(&self) -> bool {
        // SYNC: pairs with the fence in `fall_asleep`.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0
    }

    /// Wakes the first client, for each type, that waits for `key` in `database`; `None`: in each
    /// database. The caller has asked whether [anybody is asleep](Self::is_anybody_asleep) since it
    /// made the key ready.
    pub fn wake_first(&self, database: Option<usize>, key: &[u8]) -> Vec<Sleeper> {
        // SYNC: pairs with the addition in `fall_asleep`, by the fences.
        if self.mark(key).load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut table = self.table();
        let Some(queue) = table.queues.get(key) else {
            return Vec::new();
        };
        let mut first = Vec::new();
        let mut from = Place {
            database: database.unwrap_or(0),
            kind: 0,
            number: 0,
            client: 0,
        };
        while let Some(place) = queue.asleep.range(from..).next()
            && database.is_none_or(|database| database == place.database)
        {
            first.push(place.client);
            from = Place {
                number: u64::MAX,
                client: u64::MAX,
                ..*place
            };
        }
        let mut wake = |client| self.wake(&mut table, client);
        first.into_iter().filter_map(&mut wake).collect()
    }

    /// Wakes all clients that wait.
    pub fn wake_all(&self) -> Vec<Sleeper> {
        let mut table = self.table();
        let all: Vec<u64> = table.waiters.keys().copied().collect();
        let mut wake = |client| self.wake(&mut table, client);
        all.into_iter().filter_map(&mut wake).collect()
    }

    /// Wakes a client. `None`: it is not asleep.
    fn wake(&self, table: &mut Table, client: u64) -> Option<Sleeper> {
        let Table {
            waiters, queues, ..
        } = table;
        let waiter = waiters.get_mut(&client)?;
        if !std::mem::replace(&mut waiter.is_asleep, false) {
            return None;
        }
        for key in &waiter.awaited.keys {
            if let Some(queue) = queues.get_mut(key)
                && queue.asleep.remove(&waiter.place)
            {
                // SYNC: pairs with nothing: one that is seen too long costs a look at the table.
                self.mark(key).fetch_sub(1, Ordering::Relaxed);
            }
        }
        // SYNC: as above.
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        Some(waiter.sleeper)
    }

    /// Ends a client's wait. Whether it waits; and where it is, if it is asleep and its thread has
    /// to serve it.
    pub fn end(&self, client: u64, ended: WaitEnd) -> (bool, Option<Sleeper>) {
        let mut table = self.table();
        let Some(waiter) = table.waiters.get_mut(&client) else {
            return (false, None);
        };
        if waiter.ended.is_some() {
            return (false, None);
        }
        waiter.ended = Some(ended);
        (true, self.wake(&mut table, client))
    }

    /// Whether a client's wait was ended.
    pub fn ended(&self, client: u64) -> Option<WaitEnd> {
        self.table().waiters.get(&client)?.ended
    }

    /// Notes that a client waits no longer, and returns what it has waited for. The caller wakes
    /// the next client for each of these keys that is there.
    pub fn leave(&self, client: u64) -> Option<Awaited> {
        let mut table = self.table();
        self.wake(&mut table, client);
        let waiter = table.waiters.remove(&client)?;
        for key in &waiter.awaited.keys {
            if let Some(queue) = table.queues.get_mut(key) {
                queue.all.remove(&waiter.place);
                if queue.all.is_empty() {
                    table.queues.remove(key);
                }
            }
        }
        drop(table);
        // SYNC: pairs with the fence in `fall_asleep`: the caller sees what a client has passed
        // over that is asleep now.
        fence(Ordering::SeqCst);
        Some(waiter.awaited)
    }

    /// Whether a client waits, asleep or about to look.
    #[cfg(test)]
    #[allow(dead_code, reason = "the models ask")]
    pub fn waits(&self, client: u64) -> bool {
        self.table().waiters.contains_key(&client)
    }

    /// How many clients wait, asleep or about to look.
    pub fn len(&self) -> usize {
        self.table().waiters.len()
    }
}
