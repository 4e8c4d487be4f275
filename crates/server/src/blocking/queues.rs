//! Clients that wait for keys: **one that has fallen asleep is woken by every later change that
//! makes its key ready**, and clients that wait for the same key are served in the order of their
//! arrival.
//!
//! A client *enters*: it is added to the queue of each of its keys and is counted, passes a full
//! fence, and *looks*: it runs its command once more. A thread that may have made a key ready
//! *commits*, passes a full fence, and *asks* whether any client is counted. So the client sees the
//! commit in its look, or the thread sees the client. A thread that sees clients *marks* the key as
//! ready for the first of its queue, and has that client's thread serve it if it is asleep. A
//! client whose look found nothing *falls asleep* without leaving its place, unless keys were
//! marked for it meanwhile: then it looks again. So a wake-up costs as much as the keys that were
//! marked, whatever else the client waits for.
//!
//! A client that looks skips keys for which another client has waited longer, and so does a
//! newcomer. When a client *leaves*, for whatever reason, it marks some of its keys for the next
//! client: those that exist and that were marked for it, or that it may have looked at. Any other
//! existing key is already marked for another client, or was changed by a thread that has yet to
//! ask.
//!
//! The models in `models` run this file under a model checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::primitives::{AtomicUsize, Mutex, MutexGuard, fence};

/// The place of a waiting client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sleeper {
    /// Its thread.
    pub thread: usize,
    /// The index of its connection in its thread's slab.
    pub key: usize,
    /// Its number.
    pub client: u64,
}

/// Why a client must stop waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// As if its timeout had passed.
    TimedOut,
    /// With an error.
    Unblocked,
}

/// The keys that a client waits for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    pub database: usize,
    /// The kind of value. If clients wait for values of different kinds, the first of each kind is
    /// woken.
    pub kind: u8,
    /// In the order of the command, which may name a key twice.
    pub keys: Vec<Arc<[u8]>>,
}

impl Awaited {
    /// The number of bytes that the wait takes: for each key its bytes, three references to it, and
    /// its place, for which a tree has twice the space.
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

/// What a client does after a look that found nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterLook {
    /// It sleeps.
    Asleep,
    /// It must look again, because of these keys.
    Ready(Vec<AwaitedKey>),
    /// Its wait was ended.
    Ended,
}

/// All clients that wait.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    /// The number of waiting clients.
    count: AtomicUsize,
    /// The number of clients that wait for a key with this hash; a client counts once for each of
    /// its keys.
    counts: Box<[AtomicUsize]>,
    table: Mutex<Table>,
    /// How often the table was locked.
    #[cfg(test)]
    pub locked: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Clients by their numbers.
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
    /// The order of arrival among clients that wait for the same key.
    number: u64,
    client: u64,
}

impl Place {
    /// The place before the first one of a queue.
    fn front(database: usize, kind: u8, key: Arc<[u8]>) -> Self {
        Self {
            key,
            database,
            kind,
            number: 0,
            client: 0,
        }
    }

    /// Whether it belongs to the queue of `front`.
    fn is_behind(&self, front: &Self) -> bool {
        (&self.key, self.database, self.kind) == (&front.key, front.database, front.kind)
    }
}

#[derive(Debug)]
struct Waiter {
    sleeper: Sleeper,
    awaited: Awaited,
    number: u64,
    /// Keys that were marked for the client since its last look began.
    ready: BTreeSet<Arc<[u8]>>,
    /// Keys that were marked for the current look; `None` until its first look has ended.
    looked_for: Option<BTreeSet<Arc<[u8]>>>,
    is_asleep: bool,
    ended: Option<WaitEnd>,
}

impl Waiter {
    /// The client's place in the queue of one of its keys.
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
    /// Empty queues with this number of counters.
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

    /// Adds a client to the end of the queues of its keys. It must look afterwards.
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

    /// Called when a client's look has found nothing, or when it has not looked at the keys that
    /// were marked since: makes it fall asleep in its place if it may.
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

    /// Whether another client has waited longer than `client` for a value of this kind under `key`,
    /// so that `client` must skip the key. If `client` does not wait itself, any waiting client
    /// precedes it.
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

    /// Whether any client may wait for a key that was made ready before this call.
    #[inline]
    pub fn is_anybody_waiting(&self) -> bool {
        // SYNC: pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Whether clients may wait for `key`. Takes no lock if not.
    pub fn may_await(&self, key: &[u8]) -> bool {
        // SYNC: pairs with the addition in `enter`, by the fences.
        self.count_of(key).load(Ordering::Relaxed) != 0
    }

    /// Marks `key` as ready for the first client of each kind that waits for it in `database`;
    /// `None`: in each database. Returns those of them that are asleep, which must look now. The
    /// caller must have called [`is_anybody_waiting`](Self::is_anybody_waiting) after it made the
    /// key ready.
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

    /// The keys that clients wait for in the databases for which `is_meant` returns true.
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

    /// Ends a client's wait. Returns the client's place, if it waits: its thread must serve it.
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

    /// Removes a client that waits no longer. The caller must [wake](Self::wake_first) the next
    /// client for each of the returned keys that exists.
    pub fn leave(&self, client: u64) -> Vec<AwaitedKey> {
        let mut table = self.table();
        let Some(waiter) = table.waiters.remove(&client) else {
            return Vec::new();
        };
        for key in &waiter.awaited.keys {
            if table.places.remove(&waiter.place(key)) {
                // SYNC: pairs with nothing: a count that is seen too long only costs a look at the
                // table.
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

    /// Whether a client waits: asleep, or about to look.
    #[cfg(test)]
    #[allow(dead_code, reason = "the models ask")]
    pub fn waits(&self, client: u64) -> bool {
        self.table().waiters.contains_key(&client)
    }

    /// The number of clients that wait: asleep, or about to look.
    pub fn len(&self) -> usize {
        self.table().waiters.len()
    }
}
