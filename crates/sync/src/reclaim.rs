//! The reclaimer's side of [`Participants`]: advancing the epoch, and waiting for pins to go.
//!
//! To free something: unlink it, so that nobody can reach it any more; call
//! [`advance`](Participants::advance); free it once [`quiescent`](Participants::quiescent) says
//! so for the returned epoch. Any thread of any participant may do each of the three.

use crate::atomics::Barrier;
use crate::backoff::Backoff;
use crate::epoch::{self, Epoch, PinKind};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::{Holding, SlotError, SlotId, Stalled};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// How long a revocable pin is waited for before it is taken away.
pub const REVOKE_AFTER: Duration = Duration::from_secs(1);

impl Participants {
    /// After unlinking: the heavy barrier (2 to 10 us), then the next epoch. Returns the epoch
    /// that must be over before what was unlinked is freed.
    ///
    /// Gather what is to be freed, and advance once for all of it.
    ///
    /// # Errors
    /// A forked child; a process that has entered a sandbox without the barrier. Nothing has
    /// changed then, and what was unlinked may not be freed: another process, or a later call,
    /// advances for it.
    pub fn advance(&self) -> Result<Epoch, SlotError> {
        if self.inner().is_forked() {
            return Err(SlotError::Forked);
        }
        let header = self.inner().control().header();
        let g = epoch::advance(&header.epoch.word, &self.inner().barrier())?;
        Ok(Epoch::from_u64(g))
    }

    /// Whether all pins that could see what was unlinked before `g` was returned by
    /// [`advance`](Self::advance) are gone: `min(pins) > g`.
    ///
    /// A load where somebody has asked before, else a look at every slot in use. The pins of the
    /// dead count until they are reaped, for their repair may still read.
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

    /// Waits until `g` is over, at most for `timeout`. Revocable pins in the way are taken away
    /// after one second.
    ///
    /// # Errors
    /// [`Stalled`] names a pin in the way: that of a stopped thread after `timeout`, that of a dead
    /// one (`Holding::DeadPin`) as soon as it is found: [`reap`](Self::reap) and try again; that of
    /// the calling thread (`Holding::OwnPin`) at once.
    pub fn wait_quiescent(&self, g: Epoch, timeout: Duration) -> Result<(), Stalled> {
        let inner = self.inner();
        if inner.is_forked() {
            return Err(Stalled::nobody(Holding::Forked));
        }
        // Waiting for oneself would never end.
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
                // Nobody's pin: `g` did not come from `advance`.
                return Err(Stalled::nobody(Holding::Pin));
            }
        }
    }

    /// Whether a reader whose pin was taken away, or is being taken away, has not left it yet: it
    /// may be in the middle of a copy of what was freed since.
    #[must_use]
    pub fn has_revoked(&self) -> bool {
        let mut slots = self.inner().control().slots();
        // SYNC: pairs with the exchange in `finish_revoking`: whoever was freed by it is seen.
        slots.any(|(_, lines)| epoch::is_revoked(lines.pin.load(Acquire)))
    }

    /// Takes away all revocable pins that are in the way of `g`, at once, and returns how many.
    /// Their readers find out on leaving, and read again. Without the barrier (see
    /// [`advance`](Self::advance)) none is taken away: the pins count until their readers leave.
    pub fn revoke(&self, g: Epoch) -> usize {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let map = inner.control();
        // Relaxed: only its being unique matters.
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
    /// A slot that is in the way of `g` and of which `is` holds.
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
