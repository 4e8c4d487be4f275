//! The reclaimer's side of [`Participants`]: advancing the epoch, and waiting for pins to end.
//!
//! To free something: unlink it, so that no thread can reach it any more; call
//! [`advance`](Participants::advance); free it once [`quiescent`](Participants::quiescent) returns
//! true for that epoch. Any thread of any participant may perform each of the three steps.

use crate::atomics::Barrier;
use crate::backoff::Backoff;
use crate::epoch::{self, Epoch, PinKind};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::{Holding, SlotError, SlotId, Stalled};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// How long a reclaimer waits for a revocable pin before it revokes the pin.
pub const REVOKE_AFTER: Duration = Duration::from_secs(1);

impl Participants {
    /// Called after unlinking: passes the heavy barrier (2 to 10 us), then begins the next epoch.
    /// Returns the epoch that must be over before what was unlinked may be freed.
    ///
    /// Collect values, and advance once for all of them.
    ///
    /// # Errors
    /// This is a forked child, or a process in a sandbox without the barrier. Nothing has changed
    /// then, and what was unlinked must not be freed yet: another process, or a later call, must
    /// advance.
    pub fn advance(&self) -> Result<Epoch, SlotError> {
        if self.inner().is_forked() {
            return Err(SlotError::Forked);
        }
        let header = self.inner().control().header();
        let g = epoch::advance(&header.epoch.word, &self.inner().barrier())?;
        Ok(Epoch::from_u64(g))
    }

    /// Whether no pin is left that could see what was unlinked before [`advance`](Self::advance)
    /// returned `g`: `min(pins) > g`.
    ///
    /// Costs a load if another call has already found out, otherwise a load for each slot in use.
    /// The pins of dead threads count until they are reaped, because their repair may still read.
    #[must_use]
    pub fn quiescent(&self, g: Epoch) -> bool {
        let inner = self.inner();
        if inner.is_forked() {
            return false;
        }
        let header = inner.control().header();
        let pins = || inner.control().slots().map(|(_, lines)| &lines.pin);
        epoch::is_over(&header.epoch.word, &header.quiesced.word, g.to_u64(), pins)
    }

    /// Waits until `g` is over, at most for `timeout`. Revokes revocable pins that are in the way
    /// after one second.
    ///
    /// # Errors
    /// [`Stalled`] names a pin in the way: a stopped thread's after `timeout`; a dead thread's
    /// (`Holding::DeadPin`) as soon as it is found ([`reap`](Self::reap) and try again); the
    /// calling thread's own (`Holding::OwnPin`) at once.
    pub fn wait_quiescent(&self, g: Epoch, timeout: Duration) -> Result<(), Stalled> {
        let inner = self.inner();
        if inner.is_forked() {
            return Err(Stalled::nobody(Holding::Forked));
        }
        // A thread must not wait for itself.
        if let Some(own) = self.pinned_slot()
            && inner.find_pin(g, |slot| slot == own).is_some()
        {
            return Err(inner.stalled(own, Duration::ZERO, Holding::OwnPin));
        }
        let mut backoff = Backoff::new(inner.now(), timeout);
        let mut revoked = false;
        loop {
            if self.quiescent(g) {
                return Ok(());
            }
            let waited = backoff.elapsed(inner.now());
            if backoff.has_spun() {
                if let Some(slot) = inner.find_pin(g, |slot| inner.is_dead(slot)) {
                    return Err(inner.stalled(slot, waited, Holding::DeadPin));
                }
                if waited >= REVOKE_AFTER && !revoked {
                    revoked = true;
                    self.revoke(g);
                    continue;
                }
            }
            if !backoff.wait(|| inner.now()) {
                if let Some(slot) = inner.find_pin(g, |_| true) {
                    return Err(inner.stalled(slot, waited, Holding::Pin));
                }
                if self.quiescent(g) {
                    return Ok(());
                }
                // No pin is in the way: `g` did not come from `advance`.
                return Err(Stalled::nobody(Holding::Pin));
            }
        }
    }

    /// Whether a reader whose pin was revoked, or is being revoked, has not left it yet: it may be
    /// in the middle of copying memory that has been freed since.
    #[must_use]
    pub fn has_revoked(&self) -> bool {
        let mut slots = self.inner().control().slots();
        // SYNC: pairs with the exchange in `finish_revoking`: readers whose pins it revoked are
        // seen.
        slots.any(|(_, lines)| epoch::is_revoked(lines.pin.load(Acquire)))
    }

    /// Revokes at once all revocable pins that are in the way of `g`, and returns their number.
    /// Their readers notice when they leave, and read again. Without the barrier (see
    /// [`advance`](Self::advance)) none is revoked: the pins count until their readers leave.
    pub fn revoke(&self, g: Epoch) -> usize {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let map = inner.control();
        // Relaxed: it only has to be unique.
        let number = map.header().revocations.word.fetch_add(1, Relaxed) + 1;
        let begun: Vec<SlotId> = map
            .slots()
            .filter(|(_, lines)| epoch::begin_revoking(&lines.pin, g.to_u64(), number))
            .map(|(id, _)| id)
            .collect();
        if begun.is_empty() {
            return 0;
        }
        mneme_sys::fault!("sync.revoke.begun");
        if inner.barrier().heavy().is_err() {
            return 0;
        }
        for lines in begun.iter().filter_map(|id| map.slot(*id)) {
            epoch::finish_revoking(&lines.pin, number);
        }
        begun.len()
    }
}

impl Inner {
    /// A slot whose pin is in the way of `g` and for which `is` returns true.
    fn find_pin(&self, g: Epoch, is: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        self.control()
            .slots()
            .filter(|(_, lines)| {
                epoch::pinned_epoch(lines.pin.load(Acquire)).is_some_and(|e| e <= g.to_u64())
            })
            .map(|(id, _)| id)
            .find(|id| is(*id))
    }

    pub(crate) fn stalled(&self, slot: SlotId, since: Duration, what: Holding) -> Stalled {
        Stalled {
            pid: self.pid_of(slot),
            slot,
            since,
            what,
        }
    }

    /// The oldest pin that counts, and whether it is firm.
    pub(crate) fn oldest(&self) -> Option<(u64, SlotId, bool)> {
        self.control()
            .slots()
            .filter_map(|(id, lines)| {
                let word = lines.pin.load(Acquire);
                Some((
                    epoch::pinned_epoch(word)?,
                    id,
                    epoch::kind_of(word) == PinKind::Firm,
                ))
            })
            .min()
    }
}
