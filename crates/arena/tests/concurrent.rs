//! Many threads in several openings claim, adopt, look up and release at once: nobody ever gets
//! another's frame.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{ClaimError, Class, Extent, Frame};
use mneme_sys::NodeId;
use mneme_testkit::Random;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use support::{FRAME, Process, Shape, world};

/// Writes the owner into the first word of each frame.
fn mark(process: &Process, extent: Extent, from: u64, to: u64) {
    for frame in 0..u64::from(extent.frames) {
        let word: &AtomicU64 = process
            .arena
            .region()
            .at(extent.offset() + frame * FRAME as u64)
            .unwrap();
        assert_eq!(
            word.swap(to, Relaxed),
            from,
            "{extent} was somebody else's too"
        );
    }
}

fn work(process: &Process, me: u64, rounds: u64) {
    let mut random = Random::new(me);
    let mut mine: VecDeque<Extent> = VecDeque::new();
    for _ in 0..rounds {
        let frames = 1 + (random.next() % 9) as u32;
        let (align, node) = (1 << (random.next() % 4), NodeId((random.next() % 2) as u16));
        let tag = (me % 4096) as u16;
        match process.claim_as(frames, align, node, Class::Ordinary, tag) {
            Ok(extent) => {
                mark(process, extent, 0, me);
                process.arena.adopt(extent).unwrap();
                mine.push_back(extent);
            }
            Err(ClaimError::OutOfMemory { .. } | ClaimError::NoContiguousRun { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        for extent in &mine {
            let frame = Frame(extent.start.0 + (random.next() % u64::from(extent.frames)) as u32);
            let info = process.arena.extent_of(frame).unwrap();
            assert_eq!((info.extent, info.tag), (*extent, tag));
        }
        let full = mine.len() > 3 || random.next().is_multiple_of(3);
        if full && let Some(extent) = mine.pop_front() {
            mark(process, extent, me, 0);
            process.release(extent).unwrap();
        }
    }
    for extent in mine {
        mark(process, extent, me, 0);
        process.release(extent).unwrap();
    }
}

#[test]
fn no_two_owners_share_a_frame() {
    let (world, one) = world(Shape {
        frames: 65,
        max_frames: 129,
        nodes: 2,
        ..Shape::default()
    });
    let two = world.open();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=6)
            .map(|me| {
                let process = if me % 2 == 0 { &one } else { &two };
                scope.spawn(move || work(process, me, 2_000))
            })
            .collect();
        scope.spawn(|| {
            // Readers without the lock see complete extents at any time.
            while !done.load(Relaxed) {
                let mut last = 0;
                for info in one.arena.extents() {
                    assert!(info.extent.start.0 >= last && info.extent.frames <= 9);
                    last = info.extent.start.0 + info.extent.frames;
                }
                let stats = two.arena.stats();
                assert!(stats.free <= stats.frames && stats.longest_run <= stats.frames);
                two.grow(129.min(stats.frames as usize + 2)).unwrap();
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Relaxed);
        assert!(ends.iter().all(Result::is_ok), "a worker failed");
    });
    for process in [&one, &two] {
        process.assert_whole();
        let stats = process.arena.stats();
        assert_eq!(stats.free, stats.frames);
    }
}
