//! Scripted liveness: several "processes" of one test, killed by a method call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Liveness, LivenessError, Taken};

#[derive(Debug, Default)]
struct Script {
    /// The process that holds each index.
    holders: BTreeMap<u32, u32>,
    dead: BTreeSet<u32>,
}

/// The script that determines which processes are alive. Clones share it.
///
/// ```
/// use mneme_sys::{Liveness, ScriptedLiveness};
/// let script = ScriptedLiveness::new();
/// let (one, two) = (script.process(1), script.process(2));
/// one.claim(0)?;
/// assert!(two.is_alive(0));
/// script.kill(1);
/// assert!(!two.is_alive(0));
/// assert!(two.try_take(0)?.is_some());
/// # Ok::<(), mneme_sys::LivenessError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ScriptedLiveness {
    script: Arc<Mutex<Script>>,
}

/// One process of the script. Clones are the same process.
#[derive(Debug, Clone)]
pub struct ScriptedProcess {
    script: Arc<Mutex<Script>>,
    process: u32,
}

/// A panic in another test thread leaves the script usable, because every change is one step.
fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedLiveness {
    /// A script in which no index is held.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process with that number, which is alive unless it was killed.
    pub fn process(&self, process: u32) -> ScriptedProcess {
        ScriptedProcess {
            script: Arc::clone(&self.script),
            process,
        }
    }

    /// Declares a process dead: everything that it holds is free from now on, and its later calls
    /// fail or do nothing. A dead process stays dead; a new process needs a new number.
    pub fn kill(&self, process: u32) {
        let mut script = lock(&self.script);
        script.dead.insert(process);
        script.holders.retain(|_, holder| *holder != process);
    }
}

impl ScriptedProcess {
    /// The process's number.
    pub fn number(&self) -> u32 {
        self.process
    }

    /// Takes the index if it is free; returns whether it was.
    fn take(&self, index: u32) -> Result<bool, LivenessError> {
        let mut script = lock(&self.script);
        if script.dead.contains(&self.process) {
            return Err(LivenessError::Dead);
        }
        if script.holders.contains_key(&index) {
            return Ok(false);
        }
        script.holders.insert(index, self.process);
        Ok(true)
    }
}

impl Liveness for ScriptedProcess {
    fn claim(&self, index: u32) -> Result<(), LivenessError> {
        if self.take(index)? {
            Ok(())
        } else {
            Err(LivenessError::Held { index })
        }
    }

    fn is_alive(&self, index: u32) -> bool {
        lock(&self.script).holders.contains_key(&index)
    }

    fn try_take(&self, index: u32) -> Result<Option<Taken<'_>>, LivenessError> {
        Ok(self.take(index)?.then(|| Taken::new(self, index)))
    }

    fn release(&self, index: u32) {
        let mut script = lock(&self.script);
        if script.holders.get(&index) == Some(&self.process) {
            script.holders.remove(&index);
        }
    }
}
