//! The operations that are crossed: for each a few steps that pass through its fault points.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mneme_arena::{CacheLookup, Discardable, Ticket};
use mneme_log::{
    BatchError, Cursor, Decision, Evict, Expiry, GrowError, LogStore, Patch, Transaction,
    WriteError,
};
use mneme_sys::NodeId;

use crate::calendar::{COPIES, Calendar};
use crate::model::{FILLED, Kept, Key, Step};

/// The second database, beside database 0.
pub const OTHER: usize = 9;
/// An empty database.
pub const NEW: usize = 12;
/// A time that no test reaches.
pub const FAR: u64 = 1 << 40;
/// The time when the store is prepared; what has expired then expired before the test.
pub const START: u64 = 1_000_000;
/// The expiry of records that expire during a test: a [`Step::Pass`] goes beyond it.
pub const SOON: u64 = START + 1000;
/// The number of bytes by which a store may grow.
pub const GROWN: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    Put,
    PutLarge,
    Batch,
    Remove,
    Update,
    Retime,
    Patch,
    Transact,
    TransactMany,
    Overtaken,
    Guarded,
    Named,
    Move,
    Read,
    Clear,
    ClearOther,
    Swap,
    Compact,
    /// Log segments are emptied to save memory, which is given back.
    KeepFilled,
    Evict,
    /// Only records that expire are evicted.
    EvictExpiring,
    /// The store becomes full, and stays full.
    Fill,
    Sweep,
    Index,
    Grow,
    Check,
    Reap,
    /// The reaper of X dies as well, at one of its places.
    ReapDying,
    /// An opening that may only read.
    ReadOnly,
    /// Time passes, and records that were to expire have expired.
    Expire,
    Follow,
    /// A tenant that uses the store's unused frames.
    Lend,
}

pub const ALL: [Action; 32] = [
    Action::Put,
    Action::PutLarge,
    Action::Batch,
    Action::Remove,
    Action::Update,
    Action::Retime,
    Action::Patch,
    Action::Transact,
    Action::TransactMany,
    Action::Overtaken,
    Action::Guarded,
    Action::Named,
    Action::Move,
    Action::Read,
    Action::Clear,
    Action::ClearOther,
    Action::Swap,
    Action::Compact,
    Action::KeepFilled,
    Action::Evict,
    Action::EvictExpiring,
    Action::Fill,
    Action::Sweep,
    Action::Index,
    Action::Grow,
    Action::Check,
    Action::Reap,
    Action::ReapDying,
    Action::ReadOnly,
    Action::Expire,
    Action::Follow,
    Action::Lend,
];

pub fn key(i: u32) -> Key {
    (0, format!("key-{i:04}").into_bytes())
}

pub fn other(i: u32) -> Key {
    (OTHER, format!("key-{i:04}").into_bytes())
}

pub fn value(i: u32, round: u32, len: usize) -> Vec<u8> {
    let mut value: Vec<u8> = (0..len)
        .map(|b| (i as usize * 3 + round as usize * 7 + b) as u8)
        .collect();
    value.extend_from_slice(&round.to_le_bytes());
    value
}

pub fn kept(i: u32, round: u32, len: usize, expires: u64) -> Kept {
    let value = Arc::new(value(i, round, len));
    Kept { value, expires }
}

/// The expiry of record `i` of the prepared store.
pub fn expires(i: u32) -> u64 {
    match i % 8 {
        1 => SOON,
        2 => START - 10,
        3 => FAR,
        _ => 0,
    }
}

/// The first key of the values of 90,000 bytes in database [`FILLED`], of a store that is to be
/// filled: they leave less to be added.
pub const FILLERS: u32 = 1 << 20;
/// The number of these values.
pub const FILLING: u32 = 450;

/// Records in database 0.
pub const RECORDS: u32 = 240;
/// A long value whose parts are changed.
pub const LONG: u32 = 9000;
/// A value with an extent of its own.
pub const LARGE: u32 = 9001;

/// Places that a reap passes.
pub const REAP_PLACES: [&str; 12] = [
    "log.reap.begin",
    "log.reap.swap",
    "log.reap.index",
    "log.reap.operation",
    "log.reap.heads",
    "log.reap.segments",
    "txn.unlocked",
    "sync.reap.taken",
    "sync.reap.marked",
    "sync.reap.repaired",
    "sync.vacate.pin",
    "sync.reap.cleared",
];

impl Action {
    /// The steps of the action.
    pub fn steps(self) -> Vec<Step> {
        match self {
            Action::Put => puts(),
            Action::PutLarge => vec![
                Step::Put(key(LARGE), kept(LARGE, 1, 1_300_000, 0)),
                Step::Put(key(LARGE + 1), kept(LARGE + 1, 1, 2_500_000, FAR)),
                Step::Remove(key(LARGE)),
            ],
            Action::Batch => batches(),
            Action::Remove => [5, 1, 2, 3, LONG].map(|i| Step::Remove(key(i))).to_vec(),
            Action::Update => vec![
                Step::Update(key(1), kept(1, 3, 100, FAR)),
                Step::Update(key(9), kept(9, 3, 700, 0)),
                Step::Update(key(2), kept(2, 3, 100, 0)),
                Step::Update(key(3), kept(3, 3, 300, SOON)),
                Step::Update(key(4), kept(4, 3, 100, 0)),
            ],
            Action::Retime => vec![
                Step::Retime(key(1), FAR),
                Step::Retime(key(9), 0),
                Step::Retime(key(2), FAR),
                Step::Retime(key(3), SOON),
                Step::Retime(key(4), FAR),
            ],
            Action::Patch => vec![
                Step::Patch(key(LONG), 300, value(1, 4, 40)),
                Step::Patch(key(LONG), 11_990, value(2, 4, 400)),
                Step::Patch(key(17), 20, value(3, 4, 40)),
                Step::Patch(key(4), 20, value(3, 4, 10)),
                Step::Patch(key(LARGE), 1_000_000, value(4, 4, 3000)),
            ],
            Action::Transact => vec![
                Step::Transact(changes(5)),
                Step::Look(vec![key(0), other(1)]),
            ],
            Action::TransactMany => {
                let mut many = changes(6);
                many.extend((0..4200).map(|i| (key(20_000 + i), Some(kept(i, 6, 8, 0)))));
                vec![Step::Transact(many)]
            }
            Action::Overtaken => vec![Step::Overtaken(changes(7))],
            Action::Guarded => vec![Step::Guarded(changes(8))],
            Action::Named => vec![Step::Named(changes(9))],
            Action::Move => vec![Step::Move(key(200), OTHER), Step::Move(key(1), NEW)],
            Action::Read | Action::ReadOnly => {
                vec![Step::Read, Step::Look((0..40).map(key).collect())]
            }
            Action::Clear => vec![Step::Clear(0), Step::Compact],
            Action::ClearOther => vec![Step::Clear(OTHER), Step::Compact],
            Action::Swap => vec![Step::Swap(0, OTHER)],
            Action::Compact => vec![
                Step::Compact,
                Step::GiveBack,
                Step::Compact,
                Step::Compact,
                Step::GiveBack,
            ],
            Action::KeepFilled => vec![Step::KeepFilled, Step::GiveBack, Step::KeepFilled],
            Action::Evict => vec![Step::Evict(&[Evict::Lru])],
            Action::EvictExpiring => vec![Step::Evict(&[
                Evict::ExpiringLru,
                Evict::ExpiringLfu,
                Evict::ExpiringRandom,
                Evict::ExpiringSoonest,
            ])],
            Action::Fill => vec![Step::Fill],
            Action::Sweep => vec![Step::Sweep, Step::Pass(SOON - START), Step::Sweep],
            Action::Index => many_keys(),
            Action::Grow => vec![Step::Grow],
            Action::Check => vec![Step::Check],
            Action::Reap => vec![Step::Reap],
            // Each of them is tried by some scenario.
            Action::ReapDying => REAP_PLACES.map(Step::ReapTo).to_vec(),
            Action::Expire => vec![Step::Pass(SOON - START)],
            Action::Follow => vec![Step::Follow],
            Action::Lend => vec![Step::Lend; 2],
        }
    }
}

/// Puts of an old key, an expired one, one that will expire, a new one, and the first of a
/// database.
fn puts() -> Vec<Step> {
    let expired = (2..RECORDS).step_by(8);
    let old = [0, 1, 300].into_iter().chain(expired);
    let first = Step::Put((NEW, b"first".to_vec()), kept(0, 1, 50, FAR));
    let old = old.map(|i| Step::Put(key(i), kept(i, 1, 90, 0)));
    old.chain([first]).collect()
}

fn batches() -> Vec<Step> {
    let keys = (20..60).chain(400..420);
    let pairs = keys.map(|i| (key(i).1, value(i, 2, 120)));
    let gone = (30..50).map(|i| key(i).1);
    vec![
        Step::PutMany(0, pairs.collect()),
        Step::RemoveMany(0, gone.collect()),
    ]
}

/// Makes the index grow and shrink.
fn many_keys() -> Vec<Step> {
    let keys = || (0..3000).map(|i| key(50_000 + i).1);
    vec![
        Step::PutMany(0, keys().map(|k| (k, vec![1; 8])).collect()),
        Step::RemoveMany(0, keys().collect()),
        Step::Compact,
    ]
}

/// The changes of a transaction: old keys, expired ones, new ones, in two databases; some are
/// removed.
fn changes(round: u32) -> Vec<(Key, Option<Kept>)> {
    let put = |key: fn(u32) -> Key, i, expires| (key(i), Some(kept(i, round, 110, expires)));
    let old = (0..24).step_by(3).map(|i| put(key, i, 0));
    let new = (500..530).map(|i| put(key, i, 0));
    let others = (0..6).map(|i| put(other, i, FAR));
    let gone = [1, 2, 7].into_iter().map(|i| (key(i), None));
    let all = old.chain(new).chain(others).chain(gone);
    let mut all: Vec<_> = all.collect();
    all.push((other(7), None));
    all
}

/// The size of a tenant's copies. Three fill a frame.
const COPY: usize = 650_000;

/// Each byte of the value that a tenant's key has in its `version`. It is not zero in an image.
fn copied_byte(i: usize, version: u32) -> u8 {
    (i as u32 * 16 + version + 1) as u8
}

/// The value that a tenant's key has in its `version`, in `buffer`.
fn copy(i: usize, version: u32, buffer: &mut Vec<u8>) -> &[u8] {
    buffer.clear();
    buffer.resize(COPY, copied_byte(i, version));
    buffer
}

/// Looks a copy up. If it is found, it must be no older than the valid version when this began.
fn looked_up(
    cache: &Discardable,
    i: usize,
    clock: &Calendar,
    found: &mut Vec<u8>,
) -> Option<Ticket> {
    let oldest = clock.settled[i].load(SeqCst);
    found.clear();
    match cache.get(&key(i as u32).1, found) {
        CacheLookup::Hit => {
            let newest = clock.changing[i].load(SeqCst);
            let first = found.first().copied();
            let is_whole = found.len() == COPY && found[1..] == found[..COPY - 1];
            let is_right =
                is_whole && (oldest..=newest).any(|version| first == Some(copied_byte(i, version)));
            assert!(
                is_right,
                "the copy of {i} is {first:?}, of {oldest} to {newest}"
            );
            None
        }
        CacheLookup::Miss(ticket) => Some(ticket),
    }
}

/// Looks all copies up.
pub fn look_at_copies(store: &LogStore, clock: &Calendar) {
    let mut found = Vec::new();
    for i in 0..COPIES {
        (store.discardable()).map(|cache| looked_up(cache, i, clock, &mut found));
    }
}

/// The work of a tenant.
pub fn rent(store: &LogStore, clock: &Calendar) -> Result<(), WriteError> {
    let cache = store.discardable().expect("a scenario with a tenant lends");
    let slot = cache.arena().participants().slot()?;
    let buffer = &mut Vec::new();
    for i in 0..8 {
        if let Some(ticket) = looked_up(cache, i, clock, buffer) {
            // Read after the ticket was given.
            let copy = copy(i, clock.changing[i].load(SeqCst), buffer);
            let _ = cache
                .fill(&slot, NodeId(0), ticket, &key(i as u32).1, copy)
                .unwrap();
        }
    }
    // Before a key changes again: another tenant's changes during this one's fill must not be
    // found.
    for i in 0..8 {
        looked_up(cache, i, clock, buffer);
    }
    // X stops while filling one of these: in its first passage, or in the middle one.
    for i in [0, 6] {
        clock.change(i, |_| cache.remove(&key(i as u32).1).unwrap());
        looked_up(cache, i, clock, buffer);
    }
    // No other tenant puts this one, because it would not be known which of two puts is the later.
    let own = 8 + clock.tenants.fetch_add(1, SeqCst) as usize % (COPIES - 8);
    for _ in 0..2 {
        clock.change(own, |version| {
            let copy = copy(own, version, buffer);
            let _ = cache
                .put(&slot, NodeId(0), &key(own as u32).1, copy)
                .unwrap();
        });
        looked_up(cache, own, clock, buffer);
    }
    cache.sweep().unwrap();
    Ok(())
}

fn done(batch: Result<usize, BatchError>) -> Result<(), WriteError> {
    batch.map(drop).map_err(|e| e.source)
}

fn expiry(expires: u64) -> Expiry {
    match expires {
        0 => Expiry::Never,
        at => Expiry::At(at),
    }
}

impl Step {
    /// Runs the step on a store.
    pub fn run(&self, store: &LogStore, clock: &Calendar) -> Result<(), WriteError> {
        let of = |key: &Key| store.database(key.0).map_err(WriteError::from);
        match self {
            Step::Put(key, kept) => {
                of(key)?.put_until(&key.1, &kept.value, expiry(kept.expires))?;
            }
            Step::PutMany(db, pairs) => {
                done(store.database(*db)?.put_many(pairs).map(|()| 0))?;
            }
            Step::Remove(key) => {
                of(key)?.remove(&key.1)?;
            }
            Step::RemoveMany(db, keys) => done(store.database(*db)?.remove_many(keys))?,
            Step::Update(key, kept) => {
                of(key)?.update(&key.1, |old| match old {
                    Some(_) => Decision::ReplaceUntil(kept.value.to_vec(), expiry(kept.expires)),
                    None => Decision::Keep,
                })?;
            }
            Step::Retime(key, expires) => {
                of(key)?.set_expiry(&key.1, expiry(*expires))?;
            }
            Step::Patch(key, at, bytes) => {
                of(key)?.update_part(
                    &key.1,
                    |_| *at..*at + 8,
                    |part| match part {
                        Some(_) => Patch::Write {
                            at: *at,
                            bytes: Cow::Borrowed(bytes),
                        },
                        None => Patch::Keep,
                    },
                )?;
            }
            Step::Transact(changes) => store.transaction(|t| change(t, changes))?,
            Step::Named(changes) => {
                let keys: Vec<_> = changes.iter().map(|(key, _)| key.clone()).collect();
                store.transaction_on(&keys, |t| change(t, changes))?;
            }
            Step::Move(key, db) => store.transaction(|t| move_to(t, key, *db))?,
            Step::Overtaken(changes) => overtaken(store, changes)?,
            Step::Guarded(changes) => guarded(store, changes)?,
            Step::Look(keys) => store.transaction(|t| {
                for (db, key) in keys {
                    t.database(*db)?.get(key)?;
                }
                Ok::<_, WriteError>(())
            })?,
            Step::Read => read(store)?,
            Step::Clear(db) => store.database(*db)?.clear()?,
            Step::Swap(a, b) => store.swap_databases(*a, *b)?,
            Step::Compact => {
                store.compact()?;
            }
            Step::KeepFilled => {
                let mut policy = store.fill_policy();
                (policy.target_fill, policy.ignored_bytes) = (0.95, 1);
                store.set_fill_policy(policy);
                // The clock does not advance here: this ends when no victim is left.
                store.compact_for(Duration::from_secs(1))?;
            }
            Step::GiveBack => {
                store.give_back_memory()?;
            }
            Step::Evict(policies) => evict(store, policies)?,
            Step::Fill => fill(store)?,
            Step::Sweep => {
                store.remove_expired()?;
            }
            Step::Grow => match store.grow(store.capacity() + GROWN as u64 / 2) {
                Ok(_) => {}
                Err(GrowError::Stalled(stalled)) => return Err(stalled.into()),
                Err(other) => panic!("{other}"),
            },
            Step::Check => {
                // If it had to wait for X, its error says so, and it finds out nothing.
                let mut problems = store.check()?.problems;
                problems.retain(|problem| !problem.starts_with("waited "));
                assert_eq!(problems, Vec::<String>::new());
            }
            Step::Reap => {
                store.reap()?;
            }
            // The scenario does that.
            Step::ReapTo(_) => {}
            Step::Pass(ms) => clock.pass(*ms),
            Step::Follow => {
                drop(store.take_server_role());
                let mut listener = store.listen()?;
                listener.drain(100, |_| {})?;
                drop(listener.sleep());
            }
            Step::Lend => rent(store, clock)?,
        }
        Ok(())
    }
}

/// A transaction whose attempts fail because of other changes until it locks ahead.
fn overtaken(store: &LogStore, changes: &[(Key, Option<Kept>)]) -> Result<(), WriteError> {
    let mut runs = 0u32;
    store.transaction(|t| {
        runs += 1;
        change(t, changes)?;
        // It expires, so in the end readers wait while the body runs.
        t.get(&key(11).1)?;
        match runs {
            // The change that makes its attempts fail is of a key in the bucket of a key that it
            // reads, and belongs to no other test.
            ..=16 => {
                t.get(b"overtaken")?;
                store.put(b"overtaken", &runs.to_le_bytes().repeat(8))
            }
            _ => Ok(()),
        }
    })
}

/// A transaction whose first key is watched, or one without a watch after that has failed.
fn guarded(store: &LogStore, changes: &[(Key, Option<Kept>)]) -> Result<(), WriteError> {
    for _ in 0..4 {
        let mut watch = store.watch()?;
        let (db, key) = &changes[0].0;
        watch.add(*db, key)?;
        if watch.transaction(|t| change(t, changes))?.is_some() {
            return Ok(());
        }
    }
    store.transaction(|t| change(t, changes))
}

fn read(store: &LogStore) -> Result<(), WriteError> {
    let mut value = Vec::new();
    for db in [0, OTHER] {
        let db = store.database(db)?;
        for i in 0..30 {
            db.get(&key(i).1)?;
            db.get_into(&key(i).1, &mut value)?;
        }
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            cursor = db.scan(cursor, 64, |_, _| {})?;
        }
    }
    Ok(())
}

/// Fills the store, with these eviction policies one after the other.
fn evict(store: &LogStore, policies: &[Evict]) -> Result<(), WriteError> {
    let filled = store.database(FILLED)?;
    let first = 700 - FILLING;
    for i in 0..first + 100 {
        // It is full after the first.
        let policy = i.saturating_sub(first) as usize * policies.len() / 100;
        store.set_eviction(policies[policy])?;
        filled.put_until(&i.to_le_bytes(), &[7; 90_000], Expiry::At(FAR))?;
        store.get(&key(i % 50).1)?;
    }
    store.set_eviction(Evict::None)?;
    filled.clear()?;
    store.compact()?;
    Ok(())
}

fn fill(store: &LogStore) -> Result<(), WriteError> {
    let filled = store.database(FILLED)?;
    let mut keys = (0..u32::MAX).map(u32::to_le_bytes);
    for value in [&[7; 90_000][..], &[7; 4_000], &[7; 100]] {
        let mut put = || filled.put(&keys.next().unwrap(), value);
        let refused = (0..1_000).find_map(|_| put().err());
        match refused {
            None | Some(WriteError::OutOfMemory { .. }) => {}
            Some(error) => return Err(error),
        }
    }
    Ok(())
}

fn move_to(t: &mut Transaction<'_>, key: &Key, db: usize) -> Result<(), WriteError> {
    if let Some(value) = t.database(key.0)?.get(&key.1)? {
        t.database(db)?.put(&key.1, &value)?;
        t.database(key.0)?.remove(&key.1)?;
    }
    Ok(())
}

fn change(t: &mut Transaction<'_>, changes: &[(Key, Option<Kept>)]) -> Result<(), WriteError> {
    for ((db, key), kept) in changes {
        let mut t = t.database(*db)?;
        match kept {
            Some(kept) => t.put_until(key, &kept.value, expiry(kept.expires))?,
            None => {
                t.remove(key)?;
            }
        }
    }
    Ok(())
}
