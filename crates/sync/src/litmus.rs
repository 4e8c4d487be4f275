//! What no model checker knows: whether the machine's barrier keeps its contract, between real
//! processes on real CPUs. Counted here, not proved.
//!
//! Two litmus tests, each with a twin that skips the heavy barrier and must be caught:
//! - *rendezvous*: a reader in another process and a reclaimer here meet within nanoseconds, again
//!   and again; the reader holds its pin until the reclaimer has looked. A round in which it has
//!   seen the old link and its pin was not seen is a violation.
//! - *use after free*: readers follow links to blocks, a reclaimer replaces, frees and poisons
//!   them as fast as it can. A reader that meets poison is a violation.
//!
//! What makes a missing barrier visible is a full store buffer: before each pin the reader writes
//! to memory that is in no cache, so its pin waits behind those stores while its loads go ahead.
//! They run for 2 seconds each, or for `MNEME_LADDER_SECS` seconds, from `MNEME_LADDER_SEED`.

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

/// How long a run goes on. A twin that has had chances to be caught, and was not, has more of them:
/// threads that seldom run at once on a busy machine show the fault seldom.
fn limit(usual: Duration, is_twin: bool, chances: bool) -> Duration {
    match is_twin && chances {
        true => Duration::from_secs(300),
        false => usual,
    }
}

/// A barrier that only looks like one: what the twins use on the heavy side.
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

/// Stores before each pin: a third of a store buffer.
const STORES: usize = 20;

/// Memory that no cache holds.
struct Cold(Vec<AtomicU64>);

impl Cold {
    fn new() -> Cold {
        // 128 MiB: beyond what a core has to itself.
        Cold((0..1 << 24).map(AtomicU64::new).collect())
    }

    /// Chooses where to store, ahead of time.
    fn choose(&self, random: &mut Random) -> [&AtomicU64; STORES] {
        std::array::from_fn(|_| &self.0[random.next() as usize % self.0.len()])
    }
}

/// Fills the store buffer with stores that take long.
#[inline(always)]
fn store(places: &[&AtomicU64; STORES]) {
    for place in places {
        place.store(1, Relaxed);
    }
}
