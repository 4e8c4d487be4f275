//! `CLIENT PAUSE`: holds commands back for a time.
//!
//! Every thread checks for a pause after it has entered its section, and `CLIENT PAUSE` replies
//! only after all sections that were entered earlier are over. So **after the reply to `CLIENT
//! PAUSE`, no command that the pause affects is executed until the pause ends.** No thread sleeps
//! for it: a client whose next command must wait is not served further, so that its commands stay
//! in order. Its thread continues it at the end of the pause, or when `CLIENT UNPAUSE` wakes it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The commands that a pause holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Pause {
    /// Commands that may change data, or send messages.
    Writes = 1,
    /// All commands.
    All = 2,
}

/// The current pause, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// The pause's [`Pause`] as a number, or 0 for none. A pause that has ended may still be
    /// recorded here.
    kind: AtomicU8,
    /// Its kind, and the millisecond of the server's clock at which it ends.
    current: Mutex<Option<(Pause, u64)>>,
}

impl Pauses {
    /// Begins a pause until `end_ms`. If there is one already, it takes the stricter kind and the
    /// later end of the two.
    pub fn begin(&self, kind: Pause, end_ms: u64, now_ms: u64) {
        let mut current = self.current();
        let (kind, end_ms) = match *current {
            Some((other, other_end_ms)) if now_ms < other_end_ms => {
                (kind.max(other), end_ms.max(other_end_ms))
            }
            _ => (kind, end_ms),
        };
        *current = Some((kind, end_ms));
        // SYNC: pairs with nothing: sections that begin later see the store because the caller
        // announces the pause to them.
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    /// Ends the pause.
    pub fn end(&self) {
        let mut current = self.current();
        *current = None;
        // SYNC: pairs with nothing: a thread that reads the old value is woken to look again.
        self.kind.store(0, Ordering::Relaxed);
    }

    /// The pause in effect. If there is none, this costs one load; `now_ms` is called only if there
    /// may be one.
    #[inline]
    pub fn now(&self, now_ms: impl FnOnce() -> u64) -> Option<Pause> {
        // SYNC: as in `begin`.
        match self.kind.load(Ordering::Relaxed) {
            0 => None,
            _ => self.left(now_ms()).map(|(kind, _)| kind),
        }
    }

    /// The pause in effect, and the milliseconds that are left of it.
    pub fn left(&self, now_ms: u64) -> Option<(Pause, u64)> {
        let mut current = self.current();
        match *current {
            Some((kind, end_ms)) if now_ms < end_ms => Some((kind, end_ms - now_ms)),
            Some(_) => {
                *current = None;
                // SYNC: as in `end`.
                self.kind.store(0, Ordering::Relaxed);
                None
            }
            None => None,
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<(Pause, u64)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_clients_add_up_and_end() {
        let pauses = Pauses::default();
        assert_eq!(pauses.now(|| panic!("nobody needs the time")), None);
        pauses.begin(Pause::All, 100, 10);
        pauses.begin(Pause::Writes, 200, 50);
        assert_eq!(pauses.left(60), Some((Pause::All, 140)));
        pauses.begin(Pause::Writes, 70, 60);
        assert_eq!(pauses.now(|| 199), Some(Pause::All));
        assert_eq!(pauses.now(|| 200), None);
        pauses.begin(Pause::Writes, 300, 250);
        assert_eq!(pauses.now(|| 260), Some(Pause::Writes));
        pauses.end();
        assert_eq!(pauses.now(|| 260), None);
    }
}
