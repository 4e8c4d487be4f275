//! Exchanging two databases, see [`crate::index::databases`] for its steps.

use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use mneme_sync::{Holding, Slot};

use crate::error::WriteError;
use crate::index::intent::IndexIntent;
use crate::records::Records;

/// How long a swap waits at most for threads that use the two databases. It is half of the time
/// that these wait for the swap, so that a swap that times out makes no other operation fail.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

impl Records {
    /// Exchanges two databases, unless other threads block that for longer than `timeout`.
    pub(crate) fn swap_databases(&self, a: u8, b: u8, timeout: Duration) -> Result<(), WriteError> {
        let session = self.session();
        let slot = session.writer()?;
        if a == b {
            return Ok(());
        }
        if slot.is_pinned() {
            return Err(session.stalled_by_own_pin(&slot));
        }
        let _held = (self.index()).settle_swap(session.tables.header().swap.lock(&slot)?);
        let (timeout, begin) = (timeout.min(TIMEOUT), session.clock.now_ns());
        self.await_users(&slot, timeout)?;
        let waited = Duration::from_nanos(session.clock.now_ns().saturating_sub(begin));
        // Announced before the marks: threads that wait for a stopped swap remember it by this
        // intent, and the next ones fail at once.
        IndexIntent::replace_databases(&slot, || {
            let table = self.index().table();
            let swap = table.mark([a, b]);
            // An operation that began meanwhile does not take long.
            let rest = timeout.saturating_sub(waited).max(timeout / 8);
            let alone = self.await_users(&slot, rest).and_then(|()| {
                mneme_sys::fault!("log.swap.alone");
                self.index().enter_swap(&slot, swap)
            });
            if let Err(error) = alone {
                table.undo(swap);
                return Err(error);
            }
            // SYNC: pairs with the Acquire loads in `swaps` (see [`crate::store::watch`]) and in
            // `settled_shared_space`: a thread that sees the new spaces sees the swap counted.
            session.tables.header().swaps.fetch_add(1, Release);
            table.exchange(swap);
            self.index().complete_swap();
            Ok(())
        })
    }

    /// Waits until all pins that exist now are gone. Pins of dead threads are reaped. Pins of
    /// copying readers are revoked half-way through the wait.
    fn await_users(&self, slot: &Slot<'_>, timeout: Duration) -> Result<(), WriteError> {
        let epoch = self.session().participants.advance()?;
        let mut revoked = false;
        loop {
            match (self.session().participants).wait_quiescent(epoch, timeout / 2) {
                Ok(()) => return Ok(()),
                Err(stalled) if stalled.what == Holding::Pin && !revoked => {
                    self.session().participants.revoke(epoch);
                    revoked = true;
                }
                Err(stalled) if stalled.what == Holding::DeadPin => {
                    if self.session().reap(slot)? == 0 {
                        return Err(stalled.into());
                    }
                }
                Err(stalled) => return Err(stalled.into()),
            }
        }
    }
}
