//! The maintainer: threads, one a node, that do ahead of time what writers would otherwise do
//! themselves.
//!
//! Nothing depends on it. Any writer short of space can do all they do; they only see to it that
//! it seldom has to.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mneme_sync::Slot;
use mneme_sys::NodeId;

use crate::core::Core;
use crate::error::WriteError;
use crate::evict::Evicted;
use crate::expiry::ExpirySweep;
use crate::fresh::Populated;

/// How often it looks round. Short enough that the stock of free frames (a 32nd of the store) does
/// not run out between two looks, long enough to cost nothing when idle.
const PERIOD: Duration = Duration::from_millis(10);
/// Looks between two reapings of the dead.
const REAP_EVERY: u32 = 50;

/// Threads that maintain a store, one a node; dropping this stops them.
pub(crate) struct Maintainer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
    /// Of forks, see [`mneme_sys::fork`].
    generation: u32,
}

impl Maintainer {
    pub fn start(core: Arc<Core>) -> std::io::Result<Maintainer> {
        let mut maintainer = Maintainer {
            stop: Arc::new((Mutex::new(false), Condvar::new())),
            threads: Vec::new(),
            generation: mneme_sys::fork::generation(),
        };
        for node in (0..core.arena.nodes()).map(NodeId) {
            let (core, stop) = (Arc::clone(&core), Arc::clone(&maintainer.stop));
            // If one fails to start, dropping the maintainer stops those before it.
            let thread = std::thread::Builder::new()
                .name(format!("mneme-maintain{}", node.0))
                .spawn(move || run(&core, node, &stop))?;
            maintainer.threads.push(thread);
        }
        Ok(maintainer)
    }
}

impl Drop for Maintainer {
    fn drop(&mut self) {
        if self.generation != mneme_sys::fork::generation() {
            // The threads are the parent's; a child has none of them to wait for.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        for thread in self.threads.drain(..) {
            // A maintainer that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn run(core: &Core, node: NodeId, (stop, signal): &(Mutex<bool>, Condvar)) {
    core.topology.stay_on(node);
    let mut looks = 0;
    let mut sweep = ExpirySweep::default();
    let mut populated = Populated::new(node);
    let mut stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        drop(stopped);
        looks += 1;
        let stopped_now = || *stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(slot) = core.participants.slot() {
            // What fails here (a stalled lock, a damaged segment) fails again, with its error, for the
            // writer who needs it. No part depends on another's success.
            if node == NodeId(0) {
                look_round(core, &slot, &mut sweep, looks % REAP_EVERY == 0);
            }
            let _ = keep_room(core, &slot, node, &stopped_now);
        }
        core.populate(&mut populated, &stopped_now);
        stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
        if !*stopped {
            stopped = signal
                .wait_timeout(stopped, PERIOD)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
    core.leave_sweep(&sweep);
}

/// What concerns no node in particular; each part whatever became of those before it.
fn look_round(core: &Core, slot: &Slot<'_>, sweep: &mut ExpirySweep, reap: bool) {
    if reap {
        let _ = core.reap(slot);
    }
    let _ = core.sweep_expired(slot, sweep);
    let _ = core.fold_accesses(slot);
    if core.wants_compaction() || core.sweeps_due() {
        let _ = core.maintain(slot);
        core.condemn_lost(slot);
    }
}

/// Compacts until the node has frames in stock.
fn keep_room(
    core: &Core,
    slot: &Slot<'_>,
    node: NodeId,
    stopped: &dyn Fn() -> bool,
) -> Result<(), WriteError> {
    while core.node_wants_compaction(node) && !stopped() {
        // A sweep or a freeing that is held up, or damaged, keeps no victim from being moved.
        let _ = core.maintain(slot);
        let evicted = matches!(core.evict(slot), Ok(Evicted::Some));
        if !evicted && core.compact_batch(slot, node)? == 0 {
            break;
        }
        // While nothing can be given back, one batch a look is enough.
        core.maintain(slot)?;
    }
    Ok(())
}
