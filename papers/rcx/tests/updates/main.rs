//! What updates of several items rely on.
//! Small enough for Miri. On a machine with several NUMA nodes, which `cargo xtask numa` supplies,
//! threads run on its own nodes.
#![allow(clippy::unwrap_used)]

#[path = "../../../../crates/sync/tests/common/mod.rs"]
mod common;

mod lanes;
mod list;
mod machines;
mod sets;
mod storms;

use common::private;
use mneme_rcx::Item;
use mneme_sync::{Participants, RobustLock};
use mneme_sys::{SyntheticTopology, SysfsTopology, Topology};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

/// For waits that must end.
const LONG: Duration = Duration::from_secs(60);

/// Updates of each thread.
const UPDATES: u64 = if cfg!(miri) { 4 } else { 2_000 };

/// The machine's own nodes where there are several, else two made up ones.
fn topology() -> Arc<dyn Topology> {
    let machine = SysfsTopology::detect();
    match machine.nodes() {
        1 => Arc::new(SyntheticTopology::new(2, 2)),
        _ => Arc::new(machine),
    }
}

fn participants() -> Participants {
    private(common::options())
}

/// Plain words, each guarded by the lock of its number; Miri finds what races.
struct Guarded {
    locks: [RobustLock; 12],
    words: [UnsafeCell<u64>; 12],
}

// SAFETY: the tests touch a word under its lock.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Guarded {
        Guarded {
            locks: [const { RobustLock::new() }; 12],
            words: [const { UnsafeCell::new(0) }; 12],
        }
    }

    fn item(&self, id: usize) -> Item<'_> {
        Item::new(id as u64, &self.locks[id])
    }

    fn items(&self, ids: impl IntoIterator<Item = usize>) -> Vec<Item<'_>> {
        ids.into_iter().map(|id| self.item(id)).collect()
    }

    fn word(&self, id: usize) -> *mut u64 {
        self.words[id].get()
    }

    fn assert_free(&self) {
        assert!(self.locks.iter().all(|lock| lock.owner().is_none()));
    }
}
