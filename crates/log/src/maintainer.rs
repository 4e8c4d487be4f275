//! The maintainer: a thread that does ahead of time what writers would otherwise do themselves.
//!
//! Nothing depends on it. Any writer short of space can do all it does; it only sees to it that they
//! seldom have to.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::core::Core;
use crate::expiry::ExpirySweep;

/// How often it looks round. Short enough that the stock of free frames (a 32nd of the store) does
/// not run out between two looks, long enough to cost nothing when idle.
const PERIOD: Duration = Duration::from_millis(10);
/// Looks between two reapings of the dead.
const REAP_EVERY: u32 = 50;

/// A running maintainer; dropping it stops the thread.
pub(crate) struct Maintainer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Maintainer {
    pub fn start(core: Arc<Core>) -> std::io::Result<Maintainer> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("mneme-maintain".into())
            .spawn(move || run(&core, &theirs))?;
        Ok(Maintainer {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Maintainer {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A maintainer that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn run(core: &Core, (stop, signal): &(Mutex<bool>, Condvar)) {
    let mut looks = 0;
    let mut sweep = ExpirySweep::default();
    let mut stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        drop(stopped);
        looks += 1;
        // What fails here (a stalled lock, a damaged segment) fails again, with its error, for the
        // writer who needs it.
        let _ = look_round(core, &mut sweep, looks % REAP_EVERY == 0, &|| {
            *stop.lock().unwrap_or_else(PoisonError::into_inner)
        });
        stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
        if !*stopped {
            stopped = signal
                .wait_timeout(stopped, PERIOD)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn look_round(
    core: &Core,
    sweep: &mut ExpirySweep,
    reap: bool,
    stopped: &dyn Fn() -> bool,
) -> Result<(), crate::WriteError> {
    let slot = core.participants.slot()?;
    if reap {
        core.reap(&slot)?;
    }
    core.sweep_expired(&slot, sweep)?;
    if core.wants_compaction() || core.sweeps_due() {
        core.maintain(&slot)?;
    }
    while core.wants_compaction() && !stopped() {
        if !core.compact(&slot)? {
            break;
        }
        core.maintain(&slot)?;
    }
    Ok(())
}
