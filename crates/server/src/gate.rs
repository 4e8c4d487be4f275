//! The gate for replies of a durable store: **a reply leaves only once everything that it may tell
//! of is durable**, if the store promises so (`appendfsync always`).
//!
//! A reply waits for the tail of the change feed as it was when the reply was complete, a reply to
//! a read too: a client that has read a value may rely on it as much as the client that wrote it.
//! Connections keep the positions of their replies
//! ([`Parked`](crate::connection::Parked)); an I/O thread serves a connection again when the
//! durable position has reached the first of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What replies wait for.
pub(crate) trait ReplyGate: Send + Sync {
    /// Whether replies wait which are begun now: they may have to, when they are complete.
    fn holds(&self) -> bool;

    /// The position that replies must wait for which are complete now; `None` if they need not
    /// wait. They are `held` if the gate [held](Self::holds) replies before they were begun: they
    /// report changes that were accepted, and wait for ever if these can no longer become durable.
    fn awaited(&self, held: bool) -> Option<u64>;

    /// Which replies that wait may leave.
    fn admission(&self) -> Admission;

    /// Requests a sync soon, because replies wait.
    fn ask(&self);

    /// Why writes are refused, in the system's words; `None` if they are not.
    fn refusal(&self) -> Option<&'static str>;
}

/// Which replies that wait may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All: none need wait.
    All,
    /// Those that wait for at most this position.
    UpTo(u64),
    /// None, ever: what they wait for cannot become durable. Their connections are closed.
    Never,
}

impl Admission {
    /// Whether a reply that waits for `position` may leave.
    #[inline]
    pub fn admits(self, position: u64) -> bool {
        match self {
            Admission::All => true,
            Admission::UpTo(durable) => position <= durable,
            Admission::Never => false,
        }
    }
}

/// Whether a thread has connections that wait at the gate, and so is to be woken when it opens.
#[derive(Debug, Default)]
pub(crate) struct AwaitsGate(AtomicBool);

impl AwaitsGate {
    /// Has the next opening of the gate wake the thread, which looks at the gate after this.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
        // SYNC: pairs with the fence in `take`: either the thread sees the position that opened the
        // gate, or the thread that opened it sees the flag.
        fence(Ordering::SeqCst);
    }

    /// Whether the thread is to be woken for an opening that has taken place; once.
    pub fn take(&self) -> bool {
        // SYNC: as in `set`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

impl fmt::Debug for dyn ReplyGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyGate")
            .field("holds", &self.holds())
            .field("admission", &self.admission())
            .finish()
    }
}

#[cfg(test)]
mod tests;
