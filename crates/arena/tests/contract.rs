//! The promises of an arena to its tenant, one test for each call.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{
    AdoptError, Arena, ArenaOptions, ClaimError, Class, CreateError, Extent, ExtentState, Frame,
    GrowError, InvalidClaim, MAX_ALIGN_FRAMES, MAX_TAG, OpenError, ReleaseError,
};
use mneme_sync::Holding;
use mneme_sys::{HeaderError, NodeId, PagePolicy, Region, SyntheticTopology};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use support::{FRAME, NODE, Shape, world};

fn extent(start: u32, frames: u32) -> Extent {
    Extent {
        start: Frame(start),
        frames,
    }
}

#[test]
fn claims_are_contiguous_disjoint_and_lowest_first() {
    let (_world, process) = world(Shape::default());
    assert_eq!(process.claim(3).unwrap(), extent(1, 3));
    assert_eq!(process.claim(1).unwrap(), extent(4, 1));
    assert_eq!(process.claim(12).unwrap(), extent(5, 12));
    process.release(extent(4, 1)).unwrap();
    process.release(extent(1, 3)).unwrap();
    assert_eq!(process.claim(4).unwrap(), extent(1, 4));
    process.assert_whole();
}

#[test]
fn an_extent_knows_the_offsets_of_its_bytes() {
    let (_world, process) = world(Shape::default());
    let claimed = process.claim(3).unwrap();
    assert_eq!(
        (claimed.offset(), claimed.len(), claimed.end()),
        (FRAME as u64, 3 * FRAME as u64, 4 * FRAME as u64)
    );
    let word: &AtomicU64 = process.arena.region().at(claimed.end() - 8).unwrap();
    word.store(1, Relaxed);
}

#[test]
fn alignment_counts_from_the_start_of_the_region() {
    let (_world, process) = world(Shape::default());
    let aligned = |frames, align| process.claim_as(frames, align, NODE, Class::Ordinary, 0);
    assert_eq!(aligned(1, 4).unwrap(), extent(4, 1));
    assert_eq!(aligned(5, 8).unwrap(), extent(8, 5));
    assert_eq!(aligned(2, 2).unwrap(), extent(2, 2));
    match aligned(4, 16) {
        Err(ClaimError::NoContiguousRun {
            wanted: 4,
            align: 16,
            longest: 1,
        }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_that_can_never_be_granted_are_refused_with_their_reason() {
    let (_world, process) = world(Shape::default());
    let before = process.arena.stats();
    let why = |frames, align, tag| match process.claim_as(frames, align, NODE, Class::Reserved, tag)
    {
        Err(ClaimError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(0, 1, 0), InvalidClaim::NoFrames);
    assert_eq!(
        why(65, 1, 0),
        InvalidClaim::TooMany {
            wanted: 65,
            most: 64
        }
    );
    assert_eq!(
        why(u32::MAX, 1, 0),
        InvalidClaim::TooMany {
            wanted: u32::MAX,
            most: 64
        }
    );
    for align in [0, 3, 12, MAX_ALIGN_FRAMES * 2, u32::MAX] {
        assert_eq!(why(1, align, 0), InvalidClaim::Alignment { align });
    }
    assert_eq!(
        why(1, 1, MAX_TAG + 1),
        InvalidClaim::Tag { tag: MAX_TAG + 1 }
    );
    assert_eq!(process.arena.stats(), before);
    process.assert_whole();
}

/// Its number belongs to another thread here, or to none.
#[test]
fn a_slot_of_another_control_region_changes_nothing() {
    let (_world, process) = world(Shape::default());
    let (_other_world, other) = world(Shape::default());
    let held = process.hold(1);
    let foreign = other.arena.participants().slot().unwrap();
    let refused = process
        .arena
        .claim(&foreign, 1, 1, NODE, Class::Ordinary, 0)
        .unwrap_err();
    let ClaimError::Stalled(stalled) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(stalled.what, Holding::Foreign);
    let refused = process.arena.release(&foreign, held).unwrap_err();
    assert!(matches!(refused, ReleaseError::Stalled(_)), "{refused:?}");
    assert_eq!(process.claim(1).unwrap(), extent(2, 1));
    process.assert_whole();
}

#[test]
fn only_a_whole_extent_is_released() {
    let (_world, process) = world(Shape::default());
    let held = process.hold(4);
    let other = process.hold(2);
    let before = process.arena.stats();
    let actual = |given| match process.release(given) {
        Err(ReleaseError::Mismatch { actual, .. }) => actual,
        other => panic!("{other:?}"),
    };
    assert_eq!(actual(extent(2, 1)), held, "from the middle");
    assert_eq!(actual(extent(2, 3)), held, "the rear part");
    assert_eq!(actual(extent(1, 3)), held, "the front part");
    assert_eq!(actual(extent(1, 6)), held, "two at once");
    for foreign in [
        extent(0, 1),
        extent(1, 0),
        extent(16, 2),
        extent(17, 1),
        extent(u32::MAX, 1),
        extent(1, u32::MAX),
    ] {
        assert!(matches!(
            process.release(foreign),
            Err(ReleaseError::Foreign {
                first: 1,
                last: 16,
                ..
            })
        ));
    }
    assert!(
        matches!(
            process.release(extent(9, 2)),
            Err(ReleaseError::NotClaimed { .. })
        ),
        "never claimed"
    );
    assert_eq!(process.arena.stats(), before);
    process.release(held).unwrap();
    assert!(
        matches!(process.release(held), Err(ReleaseError::NotClaimed { .. })),
        "twice"
    );
    process.release(other).unwrap();
    assert_eq!(process.arena.stats().free, 16);
    process.assert_whole();
}

#[test]
fn only_a_claimed_extent_is_adopted_and_only_once() {
    let (_world, process) = world(Shape::default());
    let claimed = process.claim(3).unwrap();
    for wrong in [
        extent(1, 2),
        extent(2, 2),
        extent(4, 1),
        extent(0, 1),
        extent(1, u32::MAX),
        extent(1, 0),
    ] {
        assert!(
            matches!(
                process.arena.adopt(wrong),
                Err(AdoptError::NotClaimed { .. })
            ),
            "{wrong}"
        );
    }
    process.arena.adopt(claimed).unwrap();
    assert!(matches!(
        process.arena.adopt(claimed),
        Err(AdoptError::AlreadyHeld { .. })
    ));
    process.release(claimed).unwrap();
    assert!(matches!(
        process.arena.adopt(claimed),
        Err(AdoptError::NotClaimed { .. })
    ));
}

#[test]
fn every_frame_knows_its_extent() {
    let (world, process) = world(Shape::default());
    let slot = process.arena.participants().slot().unwrap().id();
    let claimed = process.claim_as(3, 1, NODE, Class::Ordinary, 77).unwrap();
    let held = process.hold(2);
    let other = world.open();
    for arena in [&process.arena, &other.arena] {
        for frame in 0..20 {
            let info = arena.extent_of(Frame(frame));
            match frame {
                1..=3 => {
                    let info = info.unwrap();
                    assert_eq!(
                        (info.extent, info.tag, info.state),
                        (claimed, 77, ExtentState::Claimed(slot))
                    );
                }
                4..=5 => {
                    let info = info.unwrap();
                    assert_eq!(
                        (info.extent, info.tag, info.state),
                        (held, 0, ExtentState::Held)
                    );
                }
                _ => assert_eq!(info, None),
            }
        }
        let all: Vec<Extent> = arena.extents().map(|info| info.extent).collect();
        assert_eq!(all, [claimed, held]);
        assert_eq!(arena.extent_of(Frame(u32::MAX)), None);
    }
}

#[test]
fn a_new_claim_of_a_frame_has_a_new_generation() {
    let (_world, process) = world(Shape::default());
    let generation = |frame| process.arena.extent_of(Frame(frame)).unwrap().generation;
    let mut last = 0;
    for frames in [1, 3, 2, 5, 1] {
        let claimed = process.claim(frames).unwrap();
        assert!(generation(1) > last);
        last = generation(1);
        assert!((1..=frames).all(|frame| generation(frame) == last));
        process.release(claimed).unwrap();
    }
}

#[test]
fn ordinary_claims_leave_the_reserve_alone() {
    let (_world, process) = world(Shape {
        reserve: 4,
        ..Shape::default()
    });
    match process.claim(13) {
        Err(ClaimError::OutOfMemory {
            wanted: 13,
            free: 16,
            reserve: 4,
        }) => {}
        other => panic!("{other:?}"),
    }
    process.hold(12);
    assert!(matches!(
        process.claim(1),
        Err(ClaimError::OutOfMemory { .. })
    ));
    process.claim_as(3, 1, NODE, Class::Reserved, 0).unwrap();
    process.arena.set_reserve(0).unwrap();
    process.claim(1).unwrap();
    match process.claim_as(1, 1, NODE, Class::Reserved, 0) {
        Err(ClaimError::OutOfMemory {
            wanted: 1,
            free: 0,
            reserve: 0,
        }) => {}
        other => panic!("{other:?}"),
    }
    process.arena.set_reserve(u32::MAX).unwrap();
    assert!(matches!(
        process.claim(1),
        Err(ClaimError::OutOfMemory { .. })
    ));
}

#[test]
fn a_lack_of_adjacent_frames_has_its_own_error() {
    let (_world, process) = world(Shape::default());
    let all: Vec<Extent> = (0..16).map(|_| process.hold(1)).collect();
    for extent in all.iter().step_by(2) {
        process.release(*extent).unwrap();
    }
    match process.claim(2) {
        Err(ClaimError::NoContiguousRun {
            wanted: 2,
            align: 1,
            longest: 1,
        }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(process.arena.stats().longest_run, 1);
    assert_eq!(process.arena.stats().free, 8);
}

#[test]
fn the_nearest_node_replaces_a_full_one() {
    // Frames 1..=60 in four zones of fifteen.
    let (_world, process) = world(Shape {
        frames: 61,
        max_frames: 61,
        nodes: 4,
        ..Shape::default()
    });
    let on = |node| {
        process
            .claim_as(15, 1, NodeId(node), Class::Ordinary, 0)
            .map(|extent| extent.start.0)
    };
    assert_eq!(on(2).unwrap(), 31);
    assert_eq!(on(2).unwrap(), 16);
    assert_eq!(on(3).unwrap(), 46);
    let stats = process.arena.stats();
    assert_eq!(
        stats
            .nodes
            .iter()
            .map(|node| (node.frames, node.free))
            .collect::<Vec<_>>(),
        [(15, 15), (15, 0), (15, 0), (15, 0)]
    );
    // For a node that the arena was not made for, any node is as good.
    assert_eq!(on(900).unwrap(), 1);
    process.assert_whole();
}

#[test]
fn no_run_crosses_from_one_node_to_another() {
    let (_world, process) = world(Shape {
        frames: 61,
        max_frames: 61,
        nodes: 4,
        ..Shape::default()
    });
    assert!(matches!(
        process.claim(16),
        Err(ClaimError::NoContiguousRun { longest: 15, .. })
    ));
    assert_eq!(process.arena.stats().longest_run, 15);
}

#[test]
fn the_client_area_is_zeroed_and_shared_by_all_openings() {
    let (world, process) = world(Shape {
        client_bytes: 3 * FRAME,
        ..Shape::default()
    });
    let client = process.arena.client();
    assert_eq!(client.end - client.start, 3 * FRAME as u64);
    assert_eq!(client.start % 128, 0);
    let words: &[AtomicU64] = process
        .arena
        .region()
        .slice_at(client.start, 3 * FRAME / 8)
        .unwrap();
    assert!(words.iter().all(|word| word.load(Relaxed) == 0));
    words[0].store(7, Relaxed);
    words[words.len() - 1].store(8, Relaxed);
    let first = process.claim(1).unwrap();
    assert!(first.offset() >= client.end);
    let other = world.open();
    assert_eq!(other.arena.client(), client);
    assert_ne!(other.arena.region().base(), process.arena.region().base());
    assert_eq!(
        other
            .arena
            .region()
            .at::<AtomicU64>(client.start)
            .unwrap()
            .load(Relaxed),
        7
    );
    process.assert_whole();
}

#[test]
fn all_openings_share_one_state() {
    let (world, one) = world(Shape::default());
    let two = world.open();
    let first = one.claim(5).unwrap();
    let second = two.claim(5).unwrap();
    assert_eq!(second, extent(6, 5));
    two.arena.adopt(first).unwrap();
    two.release(first).unwrap();
    assert_eq!(one.claim(5).unwrap(), first);
    one.assert_whole();
    two.assert_whole();
}

#[test]
fn all_openings_see_the_growth_by_one() {
    let (world, one) = world(Shape {
        nodes: 2,
        frames: 33,
        max_frames: 300,
        ..Shape::default()
    });
    let two = world.open();
    assert!(matches!(
        two.claim(30),
        Err(ClaimError::NoContiguousRun { .. } | ClaimError::OutOfMemory { .. })
    ));
    one.grow(300).unwrap();
    assert_eq!(one.arena.stats().frames, 299);
    assert_eq!(one.arena.stats().growable, 0);
    let far = two.claim(30).unwrap();
    // Mapped in this opening too.
    two.arena
        .region()
        .at::<AtomicU64>(far.end() - 8)
        .unwrap()
        .store(1, Relaxed);
    // Growing again, or to a smaller size, does nothing.
    two.grow(300).unwrap();
    two.grow(10).unwrap();
    assert_eq!(two.arena.stats().frames, 299);
    match one.grow(301) {
        Err(GrowError::BeyondMax { wanted, max }) => {
            assert_eq!((wanted, max), (301 * FRAME as u64, 300 * FRAME as u64))
        }
        other => panic!("{other:?}"),
    }
    one.assert_whole();
    two.assert_whole();
    assert_eq!(world.open().arena.stats(), one.arena.stats());
}

#[test]
fn a_region_that_cannot_hold_an_arena_is_refused() {
    let (world, process) = world(Shape::default());
    let participants = process.arena.participants().clone();
    let options = |client_bytes, nodes| {
        let usual = Shape::default().options();
        ArenaOptions {
            client_bytes,
            nodes,
            ..usual
        }
    };
    let create = |frames, options| {
        let region = Region::private(frames * FRAME, frames * FRAME, PagePolicy::Small).unwrap();
        Arena::create(Arc::new(region), participants.clone(), options)
    };
    assert!(matches!(
        create(1, options(0, 1)),
        Err(CreateError::TooSmall { .. })
    ));
    assert!(matches!(
        create(4, options(4 * FRAME, 1)),
        Err(CreateError::TooSmall { .. })
    ));
    assert!(matches!(
        create(4, options(usize::MAX, 1)),
        Err(CreateError::TooSmall { .. })
    ));
    assert!(matches!(
        create(4, options(0, 0)),
        Err(CreateError::Options(_))
    ));
    assert_eq!(create(2, options(0, 1)).unwrap().stats().frames, 1);
    drop(world);
}

#[test]
fn a_region_without_an_arena_is_not_opened() {
    let (world, process) = world(Shape::default());
    let participants = process.arena.participants().clone();
    let open = |region: Region| {
        Arena::open(
            Arc::new(region),
            participants.clone(),
            Arc::new(SyntheticTopology::new(1, 1)),
        )
        .unwrap_err()
    };
    let empty = Region::private(4 * FRAME, 4 * FRAME, PagePolicy::Small).unwrap();
    assert!(matches!(
        open(empty),
        OpenError::Header(HeaderError::Magic { .. })
    ));

    let spoil = |offset: u64, value: u32| {
        let region = world.map();
        let word: &AtomicU32 = region.at(offset).unwrap();
        let old = word.swap(value, Relaxed);
        let error = open(world.map());
        word.store(old, Relaxed);
        error
    };
    let text = spoil(8, 99).to_string()
        + &std::error::Error::source(&spoil(8, 99))
            .unwrap()
            .to_string();
    assert!(text.contains("99") && text.contains('1'), "{text}");
    assert!(matches!(
        spoil(16, 1),
        OpenError::Header(HeaderError::Damaged { .. } | HeaderError::Layout { .. })
    ));
    assert!(matches!(
        spoil(40, 1),
        OpenError::Header(HeaderError::Damaged { .. })
    ));
    for (offset, what) in [
        (128, "client area"),
        (136, "checksum"),
        (144, "frames"),
        (148, "first frame"),
        (152, "nodes"),
    ] {
        assert!(
            matches!(spoil(offset, 1 << 20), OpenError::Damaged(_)),
            "{what}"
        );
    }
    for end in [0, 1, 66, u32::MAX] {
        assert!(
            matches!(spoil(128 + 128, end), OpenError::Damaged(_)),
            "end {end}"
        );
    }
    assert!(matches!(spoil(128 + 128, 18), OpenError::Torn { .. }));
    match spoil(160, 5) {
        OpenError::OtherIncarnation { arena, control } => assert_ne!(arena, control),
        other => panic!("{other}"),
    }
    world.open().assert_whole();
}

#[test]
fn a_recovery_removes_owners_of_another_incarnation() {
    let (world, process) = world(Shape::default());
    let held = process.hold(3);
    process.claim(2).unwrap();
    // A lock with an unknown owner, and an old incarnation.
    process
        .arena
        .region()
        .at::<AtomicU64>(128 + 256)
        .unwrap()
        .store(1 << 16 | 9, Relaxed);
    process
        .arena
        .region()
        .at::<AtomicU64>(160)
        .unwrap()
        .fetch_sub(1, Relaxed);
    assert!(matches!(
        world.try_open(),
        Err(OpenError::OtherIncarnation { .. })
    ));
    drop(process);
    let (_, participants) = world.participants();
    let arena = Arena::recover(
        Arc::new(world.map()),
        participants,
        Arc::new(SyntheticTopology::new(1, 1)),
    )
    .unwrap();
    assert_eq!(
        arena.extents().map(|info| info.extent).collect::<Vec<_>>(),
        [held]
    );
    assert_eq!(arena.stats().free, 13);
    assert_eq!(arena.check().unwrap(), []);
    world.open().assert_whole();
}

#[test]
fn a_thread_that_dies_loses_the_extents_it_had_not_adopted() {
    let (world, one) = world(Shape::default());
    let two = world.open();
    let kept = one.hold(2);
    one.claim(3).unwrap();
    one.claim(4).unwrap();
    let own = two.claim(2).unwrap();
    world.kill(one.number);
    assert_eq!(two.reap(), 1);
    assert_eq!(
        two.arena
            .extents()
            .map(|info| info.extent)
            .collect::<Vec<_>>(),
        [kept, own]
    );
    assert_eq!(two.arena.stats().free, 12);
    two.assert_whole();
    std::mem::forget(one);
}
