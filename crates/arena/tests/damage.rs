//! A damaged arena is distinguished from a sound one, and whatever bytes it contains, no call
//! panics or leaves the region.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{Class, Extent, Frame, Problem};
use mneme_sys::NodeId;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use support::{Process, Shape, world};

// The offsets in format version 1, for an arena of at most 65 frames; see the picture in `layout`.
const HEADER: u64 = 128;
const END_FRAME: u64 = HEADER + 128;
const ZONES: u64 = 640;
const DESCRIPTORS: u64 = ZONES + 256 * 16;
const BITMAP: u64 = DESCRIPTORS + (65 * 16u64).next_multiple_of(128);
const TREE: u64 = BITMAP + 128;
const NODES: u64 = 3;

fn word(process: &Process, offset: u64) -> &AtomicU64 {
    process.arena.region().at(offset).unwrap()
}

fn scene() -> (support::World, Process) {
    let (world, process) = world(Shape::default());
    process.hold(3);
    process.claim(2).unwrap();
    process.hold(1);
    (world, process)
}

/// Changes a word and returns what the check reports about it.
fn problems(process: &Process, offset: u64, change: impl Fn(u64) -> u64) -> Vec<Problem> {
    let word = word(process, offset);
    let old = word.load(Relaxed);
    word.store(change(old), Relaxed);
    let problems = process.arena.check().unwrap();
    word.store(old, Relaxed);
    process.assert_whole();
    assert!(
        problems
            .iter()
            .all(|problem| !problem.to_string().is_empty())
    );
    problems
}

/// Asserts that a change of a word leads to a problem of that kind.
macro_rules! assert_finds {
    ($process:expr, $offset:expr, $change:expr, $kind:pat) => {
        let found = problems($process, $offset, $change);
        assert!(
            found.iter().any(|problem| matches!(problem, $kind)),
            "{found:?}"
        );
    };
}

fn descriptor(frame: u64) -> u64 {
    DESCRIPTORS + frame * 16
}

/// Frames 1-3 held, 4-5 claimed, 6 held, 7-16 free, the rest absent.
#[test]
fn the_check_finds_damaged_states_of_frames() {
    let (_world, process) = scene();
    let unknown = problems(&process, descriptor(7), |_| 9);
    assert!(unknown.contains(&Problem::UnknownState { frame: Frame(7) }));
    assert_finds!(&process, descriptor(0), |_| 1, Problem::Impossible { .. });
    assert_finds!(&process, descriptor(40), |_| 1, Problem::Impossible { .. });
    assert_finds!(&process, descriptor(8), |_| 0, Problem::Impossible { .. });
    let orphan = problems(&process, descriptor(7), |w| w & !15 | 4);
    assert!(orphan.contains(&Problem::Orphan { frame: Frame(7) }));
    let orphan = problems(&process, descriptor(1), |w| w & !15 | 1);
    assert!(orphan.contains(&Problem::Orphan { frame: Frame(2) }));
    assert_finds!(
        &process,
        descriptor(4),
        |w| w & !0xffff_0000,
        Problem::NoOwner { .. }
    );
}

#[test]
fn the_check_finds_damaged_extents() {
    let (_world, process) = scene();
    let held = Extent {
        start: Frame(1),
        frames: 3,
    };
    let broken = Problem::Broken {
        extent: held,
        frame: Frame(2),
    };
    let (state, head) = (descriptor(2), descriptor(2) + 8);
    assert!(problems(&process, state, |w| w & !15 | 1).contains(&broken));
    let generation = problems(&process, state, |w| w ^ 1 << 40);
    assert!(generation.contains(&broken), "another generation");
    let other_head = problems(&process, head, |w| w ^ 1 << 33);
    assert!(other_head.contains(&broken), "another head");
    let length = problems(&process, head, |w| w + 1);
    assert!(length.contains(&broken), "another length");
    assert!(!problems(&process, descriptor(1) + 8, |w| w - 1).is_empty());
    assert_finds!(
        &process,
        descriptor(6) + 8,
        |_| 50,
        Problem::AcrossZones { .. }
    );
}

#[test]
fn the_check_finds_damaged_zones_bitmaps_and_trees() {
    let (_world, process) = scene();
    assert_finds!(&process, ZONES, |w| w + 1, Problem::Zones { .. });
    assert_finds!(&process, ZONES + 8, |w| w + 1, Problem::Zones { .. });
    assert_finds!(&process, END_FRAME, |w| w | 1 << 50, Problem::Zones { .. });
    let bitmap = |frame, bitmap| Problem::Bitmap {
        frame: Frame(frame),
        bitmap,
    };
    assert!(problems(&process, BITMAP, |w| w | 4).contains(&bitmap(2, true)));
    assert!(problems(&process, BITMAP, |w| w & !(1 << 9)).contains(&bitmap(9, false)));
    for node in 0..NODES {
        for field in 0..8 {
            let word = TREE + node * 64 + field * 8;
            assert_finds!(&process, word, |w| w ^ 1, Problem::Tree { .. });
        }
    }
}

#[test]
fn a_claim_trusts_the_descriptors_and_not_the_bitmap() {
    let (_world, process) = scene();
    // Bitmap and tree say that the held frames are free, as a stale copy would.
    let (_, empty) = world(Shape::default());
    for offset in (BITMAP..TREE + NODES * 64).step_by(8) {
        word(&process, offset).store(word(&empty, offset).load(Relaxed), Relaxed);
    }
    let before: Vec<_> = process.arena.extents().collect();
    assert!(matches!(
        process.claim(5),
        Err(mneme_arena::ClaimError::Damaged { frame: Frame(1) })
    ));
    assert_eq!(process.arena.extents().collect::<Vec<_>>(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_on_any_bytes_neither_panic_nor_leave_the_region(
        garbage in prop::collection::vec((END_FRAME / 4..(TREE + NODES * 64) / 4, any::<u32>(), any::<bool>()), 1..40),
        ops in prop::collection::vec((0u8..8, 0u32..70, 0u32..70, 0u32..3), 1..20),
        crashed in any::<bool>(),
    ) {
        let (world, process) = scene();
        let lock = HEADER + 256;
        for (place, value, small) in garbage {
            if (lock..lock + 8).contains(&(place * 4)) {
                continue;
            }
            let word: &AtomicU32 = process.arena.region().at(place * 4).unwrap();
            word.store(if small { value % 70 } else { value }, Relaxed);
        }
        if crashed {
            // An owner that does not exist: the next thread to lock repairs.
            word(&process, lock).store(60 | 9 << 16, Relaxed);
        }
        let slot = process.arena.participants().slot().unwrap();
        for (op, a, b, align) in ops {
            let extent = Extent { start: Frame(a), frames: b };
            match op {
                0 => drop(process.claim_as(b, 1 << align, NodeId(0), Class::Reserved, 1)),
                1 => drop(process.arena.adopt(extent)),
                2 => drop(process.arena.release(&slot, extent)),
                3 => drop(process.arena.extents().map(|info| info.extent).collect::<Vec<_>>()),
                4 => drop(process.arena.stats()),
                5 => drop(process.arena.check()),
                6 => drop(process.grow(a as usize)),
                _ => drop(world.try_open()),
            }
            if let Some(info) = process.arena.extent_of(Frame(a)) {
                prop_assert!(info.extent.contains(Frame(a)) && info.extent.start.0 + info.extent.frames <= 65);
            }
        }
        world.kill(process.number);
        if let Ok(other) = world.try_open() {
            let _ = other.arena.participants().reap(|dead| other.arena.repair(dead).map(|_| ()));
        }
    }
}
