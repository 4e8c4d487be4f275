//! Words and schedules of the model checker. Crates whose protocols use this crate's words include
//! this file for their own models.

use super::Word;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread::{self, JoinHandle};
use std::sync::atomic::Ordering;

/// The bound on preemptions per schedule. Two or three find every twin's fault within seconds;
/// four, in the long form (with `MNEME_LADDER_SECS` set), take minutes.
fn preemptions() -> usize {
    match std::env::var_os("MNEME_LADDER_SECS") {
        Some(_) => 4,
        None if cfg!(debug_assertions) => 2,
        None => 3,
    }
}

/// A word of the model checker.
///
/// Loom explores both orders of a load and a store only if the load was the *last* access before
/// the store. If the storing thread itself loads in between (`store(load() | bit)`), it forgets the
/// other thread's load, and the schedules with it (loom issues 166 and 392). So every access first
/// touches a companion word by an unordered read-modify-write, for which loom explores all orders.
pub struct Model {
    word: AtomicU64,
    turn: AtomicU64,
}

impl Model {
    pub fn new(value: u64) -> Model {
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

/// Starts a thread of a model, with the data that all of its threads share.
pub fn spawn<T: 'static>(shared: &Arc<T>, work: impl FnOnce(&T) + 'static) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

/// Runs a model through all its schedules.
pub fn holds(model: impl Fn() + Send + Sync + 'static) {
    explore(preemptions(), model);
}

/// Runs a broken twin, in which some schedule must fail.
pub fn fails(twin: impl Fn() + Send + Sync + 'static) {
    fails_within(preemptions(), twin);
}

/// Runs a broken twin whose fault needs more preemptions to show.
pub fn fails_within(preemptions: usize, twin: impl Fn() + Send + Sync + 'static) {
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
