//! Liveness for a region that no other process can reach: every process that can ask is alive.

use mneme_sys::{Liveness, LivenessError, Taken};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The only process there is.
#[derive(Debug, Default)]
pub(crate) struct OnlyProcess(Mutex<BTreeSet<u32>>);

impl OnlyProcess {
    /// A poisoned mutex is used as it is: each change of the set is one step.
    fn held(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Liveness for OnlyProcess {
    fn claim(&self, index: u32) -> Result<(), LivenessError> {
        if self.held().insert(index) {
            Ok(())
        } else {
            Err(LivenessError::Held { index })
        }
    }

    fn is_alive(&self, index: u32) -> bool {
        self.held().contains(&index)
    }

    fn try_take(&self, index: u32) -> Result<Option<Taken<'_>>, LivenessError> {
        Ok(self.held().insert(index).then(|| Taken::new(self, index)))
    }

    fn release(&self, index: u32) {
        self.held().remove(&index);
    }
}
