//! Readers follow links to blocks; a reclaimer replaces, frees and poisons them as fast as it can.

use super::{Advance, Cold, UUID, advance_without_barrier, limit, seconds, store};
use crate::{ControlOptions, Epoch, Participants};
use mneme_testkit::{Random, wait_until};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

const POISON: u64 = u64::MAX;

/// Blocks of real memory, one of which is linked.
struct Blocks {
    link: AtomicU64,
    blocks: Vec<[AtomicU64; 8]>,
    /// The number of readers that have read.
    ready: AtomicU64,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Uses {
    reads: u64,
    /// The number of blocks that were freed at once, while readers were at work.
    freed: u64,
    after_free: u64,
}

impl Blocks {
    fn new() -> Blocks {
        Blocks {
            link: AtomicU64::new(0),
            blocks: (0..64).map(|_| [const { AtomicU64::new(0) }; 8]).collect(),
            ready: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Follows the link under a pin and reads the block for a while; returns whether it saw no
    /// poison.
    fn read(&self, p: &Participants, cold: &Cold, random: &mut Random) -> bool {
        let places = cold.choose(random);
        self.link.load(Acquire);
        store(&places);
        let _pin = p.pin().unwrap();
        let block = &self.blocks[self.link.load(Acquire) as usize];
        (0..16)
            .flat_map(|_| block)
            .all(|word| word.load(Relaxed) != POISON)
    }

    /// Replaces the linked block by one of `free`, and frees it when that is allowed.
    fn replace(
        &self,
        p: &Participants,
        advance: Advance,
        free: &mut Vec<u64>,
        waiting: &mut VecDeque<(Epoch, u64)>,
    ) -> u64 {
        if let Some(new) = free.pop() {
            for word in &self.blocks[new as usize] {
                word.store(new, Relaxed);
            }
            let old = self.link.swap(new, AcqRel);
            waiting.push_back((advance(p), old));
        }
        let mut freed = 0;
        while let Some((g, old)) = waiting.front().copied()
            && p.quiescent(g)
        {
            waiting.pop_front();
            for word in &self.blocks[old as usize] {
                word.store(POISON, Relaxed);
            }
            free.push(old);
            freed += 1;
        }
        freed
    }
}

/// The number of freed blocks after which a twin should have been caught.
const CHANCES: u64 = 100_000;

fn use_after_free(advance: Advance, usual: Duration, enough: u64) -> Uses {
    let p = Participants::private(ControlOptions::new(UUID)).unwrap();
    let shared = Blocks::new();
    let mut found = Uses::default();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (3..=4)
            .map(|seed| {
                let (p, shared) = (&p, &shared);
                scope.spawn(move || {
                    let (cold, mut random) = (Cold::new(), Random::of_run(seed));
                    let (mut reads, mut after_free) = (0, 0);
                    while !shared.stop.load(Relaxed) {
                        reads += 1;
                        after_free += u64::from(!shared.read(p, &cold, &mut random));
                        if reads == 1 {
                            shared.ready.fetch_add(1, Relaxed);
                        }
                        if after_free >= enough {
                            shared.stop.store(true, Relaxed);
                        }
                    }
                    (reads, after_free)
                })
            })
            .collect();
        let (mut free, mut waiting) = ((1..64).collect(), VecDeque::new());
        // Creating their memory takes a while.
        wait_until("both readers read", || shared.ready.load(Relaxed) == 2);
        let begin = Instant::now();
        let is_twin = enough < u64::MAX;
        while begin.elapsed() < limit(usual, is_twin, found.freed >= CHANCES)
            && !shared.stop.load(Relaxed)
        {
            for _ in 0..64 {
                found.freed += shared.replace(&p, advance, &mut free, &mut waiting);
            }
        }
        shared.stop.store(true, Relaxed);
        for reader in readers {
            let (reads, after_free) = reader.join().unwrap();
            found.reads += reads;
            found.after_free += after_free;
        }
    });
    found
}

#[test]
fn no_block_is_used_after_it_is_freed() {
    let found = use_after_free(|p| p.advance().unwrap(), seconds(), u64::MAX);
    println!("\nladder: blocks freed under readers, with the barrier: {found:?}");
    assert_eq!(found.after_free, 0, "{found:?}");
    assert!(found.reads > 0 && found.freed > 0, "{found:?}");
}

/// The twin. With one CPU there is nothing to catch: switching threads is a barrier.
#[test]
fn without_the_barrier_blocks_are_used_after_they_are_freed() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return;
    }
    let found = use_after_free(advance_without_barrier, Duration::from_secs(20), 1);
    println!("\nladder: blocks freed under readers, without the barrier: {found:?}");
    assert!(
        found.after_free > 0 || found.freed < CHANCES,
        "the twin was not caught: {found:?}"
    );
}
