//! The protocols under a model checker: [loom](https://docs.rs/loom) runs every schedule of a
//! few threads, and every value that C11 lets a load return, up to a bound on preemptions.
//!
//! The code that runs is the product's own, over [`Model`] words. Each model has twins, broken on
//! purpose: an ordering forgotten, a barrier that does nothing ([`Useless`]), two steps swapped or
//! one left out. A twin must fail; a model whose twin passes shows nothing.
//!
//! Loom knows no `membarrier`: both sides of the barrier are sequentially consistent fences here
//! ([`Fences`]), which is the contract; that the system call keeps it is the litmus' business
//! (`tests/litmus.rs`). A death is a thread that stops in the middle and sets a flag that it is
//! dead, as the kernel drops its liveness lock.

mod announced;
mod epochs;
mod feeds;
mod fenced;
mod holds;
mod intents;
mod locks;
mod ranges;
mod rcx;
mod slot_owners;
mod sums;
mod watches;

use crate::atomics::{Barrier, Word};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread::{self, JoinHandle};
use mneme_sys::barrier::BarrierRefused;
use std::sync::atomic::Ordering;

/// Preemptions per schedule. Two or three find every twin's fault within seconds; four, in the long
/// form (`MNEME_LADDER_SECS` is set), take minutes.
fn preemptions() -> usize {
    match std::env::var_os("MNEME_LADDER_SECS") {
        Some(_) => 4,
        None if cfg!(debug_assertions) => 2,
        None => 3,
    }
}

/// A word of the model checker.
///
/// Loom tries two orders of a load and a store only if the load was the *last* access before the
/// store; where the storing thread itself loads in between (`store(load() | bit)`), the other
/// thread's load is forgotten, and schedules with it (loom issues 166 and 392). So every access
/// first touches a companion by an unordered read-modify-write, of which loom tries all orders.
struct Model {
    word: AtomicU64,
    turn: AtomicU64,
}

impl Model {
    fn new(value: u64) -> Model {
        Model {
            word: AtomicU64::new(value),
            turn: AtomicU64::new(0),
        }
    }

    fn turn(&self) -> &AtomicU64 {
        self.turn.fetch_add(1, Ordering::Relaxed);
        &self.word
    }
}

impl Word for Model {
    fn load(&self, order: Ordering) -> u64 {
        self.turn().load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.turn().store(value, order);
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.turn().compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.turn().fetch_add(value, order)
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.turn().fetch_max(value, order)
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// The asymmetric barrier's contract: sequentially consistent fences on both sides.
///
/// Loom tries no schedules around a fence as such, for a fence belongs to no object. Each side
/// therefore touches a word that all fences of the model share, without any ordering: so their
/// order is explored, and a thread may be stopped right before.
struct Fences<'a>(&'a Model);

impl Fences<'_> {
    fn fence(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl Barrier for Fences<'_> {
    fn light(&self) {
        self.fence();
    }

    fn heavy(&self) -> Result<(), BarrierRefused> {
        self.fence();
        Ok(())
    }
}

/// Broken: a barrier that orders nothing.
struct Useless;

impl Barrier for Useless {
    fn light(&self) {}

    fn heavy(&self) -> Result<(), BarrierRefused> {
        Ok(())
    }
}

/// A thread of a model, with what all of its threads share.
fn spawn<T: 'static>(shared: &Arc<T>, work: impl FnOnce(&T) + 'static) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

/// Runs a model through all its schedules.
fn holds(model: impl Fn() + Send + Sync + 'static) {
    explore(preemptions(), model);
}

/// Runs a broken twin, in which some schedule must fail.
fn fails(twin: impl Fn() + Send + Sync + 'static) {
    fails_within(preemptions(), twin);
}

/// Runs a broken twin whose fault takes more preemptions to show.
fn fails_within(preemptions: usize, twin: impl Fn() + Send + Sync + 'static) {
    let run = std::panic::AssertUnwindSafe(|| explore(preemptions, twin));
    assert!(
        std::panic::catch_unwind(run).is_err(),
        "the broken twin passed: the model shows nothing"
    );
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
