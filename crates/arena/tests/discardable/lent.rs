//! Which frames are lent, and which arenas lend.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{
    Arena, ArenaOptions, Class, CreateError, Discardable, Dropped, Extent, LendingError,
    LendingOptions, MAX_RECORD, OpenError, PutError, Stored,
};
use mneme_sys::{NodeId, PagePolicy, Region};

use crate::support::{FRAME, NODE, Shape, world};
use crate::{SHAPE, generation, get, keyed, lending, put};

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
    // All are rented except the one being filled. Renting does not reduce the reserve.
    assert_eq!(process.arena.stats().lent, 16);
    assert!(process.claim(11).is_err());
    let held: Vec<Extent> = (0..10).map(|_| process.hold(1)).collect();
    assert!(process.claim(1).is_err());
    assert_eq!(process.arena.stats().free, 5);
    // The frame being filled now never belonged to the reserve; another one would.
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

/// Frames that were never claimed have no memory yet.
#[test]
fn only_frames_that_were_claimed_before_are_lent() {
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
    // The value has changed even so.
    assert_eq!(get(&cache, b"k"), None);

    let (_plain, plain) = world(Shape {
        records: 0,
        ..SHAPE
    });
    assert!(matches!(
        Discardable::open(Arc::clone(&plain.arena)),
        Err(LendingError::LendsNothing)
    ));
    // An arena of one format is not mistaken for one of the other.
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

/// Options that make lending impossible are refused, and an arena whose header claims to lend
/// otherwise is not opened; nothing has changed then.
#[test]
fn impossible_options_for_lending_are_refused() {
    let (world, process, cache) = lending(SHAPE);
    assert_eq!(put(&cache, b"k", b"v"), Stored::Kept);
    let held = process.hold(2);
    let participants = process.arena.participants().clone();
    let create = |records| {
        let bytes = 4 * FRAME;
        let region = Region::private(bytes, bytes, PagePolicy::Small).unwrap();
        let max_frames = u32::MAX;
        let options = ArenaOptions {
            lending: Some(LendingOptions {
                records,
                max_frames,
            }),
            ..SHAPE.options()
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

    // The words with the number of nodes and of the index's buckets.
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
    // If a node has no idle frames, the other one is used.
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
