//! Recoveries and repairs of an arena that lends.

use std::sync::Arc;

use mneme_arena::{Arena, ClaimError, Discardable, Dropped, Extent, Frame, MAX_RECORD, Stored};
use mneme_sys::SyntheticTopology;

use crate::support::Shape;
use crate::{SHAPE, has, keep, keyed, lending, put};

/// A new incarnation has no record of what was lent, and has all frames.
#[test]
fn recovery_empties_the_cache_and_frees_what_was_rented() {
    let (world, process, cache) = lending(SHAPE);
    let held = process.hold(2);
    keep(&cache, 0..12);
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
    assert!((0..12).all(|number| !has(&cache, number)));
    assert_eq!(put(&cache, b"a", b"b"), Stored::Kept);
}

/// A frame that is being filled while a repair derives the search tree can be claimed when it is
/// sealed.
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
    // In the last word of the bitmap, like the frame that is filled first.
    assert_eq!(other.claim(1).unwrap().start, Frame(195));
    process.hold(3);
    process.release(low).unwrap();
    assert_eq!(put(&cache, b"small", b"in frame 199"), Stored::Kept);
    world.kill(other.number);
    assert_eq!(process.reap(), 1);
    // Frames 199 and 195 are sealed, and a frame of another word is being filled.
    keep(&cache, 0..2);
    process.assert_whole();
    process.hold(1);
    process.hold(1);
    process.assert_whole();
}

/// A frame that is filled again after a repair has put it back into the search tree is removed
/// again.
#[test]
fn a_frame_filled_again_after_a_repair_is_not_damage() {
    let (world, process, cache) = lending(SHAPE);
    process.hold(13);
    let other = world.open();
    assert_eq!(other.claim(1).unwrap().start, Frame(14));
    assert_eq!(put(&cache, b"small", b"in frame 16"), Stored::Kept);
    // This claim removes frame 16 from the tree.
    process.hold(1);
    // The reserve forbids another frame: 16 is sealed, and none is being filled.
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
