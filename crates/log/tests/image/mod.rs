//! A small store with everything in it, as bytes of which any number of copies can be opened and
//! damaged; the places of everything; and every operation.
//!
//! `tests/damage.rs` draws its damage from fixed seeds, the fuzz target `region_image` from the
//! fuzzer.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part; a test fails by panicking"
)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use mneme_log::{
    Builder, Cursor, Decision, LogStore, OpenError, Patch, Transaction, WriteError, control_bytes,
};
use mneme_sys::{Access, Clock, PagePolicy, Region, ScriptedLiveness};

pub const CAPACITY: usize = 64 << 20;
pub const FRAME: u64 = 2 << 20;
pub const DATABASES: usize = 3;
pub const KEYS: u32 = 300;

const PAGE_WORDS: usize = 512;
const FRAME_WORDS: usize = FRAME as usize / 8;
/// Words of the log's header.
const HEADER_WORDS: usize = 256;
/// Words of a shard: lock and counts, journal, limbo.
const SHARD_WORDS: usize = 8 + 16 + 2 * LIMBO;
/// Places of a shard's limbo.
const LIMBO: usize = 4096;
const BUCKET_WORDS: usize = 16;

/// A clock that is always ahead: every wait reaches its timeout soon.
struct Hurry(AtomicU64);

impl Clock for Hurry {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(100_000_000, Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    fn sleep(&self, _: Duration) {
        std::thread::yield_now();
    }
}

/// Two regions that "processes" of one test open.
pub struct Memory {
    data: Region,
    control: Region,
    pub script: ScriptedLiveness,
}

impl Memory {
    fn fresh() -> Memory {
        let control_len = control_bytes().next_multiple_of(2 << 20);
        let region = |name, len| Region::memfd(name, len, len, PagePolicy::Small).unwrap();
        Memory {
            data: region("damage-data", CAPACITY),
            control: region("damage-control", control_len),
            script: ScriptedLiveness::new(),
        }
    }

    fn builder() -> Builder {
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

    /// The store, as another process opens it.
    pub fn open(&self, process: u32) -> Result<LogStore, OpenError> {
        let (data, control) = self.map();
        Memory::builder().open_in(data, control, Arc::new(self.script.process(process)))
    }

    /// The words of the data region.
    pub fn words(&self) -> &[AtomicU64] {
        self.data.slice_at(0, CAPACITY / 8).unwrap()
    }

    pub fn word(&self, at: usize) -> u64 {
        self.words()[at].load(Relaxed)
    }

    pub fn set(&self, at: usize, value: u64) {
        self.words()[at].store(value, Relaxed);
    }
}

pub fn key(i: u32) -> Vec<u8> {
    format!("key-{i}{}", "-".repeat(i as usize % 20)).into_bytes()
}

pub fn value(i: u32) -> Vec<u8> {
    vec![i as u8; (i as usize * 37) % 900]
}

/// Records with an empty value in database 0, for a while: so many that its partitions have
/// directories. Those of the first partition stay.
const SMALL: u32 = 50_000;

/// Keys of values that are changed in part: one that may be changed in place, one that no longer
/// may.
const PATCHED: &[u8] = b"patched";
const SEALED: &[u8] = b"sealed";

fn patch(store: &LogStore, key: &[u8], at: usize) -> Result<(), WriteError> {
    let patch = Patch::Write {
        at,
        bytes: b"patch".into(),
    };
    store.update_part(key, |_| 0..8, |_| patch.clone())?;
    Ok(())
}

/// Creates the store: several databases, directories, displaced entries, dead records, a compacted
/// segment, a large record, an index that waits for its sweep.
fn make(memory: &Memory) {
    let (data, control) = memory.map();
    let store = Memory::builder()
        .create_in(data, control, Arc::new(memory.script.process(1)))
        .unwrap();
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
    let small: Vec<_> = (0..SMALL).map(|i| (i.to_le_bytes(), b"")).collect();
    store.put_many(&small).unwrap();
    let mut cursor = Cursor::START;
    let mut first = HashSet::new();
    while cursor.to_u64() >> 22 == 0 {
        let visit = |key: &[u8], _: &[u8]| first.extend([key.to_vec()]);
        cursor = store.scan(cursor, 1, visit).unwrap();
    }
    let others: Vec<_> = small
        .iter()
        .map(|(key, _)| key)
        .filter(|key| !first.contains(&key[..]))
        .collect();
    store.remove_many(&others).unwrap();
    store.put(b"large", &vec![7; 700_000]).unwrap();
    for (key, sealed) in [(PATCHED, false), (SEALED, true)] {
        store.put(key, &[5; 6000]).unwrap();
        patch(&store, key, 6000).unwrap();
        if sealed {
            store.get(key).unwrap();
        }
    }
    // Enough that some segments are closed, one of them is a victim, and others are closed later.
    let replace = |times, length| {
        for i in 0..times {
            store.put(b"long", &vec![i; length]).unwrap();
        }
    };
    replace(70, 60_000);
    store.compact().unwrap();
    replace(70, 60_000);
    replace(10, 400_000);
    store.database(7).unwrap().put(b"a", b"b").unwrap();
    store.database(7).unwrap().clear().unwrap();
}

/// The content of the store, without the small records: database, key, value.
pub fn contents() -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for db in 0..DATABASES {
        for i in (0..KEYS).filter(|i| i % 7 != 0) {
            let version = if i % 3 == 0 { i + 1 } else { i };
            all.push((db, key(i), value(version)));
        }
    }
    all.push((0, b"large".to_vec(), vec![7; 700_000]));
    for key in [PATCHED, SEALED] {
        all.push((0, key.to_vec(), [&[5; 6000][..], b"patch"].concat()));
    }
    all.push((0, b"long".to_vec(), vec![9; 400_000]));
    all
}

/// The kinds of words in a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// The region's header and the arena's tables.
    Arena,
    /// The log's header, except the words that lead to the roots.
    Header,
    /// The words that name roots, and the assignment of databases to them.
    Roots,
    Heads,
    Infos,
    /// Locks and counts of the shards. Their limbo is empty.
    Shards,
    /// Journals; the lock of their shard then belongs to an owner that never existed. The next
    /// owner finishes what the journal says.
    Journals,
    /// Pool tables.
    Pools,
    /// The beginning of a frame of the index.
    Bitmaps,
    /// Blocks of roots.
    Partitions,
    Directories,
    /// Locks of buckets.
    Locks,
    Entries,
    /// Headers of records.
    RecordHeaders,
    /// Words of patchable records.
    Patches,
    /// Log segments up to the end of their written part.
    Records,
}

impl Area {
    pub const ALL: [Area; 16] = [
        Area::Arena,
        Area::Header,
        Area::Roots,
        Area::Heads,
        Area::Infos,
        Area::Shards,
        Area::Journals,
        Area::Pools,
        Area::Bitmaps,
        Area::Partitions,
        Area::Directories,
        Area::Locks,
        Area::Entries,
        Area::RecordHeaders,
        Area::Patches,
        Area::Records,
    ];

    /// Whether a reader needs it: if not, all records are read as they were, whatever is stored
    /// there.
    pub fn is_read(self) -> bool {
        !matches!(
            self,
            Area::Arena
                | Area::Header
                | Area::Heads
                | Area::Infos
                | Area::Shards
                | Area::Journals
                | Area::Pools
                | Area::Bitmaps
        )
    }
}

/// Where the format has everything, as far as damage needs to know it.
pub struct Places {
    /// The log header's first word.
    pub header: usize,
    frames: usize,
    heads: usize,
    shards: usize,
    shard_frames: usize,
    /// Frames at which no log segment begins; their infos are obsolete.
    idle: Vec<usize>,
    /// For each area: its words, and those that are not zero.
    words: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Places {
    /// The geometry's words.
    pub fn geometry(&self) -> impl Iterator<Item = usize> {
        (self.header + 2..self.header + 10).chain([self.header + 11])
    }

    pub fn checksum(&self) -> usize {
        self.header + 10
    }

    pub fn seed(&self) -> usize {
        self.header + 12
    }

    pub fn next_root(&self) -> usize {
        self.header + 13
    }

    pub fn spaces(&self) -> usize {
        self.roots() - 8
    }

    pub fn roots(&self) -> usize {
        self.header + 64
    }

    /// The word of head `i` that names its log segment.
    pub fn head_segment(&self, i: usize) -> usize {
        self.header + HEADER_WORDS + 8 * i + 1
    }

    fn infos_at(&self) -> usize {
        self.header + HEADER_WORDS + 8 * self.heads
    }

    pub fn info(&self, frame: usize) -> usize {
        self.infos_at() + 8 * frame
    }

    pub fn shard(&self) -> usize {
        self.infos_at() + 8 * self.frames
    }

    pub fn journal(&self) -> usize {
        self.shard() + 8
    }

    /// How many blocks of the first shard were ever retired.
    pub fn retired(&self) -> usize {
        self.shard() + 5
    }

    /// The place of the `n`th of these.
    pub fn limbo(&self, n: u64) -> usize {
        self.shard() + 24 + 2 * (n as usize % LIMBO)
    }

    pub fn pool_table(&self) -> usize {
        self.shard() + SHARD_WORDS * self.shards
    }

    fn end(&self) -> usize {
        self.pool_table() + self.shards * self.shard_frames
    }

    /// Whether a word is only an estimate, so that any value of it is sound: dead bytes, times,
    /// grace periods, the counts of a shard and where it looks first. Also locks: a check does not
    /// examine their holders.
    pub fn is_estimate(&self, at: usize) -> bool {
        let (infos, shard, pools) = (self.infos_at(), self.shard(), self.pool_table());
        let behind = at.wrapping_sub(self.header + HEADER_WORDS);
        if at < infos {
            behind % 8 != 1
        } else if at < shard {
            matches!((at - infos) % 8, 2..=5) || self.idle.contains(&((at - infos) / 8))
        } else if at < pools {
            // Of eight words, three say which blocks are in limbo.
            !(3..6).contains(&((at - shard) % SHARD_WORDS))
        } else {
            false
        }
    }

    /// The words of an area, in ascending order.
    pub fn all(&self, area: Area) -> &[usize] {
        &self.words[area as usize].0
    }

    /// Those that were not zero.
    pub fn used(&self, area: Area) -> &[usize] {
        &self.words[area as usize].1
    }

    fn find(words: &[AtomicU64]) -> Places {
        let word = |at: usize| words[at].load(Relaxed);
        let magic = u64::from_le_bytes(*b"MNEMELOG");
        let header = (0..words.len()).find(|at| word(*at) == magic).unwrap();
        let [frames, _, heads, survivors, shards, shard_frames] =
            std::array::from_fn(|i| word(header + 2 + i) as usize);
        let mut places = Places {
            header,
            frames,
            heads: heads + survivors + (word(header + 11) >> 32) as usize,
            shards,
            shard_frames,
            idle: Vec::new(),
            words: Vec::new(),
        };
        places.idle = (0..frames)
            .filter(|frame| matches!(word(places.info(*frame)) as u8, 0 | 6))
            .collect();
        let found: Vec<Vec<usize>> = Area::ALL
            .into_iter()
            .map(|area| places.search(area, &word))
            .collect();
        places.words = found
            .into_iter()
            .map(|all| {
                assert!(all.is_sorted());
                let used = all.iter().copied().filter(|at| word(*at) != 0).collect();
                (all, used)
            })
            .collect();
        places
    }

    fn search(&self, area: Area, word: &impl Fn(usize) -> u64) -> Vec<usize> {
        let (heads, infos, shard) = (self.header + HEADER_WORDS, self.infos_at(), self.shard());
        let location = |word: u64| (word & ((1 << 42) - 1)) as usize;
        let roots = || (0..64).map(|i| location(word(self.roots() + i)));
        let roots = || roots().filter(|at| *at != 0);
        let partitions = || {
            let bits = word(self.header + 8);
            let mut at: Vec<usize> = roots().flat_map(|at| at..at + 8 + (1 << bits)).collect();
            at.sort_unstable();
            at
        };
        // The words of index pages, and the words of directories.
        let below = || {
            let (mut segments, mut directories) = (Vec::new(), Vec::new());
            for at in roots().flat_map(|at| at + 8..at + 8 + (1 << word(self.header + 8))) {
                match word(at) >> 62 {
                    0b10 => segments.push(word(at)),
                    0b11 => {
                        let first = location(word(at));
                        let words = first..first + (1 << (word(at) >> 48 & 15));
                        segments.extend(words.clone().map(word));
                        directories.extend(words);
                    }
                    _ => {}
                }
            }
            segments.sort_unstable_by_key(|word| location(*word));
            segments.dedup();
            directories.sort_unstable();
            (segments, directories)
        };
        let buckets = || {
            below().0.into_iter().flat_map(|segment| {
                let buckets = (segment >> 42 & 63) as usize;
                (0..buckets).map(move |i| location(segment) + i * BUCKET_WORDS)
            })
        };
        let frame = |i: usize| i * FRAME_WORDS..(i + 1) * FRAME_WORDS;
        let segments = || {
            (0..self.frames)
                .filter(|i| !matches!(word(infos + 8 * i) as u8, 0 | 6))
                .map(|i| {
                    let used = word(infos + 8 * i + 1) as u32 as usize / 8;
                    frame(i).start..frame(i).start + used
                })
        };
        // Where each begins, and the word of a patchable one.
        let records = || {
            let mut records = Vec::new();
            for segment in segments() {
                let mut at = segment.start;
                while at < segment.end {
                    let header = word(at);
                    let (key, value) = (header & 0xffff, header >> 16 & 0x7fff_ffff);
                    let (expiry, patchable) = (header >> 55 & 1, header >> 56 & 3 == 3);
                    let behind_key = (8 + 8 * expiry + key).div_ceil(8) as usize;
                    records.push((at, patchable.then_some(at + behind_key)));
                    at += match patchable {
                        true => behind_key + 1 + value as usize / 8,
                        false => (8 + 8 * expiry + key + value).div_ceil(8) as usize,
                    };
                }
            }
            records
        };
        match area {
            Area::Arena => (0..self.header).collect(),
            Area::Header => (self.header..self.spaces()).collect(),
            Area::Roots => (self.spaces()..heads).collect(),
            Area::Heads => (heads..infos).collect(),
            Area::Infos => (infos..shard).collect(),
            Area::Shards => (0..self.shards)
                .map(|i| shard + SHARD_WORDS * i)
                .flat_map(|at| at..at + 8)
                .collect(),
            Area::Journals => (0..self.shards)
                .map(|i| shard + SHARD_WORDS * i + 8)
                .flat_map(|at| at..at + 16)
                .collect(),
            Area::Pools => (self.pool_table()..self.end()).collect(),
            Area::Bitmaps => {
                let mut frames: Vec<usize> = (self.pool_table()..self.end())
                    .map(|at| word(at) as u32 as usize)
                    .filter(|entry| *entry != 0)
                    .collect();
                frames.sort_unstable();
                frames
                    .into_iter()
                    .flat_map(|i| frame(i - 1).take(128))
                    .collect()
            }
            Area::Partitions => partitions(),
            Area::Directories => below().1,
            Area::Locks => buckets().collect(),
            Area::Entries => buckets().flat_map(|at| at + 1..at + BUCKET_WORDS).collect(),
            Area::RecordHeaders => records().into_iter().map(|(at, _)| at).collect(),
            Area::Patches => records().into_iter().filter_map(|(_, at)| at).collect(),
            Area::Records => segments().flatten().collect(),
        }
    }
}

/// The bytes of a store that no process has open.
pub struct Image {
    data: Vec<(usize, Vec<u64>)>,
    control: Vec<(usize, Vec<u64>)>,
    pub places: Places,
}

/// The pages of a region that are not zero.
fn pages(region: &Region) -> Vec<(usize, Vec<u64>)> {
    let words: &[AtomicU64] = region.slice_at(0, region.len() / 8).unwrap();
    let read = |page: &[AtomicU64]| page.iter().map(|w| w.load(Relaxed)).collect();
    let pages = words.chunks(PAGE_WORDS).map(read);
    pages
        .enumerate()
        .filter(|(_, page): &(_, Vec<u64>)| page.iter().any(|word| *word != 0))
        .map(|(i, page)| (i * PAGE_WORDS, page))
        .collect()
}

fn restore(region: &Region, pages: &[(usize, Vec<u64>)]) {
    let words: &[AtomicU64] = region.slice_at(0, region.len() / 8).unwrap();
    for (at, page) in pages {
        for (word, value) in words[*at..].iter().zip(page) {
            word.store(*value, Relaxed);
        }
    }
}

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    let memory = Memory::fresh();
    make(&memory);
    let places = Places::find(memory.words());
    for area in Area::ALL {
        assert!(!places.used(area).is_empty(), "nothing in {area:?}");
    }
    Image {
        data: pages(&memory.data),
        control: pages(&memory.control),
        places,
    }
});

impl Image {
    /// The only image.
    pub fn the() -> &'static Image {
        &IMAGE
    }

    /// A copy of it, in regions of its own.
    pub fn copy(&self) -> Memory {
        let memory = Memory::fresh();
        restore(&memory.data, &self.data);
        restore(&memory.control, &self.control);
        memory
    }
}

/// A change of a word.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It gets this value.
    Set(u64),
    /// One of its bits is flipped.
    Flip(u8),
    /// It becomes a little larger or smaller.
    Add(i8),
    /// It gets the value of another word of the same area.
    Copy(u32),
    /// A bucket's lock, held by this slot.
    Locked(u16),
}

#[derive(Clone, Copy, Debug)]
pub struct Damage {
    pub area: Area,
    /// Which of its words, modulo their number.
    pub pick: u32,
    /// Whether to choose among those that are not zero.
    pub used: bool,
    pub change: Change,
}

/// Changes words.
pub fn inflict(memory: &Memory, damages: &[Damage]) {
    let places = &Image::the().places;
    let pick = |area: Area, used: bool, n: u32| {
        let words = if used {
            places.used(area)
        } else {
            places.all(area)
        };
        words[n as usize % words.len()]
    };
    for damage in damages {
        let at = pick(damage.area, damage.used, damage.pick);
        let old = memory.word(at);
        let new = match damage.change {
            Change::Set(value) => value,
            Change::Flip(bit) => old ^ 1 << (bit % 64),
            Change::Add(n) => old.wrapping_add_signed(i64::from(n)),
            Change::Copy(n) => memory.word(pick(damage.area, true, n)),
            Change::Locked(slot) => old & !(0xffff << 48) | 1 | u64::from(slot) << 48,
        };
        memory.set(at, new);
    }
    if damages.iter().any(|d| d.area == Area::Journals) {
        for shard in 0..places.shards {
            memory.set(places.shard() + SHARD_WORDS * shard, NOBODYS_LOCK);
        }
    }
}

/// The word of a lock whose owner never existed: the next one takes over, and repairs.
pub const NOBODYS_LOCK: u64 = 60 | 9 << 16;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Get(u32),
    GetMany(u32),
    Put(u32, u16),
    PutMany(u32),
    PutLarge,
    Update(u32),
    Patch(u32),
    Transact(u32),
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

/// Runs the operation, whatever its result.
pub fn operate(store: &LogStore, database: usize, op: Op) {
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
        Op::PutLarge => drop(db.put(b"large", &vec![9; 1 << 20])),
        Op::Update(i) => {
            let _ = db.update(&key(i), |old| match old {
                Some(v) if v.len().is_multiple_of(2) => Decision::Remove,
                Some(_) => Decision::Replace(vec![3; 50]),
                None => Decision::Replace(vec![2; 20]),
            });
        }
        Op::Patch(i) => {
            let whole = i.is_multiple_of(8);
            for key in [PATCHED, SEALED] {
                let _ = db.read_part(
                    key,
                    |len| len / 2..len,
                    |part| drop(part.map(|p| p.bytes.to_vec())),
                );
                let _ = patch(store, key, i as usize * 50);
                if whole {
                    let _ = db.get(key).map(|found| found.map(|v| v.to_vec()));
                    let _ = db.get_into(key, &mut Vec::new());
                }
            }
        }
        Op::Transact(i) => {
            let read = |t: &mut Transaction<'_>| t.database(database)?.get(&key(i)).map(drop);
            let _ = store.transaction(read);
            let _ = store.transaction(|t| {
                read(t)?;
                let mut t = t.database(database)?;
                t.remove(&key(i + 1))?;
                t.put(&key(i), b"transacted")
            });
        }
        Op::Remove(i) => drop(db.remove(&key(i))),
        Op::RemoveMany(i) => {
            let _ = db.remove_many(&keys(i));
            let small: Vec<_> = (0..SMALL / 8).map(u32::to_le_bytes).collect();
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

/// Opens a copy of the store, damages it, uses it, and uses what is left as another process.
pub fn survive(damages: &[Damage], ops: &[(usize, Op)]) {
    let memory = Image::the().copy();
    let store = memory.open(1).unwrap();
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
