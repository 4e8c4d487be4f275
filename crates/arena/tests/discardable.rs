//! The second class: what a lookup may return, what it costs the first class (nothing), and what
//! damage to its index can do (misses).
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{
    Arena, ArenaOptions, ClaimError, Class, CreateError, Discardable, Dropped, Extent, Frame,
    LendingError, LendingOptions, Lookup, MAX_RECORD, OpenError, PutError, Stored,
};
use mneme_sys::{NodeId, PagePolicy, Region, SyntheticTopology};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use support::{FRAME, NODE, Process, Shape, World, world};

const SHAPE: Shape = Shape {
    frames: 17,
    max_frames: 17,
    nodes: 1,
    reserve: 0,
    client_bytes: 4096,
    records: 4096,
};

fn lending(shape: Shape) -> (World, Process, Discardable) {
    let (world, process) = world(shape);
    for node in 0..shape.nodes {
        let free = process.arena.stats().nodes[usize::from(node)].free;
        let extent = process
            .claim_as(free, 1, NodeId(node), Class::Reserved, 0)
            .unwrap();
        process.release(extent).unwrap();
    }
    let cache = process.cache();
    (world, process, cache)
}

fn put(cache: &Discardable, key: &[u8], value: &[u8]) -> Stored {
    let slot = cache.arena().participants().slot().unwrap();
    cache.put(&slot, NODE, key, value).unwrap()
}

fn get(cache: &Discardable, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![1, 2, 3];
    match cache.get(key, &mut value) {
        Lookup::Hit => Some(value),
        Lookup::Miss(_) => {
            assert!(value.is_empty());
            None
        }
    }
}

fn keyed(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
        .repeat(bytes / 8 + 1);
    value.truncate(bytes);
    value
}

#[test]
fn what_was_put_is_found_by_all_until_it_is_removed() {
    let (world, _process, cache) = lending(SHAPE);
    let other = world.open().cache();
    assert_eq!(get(&cache, b"a"), None);
    for length in [0, 1, 7, 8, 100, 4096, 100_000] {
        let value = keyed(length as u64, length);
        assert_eq!(put(&cache, b"a", &value), Stored::Kept);
        assert_eq!(get(&other, b"a"), Some(value), "{length}");
    }
    assert_eq!(put(&other, b"", b"of the empty key"), Stored::Kept);
    assert_eq!(get(&cache, b""), Some(b"of the empty key".to_vec()));
    other.remove(b"a").unwrap();
    assert_eq!(get(&cache, b"a"), None);
    other.clear().unwrap();
    assert_eq!(get(&cache, b""), None);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.hits, stats.kept, stats.dropped), (1, 7, 0));
    assert_eq!(stats.frames, 1);
}

#[test]
fn the_longest_run_leaves_out_a_frame_that_is_being_filled() {
    let (_world, process, cache) = lending(SHAPE);
    let held: Vec<Extent> = (0..16).map(|_| process.hold(1)).collect();
    // The only one that is idle, between seven and eight others.
    process.release(held[7]).unwrap();
    assert_eq!(put(&cache, b"key", b"value"), Stored::Kept);
    for extent in held.iter().filter(|extent| **extent != held[7]) {
        process.release(*extent).unwrap();
    }
    let stats = process.arena.stats();
    assert_eq!((stats.free, stats.lent, stats.longest_run), (15, 1, 8));
    assert!(process.claim(9).is_err());
    let claimed = process.hold(8);
    assert_eq!(claimed.start.0, held[8].start.0);
    assert_eq!(process.arena.stats().longest_run, 7);
    assert!(get(&cache, b"key").is_some());
}

#[test]
fn a_claim_discards_what_it_takes_at_once() {
    let (_world, process, cache) = lending(SHAPE);
    // Each fills a frame.
    for number in 0..10u64 {
        let value = keyed(number, MAX_RECORD - 8);
        assert_eq!(put(&cache, &number.to_le_bytes(), &value), Stored::Kept);
    }
    let there = || {
        (0..10u64)
            .filter(|n| get(&cache, &n.to_le_bytes()).is_some())
            .count()
    };
    assert_eq!(there(), 10);
    let stats = process.arena.stats();
    // What is rented is free to the first class; what is being filled is not.
    assert_eq!((stats.lent, stats.free), (10, 15));
    // Idle frames go first.
    let idle = process.hold(6);
    assert_eq!(there(), 10);
    let rented = process.hold(4);
    assert_eq!(there(), 6);
    assert_eq!(cache.stats().unwrap().discards, 4);
    assert_eq!(process.hold(5).frames, 5);
    assert_eq!(there(), 1);
    // The frame being filled is neither free nor capacity.
    let refused = process.claim(1).unwrap_err();
    assert!(
        matches!(refused, ClaimError::OutOfMemory { free: 0, .. }),
        "{refused}"
    );
    process.assert_whole();
    process.release(idle).unwrap();
    process.release(rented).unwrap();
    process.assert_whole();
    assert_eq!(process.arena.stats().free, 10);
    assert_eq!(put(&cache, b"again", b"there"), Stored::Kept);
    assert!(get(&cache, b"again").is_some());
}

/// Claims of single frames take what the policy gives up first, not the lowest address.
#[test]
fn what_is_hit_outlives_what_is_not() {
    let (_world, process, cache) = lending(SHAPE);
    let key = |number: u64| number.to_le_bytes();
    for number in 0..40u64 {
        // A small record that is looked up, and one that fills the rest of its frame.
        assert_eq!(put(&cache, &key(number), b"small"), Stored::Kept);
        assert_eq!(
            put(&cache, &key(number + 100), &keyed(number, MAX_RECORD - 100)),
            Stored::Kept
        );
        for _ in 0..100 {
            // Two are read all the time, the others never.
            get(&cache, &key(0));
            get(&cache, &key(1));
        }
    }
    assert!(get(&cache, &key(0)).is_some() && get(&cache, &key(1)).is_some());
    assert!((2..20).all(|number| get(&cache, &key(number)).is_none()));
    for _ in 0..8 {
        process.hold(1);
    }
    assert!(get(&cache, &key(0)).is_some() && get(&cache, &key(1)).is_some());
    process.assert_whole();
}

/// Not the lowest address, where that has a record that is worth more.
#[test]
fn claims_take_what_is_idle_first_and_then_the_policys_victims() {
    let fill = |cache: &Discardable, number: u64| {
        let value = keyed(number, MAX_RECORD - 8);
        assert_eq!(put(cache, &number.to_le_bytes(), &value), Stored::Kept);
    };
    let there = |cache: &Discardable, number: u64| get(cache, &number.to_le_bytes()).is_some();
    // What is rented lies below what is idle.
    let (_world, process, cache) = lending(SHAPE);
    let (low, high) = (process.hold(8), process.hold(8));
    process.release(low).unwrap();
    (0..8).for_each(|number| fill(&cache, number));
    process.release(high).unwrap();
    process.hold(4);
    process.hold(1);
    assert!((0..8).all(|number| there(&cache, number)));

    // Frames are lent from the highest on: what is read all the time lies lowest.
    let (_world, process, cache) = lending(SHAPE);
    (0..16).for_each(|number| fill(&cache, number));
    for _ in 0..40 {
        assert!((12..15).all(|number| there(&cache, number)));
    }
    // The policy names its victims when it needs the first.
    fill(&cache, 16);
    for _ in 0..4 {
        process.hold(1);
    }
    assert!((12..15).all(|number| there(&cache, number)));
    assert_eq!((0..16).filter(|number| there(&cache, *number)).count(), 11);
}

#[test]
fn the_reserve_and_the_bound_are_not_lent() {
    let (_world, process, cache) = lending(Shape {
        reserve: 5,
        ..SHAPE
    });
    let fill = |cache: &Discardable, from: u64| {
        (from..from + 40)
            .map(|number| put(cache, &number.to_le_bytes(), &keyed(number, MAX_RECORD - 8)))
            .filter(|stored| *stored == Stored::Kept)
            .count()
    };
    assert_eq!(fill(&cache, 0), 40);
    // All are rented but the one that is filled. Renting costs the reserve nothing.
    assert_eq!(process.arena.stats().lent, 16);
    assert!(process.claim(11).is_err());
    let held: Vec<Extent> = (0..10).map(|_| process.hold(1)).collect();
    assert!(process.claim(1).is_err());
    assert_eq!(process.arena.stats().free, 5);
    // What is filled now was never the reserve's: another would be.
    assert_eq!(fill(&cache, 100), 0);
    for _ in 0..5 {
        process.claim_as(1, 1, NODE, Class::Reserved, 0).unwrap();
    }
    for extent in held {
        process.release(extent).unwrap();
    }
    cache.clear().unwrap();
    process.arena.set_max_lent(3).unwrap();
    assert!(fill(&cache, 200) > 0);
    assert!(cache.stats().unwrap().frames <= 3, "{:?}", cache.stats());
    process.assert_whole();
}

/// Frames that nobody had before have no memory yet.
#[test]
fn only_frames_that_somebody_had_are_lent() {
    let (_world, process) = world(SHAPE);
    let cache = process.cache();
    assert_eq!(put(&cache, b"a", b"b"), Stored::Dropped(Dropped::NoFrame));
    process.warm(3);
    assert_eq!(put(&cache, b"a", b"b"), Stored::Kept);
    let lent: Vec<u32> = (1..17)
        .filter(|frame| generation(&process, *frame) > 1)
        .collect();
    assert_eq!(lent, [3]);
}

/// A descriptor's first word, as the format has it: the upper half is the generation.
fn descriptor(process: &Process, frame: u32) -> &AtomicU64 {
    let descriptors = 640 + 256 * 16;
    let region = process.arena.region();
    region.at(descriptors + 16 * u64::from(frame)).unwrap()
}

fn generation(process: &Process, frame: u32) -> u32 {
    (descriptor(process, frame).load(Relaxed) >> 32) as u32
}

/// The numbers of generations begin again while frames are lent, claimed and lent anew: nothing
/// older than its frame's generation is found, and no frame counts as one that nobody had.
#[test]
fn generations_begin_again_without_a_word() {
    let (_world, process, cache) = lending(SHAPE);
    for frame in 1..SHAPE.frames as u32 {
        let word = descriptor(&process, frame);
        let low = word.load(Relaxed) & u64::from(u32::MAX);
        word.store(low | u64::from(u32::MAX - frame % 4) << 32, Relaxed);
    }
    process.assert_whole();
    let mut begun_again = 0;
    for round in 0..12u64 {
        // Each fills a frame.
        for number in 0..10u64 {
            let value = keyed(round << 8 | number, MAX_RECORD - 8);
            assert_eq!(put(&cache, &number.to_le_bytes(), &value), Stored::Kept);
        }
        let found = |number: u64| {
            let found = get(&cache, &number.to_le_bytes());
            if let Some(found) = &found {
                assert!(*found == keyed(round << 8 | number, MAX_RECORD - 8));
            }
            found.is_some()
        };
        let there = (0..10).filter(|number| found(*number)).count();
        assert_eq!(there, 10, "in round {round}");
        // All but the frame that is being filled: in runs, and what is left one by one.
        let claims = [1 + round as u32 % 3, 1].into_iter();
        let mut taken: Vec<Extent> = Vec::new();
        for frames in claims {
            taken.extend(std::iter::from_fn(|| process.claim(frames).ok()));
        }
        assert_eq!(taken.iter().map(|extent| extent.frames).sum::<u32>(), 15);
        let there = (0..10).filter(|number| found(*number)).count();
        assert!(there <= 1, "{there} found in frames that were claimed");
        for extent in taken {
            process.release(extent).unwrap();
        }
        process.assert_whole();
        let generations = (1..SHAPE.frames as u32).map(|frame| generation(&process, frame));
        assert!(generations.clone().all(|generation| generation > 0));
        begun_again += generations.filter(|generation| *generation < 100).count();
    }
    assert!(begun_again > 100, "{begun_again}");
}

/// An entry has the low bits of a generation. Once they come round the entry fits again, and its
/// record's bytes may be there still: its checksum has all bits.
#[test]
fn an_entry_that_fits_again_finds_nothing() {
    let (_world, process, cache) = lending(SHAPE);
    assert_eq!(put(&cache, b"first", &[1; 100]), Stored::Kept);
    assert_eq!(put(&cache, b"second", &[2; 100]), Stored::Kept);
    let filling = process.arena.being_filled()[0];
    // Sealed by a record that it has no place for.
    assert_eq!(
        put(&cache, b"large", &vec![3; MAX_RECORD - 8]),
        Stored::Kept
    );
    assert!(get(&cache, b"second").is_some());
    let before = generation(&process, filling.0);
    let of_entry = 1 << 11;
    for _ in 1..of_entry {
        let all: Vec<Extent> = std::iter::from_fn(|| process.claim(1).ok()).collect();
        for extent in all {
            process.release(extent).unwrap();
        }
    }
    // It is lent with those low bits, and the second record's bytes are as they were.
    assert_eq!(put(&cache, b"third", &[4; 8]), Stored::Kept);
    assert_eq!(process.arena.being_filled(), [filling]);
    assert_eq!(generation(&process, filling.0), before + of_entry);
    assert_eq!(get(&cache, b"second"), None);
}

#[test]
fn a_ticket_from_before_a_change_is_refused() {
    let (_world, process, cache) = lending(SHAPE);
    let slot = process.arena.participants().slot().unwrap();
    let mut value = Vec::new();
    let Lookup::Miss(ticket) = cache.get(b"key", &mut value) else {
        panic!("a hit in an empty cache");
    };
    let fill = |ticket, key: &[u8]| cache.fill(&slot, NODE, ticket, key, b"old").unwrap();
    assert_eq!(fill(ticket, b"other"), Stored::Dropped(Dropped::Superseded));
    cache.remove(b"key").unwrap();
    assert_eq!(fill(ticket, b"key"), Stored::Dropped(Dropped::Superseded));
    assert_eq!(get(&cache, b"key"), None);
    let Lookup::Miss(ticket) = cache.get(b"key", &mut value) else {
        panic!("a hit after a removal");
    };
    assert_eq!(fill(ticket, b"key"), Stored::Kept);
    assert_eq!(get(&cache, b"key"), Some(b"old".to_vec()));
    cache.clear().unwrap();
    assert_eq!(fill(ticket, b"key"), Stored::Dropped(Dropped::Superseded));
}

#[test]
fn bad_requests_have_typed_errors() {
    let (_world, process, cache) = lending(SHAPE);
    let slot = process.arena.participants().slot().unwrap();
    assert_eq!(put(&cache, b"k", b"v"), Stored::Kept);
    let large = vec![7; MAX_RECORD];
    assert_eq!(put(&cache, b"", &large), Stored::Kept);
    assert_eq!(get(&cache, b""), Some(large.clone()));
    let refused = cache.put(&slot, NODE, b"k", &large).unwrap_err();
    assert!(matches!(refused, PutError::TooLarge { bytes, most }
        if bytes == MAX_RECORD + 1 && most == MAX_RECORD));
    // The truth has changed even so.
    assert_eq!(get(&cache, b"k"), None);

    let (_plain, plain) = world(Shape {
        records: 0,
        ..SHAPE
    });
    assert!(matches!(
        Discardable::open(Arc::clone(&plain.arena)),
        Err(LendingError::LendsNothing)
    ));
    // An arena of the one format is not taken for one of the other.
    for process in [&process, &plain] {
        let format = process
            .arena
            .region()
            .at::<std::sync::atomic::AtomicU32>(8)
            .unwrap();
        let before = format.fetch_xor(3, Relaxed);
        assert!(matches!(
            Arena::identity(process.arena.region()),
            Err(OpenError::Header(_))
        ));
        format.store(before, Relaxed);
        Arena::identity(process.arena.region()).unwrap();
    }
}

/// What cannot lend is not made, and an arena whose numbers say that it lends otherwise is not
/// opened; then nothing has changed.
#[test]
fn an_arena_that_cannot_lend_so_is_refused() {
    let (world, process, cache) = lending(SHAPE);
    assert_eq!(put(&cache, b"k", b"v"), Stored::Kept);
    let held = process.hold(2);
    let participants = process.arena.participants().clone();
    let create = |records| {
        let bytes = 4 * FRAME;
        let region = Region::private(bytes, bytes, PagePolicy::Small).unwrap();
        let options = ArenaOptions {
            uuid: support::UUID,
            client_bytes: 0,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 1)),
            reserve_frames: 0,
            lending: Some(LendingOptions {
                records,
                max_frames: u32::MAX,
            }),
        };
        Arena::create(Arc::new(region), participants.clone(), options).map(drop)
    };
    for records in [0, (1 << 32) + 1, u64::MAX] {
        let refused = create(records);
        assert!(matches!(refused, Err(CreateError::Options(_))), "{records}");
    }
    // The index would need more than there is.
    for records in [1 << 20, 1 << 32] {
        let refused = create(records);
        assert!(matches!(refused, Err(CreateError::TooSmall { .. })));
    }
    create(1000).unwrap();

    // Nodes, and buckets of the index.
    for offset in [152, 168] {
        let word: &AtomicU32 = process.arena.region().at(offset).unwrap();
        for wrong in [0, 2, 1 << 30] {
            let before = word.swap(wrong, Relaxed);
            let refused = world.try_open().map(drop);
            word.store(before, Relaxed);
            assert!(
                matches!(refused, Err(OpenError::Damaged(_))),
                "{offset}: {refused:?}"
            );
        }
    }
    let other = world.open();
    assert_eq!(other.arena.extent_of(held.start).unwrap().extent, held);
    assert_eq!(get(&other.cache(), b"k"), Some(b"v".to_vec()));
    other.assert_whole();
}

/// A new incarnation knows nothing of what was lent, and has all frames.
#[test]
fn recovery_empties_the_cache_and_frees_what_was_rented() {
    let (world, process, cache) = lending(SHAPE);
    let held = process.hold(2);
    for number in 0..12u64 {
        assert_eq!(
            put(
                &cache,
                &number.to_le_bytes(),
                &keyed(number, MAX_RECORD - 8)
            ),
            Stored::Kept
        );
    }
    drop((process, cache));
    let (_, participants) = world.participants();
    let topology = Arc::new(SyntheticTopology::new(1, 1));
    let arena = Arena::recover(Arc::new(world.map()), participants, topology).unwrap();
    assert_eq!(arena.check().unwrap(), []);
    let stats = arena.stats();
    assert_eq!((stats.free, stats.lent), (14, 0));
    assert_eq!(
        arena
            .extents()
            .map(|info| info.extent)
            .collect::<Vec<Extent>>(),
        [held]
    );
    let cache = Discardable::open(Arc::new(arena)).unwrap();
    assert!((0..12u64).all(|number| get(&cache, &number.to_le_bytes()).is_none()));
    assert_eq!(put(&cache, b"a", b"b"), Stored::Kept);
}

#[test]
fn each_node_fills_a_frame_of_its_own() {
    let shape = Shape {
        frames: 33,
        max_frames: 33,
        nodes: 2,
        ..SHAPE
    };
    let (_world, process, cache) = lending(shape);
    let slot = process.arena.participants().slot().unwrap();
    for node in [0, 1, 1, 0] {
        let stored = cache
            .put(&slot, NodeId(node), &[node as u8], b"near")
            .unwrap();
        assert_eq!(stored, Stored::Kept);
    }
    let stats = process.arena.stats();
    assert_eq!(stats.lent, 2);
    for node in &stats.nodes {
        // One is being filled.
        assert_eq!((node.frames, node.free), (16, 15));
    }
    assert_eq!(get(&cache, &[1]), Some(b"near".to_vec()));
    // Where a node has nothing idle the other serves.
    let held = process
        .claim_as(15, 1, NodeId(0), Class::Ordinary, 0)
        .unwrap();
    assert_eq!(process.arena.node_of(held.start), NodeId(0));
    for number in 0..4u64 {
        let value = keyed(number, MAX_RECORD - 8);
        let key = number.to_le_bytes();
        assert_eq!(
            cache.put(&slot, NodeId(0), &key, &value).unwrap(),
            Stored::Kept
        );
        assert_eq!(get(&cache, &key), Some(value));
    }
    process.assert_whole();
}

/// A holder of the fill lock that sleeps costs puts, and claims nothing.
#[test]
fn a_stopped_tenant_delays_no_claim() {
    let (world, process, cache) = lending(SHAPE);
    for number in 0..30u64 {
        assert_eq!(
            put(
                &cache,
                &number.to_le_bytes(),
                &keyed(number, MAX_RECORD - 8)
            ),
            Stored::Kept
        );
    }
    // It holds the lock, with its frame half filled, for as long as this test runs.
    let sleeper = world.open();
    let slot = sleeper.arena.participants().slot().unwrap();
    let fill_lock = fill_lock_of(&sleeper);
    let lock: &mneme_sync::RobustLock = sleeper.arena.region().at(fill_lock).unwrap();
    let guard = lock.try_lock(&slot).unwrap();
    assert_eq!(put(&cache, b"a", b"b"), Stored::Dropped(Dropped::Busy));
    let claimed: Vec<Extent> = (0..15).map(|_| process.claim(1).unwrap()).collect();
    assert!(process.claim(1).is_err());
    assert_eq!(
        get(&cache, &29u64.to_le_bytes()),
        Some(keyed(29, MAX_RECORD - 8))
    );
    for extent in claimed {
        process.release(extent).unwrap();
    }
    cache.remove(&29u64.to_le_bytes()).unwrap();
    assert_eq!(get(&cache, &29u64.to_le_bytes()), None);
    drop(guard);
    assert_eq!(put(&cache, b"a", b"b"), Stored::Kept);
}

/// Where the format has the first node's fill lock: behind the lending header.
fn fill_lock_of(process: &Process) -> u64 {
    let arena = &process.arena;
    let tree_end = arena.client().start - lending_bytes(arena);
    tree_end + 640
}

/// What the parts of `SHAPE`'s cache take before the client area.
fn lending_bytes(_arena: &Arena) -> u64 {
    let buckets = SHAPE.records.div_ceil(6);
    let unit = |bytes: u64| bytes.next_multiple_of(128);
    640 + 640 + unit(8) + unit(16 * SHAPE.max_frames as u64) + unit(64 * buckets)
}

/// The idle bitmap is a hint: a tenant that slept before it noted a frame as idle may do so after
/// another has claimed the frame.
#[test]
fn a_frame_noted_as_idle_that_is_held_refuses_no_claim() {
    let (_world, process, cache) = lending(SHAPE);
    let low = process.hold(12);
    let held = process.hold(3);
    process.release(low).unwrap();
    // All others are lent.
    for number in 0..13u64 {
        let value = keyed(number, MAX_RECORD - 8);
        assert_eq!(put(&cache, &number.to_le_bytes(), &value), Stored::Kept);
    }
    let idle: &AtomicU64 = process
        .arena
        .region()
        .at(fill_lock_of(&process) + 640)
        .unwrap();
    let wrong = 0b111 << held.start.0;
    assert_eq!(idle.load(Relaxed), 0);
    for frames in [1, 3] {
        idle.fetch_or(wrong, Relaxed);
        process.claim(frames).unwrap();
        // It is forgotten, so that it hides no idle frames from the claims to come.
        assert_eq!(idle.load(Relaxed), 0);
    }
    process.assert_whole();
}

/// What is being filled while a repair derives the search tree can be claimed when it is sealed.
#[test]
fn a_frame_filled_during_a_repair_is_not_lost_to_claims() {
    let shape = Shape {
        frames: 200,
        max_frames: 200,
        ..SHAPE
    };
    let (world, process, cache) = lending(shape);
    let low = process.hold(1);
    process.hold(193);
    let other = world.open();
    // In the last word of the bitmap, as is the frame that is filled first.
    assert_eq!(other.claim(1).unwrap().start, Frame(195));
    process.hold(3);
    process.release(low).unwrap();
    assert_eq!(put(&cache, b"small", b"in frame 199"), Stored::Kept);
    world.kill(other.number);
    assert_eq!(process.reap(), 1);
    // Frames 199 and 195 are sealed, and another word's frame is filled.
    for number in 0..2u64 {
        let value = keyed(number, MAX_RECORD - 8);
        assert_eq!(put(&cache, &number.to_le_bytes(), &value), Stored::Kept);
    }
    process.assert_whole();
    process.hold(1);
    process.hold(1);
    process.assert_whole();
}

/// A frame that is filled again after a repair has put it back into the search tree is left out
/// anew.
#[test]
fn a_frame_filled_again_after_a_repair_is_not_damage() {
    let (world, process, cache) = lending(SHAPE);
    process.hold(13);
    let other = world.open();
    assert_eq!(other.claim(1).unwrap().start, Frame(14));
    assert_eq!(put(&cache, b"small", b"in frame 16"), Stored::Kept);
    // This claim leaves frame 16 out of the tree.
    process.hold(1);
    // The reserve forbids another frame: 16 is sealed, and none is filled.
    process.arena.set_reserve(5).unwrap();
    let large = keyed(1, MAX_RECORD - 8);
    assert_eq!(
        put(&cache, b"large", &large),
        Stored::Dropped(Dropped::NoFrame)
    );
    world.kill(other.number);
    assert_eq!(process.reap(), 1);
    process.arena.set_reserve(0).unwrap();
    process.arena.set_max_lent(1).unwrap();
    assert_eq!(put(&cache, b"large", &large), Stored::Kept);
    assert_eq!(process.arena.stats().lent, 1);
    assert_eq!(process.hold(1).start, Frame(14));
    let refused = process.claim(1).unwrap_err();
    assert!(
        matches!(refused, ClaimError::OutOfMemory { free: 0, .. }),
        "{refused}"
    );
    process.assert_whole();
}

fn any_bytes(process: &Process, from: u64, words: &[(Index, u64)]) {
    let to = process.arena.client().start;
    for (at, word) in words {
        let at = from + at.index(((to - from) / 8) as usize) as u64 * 8;
        let place: &AtomicU64 = process.arena.region().at(at).unwrap();
        place.store(*word, Relaxed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the index, the policy's tables and the records' bytes say, a hit is what was put.
    #[test]
    fn damage_costs_misses(
        index in prop::collection::vec((any::<Index>(), any::<u64>()), 0..400),
        swaps in prop::collection::vec((any::<Index>(), any::<Index>()), 0..200),
        bytes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..200),
    ) {
        let (_world, process, cache) = lending(SHAPE);
        let value = |number: u64| keyed(number, 4000 + number as usize);
        for number in 0..1000u64 {
            prop_assert_eq!(put(&cache, &number.to_le_bytes(), &value(number)), Stored::Kept);
        }
        let buckets = process.arena.client().start - 64 * SHAPE.records.div_ceil(6);
        let region = process.arena.region();
        let words = (process.arena.client().start - buckets) as usize / 8;
        // Entries in other places, words of anything, records of anything.
        let at = |index: Index| region.at::<AtomicU64>(buckets + index.index(words) as u64 * 8).unwrap();
        for (one, other) in swaps {
            let word = at(one).load(Relaxed);
            at(one).store(at(other).swap(word, Relaxed), Relaxed);
        }
        any_bytes(&process, buckets, &index);
        for (place, byte) in bytes {
            let frame = Frame(1 + place.index(16) as u32);
            let offset = frame.offset() + place.index(FRAME / 8) as u64 * 8;
            region.at::<AtomicU64>(offset).unwrap().fetch_xor(u64::from(byte), Relaxed);
        }
        let mut hits = 0;
        for number in 0..1000u64 {
            if let Some(found) = get(&cache, &number.to_le_bytes()) {
                prop_assert_eq!(found, value(number));
                hits += 1;
            }
        }
        prop_assert!(hits > 0);
        // And with the rest of the second class' tables: no panic, and claims as ever.
        any_bytes(&process, process.arena.client().start - lending_bytes(&process.arena) + 640 + 128, &index);
        for number in 0..50u64 {
            let slot = process.arena.participants().slot().unwrap();
            let _ = cache.put(&slot, NODE, &number.to_le_bytes(), &value(number)).unwrap();
            if let Some(found) = get(&cache, &number.to_le_bytes()) {
                prop_assert_eq!(found, value(number));
            }
        }
        cache.sweep().unwrap();
        cache.clear().unwrap();
        let extent = process.claim(8).unwrap();
        process.release(extent).unwrap();
        process.assert_whole();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        by: Index,
        key: u8,
        size: usize,
    },
    Remove {
        by: Index,
        key: u8,
    },
    Miss {
        by: Index,
        key: u8,
    },
    Fill {
        by: Index,
        which: Index,
    },
    Get {
        by: Index,
        key: u8,
    },
    Claim {
        by: Index,
        frames: u32,
        reserved: bool,
    },
    Release {
        by: Index,
        which: Index,
    },
    Clear {
        by: Index,
    },
    Sweep {
        by: Index,
    },
    Open,
    Kill {
        which: Index,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<Index>;
    let size = prop_oneof![4 => 0usize..2000, 3 => 100_000usize..900_000, 1 => MAX_RECORD - 100..MAX_RECORD + 2];
    prop_oneof![
        12 => (index(), 0u8..40, size).prop_map(|(by, key, size)| Op::Put { by, key, size }),
        3 => (index(), 0u8..40).prop_map(|(by, key)| Op::Remove { by, key }),
        4 => (index(), 0u8..40).prop_map(|(by, key)| Op::Miss { by, key }),
        4 => (index(), index()).prop_map(|(by, which)| Op::Fill { by, which }),
        12 => (index(), 0u8..40).prop_map(|(by, key)| Op::Get { by, key }),
        4 => (index(), 1u32..6, any::<bool>()).prop_map(|(by, frames, reserved)| Op::Claim { by, frames, reserved }),
        4 => (index(), index()).prop_map(|(by, which)| Op::Release { by, which }),
        1 => index().prop_map(|by| Op::Clear { by }),
        1 => index().prop_map(|by| Op::Sweep { by }),
        1 => Just(Op::Open),
        1 => index().prop_map(|which| Op::Kill { which }),
    ]
}

/// A version of a value: its bytes say which.
fn version(key: u8, number: u64, size: usize) -> Vec<u8> {
    let mut value = keyed(number, size);
    let name = [&[key][..], &number.to_le_bytes()].concat();
    let fits = name.len().min(size);
    value[..fits].copy_from_slice(&name[..fits]);
    value
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// A hit is the value that was put last, whatever was claimed, discarded and freed meanwhile;
    /// and the first class gets whatever is not its own and not being filled.
    #[test]
    fn a_hit_is_the_truth(ops in prop::collection::vec(op(), 1..120)) {
        let (world, first, _) = lending(Shape { reserve: 2, ..SHAPE });
        let mut processes = vec![first];
        let mut caches = vec![processes[0].cache()];
        // The truth, and what was read from it after a miss.
        let mut truth: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut tickets = Vec::new();
        let mut held: Vec<Extent> = Vec::new();
        for (number, op) in (0..).zip(ops) {
            match op {
                Op::Put { by, key, size } => {
                    let value = version(key, number, size);
                    truth.insert(key, value.clone());
                    let cache = by.get(&caches);
                    let slot = cache.arena().participants().slot().unwrap();
                    match cache.put(&slot, NODE, &[key], &value) {
                        Err(PutError::TooLarge { .. }) => prop_assert!(1 + size > MAX_RECORD),
                        other => {
                            let taken = other.unwrap() == Stored::Kept;
                            prop_assert_eq!(taken, get(cache, &[key]).is_some());
                        }
                    }
                }
                Op::Remove { by, key } => {
                    truth.remove(&key);
                    by.get(&caches).remove(&[key]).unwrap();
                }
                Op::Miss { by, key } => {
                    if let (Lookup::Miss(ticket), Some(value)) =
                        (by.get(&caches).get(&[key], &mut Vec::new()), truth.get(&key))
                    {
                        tickets.push((ticket, key, value.clone()));
                    }
                }
                Op::Fill { by, which } if !tickets.is_empty() => {
                    let (ticket, key, value) = tickets.swap_remove(which.index(tickets.len()));
                    let cache = by.get(&caches);
                    let slot = cache.arena().participants().slot().unwrap();
                    // An old value, perhaps: then it must be refused.
                    let _ = cache.fill(&slot, NODE, ticket, &[key], &value);
                }
                Op::Get { by, key } => {
                    if let Some(found) = get(by.get(&caches), &[key]) {
                        prop_assert_eq!(Some(&found), truth.get(&key));
                    }
                }
                Op::Claim { by, frames, reserved } => {
                    let process = by.get(&processes);
                    let class = if reserved { Class::Reserved } else { Class::Ordinary };
                    let free = 16 - held.iter().map(|extent| extent.frames).sum::<u32>();
                    let reserve = if reserved { 0 } else { 2 };
                    match process.claim_as(frames, 1, NODE, class, 0) {
                        Ok(extent) => {
                            process.arena.adopt(extent).unwrap();
                            prop_assert!(held.iter().all(|other| !other.contains(extent.start)));
                            // What the first class stores no reader of the second believes.
                            for word in 0..extent.len() / 4096 {
                                let at = extent.offset() + word * 4096;
                                let word: &AtomicU64 = process.arena.region().at(at).unwrap();
                                word.store(number, Relaxed);
                            }
                            held.push(extent);
                        }
                        Err(ClaimError::OutOfMemory { .. }) => prop_assert!(frames + reserve + 1 > free),
                        Err(ClaimError::NoContiguousRun { .. }) => prop_assert!(frames > 1),
                        Err(other) => panic!("{other}"),
                    }
                }
                Op::Release { by, which } if !held.is_empty() => {
                    by.get(&processes).release(held.swap_remove(which.index(held.len()))).unwrap();
                }
                Op::Clear { by } => by.get(&caches).clear().unwrap(),
                Op::Sweep { by } => {
                    by.get(&caches).sweep().unwrap();
                }
                Op::Open if processes.len() < 3 => {
                    processes.push(world.open());
                    caches.push(processes[processes.len() - 1].cache());
                }
                Op::Kill { which } if processes.len() > 1 => {
                    let at = which.index(processes.len());
                    caches.remove(at);
                    let process = processes.remove(at);
                    world.kill(process.number);
                    processes[0].reap();
                }
                _ => {}
            }
        }
        for key in 0..40 {
            let found = get(&caches[0], &[key]);
            prop_assert!(found.is_none() || found.as_ref() == truth.get(&key));
        }
        processes[0].assert_whole();
        let taken: u32 = held.iter().map(|extent| extent.frames).sum();
        let stats = processes[0].arena.stats();
        prop_assert!(stats.free + taken == 16 || stats.free + taken == 15);
        for extent in held {
            processes[0].release(extent).unwrap();
        }
    }
}
