//! Leases: **at any time at most one opening in any process holds a lease, and it is released at
//! once when that process dies.**
//!
//! A lease is a liveness lock whose index follows those of all process entries, equal in regions of
//! every geometry. A word of the control region names the entry, and the incarnation of it, that
//! has taken the lease. The word only supplements the lock: it counts only while the lock is held
//! and that incarnation is alive, so nobody has to clear it after a death.

use crate::layout::MAX_PROCESSES;
use crate::opening::Inner;
use crate::participants::Participants;
use crate::process::OpeningName;
use crate::{LEASES, LeaseError};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Index of the first lease's liveness lock.
const FIRST: u32 = MAX_PROCESSES + 1;

/// A lease that this opening holds. Dropping it releases it at once.
///
/// `Send` and `Sync`: it belongs to the opening, not to a thread. It keeps the opening alive. A
/// forked child does not inherit the lease; dropping the child's copy does nothing.
#[must_use = "dropping it gives the lease back at once"]
pub struct Lease {
    participants: Participants,
    number: usize,
}

impl Participants {
    /// Takes lease `number`, below [`LEASES`], if no living process holds it: neither another
    /// process nor another opening of this process nor this one. Costs a system call; never waits.
    ///
    /// # Errors
    /// There is no such lease; a forked child; the kernel refuses the lock.
    pub fn try_lease(&self, number: usize) -> Result<Option<Lease>, LeaseError> {
        let inner = self.inner();
        let word = inner.lease(number)?;
        if inner.is_forked() {
            return Err(LeaseError::Forked);
        }
        let Some(taken) = inner.liveness().try_take(index(number))? else {
            return Ok(None);
        };
        mneme_sys::fault!("sync.lease.locked");
        // SYNC: pairs with the Acquire load in `lease_process`.
        word.store(inner.me().name().word(), Release);
        mneme_sys::fault!("sync.lease.taken");
        taken.keep();
        Ok(Some(Lease {
            participants: self.clone(),
            number,
        }))
    }

    /// The process that holds lease `number`, or `None` if nobody does; 0 while the holder is not
    /// known, because it is just taking or releasing the lease. Costs a system call or two.
    ///
    /// # Errors
    /// As [`try_lease`](Self::try_lease).
    pub fn lease_holder(&self, number: usize) -> Result<Option<u32>, LeaseError> {
        let inner = self.inner();
        inner.lease(number)?;
        if inner.is_forked() {
            return Err(LeaseError::Forked);
        }
        if !inner.liveness().is_alive(index(number)) {
            return Ok(None);
        }
        let holder = inner.lease_process(number);
        Ok(Some(holder.map_or(0, |process| inner.entry_pid(process))))
    }
}

fn index(number: usize) -> u32 {
    // Below `FIRST + LEASES`, as `Inner::lease` sees to.
    FIRST + number as u32
}

impl Inner {
    fn lease(&self, number: usize) -> Result<&AtomicU64, LeaseError> {
        let words = &self.control().header().leases;
        words.get(number).ok_or(LeaseError::NoSuchLease(number))
    }

    /// The entry of the living process that holds the lease, if the lease is held and the holder is
    /// recorded.
    pub(crate) fn lease_process(&self, number: usize) -> Option<u16> {
        // SYNC: pairs with the Release store in `try_lease`.
        let holder = OpeningName::of_word(self.lease(number).ok()?.load(Acquire));
        let is_held = self.liveness().is_alive(index(number));
        (is_held && self.is_open(holder)).then_some(holder.process)
    }

    /// The process of that entry.
    pub(crate) fn entry_pid(&self, process: u16) -> u32 {
        let entry = self.control().process(process);
        entry.map_or(0, |entry| {
            u32::try_from(entry.pid.load(Relaxed)).unwrap_or(0)
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let inner = self.participants.inner();
        if inner.is_forked() {
            return;
        }
        if let Ok(word) = inner.lease(self.number) {
            // Fails if this process was declared dead, by a script, and another now has the lease.
            // SYNC: pairs with the Acquire load in `lease_process`.
            let _ = word.compare_exchange(inner.me().name().word(), 0, AcqRel, Relaxed);
        }
        mneme_sys::fault!("sync.lease.cleared");
        inner.liveness().release(index(self.number));
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(LEASES <= 1 << 16, "an index is far from overflow");
