//! The store beside a plain map: thousands of random operations, with the same results.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mneme_arena::{CacheLookup, Discardable, LendingOptions};
use mneme_log::{
    Cursor, Database, Decision, Expiry, LogStore, Part, Patch, Stored, Transaction, UpdatePolicy,
    Updated, WriteError,
};
use mneme_sync::Slot;
use mneme_sys::{Clock, ManualClock, NodeId};
use proptest::prelude::*;

fn open(clock: &Arc<ManualClock>, policy: UpdatePolicy) -> LogStore {
    LogStore::builder()
        .update_policy(policy)
        .capacity(64 << 20)
        .clock(clock.clone())
        .maintainer(false)
        .lend_idle(LendingOptions {
            records: 2000,
            max_frames: u32::MAX,
        })
        .open_private()
        .unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Put(u16, u16),
    PutMany(u16, u8, u16),
    Remove(u16),
    RemoveMany(u16, u8),
    Update(u16, u8),
    Get(u16),
    GetMany(u16, u8),
    Scan(u16),
    PutUntil(u16, u16, u16),
    SetExpiry(u16, Option<u16>),
    LetTimePass(u16),
    RemoveExpired,
    Transact(u16, u8, u16),
    Compact,
    Clear,
    Swap(usize),
    UpdatePart(u16, usize, u16),
    ReadPart(u16, usize, usize),
    Lend(u16, u32),
    FindLent(u16),
    ForgetLent(u16),
}

/// The expected value of a key, and its expiry.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    value: Vec<u8>,
    expiry: Expiry,
}

impl Kept {
    fn forever(value: Vec<u8>) -> Kept {
        Kept {
            value,
            expiry: Expiry::Never,
        }
    }
}

/// A map that drops expired records.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<Vec<u8>, Kept>);

impl Model {
    /// The number of records that will expire.
    fn expiring(&self) -> u64 {
        let expiring = self.0.values().filter(|kept| kept.expiry != Expiry::Never);
        expiring.count() as u64
    }

    fn forget(&mut self, now: u64) {
        self.0
            .retain(|_, kept| !matches!(kept.expiry, Expiry::At(at) if at <= now));
    }

    fn values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pair = |(k, kept): (&Vec<u8>, &Kept)| (k.clone(), kept.value.clone());
        self.0.iter().map(pair).collect()
    }
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u16..2000;
    prop_oneof![
        20 => (key(), 0u16..3000).prop_map(|(k, v)| Op::Put(k, v)),
        6 => (key(), 1u8..80, 0u16..300).prop_map(|(k, n, v)| Op::PutMany(k, n, v)),
        10 => key().prop_map(Op::Remove),
        4 => (key(), 1u8..200).prop_map(|(k, n)| Op::RemoveMany(k, n)),
        10 => (key(), any::<u8>()).prop_map(|(k, d)| Op::Update(k, d)),
        20 => key().prop_map(Op::Get),
        4 => (key(), 1u8..100).prop_map(|(k, n)| Op::GetMany(k, n)),
        2 => (1u16..500).prop_map(Op::Scan),
        6 => (key(), 0u16..3000, 0u16..2000).prop_map(|(k, v, t)| Op::PutUntil(k, v, t)),
        6 => (key(), proptest::option::of(0u16..2000)).prop_map(|(k, t)| Op::SetExpiry(k, t)),
        4 => (0u16..500).prop_map(Op::LetTimePass),
        1 => Just(Op::RemoveExpired),
        4 => (key(), 1u8..120, 0u16..300).prop_map(|(k, n, v)| Op::Transact(k, n, v)),
        1 => Just(Op::Compact),
        1 => Just(Op::Clear),
        2 => (0usize..3).prop_map(Op::Swap),
        // Few keys, so that some of their values become long.
        20 => (0u16..100, 0usize..12_000, 0u16..6000).prop_map(|(k, at, n)| Op::UpdatePart(k, at, n)),
        10 => (0u16..100, 0usize..20_000, 0usize..20_000).prop_map(|(k, a, b)| Op::ReadPart(k, a, b)),
        10 => (0u16..100, 0u32..500_000).prop_map(|(k, n)| Op::Lend(k, n)),
        10 => (0u16..100).prop_map(Op::FindLent),
        2 => (0u16..100).prop_map(Op::ForgetLent),
    ]
}

fn key(n: u16) -> Vec<u8> {
    format!("key-{n}{}", "x".repeat(usize::from(n % 40))).into_bytes()
}

fn value(n: u16, len: u16) -> Vec<u8> {
    (0..len).map(|i| (n ^ i) as u8).collect()
}

/// The part of a value in a range, and the value's length.
fn part_of(kept: &Kept, start: usize, end: usize) -> (&[u8], usize) {
    let end = end.min(kept.value.len());
    (&kept.value[start.min(end)..end], kept.value.len())
}

fn scan_all(store: &LogStore, db: usize, step: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = store.database(db).unwrap();
    let mut seen = BTreeMap::new();
    let mut cursor = Cursor::START;
    while cursor != Cursor::END {
        cursor = db
            .scan(cursor, step, |k, v| {
                assert!(seen.insert(k.to_vec(), v.to_vec()).is_none())
            })
            .unwrap();
    }
    let mut keys = 0;
    cursor = Cursor::START;
    while cursor != Cursor::END {
        let step = db.scan_keys(cursor, step, |k| {
            assert!(seen.contains_key(k));
            keys += 1;
        });
        cursor = step.unwrap();
    }
    assert_eq!(keys, seen.len());
    seen
}

/// A database and its expected content.
struct Compared<'a> {
    database: Database<'a>,
    map: &'a mut BTreeMap<Vec<u8>, Kept>,
    now: u64,
}

impl Compared<'_> {
    fn put(self, k: u16, len: u16) {
        self.database.put(&key(k), &value(k, len)).unwrap();
        self.map.insert(key(k), Kept::forever(value(k, len)));
    }

    fn put_until(self, k: u16, len: u16, ms: u16) {
        let kept = Kept {
            value: value(k, len),
            expiry: Expiry::At(self.now + u64::from(ms)),
        };
        let put = self.database.put_until(&key(k), &kept.value, kept.expiry);
        put.unwrap();
        self.map.insert(key(k), kept);
    }

    fn put_many(self, k: u16, n: u8, len: u16) {
        let pairs: Vec<_> = (0..u16::from(n))
            .map(|i| (key(k + i / 2), value(i, len)))
            .collect();
        self.database.put_many(&pairs).unwrap();
        let kept = pairs.into_iter().map(|(k, v)| (k, Kept::forever(v)));
        self.map.extend(kept);
    }

    fn set_expiry(self, k: u16, ms: Option<u16>) {
        let expiry = ms.map_or(Expiry::Never, |ms| Expiry::At(self.now + u64::from(ms)));
        let kept = self.map.get_mut(&key(k));
        let found = if k.is_multiple_of(2) {
            self.database.set_expiry(&key(k), expiry).unwrap()
        } else {
            let mut seen = None;
            let updated = self.database.read_and_update_expiry(&key(k), |stored| {
                seen = Some(stored.value.to_vec());
                Some(expiry)
            });
            assert_eq!(seen, kept.as_ref().map(|kept| kept.value.clone()));
            updated.unwrap() != Updated::Absent
        };
        assert_eq!(found, kept.is_some());
        if let Some(kept) = kept {
            kept.expiry = expiry;
        }
    }

    fn remove(self, k: u16) {
        let was_there = self.map.remove(&key(k)).is_some();
        assert_eq!(self.database.remove(&key(k)).unwrap(), was_there);
    }

    fn remove_many(self, k: u16, n: u8) {
        let keys: Vec<_> = (0..u16::from(n)).map(|i| key(k + i)).collect();
        let map = self.map;
        let gone = keys.iter().filter(|k| map.remove(*k).is_some()).count();
        assert_eq!(self.database.remove_many(&keys).unwrap(), gone);
    }

    fn clear(self) {
        self.database.clear().unwrap();
        self.map.clear();
    }

    fn update(self, k: u16, d: u8) {
        let old = self.map.get(&key(k)).cloned();
        let until = Expiry::At(self.now + 1 + u64::from(d));
        let decide = |stored: Option<Stored<'_>>| {
            let kept = old.as_ref().map(|o| (&*o.value, o.expiry));
            assert_eq!(stored.map(|s| (s.value, s.expiry)), kept);
            match d % 4 {
                0 => Decision::Keep,
                1 => Decision::Replace(vec![d; usize::from(d)]),
                2 => Decision::ReplaceUntil(vec![d; usize::from(d)], until),
                _ => Decision::Remove,
            }
        };
        let did = self.database.update_stored(&key(k), decide).unwrap();
        let expected = match (d % 4, old.is_some()) {
            (0, true) => Updated::Kept,
            (1 | 2, true) => Updated::Replaced,
            (1 | 2, false) => Updated::Inserted,
            (3, true) => Updated::Removed,
            _ => Updated::Absent,
        };
        assert_eq!(did, expected);
        match d % 4 {
            1 | 2 => {
                let kept = old.map_or(Expiry::Never, |old| old.expiry);
                let expiry = if d % 4 == 1 { kept } else { until };
                let value = vec![d; usize::from(d)];
                self.map.insert(key(k), Kept { value, expiry });
            }
            3 => drop(self.map.remove(&key(k))),
            _ => {}
        }
    }

    fn update_part(self, k: u16, at: usize, n: u16) {
        let kept = self.map.get(&key(k)).cloned();
        let bytes = value(k ^ n, n);
        let patch = |part: Option<Part<'_>>| {
            let expected = kept.as_ref().map(|kept| part_of(kept, at / 2, at));
            assert_eq!(part.map(|p| (p.bytes, p.len)), expected);
            let bytes = Cow::Borrowed(&bytes[..]);
            Patch::Write { at, bytes }
        };
        let did = self.database.update_part(&key(k), |_| at / 2..at, patch);
        let expected = match kept {
            Some(_) => Updated::Replaced,
            None => Updated::Inserted,
        };
        assert_eq!(did.unwrap(), expected);
        let kept = self.map.entry(key(k)).or_insert(Kept::forever(Vec::new()));
        let end = at + bytes.len();
        let len = kept.value.len().max(end);
        kept.value.resize(len, 0);
        kept.value[at..end].copy_from_slice(&bytes);
    }

    fn get(self, k: u16) {
        let (found, expected) = (self.database.get(&key(k)), self.map.get(&key(k)));
        assert_eq!(found.unwrap().as_deref(), expected.map(|kept| &*kept.value));
        let expiry = self.database.expiry(&key(k)).unwrap();
        assert_eq!(expiry, expected.map(|kept| kept.expiry));
    }

    fn get_many(self, k: u16, n: u8) {
        let keys: Vec<_> = (0..u16::from(n)).map(|i| key(k.wrapping_add(i))).collect();
        let mut next = 0;
        let got = self.database.get_many(&keys, |i, v| {
            assert_eq!(i, next);
            next += 1;
            assert_eq!(v, self.map.get(&keys[i]).map(|kept| &*kept.value));
        });
        got.unwrap();
        assert_eq!(next, keys.len());
    }

    fn read_part(self, k: u16, a: usize, b: usize) {
        let kept = self.map.get(&key(k));
        let expected = kept.map(|kept| part_of(kept, a, b));
        let read = self.database.read_part(
            &key(k),
            |_| a..b,
            |part| {
                assert_eq!(part.map(|p| (p.bytes, p.len)), expected);
            },
        );
        read.unwrap();
    }
}

/// A transaction over two databases. Each third key moves its value to the next, each fourth is
/// removed.
fn transact(
    (store, model): (&LogStore, &mut [Model; 3]),
    (db, now): (usize, u64),
    (k, n, len): (u16, u8, u16),
) {
    let db_of = |i: u16| (db + usize::from(i % 2)) % 3;
    let until = Expiry::At(now + u64::from(len));
    let body = |t: &mut Transaction<'_>| {
        let mut moved = 0;
        for i in 0..u16::from(n) {
            let mut t = t.database(db_of(i))?;
            match i % 4 {
                0 => t.put(&key(k + i), &value(i, len))?,
                1 => moved += usize::from(t.remove(&key(k + i))?),
                2 => {
                    if let Some(value) = t.get(&key(k + i))? {
                        t.put(&key(k + i + 1), &value)?;
                    }
                }
                _ => t.put_until(&key(k + i), b"until", until)?,
            }
        }
        Ok::<_, WriteError>(moved)
    };
    let moved = store.transaction(body).unwrap();
    model.iter_mut().for_each(|other| other.forget(now));
    let mut expected = 0;
    for i in 0..u16::from(n) {
        let m = &mut model[db_of(i)].0;
        match i % 4 {
            0 => drop(m.insert(key(k + i), Kept::forever(value(i, len)))),
            1 => expected += usize::from(m.remove(&key(k + i)).is_some()),
            2 => {
                if let Some(kept) = m.get(&key(k + i)).cloned() {
                    m.insert(key(k + i + 1), Kept::forever(kept.value));
                }
            }
            _ => {
                let value = b"until".to_vec();
                let expiry = until;
                m.insert(key(k + i), Kept { value, expiry });
                model[db_of(i)].forget(now);
            }
        }
    }
    assert_eq!(moved, expected);
}

/// A cache in the frames that the store does not use.
struct Tenant<'s> {
    cache: &'s Discardable,
    slot: Slot<'s>,
    /// The value that was last put under each key, which is the only one that may be found.
    lent: BTreeMap<u16, Vec<u8>>,
}

impl<'s> Tenant<'s> {
    fn of(store: &'s LogStore) -> Self {
        // Only memory that the store has used before is lent.
        store.put(b"large", &vec![1; 16 << 20]).unwrap();
        store.remove(b"large").unwrap();
        store.compact().unwrap();
        let cache = store.discardable().unwrap();
        let slot = cache.arena().participants().slot().unwrap();
        let first = cache.put(&slot, NodeId(0), b"first", b"copy").unwrap();
        assert_eq!(first, mneme_arena::Stored::Kept);
        let lent = BTreeMap::new();
        Self { cache, slot, lent }
    }

    fn put(&mut self, k: u16, len: u32) {
        let copy = vec![(k as u8) ^ (len as u8); len as usize];
        let put = self
            .cache
            .put(&self.slot, NodeId(0), &k.to_le_bytes(), &copy);
        let _ = put.unwrap();
        self.lent.insert(k, copy);
    }

    fn find(&self, k: u16) {
        let mut found = Vec::new();
        if self.cache.get(&k.to_le_bytes(), &mut found) == CacheLookup::Hit {
            assert_eq!(Some(&found), self.lent.get(&k));
        }
    }

    fn remove(&mut self, k: u16) {
        self.cache.remove(&k.to_le_bytes()).unwrap();
        self.lent.remove(&k);
    }
}

/// Runs the step on the store and on the model, and compares the results.
fn run(
    (store, clock): (&LogStore, &ManualClock),
    model: &mut [Model; 3],
    tenant: &mut Tenant<'_>,
    (db, op): (usize, Op),
) {
    let now = clock.wall_ms();
    model[db].forget(now);
    let one = Compared {
        database: store.database(db).unwrap(),
        map: &mut model[db].0,
        now,
    };
    match op {
        Op::Put(k, len) => one.put(k, len),
        Op::PutUntil(k, len, ms) => one.put_until(k, len, ms),
        Op::PutMany(k, n, len) => one.put_many(k, n, len),
        Op::SetExpiry(k, ms) => one.set_expiry(k, ms),
        Op::Remove(k) => one.remove(k),
        Op::RemoveMany(k, n) => one.remove_many(k, n),
        Op::Clear => one.clear(),
        Op::Update(k, d) => one.update(k, d),
        Op::UpdatePart(k, at, n) => one.update_part(k, at, n),
        Op::Get(k) => one.get(k),
        Op::GetMany(k, n) => one.get_many(k, n),
        Op::ReadPart(k, a, b) => one.read_part(k, a, b),
        Op::Scan(step) => {
            let seen = scan_all(store, db, usize::from(step));
            assert_eq!(seen, model[db].values());
        }
        Op::Transact(k, n, len) => transact((store, model), (db, now), (k, n, len)),
        Op::Swap(other) => {
            store.swap_databases(db, other).unwrap();
            model.swap(db, other);
            model[db].forget(now);
        }
        Op::LetTimePass(ms) => clock.advance_ms(u64::from(ms)),
        Op::RemoveExpired => {
            store.remove_expired().unwrap();
        }
        Op::Compact => {
            store.compact().unwrap();
        }
        Op::Lend(k, len) => tenant.put(k, len),
        Op::FindLent(k) => tenant.find(k),
        Op::ForgetLent(k) => tenant.remove(k),
    }
    // Expired records count until they are removed.
    let database = store.database(db).unwrap();
    assert!(database.len() >= model[db].0.len() as u64);
    assert!(database.keyspace().unwrap().expiring >= model[db].expiring());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn answers_equal_a_map(
        policy in prop_oneof![Just(UpdatePolicy::Append), Just(UpdatePolicy::InPlace)],
        ops in proptest::collection::vec((0usize..3, op()), 1..1500),
    ) {
        let clock = Arc::new(ManualClock::new(1, 1_000_000));
        let store = open(&clock, policy);
        let mut model: [Model; 3] = Default::default();
        let mut tenant = Tenant::of(&store);
        for step in ops {
            run((&store, &clock), &mut model, &mut tenant, step);
        }
        store.remove_expired().unwrap();
        for (db, m) in model.iter_mut().enumerate() {
            m.forget(clock.wall_ms());
            let keyspace = store.database(db).unwrap().keyspace().unwrap();
            prop_assert_eq!(keyspace.records, m.0.len() as u64);
            prop_assert_eq!(keyspace.expiring, m.expiring());
        }
        store.compact().unwrap();
        for (db, m) in model.iter().enumerate() {
            prop_assert_eq!(scan_all(&store, db, 100), m.values());
        }
        let report = store.check().unwrap();
        prop_assert_eq!(report.problems, Vec::<String>::new());
        prop_assert_eq!(report.records, model.iter().map(|m| m.0.len() as u64).sum::<u64>());
    }
}

#[test]
fn grows_to_many_records_and_shrinks_to_none() {
    let store = LogStore::builder()
        .capacity(256 << 20)
        .maintainer(false)
        .open_private()
        .unwrap();
    let n = 300_000u64;
    for i in 0..n {
        store.put(&i.to_le_bytes(), &i.to_be_bytes()).unwrap();
    }
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.records, n);
    for i in 0..n {
        assert_eq!(
            store.get(&i.to_le_bytes()).unwrap().unwrap(),
            i.to_be_bytes()
        );
    }
    let full = store.stats();
    assert!(
        full.index_used_bytes < 20 * n,
        "index of {} bytes for {n} records",
        full.index_used_bytes
    );
    for i in 0..n {
        assert!(store.remove(&i.to_le_bytes()).unwrap());
    }
    assert!(store.is_empty());
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let empty = store.stats();
    assert!(
        empty.index_used_bytes * 3 < full.index_used_bytes,
        "the index shrinks: {} of {}",
        empty.index_used_bytes,
        full.index_used_bytes
    );
}

#[test]
fn a_full_store_says_so_and_serves_on() {
    let store = open(&Arc::new(ManualClock::new(1, 1)), UpdatePolicy::Append);
    let value = vec![7u8; 1000];
    let mut stored = 0u64;
    let refused = loop {
        match store.put(&stored.to_le_bytes(), &value) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, WriteError::OutOfMemory { wanted: 1016, .. }),
        "{refused}"
    );
    let full = store.stats();
    assert!(
        full.live_bytes * 100 > full.capacity * 70,
        "full means full: {full:?}"
    );
    for i in 0..stored {
        assert_eq!(store.get(&i.to_le_bytes()).unwrap().unwrap(), value);
    }
    for i in (0..stored).filter(|i| i % 4 == 0) {
        assert!(store.remove(&i.to_le_bytes()).unwrap());
    }
    for i in 0..stored / 5 {
        store.put(&(stored + i).to_le_bytes(), &value).unwrap();
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn churn_at_high_fill_never_loses_a_record() {
    let store = open(&Arc::new(ManualClock::new(1, 1)), UpdatePolicy::Append);
    let n = 38_000u64;
    let mut version = vec![0u32; n as usize];
    let record = |i: u64, version: u32| {
        let mut v = vec![(i as u8) ^ (version as u8); 1100];
        v[..4].copy_from_slice(&version.to_le_bytes());
        v
    };
    for i in 0..n {
        store.put(&i.to_le_bytes(), &record(i, 0)).unwrap();
    }
    let mut seed = 1u64;
    for _ in 0..200_000 {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let i = (seed >> 33) % n;
        version[i as usize] += 1;
        store
            .put(&i.to_le_bytes(), &record(i, version[i as usize]))
            .unwrap();
    }
    for i in 0..n {
        assert_eq!(
            store.get(&i.to_le_bytes()).unwrap().unwrap(),
            record(i, version[i as usize])
        );
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn large_values_come_and_go() {
    let store = open(&Arc::new(ManualClock::new(1, 1)), UpdatePolicy::Append);
    for round in 0..20u8 {
        for key in 0..3u8 {
            let value = vec![round ^ key; (3 << 20) + usize::from(key) * 700_001];
            store.put(&[key], &value).unwrap();
            assert!(store.get(&[key]).unwrap().unwrap() == value);
        }
    }
    for key in 0..3u8 {
        assert!(store.remove(&[key]).unwrap());
    }
    store.compact().unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    let stats = store.stats();
    assert!(stats.free_bytes > 50 << 20, "{stats:?}");
}

#[test]
fn limits_are_typed_errors() {
    let store = open(&Arc::new(ManualClock::new(1, 1)), UpdatePolicy::Append);
    let long = vec![1; mneme_log::MAX_KEY + 1];
    assert!(matches!(store.put(&long, b""), Err(WriteError::KeyTooLong(n)) if n == long.len()));
    assert!(store.get(&long).unwrap().is_none());
    assert!(!store.remove(&long).unwrap());
    // Also absent for a change that stores nothing.
    let absent = [
        store.update(&long, |old| match old {
            None => Decision::Keep,
            Some(_) => Decision::Remove,
        }),
        store.update(&long, |_| Decision::Remove),
        store.update_expiry(&long, |_| Some(Expiry::Never)),
        store.update_part(&long, |_| 0..1, |_| Patch::Keep),
        store.transaction(|t| {
            assert!(!t.remove(&long)?);
            Ok(Updated::Absent)
        }),
    ];
    for updated in absent {
        assert_eq!(updated.unwrap(), Updated::Absent);
    }
    let refused = [
        store.update(&long, |_| Decision::Replace(vec![])),
        store.update_part(
            &long,
            |_| 0..1,
            |_| Patch::Write {
                at: 0,
                bytes: Cow::Borrowed(b"x"),
            },
        ),
    ];
    for updated in refused {
        assert!(matches!(updated, Err(WriteError::KeyTooLong(n)) if n == long.len()));
    }
    store.put(&long[1..], b"v").unwrap();
    assert_eq!(store.get(&long[1..]).unwrap().unwrap(), b"v");
    store.put(b"", b"").unwrap();
    assert_eq!(store.get(b"").unwrap().unwrap(), b"");
    assert!(store.database(64).is_err());
    let keys: HashSet<Vec<u8>> = [long[1..].to_vec(), vec![]].into();
    assert_eq!(
        scan_all(&store, 0, 1).into_keys().collect::<HashSet<_>>(),
        keys
    );
    assert!(
        LogStore::builder()
            .capacity(1 << 20)
            .open_private()
            .is_err()
    );
    assert!(
        LogStore::builder()
            .capacity(1 << 55)
            .open_private()
            .is_err()
    );
}
