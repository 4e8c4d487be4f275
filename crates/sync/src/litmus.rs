//! Tests between real processes on real CPUs whether the machine's barrier keeps its contract,
//! which no model checker covers. They count violations; they prove nothing.
//!
//! Two litmus tests, each with a twin that skips the heavy barrier and must be caught:
//! - *rendezvous*: a reader in another process and a reclaimer here act within nanoseconds of each
//!   other, again and again; the reader holds its pin until the reclaimer has read it. A round in
//!   which the reader saw the old link but the reclaimer did not see its pin is a violation.
//! - *use after free*: readers follow links to blocks; a reclaimer replaces, frees and poisons
//!   blocks as fast as it can. A reader that sees poison is a violation.
//!
//! A missing barrier shows only if the store buffer is full: before each pin the reader writes to
//! memory that is in no cache, so its pin waits behind those stores while its loads go ahead. Each
//! test runs for 2 seconds, or for `MNEME_LADDER_SECS` seconds, with the seed `MNEME_LADDER_SEED`.

#![allow(clippy::unwrap_used)] // All of it is tests.

mod rendezvous;
mod uses;

use crate::atomics::Barrier;
use crate::{Epoch, Participants, epoch};
use mneme_sys::barrier::BarrierRefused;
use mneme_testkit::Random;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const UUID: [u8; 16] = *b"litmus of epochs";

fn seconds() -> Duration {
    mneme_testkit::seconds(2)
}

/// How long a run lasts. A twin that has had chances to be caught and was not gets more time: on a
/// busy machine the threads seldom run at once, and so seldom show the fault.
fn limit(usual: Duration, is_twin: bool, chances: bool) -> Duration {
    match is_twin && chances {
        true => Duration::from_secs(300),
        false => usual,
    }
}

/// A barrier that does nothing: the twins use it on the heavy side.
struct Skipped;

impl Barrier for Skipped {
    fn light(&self) {}
    fn heavy(&self) -> Result<(), BarrierRefused> {
        Ok(())
    }
}

type Advance = fn(&Participants) -> Epoch;

fn advance_without_barrier(p: &Participants) -> Epoch {
    let header = p.inner().control().header();
    Epoch::from_u64(epoch::advance(&header.epoch.word, &Skipped).unwrap())
}

/// The number of stores before each pin: a third of a store buffer.
const STORES: usize = 20;

/// Memory that is in no cache.
struct Cold(Vec<AtomicU64>);

impl Cold {
    fn new() -> Cold {
        // 128 MiB: more than one core's caches hold.
        Cold((0..1 << 24).map(AtomicU64::new).collect())
    }

    /// Chooses in advance where to store.
    fn choose(&self, random: &mut Random) -> [&AtomicU64; STORES] {
        std::array::from_fn(|_| &self.0[random.next() as usize % self.0.len()])
    }
}

/// Fills the store buffer with slow stores.
#[inline(always)]
fn store(places: &[&AtomicU64; STORES]) {
    for place in places {
        place.store(1, Relaxed);
    }
}
