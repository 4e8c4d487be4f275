//! Clients that wait for keys: **one that has fallen asleep is woken by every later change that
//! makes its key ready**, and of those that wait for a key the first to come is served first.
//!
//! A client *enters*: it gets a place in the queue of each of its keys and is counted, passes a
//! full fence, and *looks*: it runs its command once more. A thread that may have made a key ready
//! *commits*, passes a full fence, and *asks* whether anybody is counted. So the client sees the
//! commit in its look, or the thread sees the client. A thread that sees clients *marks* the key as
//! ready for the first of its queue, and has that client's thread serve it if it is asleep. A
//! client whose look has found nothing *falls asleep* in its place, unless keys were marked for it
//! meanwhile: then it looks again. So a wake-up costs as much as the keys that were marked,
//! whatever else the client waits for.
//!
//! A client that looks passes over the keys for which another one has waited longer, and so does
//! one that has just come. When a client *leaves*, whatever the reason, it marks for the next one
//! each key that is there and that was marked for it or that it may have looked at. Another key
//! that is there is marked for another client, or was changed by a thread that has yet to ask.
//!
//! The models in `models` run this file under a model checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

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
    pub keys: Vec<Arc<[u8]>>,
}

impl Awaited {
    /// Bytes that waiting for it takes: each key, three references to it, and its place, for which
    /// a tree has twice the space.
    pub fn bytes(&self) -> usize {
        let one = |key: &Arc<[u8]>| key.len() + 4 * size_of::<Arc<[u8]>>() + 2 * size_of::<Place>();
        self.keys.iter().map(one).sum()
    }
}

/// A key that clients wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwaitedKey {
    pub database: usize,
    /// The kind of value that they wait for.
    pub kind: u8,
    pub key: Arc<[u8]>,
}

/// What becomes of a client whose look has found nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterLook {
    /// It sleeps.
    Asleep,
    /// It is to look again, for the sake of these keys.
    Ready(Vec<AwaitedKey>),
    /// Its wait was ended.
    Ended,
}

/// All clients that wait.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    /// Clients that wait.
    count: AtomicUsize,
    /// Those of them that wait for a key with this hash; one counts for each of its keys.
    counts: Box<[AtomicUsize]>,
    table: Mutex<Table>,
    /// How often the table was locked.
    #[cfg(test)]
    pub locked: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number of the client.
    waiters: BTreeMap<u64, Waiter>,
    /// The queues of all keys.
    places: BTreeSet<Place>,
}

/// A client in the queue of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: Arc<[u8]>,
    database: usize,
    kind: u8,
    /// By which those that wait for the same are served in their order.
    number: u64,
    client: u64,
}

impl Place {
    /// Before the first of a queue.
    fn front(database: usize, kind: u8, key: Arc<[u8]>) -> Self {
        Self {
            key,
            database,
            kind,
            number: 0,
            client: 0,
        }
    }

    /// Whether it is one of the queue of `front`.
    fn is_behind(&self, front: &Self) -> bool {
        (&self.key, self.database, self.kind) == (&front.key, front.database, front.kind)
    }
}

#[derive(Debug)]
struct Waiter {
    sleeper: Sleeper,
    awaited: Awaited,
    number: u64,
    /// Keys that were marked for it since its last look began.
    ready: BTreeSet<Arc<[u8]>>,
    /// Keys that were marked for the look that goes on; `None` before the end of its first one.
    looked_for: Option<BTreeSet<Arc<[u8]>>>,
    is_asleep: bool,
    ended: Option<WaitEnd>,
}

impl Waiter {
    /// Its place in the queue of one of its keys.
    fn place(&self, key: &Arc<[u8]>) -> Place {
        Place {
            key: Arc::clone(key),
            database: self.awaited.database,
            kind: self.awaited.kind,
            number: self.number,
            client: self.sleeper.client,
        }
    }

    fn awaited_key(&self, key: &Arc<[u8]>) -> AwaitedKey {
        AwaitedKey {
            database: self.awaited.database,
            kind: self.awaited.kind,
            key: Arc::clone(key),
        }
    }
}

impl WaitQueues {
    /// Empty ones, which count so many hashes of keys apart.
    pub fn new(counts: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            counts: (0..counts).map(|_| AtomicUsize::new(0)).collect(),
            table: Mutex::new(Table::default()),
            #[cfg(test)]
            locked: Default::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        #[cfg(test)]
        self.locked.fetch_add(1, Ordering::Relaxed);
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_of(&self, key: &[u8]) -> &AtomicUsize {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        &self.counts[(hash >> 32) as usize % self.counts.len()]
    }

    /// Makes a client the last in the queues of its keys. It is to look afterwards.
    pub fn enter(&self, sleeper: Sleeper, awaited: Awaited) {
        let mut table = self.table();
        table.next += 1;
        let waiter = Waiter {
            sleeper,
            awaited,
            number: table.next,
            ready: BTreeSet::new(),
            looked_for: None,
            is_asleep: false,
            ended: None,
        };
        for key in &waiter.awaited.keys {
            if table.places.insert(waiter.place(key)) {
                // SYNC: pairs with the load in `may_await`, by the fences.
                self.count_of(key).fetch_add(1, Ordering::Relaxed);
            }
        }
        table.waiters.insert(sleeper.client, waiter);
        // SYNC: pairs with the load in `is_anybody_waiting`, by the fences.
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(table);
        // SYNC: pairs with the fence in `is_anybody_waiting`.
        fence(Ordering::SeqCst);
    }

    /// Makes a client, whose look has found nothing, or who has not looked for the keys that were
    /// marked since, fall asleep in its place if it can.
    pub fn sleep(&self, client: u64) -> AfterLook {
        let mut table = self.table();
        let Some(waiter) = table.waiters.get_mut(&client) else {
            return AfterLook::Ended;
        };
        if waiter.ended.is_some() {
            return AfterLook::Ended;
        }
        let ready = std::mem::take(&mut waiter.ready);
        waiter.is_asleep = ready.is_empty();
        let slept = match waiter.is_asleep {
            true => AfterLook::Asleep,
            false => AfterLook::Ready(ready.iter().map(|key| waiter.awaited_key(key)).collect()),
        };
        waiter.looked_for = Some(ready);
        slept
    }

    /// Whether another client has waited longer than `client`, or waits at all if that one does
    /// not, for a value of this kind under `key`, which is to be passed over then.
    pub fn is_preceded(&self, client: u64, database: usize, kind: u8, key: &[u8]) -> bool {
        if !self.may_await(key) {
            return false;
        }
        let front = Place::front(database, kind, key.into());
        let table = self.table();
        let number = (table.waiters.get(&client)).map_or(u64::MAX, |waiter| waiter.number);
        let first = table.places.range(&front..).next();
        first.is_some_and(|first| first.is_behind(&front) && first.number < number)
    }

    /// Whether a key that was made ready before may concern anybody.
    #[inline]
    pub fn is_anybody_waiting(&self) -> bool {
        // SYNC: pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether clients may wait for `key`. If not, no lock is taken.
    pub fn may_await(&self, key: &[u8]) -> bool {
        // SYNC: pairs with the addition in `enter`, by the fences.
        self.count_of(key).load(Ordering::Relaxed) != 0
    }

    /// Marks `key` as ready for the first client, for each type, that waits for it in `database`;
    /// `None`: in each database. Those of them that are asleep, which look now. The caller has
    /// asked whether [anybody waits](Self::is_anybody_waiting) since it made the key ready.
    pub fn wake_first(&self, database: Option<usize>, key: &[u8]) -> Vec<Sleeper> {
        if !self.may_await(key) {
            return Vec::new();
        }
        let mut front = Place::front(database.unwrap_or(0), 0, key.into());
        let mut woken = Vec::new();
        let Table {
            waiters, places, ..
        } = &mut *self.table();
        while let Some(place) = places.range(&front..).next()
            && place.key == front.key
            && database.is_none_or(|database| database == place.database)
        {
            if let Some(waiter) = waiters.get_mut(&place.client) {
                waiter.ready.insert(Arc::clone(&place.key));
                if std::mem::replace(&mut waiter.is_asleep, false) {
                    woken.push(waiter.sleeper);
                }
            }
            front = Place {
                number: u64::MAX,
                client: u64::MAX,
                ..place.clone()
            };
        }
        woken
    }

    /// The keys that clients wait for in a database of which `is_meant` holds.
    pub fn awaited(&self, is_meant: impl Fn(usize) -> bool) -> Vec<AwaitedKey> {
        let table = self.table();
        let mut awaited: Vec<AwaitedKey> = Vec::new();
        for place in table.places.iter().filter(|one| is_meant(one.database)) {
            let key = AwaitedKey {
                database: place.database,
                kind: place.kind,
                key: Arc::clone(&place.key),
            };
            if awaited.last() != Some(&key) {
                awaited.push(key);
            }
        }
        awaited
    }

    /// Ends a client's wait. Where it is, if it waits: its thread has to serve it.
    pub fn end(&self, client: u64, ended: WaitEnd) -> Option<Sleeper> {
        let mut table = self.table();
        let waiter = table.waiters.get_mut(&client)?;
        if waiter.ended.is_some() {
            return None;
        }
        (waiter.ended, waiter.is_asleep) = (Some(ended), false);
        Some(waiter.sleeper)
    }

    /// Whether a client's wait was ended.
    pub fn ended(&self, client: u64) -> Option<WaitEnd> {
        self.table().waiters.get(&client)?.ended
    }

    /// Notes that a client waits no longer. The caller [wakes](Self::wake_first) the next client
    /// for each of the returned keys that is there.
    pub fn leave(&self, client: u64) -> Vec<AwaitedKey> {
        let mut table = self.table();
        let Some(waiter) = table.waiters.remove(&client) else {
            return Vec::new();
        };
        for key in &waiter.awaited.keys {
            if table.places.remove(&waiter.place(key)) {
                // SYNC: pairs with nothing: one that is seen too long costs a look at the table.
                self.count_of(key).fetch_sub(1, Ordering::Relaxed);
            }
        }
        // SYNC: as above.
        self.count.fetch_sub(1, Ordering::Relaxed);
        drop(table);
        let awaited = |key| waiter.awaited_key(key);
        match &waiter.looked_for {
            Some(looked_for) => looked_for.union(&waiter.ready).map(awaited).collect(),
            None => waiter.awaited.keys.iter().map(awaited).collect(),
        }
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
