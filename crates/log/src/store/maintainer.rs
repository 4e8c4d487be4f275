//! The maintainer: threads, one for each node, that do ahead of time what writers would otherwise
//! do themselves.
//!
//! **Of all openings of a store that have a maintainer, one maintains it**: the one that holds the
//! store's first [lease](mneme_sync::Lease). The others request it ten times a second, and one of
//! them gets it as soon as it is released or its holder has died. A store in private memory needs
//! no lease.
//!
//! Nothing depends on the maintainer. A writer that lacks space can do all that its threads do.
//! They only make that rarely necessary.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mneme_sync::{Lease, Slot};
use mneme_sys::{Clock, NodeId, SystemClock};

use crate::error::WriteError;
use crate::log::prefault::{Gathered, Populated};
use crate::log::spare::SpareFrames;
use crate::reclaim::evict::Evicted;
use crate::reclaim::expiry_sweep::ExpirySweep;
use crate::reclaim::fill::FillKeeper;
use crate::reclaim::sparse::Sparse;
use crate::session::MAINTAINER_LEASE;
use crate::store::components::Store;
use crate::store::sweep_state::SweepLimit;

/// The time between two rounds. It is short enough that the stock of free frames (a 32nd of the
/// store) does not run out in between, and long enough to cost nothing when idle.
const PERIOD: Duration = Duration::from_millis(10);
/// How long it may populate frames in a round.
const POPULATING: Duration = Duration::from_millis(2);
/// The shortest pause between two slices of compaction.
const LEAST_WAIT: Duration = Duration::from_micros(50);
/// How often it requests the lease that another opening holds.
const STANDBY: Duration = Duration::from_millis(100);
/// Rounds between two reapings of dead participants.
const REAP_EVERY: u32 = 50;

/// The number of rounds between two sweeps of the lending cache's index: a minute.
const LENT_ROUNDS: u64 = 6_000;

/// Threads that maintain a store, one a node; dropping this stops them, and releases the lease.
pub(crate) struct Maintainer {
    office: Arc<Office>,
    threads: Vec<JoinHandle<()>>,
    /// The fork generation, see [`mneme_sys::fork`].
    generation: u32,
}

/// The state that a maintainer's threads share.
#[derive(Default)]
struct Office {
    stop: Mutex<bool>,
    signal: Condvar,
    /// Whether this opening is the one that maintains.
    held: AtomicBool,
    lease: Mutex<Option<Lease>>,
}

/// A poisoned value is valid: each change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    fn is_held(&self) -> bool {
        // SYNC: pairs with the Release store in `ask`.
        self.held.load(Acquire)
    }

    fn is_stopped(&self) -> bool {
        *lock(&self.stop)
    }

    /// Requests the lease, and notes whether this opening maintains now.
    fn ask(&self, store: &Store) {
        if !store.session().participants.region().is_private() {
            // If the request fails, the next round repeats it.
            let Ok(Some(lease)) = store.session().participants.try_lease(MAINTAINER_LEASE) else {
                return;
            };
            *lock(&self.lease) = Some(lease);
        }
        // SYNC: pairs with the Acquire load in `is_held`.
        self.held.store(true, Release);
        self.signal.notify_all();
    }

    /// Waits for `time`, or until it must stop. Returns whether to continue.
    fn wait(&self, time: Duration) -> bool {
        let stopped = lock(&self.stop);
        if *stopped {
            return false;
        }
        let waited = self.signal.wait_timeout(stopped, time);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Maintainer {
    pub fn start(store: Arc<Store>) -> std::io::Result<Maintainer> {
        let mut maintainer = Maintainer {
            office: Arc::default(),
            threads: Vec::new(),
            generation: mneme_sys::fork::generation(),
        };
        maintainer.office.ask(&store);
        for node in (0..store.log().arena.nodes()).map(NodeId) {
            let (store, office) = (Arc::clone(&store), Arc::clone(&maintainer.office));
            // If one fails to start, dropping the maintainer stops those before it.
            let thread = std::thread::Builder::new()
                .name(format!("mneme-maintain{}", node.0))
                .spawn(move || run(&store, node, &office))?;
            maintainer.threads.push(thread);
        }
        Ok(maintainer)
    }

    /// Whether this opening's maintainer is the one that maintains.
    pub fn is_at_work(&self) -> bool {
        self.office.is_held()
    }
}

impl Drop for Maintainer {
    fn drop(&mut self) {
        if self.generation != mneme_sys::fork::generation() {
            // The threads belong to the parent; a child has none of them to wait for.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        *lock(&self.office.stop) = true;
        self.office.signal.notify_all();
        for thread in self.threads.drain(..) {
            // The panic of a maintainer thread has been printed already.
            let _ = thread.join();
        }
        // No thread maintains for this opening any more: another opening may.
        drop(lock(&self.office.lease).take());
    }
}

fn run(store: &Store, node: NodeId, office: &Office) {
    let reclaim = store.reclaim();
    store.session().topology.stay_on(node);
    while !office.is_held() {
        if !office.wait(STANDBY) {
            return;
        }
        if node == NodeId(0) {
            office.ask(store);
        }
    }
    let mut looks = 0;
    let mut sweep = ExpirySweep::default();
    let (mut populated, mut gathered) = (Populated::new(node), Gathered::new(node));
    let mut sparse = Sparse::new(node);
    let (mut fill, mut spare) = (FillKeeper::new(node), SpareFrames::new(node));
    let stopped = || office.is_stopped();
    // By the system's clock: in a test the store's may not advance.
    let mut round = SystemClock.now_ns();
    while !stopped() {
        let mut wait = PERIOD;
        let now = SystemClock.now_ns();
        if now < round {
            // Between two rounds there is time for slices of compaction.
            if let Ok(slot) = store.session().participants.slot() {
                let rest = reclaim.keep_filled(&slot, &mut fill, &stopped);
                wait = rest.unwrap_or(PERIOD);
            }
            if !office.wait(wait.min(Duration::from_nanos(round - now)).max(LEAST_WAIT)) {
                break;
            }
            continue;
        }
        round = now + PERIOD.as_nanos() as u64;
        looks += 1;
        if let Ok(slot) = store.session().participants.slot() {
            // What fails here (a stalled lock, a damaged segment) fails again, with its error, for
            // the writer that needs it. No part depends on another's success.
            if node == NodeId(0) {
                look_round(store, &slot, &mut sweep, looks % REAP_EVERY == 0);
                let limit = SweepLimit {
                    slices: u64::MAX,
                    stopped: &stopped,
                };
                let _ = store.sweep_collections(&slot, store.sweep_is_due(), limit);
            }
            let _ = keep_space(store, &slot, node, &stopped);
            let _ = reclaim.compact_sparse(&slot, &mut sparse, &stopped);
            let rest = reclaim.keep_filled(&slot, &mut fill, &stopped);
            wait = wait.min(rest.unwrap_or(PERIOD));
            let idle = fill.is_idle(store.session().clock.now_ns());
            let idle = idle && reclaim.fill_policy().when_idle;
            store.log().give_back(&slot, &mut spare, idle);
            store.log().give_back_ahead(&slot, &mut populated, idle);
        }
        // A writer that claims frames as fast as they are populated must not keep this thread from
        // compaction, without which only fresh frames are claimed.
        let until = SystemClock.now_ns() + POPULATING.as_nanos() as u64;
        store.log().populate(&mut populated, &|| {
            stopped() || SystemClock.now_ns() >= until
        });
        store.log().gather(&mut gathered, &stopped);
        if !office.wait(wait.max(LEAST_WAIT)) {
            break;
        }
    }
    reclaim.leave_fill(&mut fill);
    reclaim.leave_sweep(&sweep);
}

/// The work that concerns no particular node. Each part runs even if earlier ones failed.
fn look_round(store: &Store, slot: &Slot<'_>, sweep: &mut ExpirySweep, reap: bool) {
    let reclaim = store.reclaim();
    if reap {
        let _ = store.reap(slot);
    }
    if !store.records().expiry_rests() {
        let _ = reclaim.sweep_expired(slot, sweep);
    }
    let _ = reclaim.fold_accesses(slot);
    if let Some(lent) = &store.log().lent {
        let _ = lent.sweep_part(LENT_ROUNDS);
    }
    if reclaim.wants_compaction() || store.session().tables.header().sweeps_due() {
        let _ = reclaim.maintain(slot);
        reclaim.condemn_lost(slot);
    }
}

/// Compacts until the node has frames in stock.
fn keep_space(
    store: &Store,
    slot: &Slot<'_>,
    node: NodeId,
    stopped: &dyn Fn() -> bool,
) -> Result<(), WriteError> {
    let reclaim = store.reclaim();
    while reclaim.node_wants_compaction(node) && !stopped() {
        // A blocked sweep or freeing, or damage there, does not prevent victims from being moved.
        let _ = reclaim.maintain(slot);
        let evicted =
            !store.records().expiry_rests() && matches!(reclaim.evict(slot), Ok(Evicted::Some));
        if !evicted && reclaim.compact_batch(slot, node)? == 0 {
            store.session().revoke_stalled_pins();
            break;
        }
        // While no frames can be freed, one batch for each look is enough.
        reclaim.maintain(slot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use mneme_sys::ManualClock;

    use super::*;
    use crate::{Expiry, LogStore};

    #[test]
    #[cfg_attr(miri, ignore = "a whole store takes minutes")]
    fn while_expiry_rests_what_has_expired_is_absent_and_enters_nothing() {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let builder = builder.clock(clock.clone()).change_feed(true);
        let store = builder.open_private().unwrap();
        for i in 0..100u8 {
            store.put_until(&[i], b"v", Expiry::At(2_000)).unwrap();
        }
        clock.set_wall_ms(3_000);
        let mut sweep = ExpirySweep::default();
        let mut look = || {
            for _ in 0..100 {
                let slot = store.store.session().participants.slot().unwrap();
                look_round(&store.store, &slot, &mut sweep, true);
            }
        };
        let tail = store.feed_tail();
        store.rest_expiry(true);
        look();
        assert!(store.get(&[7]).unwrap().is_none());
        assert_eq!((store.len(), store.feed_tail()), (100, tail));
        store.rest_expiry(false);
        look();
        assert_eq!(store.len(), 0);
        assert!(store.feed_tail() > tail);
    }
}
