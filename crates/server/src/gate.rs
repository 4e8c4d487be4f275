//! The gate for replies of a durable store: **a reply is sent only once everything that it may
//! reveal is durable**, if the store promises so (`appendfsync always`).
//!
//! A reply waits for the tail of the change feed at the time when the reply was complete, even a
//! reply to a read: a client that has read a value may rely on it as much as the client that wrote
//! it. Connections record the positions of their replies ([`Parked`](crate::connection::Parked));
//! an I/O thread serves a connection again when the durable position has reached the first of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// The gate that replies wait at.
pub(crate) trait ReplyGate: Send + Sync {
    /// Whether replies begun now may have to wait when they are complete.
    fn holds(&self) -> bool;

    /// The position that replies completed now must wait for; `None` if they need not wait. `held`
    /// says whether the gate [held](Self::holds) replies before they were begun: such replies
    /// report changes that were accepted, and wait for ever if these can no longer become durable.
    fn awaited(&self, held: bool) -> Option<u64>;

    /// Which waiting replies may be sent.
    fn admission(&self) -> Admission;

    /// Requests a sync soon, because replies wait.
    fn ask(&self);

    /// Why writes are refused, as an error text; `None` if they are accepted.
    fn refusal(&self) -> Option<&'static str>;
}

/// Which waiting replies may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All: none need wait.
    All,
    /// Those that wait for at most this position.
    UpTo(u64),
    /// None, ever: the changes that they wait for cannot become durable. Their connections are
    /// closed.
    Never,
}

impl Admission {
    /// Whether a reply that waits for `position` may be sent.
    #[inline]
    pub fn admits(self, position: u64) -> bool {
        match self {
            Admission::All => true,
            Admission::UpTo(durable) => position <= durable,
            Admission::Never => false,
        }
    }
}

/// Whether a thread has connections that wait at the gate, so that it must be woken when the gate
/// opens.
#[derive(Debug, Default)]
pub(crate) struct AwaitsGate(AtomicBool);

impl AwaitsGate {
    /// Makes the next opening of the gate wake the thread, which must check the gate after this.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
        // SYNC: pairs with the fence in `take`: either the thread sees the position that opened the
        // gate, or the thread that opened it sees the flag.
        fence(Ordering::SeqCst);
    }

    /// Whether to wake the thread for an opening that has happened; true only once.
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
