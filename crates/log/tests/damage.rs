//! Whatever words are in a store's data region, no call panics, leaves the region or goes on for ever:
//! it answers, or says with a typed error what is wrong.
//!
//! A store with something of everything is opened, a few of its words are changed behind its back
//! through a second mapping, and then it is used, checked, and opened anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::single_range_in_vec_init,
    reason = "a test fails by panicking; areas are lists of ranges"
)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mneme_log::{Cursor, Decision, LogStore, OpenError, WriteError, control_bytes};
use mneme_sys::{Access, Clock, PagePolicy, Region, ScriptedLiveness};
use proptest::prelude::*;

const CAPACITY: usize = 64 << 20;
const FRAME: u64 = 2 << 20;
const DATABASES: usize = 3;
const KEYS: u32 = 900;

/// Words of a shard: lock and counts, journal, limbo.
const SHARD_WORDS: usize = 8 + 16 + 2 * 384;

/// A clock that is always ahead: whoever waits has waited long enough soon.
struct Hurry(AtomicU64);

impl Clock for Hurry {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(100_000_000, Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }
}

/// Two regions that "processes" of one test open.
struct Memory {
    data: Region,
    control: Region,
    script: ScriptedLiveness,
}

impl Memory {
    fn new() -> (Memory, LogStore) {
        let control_len = control_bytes().next_multiple_of(2 << 20);
        let region = |name, len| Region::memfd(name, len, len, PagePolicy::Small).unwrap();
        let memory = Memory {
            data: region("damage-data", CAPACITY),
            control: region("damage-control", control_len),
            script: ScriptedLiveness::new(),
        };
        let (data, control) = memory.map();
        let store = Memory::builder()
            .create_in(data, control, Arc::new(memory.script.process(1)))
            .unwrap();
        (memory, store)
    }

    fn builder() -> mneme_log::Builder {
        LogStore::builder()
            .maintainer(false)
            .clock(Arc::new(Hurry(AtomicU64::new(1))))
            .entropy(*b"sixteen bytes id\x07\x06\x05\x04\x03\x02\x01\x00")
    }

    fn map(&self) -> (Region, Region) {
        let again = |r: &Region| {
            let fd = r.duplicate_fd().unwrap().unwrap();
            Region::map(fd, Access::ReadWrite, r.max(), PagePolicy::Small).unwrap()
        };
        (again(&self.data), again(&self.control))
    }

    fn open(&self, process: u32) -> Result<LogStore, mneme_log::OpenError> {
        let (data, control) = self.map();
        Memory::builder().open_in(data, control, Arc::new(self.script.process(process)))
    }

    fn words(&self) -> &[AtomicU64] {
        self.data.slice_at(0, CAPACITY / 8).unwrap()
    }
}

fn key(i: u32) -> Vec<u8> {
    format!("key-{i}{}", "-".repeat(i as usize % 20)).into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; (i as usize * 37) % 900]
}

/// A store with something of everything: several databases, directories, displaced entries, dead
/// records, a compacted segment, a large record, an index that waits for its sweep.
fn scene() -> (Memory, LogStore) {
    let (memory, store) = Memory::new();
    for db in 0..DATABASES {
        let db = store.database(db).unwrap();
        let pairs: Vec<_> = (0..KEYS).map(|i| (key(i), value(i))).collect();
        db.put_many(&pairs).unwrap();
        for i in (0..KEYS).step_by(3) {
            db.put(&key(i), &value(i + 1)).unwrap();
        }
        for i in (0..KEYS).step_by(7) {
            db.remove(&key(i)).unwrap();
        }
    }
    let small: Vec<_> = (0..9000u32).map(|i| (i.to_le_bytes(), b"")).collect();
    store.put_many(&small).unwrap();
    store.put(b"large", &vec![7; 3 << 20]).unwrap();
    store.compact().unwrap();
    store.database(7).unwrap().put(b"a", b"b").unwrap();
    store.database(7).unwrap().clear().unwrap();
    (memory, store)
}

/// Where in the region a word is changed.
#[derive(Clone, Copy, Debug)]
enum Area {
    /// The log's header: seed, geometry, roots.
    Header,
    /// Heads, segment infos.
    Log,
    /// Locks, journals, limbo, pool tables.
    Shards,
    /// Journals, whose shard's lock then is that of a dead owner.
    Journals,
    /// Bitmaps, roots, directories, buckets.
    Index,
    /// Lock words of buckets.
    Buckets,
    /// Records.
    Records,
}

/// What becomes of a word.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// This.
    Set(u64),
    /// One bit of it.
    Flip(u8),
    /// A little more or less.
    Add(i8),
    /// What another word of the same kind holds.
    Copy(u32),
    /// A bucket's lock in the hands of this slot.
    Locked(u16),
}

#[derive(Clone, Copy, Debug)]
struct Damage {
    area: Area,
    /// Which word, of those that are in use or of all.
    pick: u32,
    used: bool,
    change: Change,
}

/// The format, version 3, as far as damage needs to know it.
struct Map<'m> {
    words: &'m [AtomicU64],
    /// The log header's first word.
    client: usize,
    geometry: [usize; 6],
}

impl Map<'_> {
    fn of(memory: &Memory) -> Map<'_> {
        let words = memory.words();
        let magic = u64::from_le_bytes(*b"MNEMELOG");
        let client = words.iter().position(|w| w.load(Relaxed) == magic).unwrap();
        let geometry = std::array::from_fn(|i| words[client + 2 + i].load(Relaxed) as usize);
        let map = Map {
            words,
            client,
            geometry,
        };
        for area in [Area::Index, Area::Buckets, Area::Records] {
            assert!(!map.ranges(area).is_empty(), "no {area:?}");
        }
        map
    }

    fn ranges(&self, area: Area) -> Vec<std::ops::Range<usize>> {
        let [frames, _, heads, survivors, shards, shard_frames] = self.geometry;
        let heads_at = self.client + 256;
        let infos_at = heads_at + 8 * (heads + survivors);
        let shards_at = infos_at + 8 * frames;
        let pools_at = shards_at + SHARD_WORDS * shards;
        let end = pools_at + shards * shard_frames;
        let frame = |i: usize| i * (FRAME as usize / 8)..(i + 1) * (FRAME as usize / 8);
        match area {
            Area::Header => vec![self.client..heads_at],
            Area::Log => vec![heads_at..shards_at],
            Area::Shards => vec![shards_at..end],
            Area::Journals => (0..shards)
                .map(|i| shards_at + SHARD_WORDS * i + 8)
                .map(|at| at..at + 16)
                .collect(),
            Area::Buckets => self
                .ranges(Area::Index)
                .into_iter()
                .flat_map(|frame| frame.skip(512).step_by(16))
                .filter(|at| self.words[at + 1].load(Relaxed) != 0)
                .map(|at| at..at + 1)
                .collect(),
            Area::Index => (pools_at..end)
                .map(|at| self.words[at].load(Relaxed) as u32)
                .filter(|entry| *entry != 0)
                .map(|entry| frame(entry as usize - 1))
                .collect(),
            Area::Records => (0..frames)
                .filter(|i| self.words[infos_at + 8 * i].load(Relaxed) as u8 != 0)
                .map(|i| {
                    let used = self.words[infos_at + 8 * i + 1].load(Relaxed) as u32 as usize;
                    frame(i).start..frame(i).start + (used / 8).min(frame(i).len())
                })
                .collect(),
        }
    }
}

/// Picks the words of all damages, then changes them, so that what is picked depends on no change.
fn inflict(memory: &Memory, damages: &[Damage]) {
    let map = Map::of(memory);
    let pick = |area: Area, n: u32, used: bool| {
        let mut at: Vec<usize> = map.ranges(area).into_iter().flatten().collect();
        if used {
            at.retain(|&i| map.words[i].load(Relaxed) != 0);
        }
        (!at.is_empty()).then(|| at[n as usize % at.len()])
    };
    let changes: Vec<(usize, u64)> = damages
        .iter()
        .filter_map(|d| {
            let at = pick(d.area, d.pick, d.used)?;
            let old = map.words[at].load(Relaxed);
            let new = match d.change {
                Change::Set(value) => value,
                Change::Flip(bit) => old ^ 1 << (bit % 64),
                Change::Add(n) => old.wrapping_add_signed(i64::from(n)),
                Change::Copy(n) => map.words[pick(d.area, n, true)?].load(Relaxed),
                Change::Locked(slot) => old & !(0xffff << 48) | 1 | u64::from(slot) << 48,
            };
            Some((at, new))
        })
        .collect();
    for (at, new) in changes {
        map.words[at].store(new, Relaxed);
    }
    if damages.iter().any(|d| matches!(d.area, Area::Journals)) {
        for journal in map.ranges(Area::Journals) {
            // No such owner was ever there: the next one takes over, and repairs.
            map.words[journal.start - 8].store(60 | 9 << 16, Relaxed);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Get(u32),
    GetMany(u32),
    Put(u32, u16),
    PutMany(u32),
    PutLarge,
    Update(u32),
    Remove(u32),
    RemoveMany(u32),
    Scan(u64),
    Clear,
    Compact,
    Check,
    Stats,
    Reap,
    Fill,
}

fn operate(store: &LogStore, database: usize, op: Op) {
    let db = store.database(database).unwrap();
    let keys = |i: u32| (i..i + 40).map(key).collect::<Vec<_>>();
    match op {
        Op::Get(i) => {
            let _ = db.get(&key(i)).map(|found| found.map(|v| v.to_vec()));
            let _ = db.contains(&i.to_le_bytes());
        }
        Op::GetMany(i) => drop(db.get_many(&keys(i), |_, v| drop(v.map(<[u8]>::to_vec)))),
        Op::Put(i, len) => {
            let _ = db.put(&key(i), &vec![1; usize::from(len)]);
            let _ = db.put(&(i + 100_000).to_le_bytes(), b"new");
        }
        Op::PutMany(i) => {
            let pairs: Vec<_> = keys(i).into_iter().map(|k| (k, value(i))).collect();
            let _ = db.put_many(&pairs);
            let new: Vec<_> = (0..600u32)
                .map(|k| ((k + i * 1000).to_be_bytes(), b"v"))
                .collect();
            let _ = db.put_many(&new);
        }
        Op::PutLarge => {
            let _ = db.put(b"large", &vec![9; 1 << 20]);
        }
        Op::Update(i) => {
            let _ = db.update(&key(i), |old| match old {
                Some(v) if v.len().is_multiple_of(2) => Decision::Remove,
                Some(_) => Decision::Replace(vec![3; 50]),
                None => Decision::Replace(vec![2; 20]),
            });
        }
        Op::Remove(i) => drop(db.remove(&key(i))),
        Op::RemoveMany(i) => {
            let _ = db.remove_many(&keys(i));
            let small: Vec<_> = (0..9000u32).map(u32::to_le_bytes).collect();
            let _ = db.remove_many(&small);
        }
        Op::Scan(from) => {
            let mut cursor = Cursor::from_u64(from);
            let mut steps = 0;
            while let Ok(next) = db.scan(cursor, 100, |k, v| drop((k.to_vec(), v.len()))) {
                steps += 1;
                assert!(steps < 1_000_000, "a scan goes on for ever");
                if next == Cursor::END {
                    break;
                }
                cursor = next;
            }
        }
        Op::Clear => drop(db.clear()),
        Op::Compact => drop(store.compact()),
        Op::Check => drop(store.check()),
        Op::Stats => drop(store.stats()),
        Op::Reap => drop(store.reap()),
        Op::Fill => {
            for i in 0..60u32 {
                if db.put(&key(i), &vec![i as u8; 300_000]).is_err() {
                    break;
                }
            }
        }
    }
}

/// Ends the test, with the case on its lips, if one goes on for ever: a loop cannot be unwound.
struct Watch {
    case: Mutex<Option<(Instant, String)>>,
}

static WATCH: Watch = Watch {
    case: Mutex::new(None),
};
/// Far more than any case takes, also under AddressSanitizer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Watch {
    fn run(case: String, work: impl FnOnce()) {
        static START: std::sync::Once = std::sync::Once::new();
        START.call_once(|| {
            std::thread::spawn(|| {
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                    if let Some((since, case)) = &*WATCH.case.lock().unwrap()
                        && since.elapsed() > PATIENCE
                    {
                        eprintln!("a call goes on for ever: {case}");
                        std::process::abort();
                    }
                }
            });
        });
        *WATCH.case.lock().unwrap() = Some((Instant::now(), case));
        work();
        *WATCH.case.lock().unwrap() = None;
    }
}

fn survive(damages: &[Damage], ops: &[(usize, Op)]) {
    let (memory, store) = scene();
    inflict(&memory, damages);
    for (database, op) in ops {
        operate(&store, *database, *op);
    }
    drop(store);
    memory.script.kill(1);
    if let Ok(other) = memory.open(2) {
        for (database, op) in ops {
            operate(&other, *database, *op);
        }
        operate(&other, 0, Op::Reap);
        operate(&other, 0, Op::Check);
    }
}

/// Words of the log's tables, by their meaning.
impl Map<'_> {
    fn set(&self, at: usize, value: u64) {
        self.words[at].store(value, Relaxed);
    }

    fn heads_at(&self) -> usize {
        self.client + 256
    }

    /// The infos of the frames at which a log segment begins.
    fn infos(&self) -> Vec<usize> {
        let all = self.ranges(Area::Log)[0].clone();
        let first = self.heads_at() + 8 * (self.geometry[2] + self.geometry[3]);
        let infos = (first..all.end).step_by(8);
        infos
            .filter(|at| !matches!(self.words[*at].load(Relaxed) as u8, 0 | 6))
            .collect()
    }

    fn shard_at(&self) -> usize {
        self.ranges(Area::Shards)[0].start
    }
}

const INFO_USED: usize = 1;
const INFO_DEAD: usize = 2;
const INFO_PERIODS: usize = 4;
const INFO_FRAMES: usize = 6;
const INFO_FIRST: usize = 7;

/// Everything is tried once; what comes of it is the caller's business.
fn try_everything(store: &LogStore) {
    let ops = [
        Op::Get(1),
        Op::Put(1, 500),
        Op::Remove(2),
        Op::PutMany(3),
        Op::RemoveMany(4),
        Op::PutLarge,
        Op::Compact,
        Op::Clear,
        Op::Compact,
        Op::Stats,
        Op::Check,
        Op::Fill,
    ];
    for op in ops {
        operate(store, 1, op);
    }
}

#[test]
fn lengths_that_no_log_segment_has_are_not_believed() {
    for (word, value) in [
        (INFO_FRAMES, u64::MAX),
        (INFO_FRAMES, 1 << 43),
        (INFO_FRAMES, 0),
        (INFO_USED, u64::MAX),
        (INFO_USED, 4093),
        (INFO_FIRST, u64::MAX),
        (INFO_FIRST, 1),
        (INFO_DEAD, u64::MAX - 3),
        (INFO_PERIODS, u64::MAX),
    ] {
        let (memory, store) = scene();
        let map = Map::of(&memory);
        map.infos()
            .iter()
            .for_each(|info| map.set(info + word, value));
        try_everything(&store);
        let report = store.check().unwrap();
        let harmless = matches!(word, INFO_DEAD | INFO_PERIODS);
        assert!(harmless || !report.is_sound(), "word {word} = {value:#x}");
    }
}

#[test]
fn a_head_that_names_no_segment_of_its_own_refuses_writes() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    let head = map.heads_at() + 1;
    let closed = map
        .infos()
        .into_iter()
        .find(|at| map.words[*at].load(Relaxed) as u8 == 3);
    let first = map.heads_at() + 8 * (map.geometry[2] + map.geometry[3]);
    let closed = (closed.expect("a closed segment") - first) / 8 + 1;
    // Beyond all frames, a frame number cut off, the arena's own, the index', another's.
    for word in [u64::MAX, 1 << 32, 1, 2, closed as u64] {
        map.set(head, word);
        let refused = store.put(b"key", b"value");
        assert!(
            matches!(refused, Err(WriteError::Corrupt(_))),
            "{refused:?}"
        );
        assert_eq!(store.get(&key(1)).unwrap().unwrap(), value(1));
        assert!(store.remove(&key(1)).is_ok_and(|there| there) || word != u64::MAX);
        store.stats();
        map.set(head, 0);
        store.put(&key(1), &value(1)).unwrap();
    }
}

#[test]
fn a_block_beyond_its_frame_is_found_by_the_check() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    let limbo = map.shard_at() + 24;
    let last_units = (2 * FRAME - 512) >> 3;
    map.set(limbo, last_units | 100 << 42);
    let problems = store.check().unwrap().problems;
    assert!(
        problems.iter().any(|p| p.contains("beyond its frame")),
        "{problems:?}"
    );
    try_everything(&store);
}

#[test]
fn a_header_with_another_geometry_or_seed_is_refused() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    drop(store);
    // Geometry, checksum, seed.
    for word in (2..11).chain([12]) {
        let at = map.client + word;
        let old = map.words[at].load(Relaxed);
        for new in [old + 1, old ^ 2, old << 1, 0, u64::MAX] {
            map.set(at, new);
            let opened = memory.open(2).map(drop);
            assert!(
                matches!(opened, Err(OpenError::Corrupt(_))) || new == old,
                "word {word} = {new:#x}: {opened:?}"
            );
        }
        map.set(at, old);
    }
    memory.open(2).unwrap();
}

#[test]
fn a_record_that_goes_beyond_its_segment_is_not_moved() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    // Every record of the smallest value says that it has a MiB more of it.
    for range in map.ranges(Area::Records) {
        let mut at = range.start;
        while at < range.end {
            let header = map.words[at].load(Relaxed);
            let (key, value) = (header & 0xffff, header >> 16 & 0x7fff_ffff);
            map.set(at, header + (1 << 36));
            at += (8 + key as usize + value as usize).div_ceil(8);
        }
    }
    let before = store.stats().capacity;
    for i in 0..KEYS {
        let _ = store.put(&key(i), &vec![3; 2000]);
    }
    let refused = store.compact();
    assert!(
        matches!(refused, Err(WriteError::Corrupt(_))),
        "{refused:?}"
    );
    assert!(!store.check().unwrap().is_sound());
    assert_eq!(store.stats().capacity, before);
}

#[test]
fn a_journal_of_nonsense_is_refused() {
    const PUBLISH: u64 = 2;
    const STRIKE: u64 = 3;
    for (kind, address, count) in [
        (PUBLISH, 1 << 20, u64::MAX),
        (STRIKE, 1 << 20, u64::MAX),
        // Words that are none of the index.
        (PUBLISH, 0, 4),
        (STRIKE, 5, 1),
    ] {
        let (memory, store) = scene();
        let map = Map::of(&memory);
        let journal = map.ranges(Area::Journals)[0].start;
        map.set(journal + 2, address);
        map.set(journal + 3, count);
        map.set(journal, kind);
        map.set(journal - 8, 60 | 9 << 16);
        let problems = store.check().unwrap().problems;
        assert!(
            problems.iter().any(|p| p.contains("journal")),
            "{kind} {address} {count}: {problems:?}"
        );
        assert_eq!(store.get(&key(1)).unwrap().unwrap(), value(1));
        drop(store);
        memory.open(2).expect("headers are as they were");
    }
    // A frame that no arena has, on its way into the pool.
    let (memory, store) = scene();
    let map = Map::of(&memory);
    let journal = map.ranges(Area::Journals)[0].start;
    map.set(journal + 13, 1 << 40);
    map.set(journal - 8, 60 | 9 << 16);
    assert!(store.check().unwrap().is_sound());
}

#[test]
fn a_pool_that_names_a_frame_of_somebody_else_allocates_nothing_there() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    let shard = map.ranges(Area::Shards)[0].clone();
    let table = shard.start + SHARD_WORDS * map.geometry[4];
    // The arena's own frame, all of it free.
    map.set(table, 1 | 8188 << 32);
    let before: Vec<u64> = map.words[..512].iter().map(|w| w.load(Relaxed)).collect();
    let refused = (0..20_000u32).find_map(|i| store.put(&i.to_be_bytes(), b"").err());
    assert!(
        matches!(refused, Some(WriteError::Corrupt(_))),
        "{refused:?}"
    );
    // The region's and the arena's headers; not the count of free frames.
    for at in (0..32).chain(80..512) {
        assert_eq!(map.words[at].load(Relaxed), before[at], "word {at}");
    }
}

#[test]
fn counters_at_their_end_go_round() {
    let (memory, store) = scene();
    let map = Map::of(&memory);
    // The last root id; the pool's hint.
    map.set(map.client + 13, u64::MAX);
    map.set(map.shard_at() + 2, u64::MAX);
    store.database(9).unwrap().put(b"k", b"v").unwrap();
    try_everything(&store);
}

fn damage() -> impl Strategy<Value = Damage> {
    let area = prop_oneof![
        1 => Just(Area::Header),
        2 => Just(Area::Log),
        2 => Just(Area::Shards),
        2 => Just(Area::Journals),
        3 => Just(Area::Index),
        2 => Just(Area::Buckets),
        3 => Just(Area::Records),
    ];
    let change = prop_oneof![
        2 => any::<u64>().prop_map(Change::Set),
        2 => (0u64..300).prop_map(Change::Set),
        1 => (0u64..300).prop_map(|n| Change::Set(u64::MAX - n)),
        3 => any::<u8>().prop_map(Change::Flip),
        2 => any::<i8>().prop_map(Change::Add),
        3 => any::<u32>().prop_map(Change::Copy),
        1 => prop_oneof![0u16..5, any::<u16>(), Just(0xffff)].prop_map(Change::Locked),
    ];
    (area, any::<u32>(), prop::bool::weighted(0.85), change).prop_map(
        |(area, pick, used, change)| Damage {
            area,
            pick,
            used,
            change,
        },
    )
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let key = || 0..KEYS;
    let op = prop_oneof![
        key().prop_map(Op::Get),
        key().prop_map(Op::GetMany),
        (key(), any::<u16>()).prop_map(|(i, len)| Op::Put(i, len)),
        key().prop_map(Op::PutMany),
        Just(Op::PutLarge),
        key().prop_map(Op::Update),
        key().prop_map(Op::Remove),
        key().prop_map(Op::RemoveMany),
        prop_oneof![Just(0), any::<u64>()].prop_map(Op::Scan),
        Just(Op::Clear),
        Just(Op::Compact),
        Just(Op::Check),
        Just(Op::Stats),
        Just(Op::Reap),
        Just(Op::Fill),
    ];
    (0..DATABASES, op)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_words_make_a_call_panic_or_leave_the_region_or_go_on_for_ever(
        damages in prop::collection::vec(damage(), 1..8),
        ops in prop::collection::vec(op(), 1..12),
    ) {
        let case = format!("{damages:?} {ops:?}");
        Watch::run(case, || survive(&damages, &ops));
    }
}
