//! A broken twin: sections on words that ignore their orderings.

#[expect(dead_code, reason = "the model uses a part of it")]
#[expect(clippy::duplicate_mod, reason = "over primitives of its own")]
#[path = "../sections.rs"]
mod sections;

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::{Data, Way, bounded, fails, killed};

mod primitives {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    pub type AtomicU64 = super::super::words::Words<false>;
}

#[test]
fn without_orderings_a_section_misses_changes() {
    fails(killed!(sections, Way::Sound));
}
