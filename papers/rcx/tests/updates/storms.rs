//! No update is lost, whichever way lanes are taken and items are locked.

use crate::{Guarded, LONG, UPDATES, participants, topology};
use mneme_rcx::{Abort, Item, ItemLock, Rcx, Strategy, TakeLanes};
use mneme_sync::{Slot, Stalled};
use mneme_sys::{NodeId, Rtm};
use mneme_testkit::{Random, in_threads};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// Threads on all nodes, each changing random sets of items.
fn storm(name: &str, make: impl Fn(Rcx) -> Rcx) {
    let (p, topology, guarded) = (participants(), topology(), Guarded::new());
    let rcx = make(Rcx::new(&p, topology.clone()).timeout(LONG));
    let expected: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];
    in_threads(4, |thread| {
        topology.stay_on(NodeId((thread % topology.nodes()) as u16));
        let mut random = Random::new(thread as u64);
        for _ in 0..UPDATES {
            // One in eight has more items than may take lanes, and most name one twice.
            let most = if random.below(8) == 0 { 11 } else { 3 };
            let ids: Vec<_> = (0..=random.below(most))
                .map(|_| random.below(12) as usize)
                .collect();
            let guard = rcx.lock(guarded.items(ids.iter().copied())).unwrap();
            assert!(!guard.owner_died());
            let mut once = ids;
            once.sort_unstable();
            once.dedup();
            for id in once {
                // SAFETY: locked.
                unsafe { *guarded.word(id) += 1 };
                expected[id].fetch_add(1, Relaxed);
            }
        }
    });
    let stats = rcx.stats();
    let (elections, bypasses) = (stats.elections, stats.bypasses);
    println!(
        "@count {name}: updates {}, elections {elections}, bypasses {bypasses}",
        4 * UPDATES
    );
    guarded.assert_free();
    for (word, expected) in guarded.words.into_iter().zip(expected) {
        assert_eq!(word.into_inner(), expected.into_inner());
    }
}

#[test]
fn no_update_is_lost_whichever_way_lanes_are_taken() {
    storm("when busy", |rcx| rcx);
    storm("always", |rcx| rcx.take_lanes(TakeLanes::Always));
}

#[test]
fn updates_go_on_though_transactions_abort() {
    for abort in [Abort::Conflict, Abort::Capacity] {
        let script = Strategy::Scripted(Arc::new(move |_| Some(abort)));
        storm(&format!("aborting ({abort:?})"), |rcx| {
            // Waiting for lanes that never come is what is bounded; a short bound tests as much.
            rcx.take_lanes(TakeLanes::Always)
                .strategy(script.clone())
                .lane_timeout(Duration::ZERO)
        });
    }
    let some = Strategy::Scripted(Arc::new(|attempt| {
        (attempt % 3 != 2).then_some(Abort::Conflict)
    }));
    storm("aborting now and then", |rcx| {
        rcx.take_lanes(TakeLanes::Always).strategy(some.clone())
    });
}

/// Runs nowhere that this project has: without transactions there is no strategy to take.
#[test]
fn no_update_is_lost_by_transactions_where_there_are_some() {
    if let Some(rtm) = Rtm::probe() {
        storm("transactions", |rcx| {
            rcx.take_lanes(TakeLanes::Always)
                .strategy(Strategy::Rtm(rtm))
        });
    }
}

/// A lock that knows nothing of participants: an item's lock may be any.
#[derive(Default)]
struct Plain(AtomicBool);

impl ItemLock for Plain {
    fn try_lock(&self, _: &Slot<'_>) -> Option<bool> {
        let taken = self.0.compare_exchange(false, true, Acquire, Relaxed);
        taken.ok().map(|_| false)
    }

    fn lock_within(&self, slot: &Slot<'_>, _: Duration) -> Result<bool, Stalled> {
        loop {
            if let Some(owner_died) = self.try_lock(slot) {
                return Ok(owner_died);
            }
            std::thread::yield_now();
        }
    }

    unsafe fn unlock(&self, _: &Slot<'_>) {
        self.0.store(false, Release);
    }
}

#[test]
fn items_of_another_kind_of_lock_are_excluded_as_well() {
    let p = participants();
    let rcx = Rcx::new(&p, topology());
    let locks: [Plain; 2] = Default::default();
    let guarded = Guarded::new();
    in_threads(3, |_| {
        for _ in 0..UPDATES {
            let mut items = [Item::new(2, &locks[1]), Item::new(1, &locks[0])];
            let _guard = rcx.lock(&mut items).unwrap();
            // SAFETY: locked.
            unsafe { *guarded.word(0) += 1 };
        }
    });
    // SAFETY: the threads are gone.
    assert_eq!(unsafe { *guarded.word(0) }, 3 * UPDATES);
    assert!(locks.iter().all(|lock| !lock.0.load(Relaxed)));
}
