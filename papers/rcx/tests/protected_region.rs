//! No write is lost: what a region calls clean is what it was when it was taken.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

#[path = "../../../crates/sync/tests/common/mod.rs"]
mod common;

use common::options;
use mneme_rcx::{ProtectedError, ProtectedRegion};
use mneme_sync::Participants;
use mneme_sys::SyntheticTopology;
use mneme_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

const CHUNK: usize = 1 << 14;

/// A region; `None`, and a word, where the kernel gives no `userfaultfd`.
fn region(chunks: usize) -> Option<ProtectedRegion> {
    let participants = Participants::private(options()).unwrap();
    let topology = Arc::new(SyntheticTopology::new(2, 2));
    match ProtectedRegion::new(&participants, topology, chunks * CHUNK, CHUNK) {
        Ok(region) => Some(region),
        Err(ProtectedError::Unavailable(why)) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn chunks(range: std::ops::Range<usize>) -> std::ops::Range<usize> {
    range.start * CHUNK..range.end * CHUNK
}

#[test]
fn a_write_makes_its_chunk_dirty_and_taking_makes_it_clean() {
    let Some(region) = region(8) else { return };
    assert_eq!(region.len(), 8 * CHUNK);
    assert_eq!(region.dirty().unwrap(), []);
    region.write(3 * CHUNK - 1, b"ab").unwrap();
    region.write(7 * CHUNK, b"c").unwrap();
    assert_eq!(region.dirty().unwrap(), [chunks(2..4), chunks(7..8)]);
    assert_eq!(region.take(0..3 * CHUNK).unwrap(), [chunks(2..3)]);
    assert_eq!(region.dirty().unwrap(), [chunks(3..4), chunks(7..8)]);
    region.open(CHUNK..CHUNK + 1).unwrap();
    let all = [chunks(1..2), chunks(3..4), chunks(7..8)];
    assert_eq!(region.take(0..region.len()).unwrap(), all);
    assert_eq!(region.take(0..region.len()).unwrap(), []);
    region.write(3 * CHUNK, b"d").unwrap();
    assert_eq!(region.dirty().unwrap(), [chunks(3..4)]);
    let mut read = [0; 3];
    region.read(3 * CHUNK - 1, &mut read).unwrap();
    assert_eq!(&read, b"ad\0");
}

#[test]
fn a_range_outside_the_region_or_of_no_chunk_is_refused() {
    let Some(region) = region(2) else { return };
    let len = region.len();
    let is_refused = |result| matches!(result, Err(ProtectedError::Beyond { .. }));
    assert!(is_refused(region.write(len - 1, b"ab")));
    assert!(is_refused(region.write(usize::MAX, b"ab")));
    assert!(is_refused(region.read(len, &mut [0])));
    assert!(is_refused(region.open(0..len + 1)));
    assert!(is_refused(region.open(5..5)));
    assert!(is_refused(region.take(len..len + 1).map(drop)));
    assert_eq!(region.dirty().unwrap(), []);
    let made = |len, chunk| {
        let topology = Arc::new(SyntheticTopology::new(1, 1));
        ProtectedRegion::new(
            &Participants::private(options()).unwrap(),
            topology,
            len,
            chunk,
        )
    };
    for chunk in [0, 100, CHUNK + 1] {
        let made = made(CHUNK, chunk);
        assert!(matches!(made, Err(ProtectedError::Chunk { .. })), "{chunk}");
    }
    let made = made(usize::MAX, CHUNK);
    assert!(matches!(made, Err(ProtectedError::Unavailable(_))));
}

/// Writers count up words of their own; a copy follows, which is given what was taken. Where the
/// region says clean, the copy is the memory.
#[test]
fn a_copy_that_follows_what_was_taken_is_the_memory() {
    const CHUNKS: usize = 16;
    const WRITERS: usize = 3;
    let Some(region) = region(CHUNKS) else { return };
    let is_over = AtomicBool::new(false);
    let mut copy = vec![0u8; region.len()];
    let follow = |copy: &mut [u8]| {
        let taken = region.take(0..region.len()).unwrap();
        for range in &taken {
            region.read(range.start, &mut copy[range.clone()]).unwrap();
        }
        taken.len()
    };
    let mut steps = 0;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let region = &region;
                scope.spawn(move || {
                    let mut random = Random::new(writer as u64 + 1);
                    for round in 1..=3_000_u64 {
                        let word = random.below((CHUNKS * CHUNK / 8 / WRITERS) as u64) as usize;
                        let at = (word * WRITERS + writer) * 8;
                        if random.below(8) == 0 {
                            region.open(at..at + 8).unwrap();
                        }
                        region.write(at, &round.to_le_bytes()).unwrap();
                    }
                })
            })
            .collect();
        let (over, follow, copy) = (&is_over, &follow, &mut copy);
        scope.spawn(move || {
            for writer in writers {
                writer.join().unwrap();
            }
            over.store(true, Relaxed);
        });
        while !is_over.load(Relaxed) {
            steps += follow(copy);
        }
    });
    steps += follow(&mut copy);
    assert!(steps > 0);
    assert_eq!(region.dirty().unwrap(), []);
    let mut now = vec![0; region.len()];
    region.read(0, &mut now).unwrap();
    assert!(copy == now, "a write was lost");
}
