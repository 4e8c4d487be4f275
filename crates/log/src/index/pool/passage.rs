//! If the thread that moves a frame out of a pool dies, the frame is given back once, even if
//! another shard has had it since.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_sys::fault::{self, Action, Outcome};

use super::*;
use crate::region::policy::UpdatePolicy;
use crate::store::LogStore;
use crate::test_processes::World;

/// The initial size in bytes, and the size at which a store has two shards.
const CAPACITY: usize = 256 << 20;
const MAX: usize = 4 << 30;

/// A store of two shards that process 1 created.
fn two_shards() -> (World, LogStore) {
    let (world, store) = World::new(CAPACITY, MAX, UpdatePolicy::Append);
    assert_eq!(store.inner().session().tables.geometry.shards, 2);
    (world, store)
}

/// A block so large that its frame has no space for another one.
fn fill(held: &HeldShard<'_>, slot: &Slot<'_>) -> Block {
    let block = held.allocate(slot, UNITS - MAP_UNITS - 1, 0);
    block.unwrap().unwrap()
}

/// The frame that a thread of `store` gives back from shard 0. The thread dies after the arena has
/// the frame and before the journal says so.
fn dies_in_trim(world: &World, store: LogStore) -> Frame {
    let dying = Arc::clone(store.inner());
    let outcome = fault::run("arena.release.cleared", Action::Abandon, 1, move || {
        let slot = dying.session().participants.slot().unwrap();
        dying.index().with_shard(&slot, 0, |held| {
            let blocks = [fill(held, &slot), fill(held, &slot)];
            blocks.iter().try_for_each(|block| held.free(*block))?;
            held.trim(&slot)
        })
    });
    assert!(matches!(outcome, Outcome::Abandoned));
    world.script.kill(1);
    let journal = ShardJournal::of(store.inner().session().tables.shard(0));
    journal.moving_frame().unwrap().frame
}

/// Dies at every step of giving the frame back.
pub fn a_frame_that_another_shard_owns_by_now_is_left_to_it() {
    for place in [
        "index.pool.frame-noted",
        "index.pool.frame-linked",
        "index.pool.frame-unlinked",
    ] {
        let (world, first) = two_shards();
        let second = world.open(2);
        let inner = second.inner();
        let slot = inner.session().participants.slot().unwrap();
        let kept = inner
            .index()
            .with_shard(&slot, 1, |held| Ok(fill(held, &slot)))
            .unwrap();

        let frame = dies_in_trim(&world, first);
        let third = world.open(3);
        let repair = move || assert_eq!(third.reap().unwrap(), 1, "{place}");
        fault::arm(place, Action::Call(Arc::new(repair)), 1);
        let before = fault::reached();
        let trimmed = inner.index().with_shard(&slot, 1, |held| {
            let again = fill(held, &slot);
            assert_eq!(again.frame(), frame, "the same frame, in another life");
            held.free(again)?;
            held.free(kept)?;
            held.trim(&slot)
        });
        assert_eq!(fault::reached(), before + 1, "{place}");
        assert_eq!(trimmed.unwrap(), 1, "{place}");
        assert_eq!(inner.log().arena.extent_of(frame), None, "{place}");
        let problems = second.check().unwrap().problems;
        assert_eq!(problems, Vec::<String>::new(), "{place}");
    }
}
