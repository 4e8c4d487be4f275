//! The gate: a thread is abandoned at every named point of every operation; afterwards its
//! acknowledged changes are there, the others are not half there, and other threads continue.
//!
//! One region is opened twice at different addresses, as two processes would. Liveness is scripted:
//! the abandoned thread belongs to process 1, which is declared dead; process 2 continues.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod memory;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use memory::Memory;
use mneme_log::UpdatePolicy::{self, Append, InPlace};
use mneme_log::{Cursor, Evict, Expiry, LogStore};
use mneme_sys::fault::{self, Action, Outcome};
use recorded::{Model, OTHER, Recorded, get, twin};

fn key(i: u32) -> Vec<u8> {
    format!("key-{i:05}").into_bytes()
}

fn value(i: u32, round: u32, len: usize) -> Vec<u8> {
    let mut v: Vec<u8> = (0..len)
        .map(|b| (i as usize + round as usize * 7 + b) as u8)
        .collect();
    v.extend_from_slice(&round.to_le_bytes());
    v
}

/// Bytes that a store may grow by.
const GROWN: usize = 8 << 20;

/// Work that passes as many places as one thread can.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// The first keys of a new store.
    Begin,
    /// New keys, over several splits of the index and several log segments.
    Insert,
    /// New values for old keys; then compaction.
    Replace,
    /// Removals, over merges of the index.
    Remove,
    /// Batches.
    Batch,
    /// Atomic updates.
    Update,
    /// Parts of values, short, long and large ones.
    Patch,
    /// Large values.
    Large,
    /// A large value that finds no space unless others move.
    Crowd,
    /// Bulk values that take the places of others, which move to make way.
    Gaps,
    /// Growth of the region.
    Grow,
    /// Clearing, and the sweep that follows.
    Clear,
    /// Several keys at once: new ones, old ones, removals; few and many.
    Transact,
    /// Expiries, set with the value and afterwards.
    Expire,
    /// More than the store holds, some of it read.
    Evict,
    /// Two databases exchanged, again and again.
    Swap,
}

const ALL: [Work; 10] = [
    Work::Insert,
    Work::Replace,
    Work::Remove,
    Work::Batch,
    Work::Update,
    Work::Large,
    Work::Clear,
    Work::Transact,
    Work::Expire,
    Work::Swap,
];

impl Work {
    fn run(self, s: &Recorded) {
        match self {
            Work::Begin => (0..300).for_each(|i| s.put(&key(i), &value(i, 1, 100))),
            Work::Insert => (0..4000).for_each(|i| s.put(&key(10_000 + i), &value(i, 1, 600))),
            Work::Replace => replace(s),
            Work::Remove => remove(s),
            Work::Batch => put_batches(s),
            Work::Update => {
                (0..900).for_each(|i| s.update(&key(i), &value(i, 50, 300)));
                // Shorter, longer and of the same length.
                (0..900).for_each(|i| s.update(&key(i), &value(i, 51, 250 + i as usize % 60)));
            }
            Work::Patch => patch(s),
            Work::Large => change_large_values(s),
            Work::Transact => transact(s),
            Work::Evict => evict(s),
            Work::Expire => expire(s),
            Work::Crowd => crowd(s),
            Work::Gaps => fill_gaps(s),
            Work::Grow => grow(s),
            Work::Swap => swap(s),
            Work::Clear => clear(s),
        }
    }
}

fn replace(s: &Recorded) {
    // Of many lengths: otherwise a frame's earlier content looks like the expected one.
    let length = |i, round| 600 + ((i * 37 + round * 61) % 600) as usize;
    for round in 2..12 {
        // Some stay, so that compaction has survivors.
        (0..600)
            .filter(|i| round == 2 + i % 5 || i % 2 == 0)
            .for_each(|i| s.put(&key(i), &value(i, round, length(i, round))));
    }
    while s.store.compact().unwrap() > 0 {}
}

fn remove(s: &Recorded) {
    for chunk in 0..80 {
        let pairs: Vec<_> = (0..100)
            .map(|i| (key(30_000 + chunk * 100 + i), value(i, chunk, 8)))
            .collect();
        s.put_many(&pairs);
    }
    (30_000..38_000).for_each(|i| s.remove(&key(i)));
    (0..600).for_each(|i| s.remove(&key(i)));
    s.store.compact().unwrap();
}

fn put_batches(s: &Recorded) {
    for chunk in 0..40 {
        let pairs: Vec<_> = (0..50)
            .map(|i| (key(20_000 + chunk * 25 + i), value(i, chunk, 700)))
            .collect();
        s.put_many(&pairs);
    }
}

fn patch(s: &Recorded) {
    let values = [(1, 300), (2, 5000), (3, 9000), (4, 70_000), (5, 1 << 20)];
    for (i, len) in values {
        s.put(&key(i), &value(i, 1, len));
    }
    for round in 2..8 {
        for (i, len) in values {
            // The first one makes them patchable, also again after a reader.
            s.patch(&key(i), 100, &value(i, round, 40));
            s.patch(&key(i), len / 2, &value(i, round, len.min(4000)));
            s.patch(&key(i), len + 50 * round as usize, &value(i, round, 30));
            s.patch(&key(i), len - 20, &value(i, round, 500));
            if round % 3 == 0 {
                get(&s.store, &key(i));
            }
        }
        // So that they are among the survivors of some victim.
        (0..300).for_each(|i| s.put(&key(10_000 + i), &value(i, round, 3000)));
        s.store.compact().unwrap();
    }
}

fn change_large_values(s: &Recorded) {
    for round in 0..3 {
        s.put(b"large-1", &value(1, round, 5 << 20));
        s.put(b"large-2", &value(2, round, 1 << 20));
        // Also behind large records, if their extents have free space.
        (0..17).for_each(|i| s.put(&key(40_000 + i), &value(i, round, 60_000)));
        (0..5).for_each(|i| s.put(&key(41_000 + i), &value(i, round, 90_000)));
    }
    s.remove(b"large-1");
    // The head continues behind it when it is gone.
    s.put(b"large-3", &value(3, 1, (4 << 20) + 50_000));
    s.remove(b"large-3");
    s.store.compact().unwrap();
}

fn transact(s: &Recorded) {
    for round in 0..30 {
        let mut changes: Vec<_> = (0..20)
            .map(|i| key(40_000 + round * 15 + i))
            .chain((0..10).map(|i| key(round * 20 + i)))
            .map(|k| (k, Some(value(round, 3, 100))))
            .collect();
        changes.extend((0..7).map(|i| (key(round * 17 + 10 + i), None)));
        changes.sort();
        changes.dedup_by(|a, b| a.0 == b.0);
        s.transact(changes);
    }
    // Its attempts fail until it locks ahead: it stores what was there.
    for round in 0..3 {
        let keys = (0..20).map(|i| key(round * 40 + i));
        s.overtaken(keys.collect(), key(round * 40 + round * 600));
    }
    // More than the undo area can hold.
    for round in 0..2 {
        let many = (0..900).map(|i| (key(i * 2), Some(value(i, 60 + round, 40))));
        s.transact(many.collect());
    }
}

fn evict(s: &Recorded) {
    s.model.lock().unwrap().forgets = true;
    s.store.set_eviction(Evict::Lru).unwrap();
    for i in 0..7_000 {
        s.put(&key(50_000 + i), &value(i, 1, 10_000));
        s.store.get(&key(50_000 + i / 2)).unwrap();
    }
}

fn expire(s: &Recorded) {
    for i in 0..300 {
        s.put_until(&key(i * 3), &value(i, 4, 200));
        assert!(s.store.set_expiry(&key(i * 3), Expiry::Never).unwrap());
        let set = s.store.set_expiry(&key(i), Expiry::At(u64::MAX >> 2));
        assert!(set.unwrap());
    }
    while s.store.compact().unwrap() > 0 {}
}

fn crowd(s: &Recorded) {
    // Three frames each.
    for i in 0..8 {
        s.put(&key(50_000 + i), &value(i, 1, (4 << 20) + 300_000));
        (0..20).for_each(|j| s.put(&key(60_000 + i * 20 + j), &value(j, 1, 60_000)));
    }
    (0..8 * 20).for_each(|i| s.remove(&key(60_000 + i)));
    (0..8).step_by(2).for_each(|i| s.remove(&key(50_000 + i)));
    // And larger ones, for which there is space only in pieces.
    s.put(b"larger", &value(0, 3, 7 << 20));
    s.put(b"largest", &value(0, 3, 11 << 20));
}

fn fill_gaps(s: &Recorded) {
    let put =
        |i: u32, round, kib: u32| s.put(&key(50_000 + i), &value(i, round, (kib << 10) as usize));
    (0..45).for_each(|i| put(i, 1, 1000));
    // Places for others of the same length.
    (0..45).step_by(3).for_each(|i| s.remove(&key(50_000 + i)));
    (0..45).step_by(3).for_each(|i| put(i, 2, 900));
    // And for longer ones, after their neighbours have moved.
    (0..45).step_by(2).for_each(|i| s.remove(&key(50_000 + i)));
    (0..6).for_each(|i| put(100 + i, 3, 2500));
    // And what the last values of segments leave, together with the unused ends.
    (0..45).for_each(|i| s.remove(&key(50_000 + i)));
    (0..16).for_each(|i| put(200 + i, 4, 1300));
}

fn grow(s: &Recorded) {
    for half in [1, 2] {
        let bytes = memory::CAPACITY + GROWN / 2 * half;
        s.store.grow(bytes as u64).unwrap();
        (0..100).for_each(|i| s.put(&key(i), &value(i, 2, 90_000)));
    }
}

fn swap(s: &Recorded) {
    for round in 0..6 {
        s.swap();
        (0..40).for_each(|i| s.put(&key(i * 3 + round), &value(i, 70 + round, 60)));
        s.remove(&key(round * 5));
    }
}

fn clear(s: &Recorded) {
    s.clear();
    s.store.compact().unwrap();
    (0..100).for_each(|i| s.put(&key(i), &value(i, 9, 50)));
}

/// A store with some records, opened by process 1, and its memory.
fn prepared(policy: UpdatePolicy, work: Work) -> (Memory, Recorded) {
    let more = if work == Work::Grow { GROWN } else { 0 };
    let (memory, store) = Memory::growing(memory::CAPACITY, memory::CAPACITY + more, policy);
    let s = Recorded {
        store,
        model: Arc::default(),
    };
    let records = if work == Work::Begin { 0 } else { 600 };
    (0..records).for_each(|i| s.put(&key(i), &value(i, 0, 100)));
    let twins = if work == Work::Swap { 500..650 } else { 0..0 };
    let other = s.store.database(OTHER).unwrap();
    for i in twins {
        other.put(&key(i), &value(i, 1, 30)).unwrap();
        let mut model = s.model.lock().unwrap();
        model.records.insert(twin(&key(i)), value(i, 1, 30));
    }
    (memory, s)
}

fn scan(store: &LogStore) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for db in [0, OTHER] {
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let visit = |k: &[u8], v: &[u8]| {
                let key = if db == 0 { k.to_vec() } else { twin(k) };
                found.insert(key, v.to_vec());
            };
            cursor = store.database(db).unwrap().scan(cursor, 64, visit).unwrap();
        }
    }
    found
}

/// The store holds what was acknowledged, and each key of the operation under way before or after
/// it.
fn verify(store: &LogStore, model: &Model, context: &str) {
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{context}");
    let found = scan(store);
    let keys: BTreeSet<_> = found
        .keys()
        .chain(model.records.keys())
        .chain(model.pending.keys())
        .collect();
    if model.at_once {
        let is_as = |key: &Vec<u8>, value: Option<&Vec<u8>>| found.get(key) == value;
        let before = |k: &Vec<u8>| is_as(k, model.records.get(k));
        let all_before = model.pending.keys().all(before);
        let mut pending = model.pending.iter();
        let all_after = pending.all(|(k, value)| is_as(k, value.as_ref()));
        assert!(all_before || all_after, "{context}: half of it happened");
    }
    for key in keys {
        let now = found.get(key);
        assert_eq!(
            get(store, key).as_ref(),
            now,
            "{context}: get and scan agree"
        );
        let before = model.records.get(key);
        let after = model.pending.get(key);
        let right = now == before
            || after.is_some_and(|after| now == after.as_ref())
            || (model.forgets && now.is_none());
        assert!(
            right,
            "{context}: {} is neither as before nor as after",
            String::from_utf8_lossy(key)
        );
    }
    let count = store.len() + store.database(OTHER).unwrap().len();
    assert_eq!(count, found.len() as u64, "{context}: the count");
}

/// The survivor can change, read and remove the same keys.
fn go_on(store: &LogStore, context: &str) {
    for i in 0..700 {
        store
            .put(&key(i), &value(i, 99, 400))
            .unwrap_or_else(|e| panic!("{context}: {e}"));
    }
    for i in 0..700 {
        assert_eq!(
            store.get(&key(i)).unwrap().unwrap(),
            value(i, 99, 400),
            "{context}"
        );
        assert!(
            store
                .remove(&key(i))
                .unwrap_or_else(|e| panic!("{context}: {e}"))
        );
    }
    store.compact().unwrap();
}

/// The names that `work` passes, each with the number of passages.
fn names_of(policy: UpdatePolicy, work: Work) -> BTreeMap<&'static str, u64> {
    let run = move || {
        let (_memory, s) = prepared(policy, work);
        let before: BTreeMap<_, _> = fault::passed().into_iter().collect();
        work.run(&s);
        let passed = fault::passed().into_iter();
        passed
            .map(|(name, n)| (name, n - before.get(name).copied().unwrap_or(0)))
            .filter(|(_, n)| *n > 0)
            .collect()
    };
    std::thread::spawn(run).join().unwrap()
}

/// Runs `work` in process 1 until its `nth` passage of `name`, and leaves it there, dead.
fn abandon(
    policy: UpdatePolicy,
    work: Work,
    name: &'static str,
    nth: u64,
) -> Option<(Memory, Model)> {
    let (memory, s) = prepared(policy, work);
    let model = Arc::clone(&s.model);
    // Armed only after the preparations, whose passages do not count.
    let outcome = fault::run("none", Action::Abandon, 1, move || {
        fault::arm(name, Action::Abandon, nth);
        work.run(&s);
    });
    match outcome {
        Outcome::Abandoned => {}
        Outcome::Finished(()) => return None,
        Outcome::Panicked => panic!("{work:?} panicked before {name}"),
    }
    memory.script.kill(1);
    // Taken from the abandoned thread, which would keep it for ever.
    let model = std::mem::take(&mut *model.lock().unwrap());
    Some((memory, model))
}

/// The names of `work` at which it is gated: those with a prefix in `only`.
fn gated(policy: UpdatePolicy, work: Work, only: &[&str]) -> BTreeMap<&'static str, u64> {
    let mut names = names_of(policy, work);
    names.retain(|name, _| only.iter().any(|start| name.starts_with(start)));
    names
}

/// Dies at every name at which it is gated, at the first, a middle and the last passage.
fn gate(policy: UpdatePolicy, work: Work, only: &[&str]) {
    // What fills up differs from run to run, and so do the places that are passed: only those
    // passed in two runs are certain.
    let again = gated(policy, work, only);
    for (name, passages) in gated(policy, work, only) {
        let nths: BTreeSet<u64> = [1, passages / 3, passages * 2 / 3, passages].into();
        let nths = nths.into_iter().filter(|n| *n > 0);
        let died = nths.filter(|nth| is_survived(policy, work, name, *nth));
        assert!(
            died.count() > 0
                || !again.contains_key(name)
                || (0..20).any(|_| is_survived(policy, work, name, 1)),
            "{work:?} reached {name} twice, and never again"
        );
    }
}

/// Dies at that passage of `name`, and checks the remaining store. Returns false if the work does
/// not pass it that often.
fn is_survived(policy: UpdatePolicy, work: Work, name: &'static str, nth: u64) -> bool {
    let Some((memory, model)) = abandon(policy, work, name, nth) else {
        return false;
    };
    let context = format!("{work:?} abandoned at passage {nth} of {name}");
    let survivor = memory.open(2);
    survivor.reap().unwrap_or_else(|e| panic!("{context}: {e}"));
    verify(&survivor, &model, &context);
    go_on(&survivor, &context);
    assert_eq!(
        survivor.check().unwrap().problems,
        Vec::<String>::new(),
        "{context}"
    );
    true
}

/// Any name.
const ALL_NAMES: &[&str] = &[""];

/// Makes a test of each line: works of a policy, and the prefixes of the names at which they are
/// gated.
macro_rules! gates {
    ($(fn $test:ident(): $policy:ident $only:expr => $($work:ident)+;)+) => {
        $(
            #[test]
            fn $test() {
                $(gate($policy, Work::$work, $only);)+
            }
        )+

        /// The lines.
        const GATES: &[(UpdatePolicy, Work, &[&str])] = &[$($(($policy, Work::$work, $only),)+)+];
    };
}

gates! {
    fn beginning(): Append ALL_NAMES => Begin;
    fn inserting(): Append ALL_NAMES => Insert;
    fn replacing_and_compacting(): Append ALL_NAMES => Replace;
    fn removing_and_merging(): Append ALL_NAMES => Remove;
    fn batches(): Append ALL_NAMES => Batch;
    fn updates(): Append ALL_NAMES => Update;
    fn large_values(): Append ALL_NAMES => Large;
    fn moving_large_values(): Append &["compact.large.", "log.large.tail"] => Crowd;
    fn reusing_gaps(): Append &["log.gap.", "log.window.", "compact.bulk."] => Gaps;
    fn growing(): Append &["log.grow.", "arena.grow."] => Grow;
    fn clearing_and_sweeping(): Append ALL_NAMES => Clear;
    fn transactions(): Append ALL_NAMES => Transact;
    fn expiries(): Append ALL_NAMES => Expire;
    // The parts shared with writing and compaction are abandoned elsewhere.
    fn evictions(): Append &["evict."] => Evict;
    fn swaps(): Append ALL_NAMES => Swap;
    fn overwriting(): InPlace ALL_NAMES => Update Batch Expire;
    fn overwriting_and_compacting(): InPlace ALL_NAMES => Replace Transact;
    fn overwriting_and_swapping(): InPlace ALL_NAMES => Swap;
    // Survivors with slack.
    fn patching(): Append ALL_NAMES => Patch;
    fn patching_beside_overwriting(): InPlace &["log.change.", "log.patch.", "log.sealed", "compact."] => Patch;
    fn overwriting_beside_large_values(): InPlace &["compact.written", "compact.swapped"] => Large;
}

/// A repairer that repeats a dead thread's change set dies in the middle of it; a third one
/// finishes.
#[test]
fn redoers_die_too() {
    let overwriting = |name| (InPlace, Work::Update, name, 100);
    let patching = |name| (Append, Work::Patch, name, 20);
    let deaths = [
        overwriting("log.change.announced"),
        overwriting("log.change.excluded"),
        overwriting("log.change.half"),
        overwriting("log.change.stored"),
        overwriting("log.change.counted"),
        patching("log.change.announced"),
        patching("log.change.excluded"),
        patching("log.change.begun"),
        patching("log.change.half"),
        patching("log.change.stored"),
        (Append, Work::Expire, "log.change.announced", 20),
        (Append, Work::Expire, "log.change.stored", 20),
    ];
    for (policy, work, name, nth) in deaths {
        let (memory, model) = abandon(policy, work, name, nth).unwrap();
        let second = memory.open(2);
        let outcome = fault::run("log.redo.stored", Action::Abandon, 1, move || {
            second.reap().unwrap();
        });
        assert_eq!(outcome, Outcome::Abandoned, "{name}");
        memory.script.kill(2);
        finish(&memory, &model, &format!("dead at {name}, its redoer too"));
    }
}

/// A writer that a dead thread blocks repairs by itself, without a call to reap.
#[test]
fn writers_find_the_dead_by_themselves() {
    let works = [
        Work::Insert,
        Work::Replace,
        Work::Clear,
        Work::Transact,
        Work::Swap,
    ];
    for work in works {
        for (name, passages) in names_of(Append, work) {
            let Some((memory, model)) = abandon(Append, work, name, passages.div_ceil(2)) else {
                continue;
            };
            let context = format!("{work:?} dead at {name}, no reaping");
            let survivor = memory.open(2);
            for (key, before) in &model.records {
                let now = get(&survivor, key);
                let after = model.pending.get(key);
                let right = now.as_deref() == Some(&**before)
                    || after.is_some_and(|after| now.as_deref() == after.as_deref());
                assert!(right, "{context}: a reader passes through");
            }
            go_on(&survivor, &context);
            survivor.reap().unwrap();
            assert_eq!(
                survivor.check().unwrap().problems,
                Vec::<String>::new(),
                "{context}"
            );
        }
    }
}

/// A third participant finishes what a dead one and its dead reaper left.
fn finish(memory: &Memory, model: &Model, context: &str) {
    let third = memory.open(3);
    third.reap().unwrap_or_else(|e| panic!("{context}: {e}"));
    third.reap().unwrap_or_else(|e| panic!("{context}: {e}"));
    verify(&third, model, context);
    go_on(&third, context);
    assert_eq!(
        third.check().unwrap().problems,
        Vec::<String>::new(),
        "{context}"
    );
}

/// Where reapers die.
const REPAIRS: [&str; 11] = [
    "log.reap.begin",
    "log.reap.swap",
    "log.reap.index",
    "txn.repair.settled",
    "txn.repair.counted",
    "txn.repair.unlocked",
    "log.reap.operation",
    "log.reap.segments",
    "log.reap.heads",
    "sync.reap.repaired",
    "sync.reap.cleared",
];
/// Where a thread that ends another's swap dies as well.
const SETTLING: [&str; 3] = ["log.swap.unmarked", "log.swap.stored", "log.swap.done"];

/// The reaper dies too, at every place of the repair; a third one finishes both.
#[test]
fn reapers_die_too() {
    let mut died = BTreeMap::new();
    for work in ALL {
        let names = names_of(Append, work);
        // A swap has few places of its own, and all of them matter to the thread that ends it.
        let (prefixes, step, settling): (&[&str], _, &[_]) = match work {
            Work::Swap => (&["log.swap."], 1, &SETTLING),
            _ => (&["index.", "log.", "txn."], 5, &[]),
        };
        let points = names
            .iter()
            .filter(|(name, _)| prefixes.iter().any(|p| name.starts_with(p)));
        for (name, passages) in points.step_by(step) {
            for reap_point in settling.iter().copied().chain(REPAIRS) {
                let Some((memory, model)) = abandon(Append, work, name, passages.div_ceil(2))
                else {
                    continue;
                };
                let second = memory.open(2);
                let outcome = fault::run(reap_point, Action::Abandon, 1, move || {
                    second.reap().unwrap();
                });
                if outcome != Outcome::Abandoned {
                    continue;
                }
                *died.entry(reap_point).or_insert(0) += 1;
                memory.script.kill(2);
                let context = format!("{work:?} dead at {name}, its reaper at {reap_point}");
                finish(&memory, &model, &context);
            }
        }
    }
    for name in REPAIRS.iter().chain(&SETTLING) {
        assert!(
            died.contains_key(name),
            "no reaper died at {name}: {died:?}"
        );
    }
}

/// The names of this crate at which no test dies, each with the reason.
const SPARED: [(&str, &str); 0] = [];

/// At every name in the source some test dies: because a gate's work passes it, or because a test
/// names it.
#[test]
fn the_tests_kill_at_every_fault_point_in_the_source() {
    let gates = GATES.iter();
    let mut killed: BTreeSet<String> = gates
        .flat_map(|&(policy, work, only)| gated(policy, work, only).into_keys())
        .chain(REPAIRS)
        .chain(SETTLING)
        .chain(["log.redo.stored"])
        .map(str::to_owned)
        .collect();
    // Every death that those tests request is one that they check.
    let deaths = [
        include_str!("deaths.rs"),
        include_str!("reboot.rs"),
        include_str!("notifications/deaths.rs"),
        include_str!("notifications/feed_deaths.rs"),
        include_str!("cross/main.rs"),
    ];
    let deaths = deaths.into_iter().flat_map(str::lines);
    let deaths = deaths.filter(|line| !line.contains("Stopped::"));
    let quoted = deaths.flat_map(|line| line.split('"').skip(1).step_by(2));
    killed.extend(quoted.map(str::to_owned));

    let named = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    assert!(named.len() > 80, "{named:?}");
    let spared: BTreeSet<String> = SPARED.map(|(name, _)| name.to_owned()).into();
    let unharmed: BTreeSet<_> = named.difference(&killed).cloned().collect();
    assert_eq!(unharmed, spared);
}
