//! Whatever words are in a store's data region, no call panics, leaves the region or runs for ever:
//! it returns a result, or a typed error that says what is wrong. Damage of words that no reader
//! needs costs no record, and `check()` reports the damage.
//!
//! A copy of a store is opened, a few of its words are changed through a second mapping, and then
//! it is used, checked, and opened again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod image;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use image::{
    Area, Change, DATABASES, Damage, FRAME, Image, KEYS, Memory, NOBODYS_LOCK, Op, Places,
    contents, inflict, key, operate, survive, value,
};
use mneme_log::{Decision, Expiry, LogStore, OpenError, ReadError, WriteError};
use mneme_testkit::{Random, setting};

/// An open copy of the store.
fn scene() -> (Memory, LogStore, &'static Places) {
    let image = Image::the();
    let memory = image.copy();
    let store = memory.open(1).unwrap();
    (memory, store, &image.places)
}

fn damage(draw: &mut Random, area: Area) -> Damage {
    let change = match draw.below(12) {
        0 | 1 => Change::Set(draw.next()),
        2 | 3 => Change::Set(draw.below(300)),
        4 => Change::Set(u64::MAX - draw.below(300)),
        5..=7 => Change::Flip(draw.next() as u8),
        8 | 9 => Change::Add(draw.next() as i8),
        10 => Change::Copy(draw.next() as u32),
        _ => Change::Locked([0, 1, 2, 61, 9999, 0xffff][draw.below(6) as usize]),
    };
    Damage {
        area,
        pick: draw.next() as u32,
        used: draw.below(8) > 0,
        change,
    }
}

fn op(draw: &mut Random) -> (usize, Op) {
    let i = draw.below(u64::from(KEYS)) as u32;
    let op = match draw.below(20) {
        0 => Op::Get(i),
        1 => Op::GetMany(i),
        2 => Op::Put(i, draw.next() as u16),
        3 => Op::PutMany(i),
        4 => Op::PutLarge,
        5 => Op::Update(i),
        6 => Op::Remove(i),
        7 => Op::RemoveMany(i),
        8 => Op::Scan([0, draw.next()][draw.below(2) as usize]),
        9 => Op::Clear,
        10 => Op::Compact,
        11 => Op::Check,
        12 => Op::Stats,
        13 => Op::Reap,
        14..17 => Op::Patch(i),
        17 | 18 => Op::Transact(i),
        _ => Op::Fill,
    };
    (draw.below(DATABASES as u64) as usize, op)
}

/// Ends the test and prints the case if one runs for ever: a loop cannot be unwound.
struct Watch {
    case: Mutex<Option<(Instant, String)>>,
}

static WATCH: Watch = Watch {
    case: Mutex::new(None),
};
/// Far more than any case takes, even with AddressSanitizer on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

impl Watch {
    fn run(case: String, work: impl FnOnce()) {
        static START: std::sync::Once = std::sync::Once::new();
        START.call_once(|| {
            std::thread::spawn(|| {
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                    if let Some((since, case)) = &*WATCH.case.lock().unwrap()
                        && since.elapsed() > TIMEOUT
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

/// `MNEME_DAMAGE` is the number of cases, for a longer run; the default takes a second.
fn cases(few: u64) -> u64 {
    setting("MNEME_DAMAGE").unwrap_or(few)
}

#[test]
fn no_words_make_a_call_panic_or_leave_the_region_or_go_on_for_ever() {
    for seed in 0..cases(45) {
        let mut draw = Random::new(seed);
        let damages: Vec<Damage> = (0..=draw.below(6))
            .map(|_| {
                // Every area in turn, occasionally with another one.
                let turn = (seed + draw.below(4) / 3 * draw.below(15)) as usize;
                damage(&mut draw, Area::ALL[turn % Area::ALL.len()])
            })
            .collect();
        let ops: Vec<_> = (0..=draw.below(10)).map(|_| op(&mut draw)).collect();
        let case = format!("seed {seed}: {damages:?} {ops:?}");
        Watch::run(case, || survive(&damages, &ops));
    }
}

#[test]
fn damage_that_no_reader_needs_costs_no_record() {
    let contents = contents();
    let areas = Area::ALL.into_iter().filter(|area| !area.is_read());
    for (i, area) in areas.cycle().take(16).enumerate() {
        let (memory, store, _) = scene();
        let mut draw = Random::new(1000 + i as u64);
        let damages: Vec<_> = (0..20).map(|_| damage(&mut draw, area)).collect();
        inflict(&memory, &damages);
        for (database, key, value) in &contents {
            let found = store.database(*database).unwrap().get(key);
            assert_eq!(found.unwrap().as_deref(), Some(&value[..]), "{damages:?}");
        }
    }
}

/// The check finds damage of one word at a time, for words that say where something is.
#[test]
fn the_check_names_overwritten_data() {
    const ANY: fn(u64, u64) -> u64 = |_, drawn| drawn | 1;
    const ONES: fn(u64, u64) -> u64 = |_, _| u64::MAX;
    /// One of the bits that hold a location, or a length.
    const FLIP: fn(u64, u64) -> u64 = |old, drawn| old ^ 1 << (drawn % 42);
    /// A length beyond the record.
    const LONG: fn(u64, u64) -> u64 = |old, drawn| old | (drawn % 64 + 1) << 16;
    /// A patch that no thread is making.
    const ODD: fn(u64, u64) -> u64 = |old, _| old | 1 << 32;
    /// A lock held by no thread, with the bit of a transaction.
    const MIXED: fn(u64, u64) -> u64 = |old, _| old | 2;
    let places = &Image::the().places;
    let mut draw = Random::new(7);
    for (area, changes) in [
        (Area::Roots, [ANY, ONES, FLIP]),
        (Area::Heads, [ANY, ONES, FLIP]),
        (Area::Infos, [ANY, ONES, FLIP]),
        (Area::Shards, [ANY, ONES, FLIP]),
        (Area::Pools, [ANY, ONES, FLIP]),
        (Area::Bitmaps, [ANY, ONES, FLIP]),
        (Area::Partitions, [ANY, ONES, FLIP]),
        (Area::Directories, [ANY, ONES, FLIP]),
        (Area::Locks, [ANY, ONES, MIXED]),
        (Area::Entries, [ANY, ONES, FLIP]),
        // A length that leads to another record's header is a possible one.
        (Area::RecordHeaders, [ANY, ONES, ANY]),
        (Area::Patches, [LONG, ODD, ONES]),
    ] {
        let (memory, store, _) = scene();
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        let mut words = places.used(area).to_vec();
        words.retain(|at| !places.is_estimate(*at));
        for change in changes.into_iter().cycle().take(cases(3) as usize) {
            let at = words[draw.below(words.len() as u64) as usize];
            let old = memory.word(at);
            let new = change(old, draw.next());
            memory.set(at, new);
            let report = store.check().unwrap();
            assert!(
                !report.is_sound() || new == old,
                "{area:?}, word {at:#x}: {old:#x} became {new:#x}"
            );
            memory.set(at, old);
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A bucket is marked as replaced, but no page has replaced it: no operation waits for it without
/// end.
#[test]
fn transactions_report_a_damaged_home_that_looks_retired() {
    type Work = fn(&LogStore) -> Result<(), WriteError>;
    let works: [(&str, Work); 3] = [
        ("put", |store| store.put(&key(1), b"x")),
        ("transaction that writes", |store| {
            store.transaction(|t| t.put(&key(1), b"x"))
        }),
        ("transaction that reads", |store| {
            store.transaction(|t| t.get(&key(1)).map(drop))
        }),
    ];
    for (name, work) in works {
        let (memory, store, places) = scene();
        let later = Expiry::At(u64::MAX >> 1);
        store.put_until(&key(1), b"v", later).unwrap();
        for at in places.all(Area::Locks) {
            memory.set(*at, memory.word(*at) & !(0xffff << 48) | 1 | 0xffff << 48);
        }
        Watch::run(name.to_owned(), || {
            let said = work(&store).unwrap_err();
            assert!(said.to_string().contains("retired"), "{name}: {said}");
        });
    }
}

const INFO_USED: usize = 1;
const INFO_DEAD: usize = 2;
const INFO_PERIODS: usize = 4;
const INFO_FRAMES: usize = 6;
const INFO_FIRST: usize = 7;

/// The infos of the frames at which a log segment begins, in this state or in any.
fn infos(memory: &Memory, places: &Places, state: Option<u8>) -> Vec<usize> {
    (0..32)
        .map(|frame| places.info(frame))
        .filter(|at| match (memory.word(*at) as u8, state) {
            (now, Some(state)) => now == state,
            (now, None) => !matches!(now, 0 | 6),
        })
        .collect()
}

/// Tries every operation once; the caller decides what the results mean.
fn try_everything(store: &LogStore) {
    let ops = [
        Op::Get(1),
        Op::Put(1, 500),
        Op::Remove(2),
        Op::Patch(8),
        Op::Transact(9),
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
        (INFO_USED, 0),
        (INFO_USED, 4096),
        (INFO_FIRST, u64::MAX),
        (INFO_FIRST, 1),
        (INFO_DEAD, u64::MAX - 3),
        (INFO_PERIODS, u64::MAX),
    ] {
        let (memory, store, places) = scene();
        for info in infos(&memory, places, None) {
            memory.set(info + word, value);
        }
        let harmless = matches!(word, INFO_DEAD | INFO_PERIODS);
        let before = contents();
        let compacted = store.compact();
        assert!(
            matches!(compacted, Ok(_) | Err(WriteError::Corrupt(_))),
            "{compacted:?}"
        );
        for (database, key, value) in &before {
            let found = store.database(*database).unwrap().get(key);
            assert_eq!(found.unwrap().as_deref(), Some(&value[..]), "word {word}");
        }
        try_everything(&store);
        let report = store.check().unwrap();
        assert!(harmless || !report.is_sound(), "word {word} = {value:#x}");
    }
}

#[test]
fn a_head_that_names_no_segment_of_its_own_refuses_writes() {
    const CLOSED: u8 = 3;
    let (memory, store, places) = scene();
    let head = places.head_segment(0);
    let closed = *infos(&memory, places, Some(CLOSED)).first().unwrap();
    let closed = (closed - places.info(0)) / 8 + 1;
    // Beyond all frames, a truncated frame number, the arena's own frame, the index', another's.
    for word in [u64::MAX, 1 << 32, 1, 2, closed as u64] {
        memory.set(head, word);
        let refused = store.put(b"key", b"value");
        assert!(
            matches!(refused, Err(WriteError::Corrupt(_))),
            "{refused:?}"
        );
        assert_eq!(store.get(&key(1)).unwrap().unwrap(), value(1));
        assert!(store.remove(&key(1)).unwrap());
        store.stats();
        memory.set(head, 0);
        store.put(&key(1), &value(1)).unwrap();
    }
}

#[test]
fn a_block_beyond_its_frame_is_found_by_the_check() {
    let (memory, store, places) = scene();
    let last_units = (2 * FRAME - 512) >> 3;
    let retired = memory.word(places.retired());
    memory.set(places.limbo(retired), last_units | 100 << 42);
    memory.set(places.retired(), retired + 1);
    let problems = store.check().unwrap().problems;
    assert!(
        problems.iter().any(|p| p.contains("beyond its frame")),
        "{problems:?}"
    );
    try_everything(&store);
}

/// Blocks that have left limbo are in use again.
#[test]
fn counters_of_limbo_that_went_back_free_no_block_in_use() {
    let (memory, store, places) = scene();
    let keys = |range: std::ops::Range<u32>| range.map(|i| i.to_be_bytes());
    for key in keys(0..60_000) {
        store.put(&key, b"v").unwrap();
    }
    let freed = places.retired() - 2;
    memory.set(freed, memory.word(freed).checked_sub(100).unwrap());
    assert!(!store.check().unwrap().is_sound());
    for key in keys(60_000..100_000) {
        store.put(&key, b"v").unwrap();
    }
    for key in keys(0..100_000) {
        assert!(store.get(&key).unwrap().is_some(), "{key:?}");
    }
}

/// Its block is lost, and no other waits for it.
#[test]
fn a_damaged_pair_of_limbo_holds_nothing_up() {
    let (memory, store, places) = scene();
    let [freed, begun] = [2, 1].map(|before| places.retired() - before);
    let mut keys = (0..1_000_000u32).map(u32::to_be_bytes);
    let kept = store.get(&key(1)).unwrap();
    while memory.word(begun) == memory.word(freed) {
        store.put(&keys.next().unwrap(), b"v").unwrap();
    }
    let first = memory.word(freed);
    // An epoch that is to come, and a word that is no block.
    memory.set(places.limbo(first) + 1, 1 << 60);
    memory.set(places.limbo(first + 1), 0);
    drop(kept);
    for key in keys.take(60_000) {
        store.put(&key, b"v").unwrap();
    }
    assert!(memory.word(freed) > first + 2);
    let problems = store.check().unwrap().problems;
    assert!(!problems.is_empty());
}

#[test]
fn a_header_with_another_geometry_or_seed_is_refused() {
    let (memory, store, places) = scene();
    drop(store);
    for at in places.geometry().chain([places.checksum(), places.seed()]) {
        let old = memory.word(at);
        for new in [old + 1, old ^ 2, old << 1, 0, u64::MAX] {
            memory.set(at, new);
            let opened = memory.open(2).map(drop);
            assert!(
                matches!(opened, Err(OpenError::Corrupt(_))) || new == old,
                "word {at} = {new:#x}: {opened:?}"
            );
        }
        memory.set(at, old);
    }
    memory.open(2).unwrap();
}

/// The worst outcome would be that a damaged store passes for an empty one.
#[test]
fn a_store_whose_index_is_not_there_is_refused_and_reads_as_damaged_not_as_empty() {
    let (memory, store, places) = scene();
    let roots = places.roots();
    let whole = memory.word(roots);
    let nowhere = whole + FRAME / 8 * 20;
    let spaces = places.spaces();
    for (at, wrong) in [
        // Memory that was never written, a place outside the region, another database's index.
        (roots, nowhere),
        (roots, 1 << 40),
        (roots, memory.word(roots + 1)),
        // Two databases with the same space: database 1 has that of database 0.
        (spaces, memory.word(spaces) ^ 0x100),
    ] {
        let right = memory.word(at);
        memory.set(at, wrong);
        let refused = memory.open(2).map(drop);
        assert!(
            matches!(refused, Err(OpenError::Corrupt(_))),
            "word {at:#x} = {wrong:#x}: {refused:?}"
        );
        if at == roots {
            let read = store.get(&key(1)).map(|value| value.is_some());
            assert!(
                matches!(read, Err(ReadError::Corrupt(_))),
                "{wrong:#x}: {read:?}"
            );
        }
        memory.set(at, right);
        drop(memory.open(2).unwrap());
    }
    // A store may lack an index: it has none before the first record. Its memory shows which is the
    // case.
    memory.set(roots, 0);
    let found = memory.open(2).unwrap().check_index().unwrap();
    assert!(!found.is_sound());
    memory.set(roots, whole);
    assert_eq!(store.check_index().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_record_that_goes_beyond_its_segment_is_not_moved() {
    let (memory, store, places) = scene();
    // Every record claims a value that is longer by a MiB.
    for at in places.used(Area::RecordHeaders) {
        memory.set(*at, memory.word(*at) + (1 << 36));
    }
    for i in 0..KEYS {
        let _ = store.put(&key(i), &vec![3; 2000]);
    }
    let refused = store.compact();
    assert!(
        matches!(refused, Err(WriteError::Corrupt(_))),
        "{refused:?}"
    );
    assert!(!store.check().unwrap().is_sound());
}

/// A damaged record costs its log segment, not the store.
#[test]
fn a_damaged_log_segment_keeps_no_other_from_being_compacted() {
    let (memory, store, places) = scene();
    memory.set(places.used(Area::RecordHeaders)[1], u64::MAX);
    let refused = (0..400)
        .filter(|i| store.put(b"long", &vec![*i as u8; 400_000]).is_err())
        .count();
    assert!(refused < 5, "{refused} of 400 puts were refused");
    assert_eq!(store.get(b"long").unwrap().unwrap(), vec![143; 400_000]);
}

#[test]
fn a_journal_of_nonsense_is_refused() {
    const PUBLISH: u64 = 2;
    const STRIKE: u64 = 3;
    for (kind, address, count) in [
        (PUBLISH, 1 << 20, u64::MAX),
        (STRIKE, 1 << 20, u64::MAX),
        // Words that do not belong to the index.
        (PUBLISH, 0, 4),
        (STRIKE, 5, 1),
    ] {
        let (memory, store, places) = scene();
        let journal = places.journal();
        memory.set(journal + 2, address);
        memory.set(journal + 3, count);
        memory.set(journal, kind);
        memory.set(places.shard(), NOBODYS_LOCK);
        let problems = store.check().unwrap().problems;
        assert!(
            problems.iter().any(|p| p.contains("journal")),
            "{kind} {address} {count}: {problems:?}"
        );
        assert_eq!(store.get(&key(1)).unwrap().unwrap(), value(1));
        drop(store);
        memory.open(2).expect("headers are as they were");
    }
    // A frame number that no arena has, being moved into the pool.
    let (memory, store, places) = scene();
    memory.set(places.journal() + 13, 1 << 40);
    memory.set(places.shard(), NOBODYS_LOCK);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_pool_that_names_a_foreign_frame_allocates_nothing_there() {
    let (memory, store, places) = scene();
    // The arena's own frame, all of it free.
    memory.set(places.pool_table(), 1 | 8188 << 32);
    let before: Vec<u64> = (0..512).map(|at| memory.word(at)).collect();
    let refused = (0..20_000u32).find_map(|i| store.put(&i.to_be_bytes(), b"").err());
    assert!(
        matches!(refused, Some(WriteError::Corrupt(_))),
        "{refused:?}"
    );
    // The headers of the region and the arena, without the count of free frames.
    for at in (0..32).chain(80..512) {
        assert_eq!(memory.words()[at].load(Relaxed), before[at], "word {at}");
    }
}

#[test]
fn counters_at_their_end_go_round() {
    let (memory, store, places) = scene();
    memory.set(places.next_root(), u64::MAX);
    // The pool's hint.
    memory.set(places.shard() + 2, u64::MAX);
    store.database(9).unwrap().put(b"k", b"v").unwrap();
    try_everything(&store);
}

/// What a refused write has appended is dead, and is counted once: compaction wins it back.
#[test]
fn a_refused_write_leaves_nothing_behind_that_counts_as_live() {
    let (memory, store, places) = scene();
    let live = || store.stats().live_bytes;
    store.put(b"another", b"so that there is a head").unwrap();
    for at in places.all(Area::Locks) {
        memory.set(*at, memory.word(*at) | 1 | 9999 << 48);
    }
    let before = live();
    for _ in 0..20 {
        store.put(&key(1), &[1; 3000]).unwrap_err();
        assert_eq!(live(), before);
    }
    let pairs = [
        (key(1), [1; 3000]),
        (key(2), [2; 3000]),
        (key(4), [4; 3000]),
    ];
    store.put_many(&pairs).unwrap_err();
    assert_eq!(live(), before);
    let updated = store.update(&key(1), |_| Decision::Replace(vec![3; 3000]));
    updated.unwrap_err();
    assert_eq!(live(), before);
}

/// A sweep reports damage, and continues after it.
#[test]
fn a_damaged_record_keeps_no_other_from_expiring() {
    // Entries that lead nowhere, and buckets that no index page has.
    for (area, word) in [(Area::Entries, (1 << 42) - 8), (Area::Partitions, u64::MAX)] {
        let (memory, store, places) = scene();
        let behind = store.database(9).unwrap();
        for i in 0..KEYS {
            behind.put_until(&key(i), b"v", Expiry::At(1)).unwrap();
        }
        for at in places.used(area) {
            memory.set(*at, memory.word(*at) | word);
        }
        let refused = store.remove_expired();
        assert!(
            matches!(refused, Err(WriteError::Corrupt(_))),
            "{refused:?}"
        );
        assert_eq!(behind.len(), 0, "{area:?}");
    }
}
