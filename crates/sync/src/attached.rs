//! The processes attached to a control region, and what each of their threads holds. An operator
//! uses this to find the thread that blocks the others.

use crate::epoch::{self, Epoch, PinKind};
use crate::layout::SlotLines;
use crate::participants::Participants;
use crate::process::{self, SlotState};
use crate::{Intent, LEASES, Lane, SlotId, intent, slot_owner};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// An attached process. A process that has opened the region several times has one entry for each
/// opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The process id in the process's own namespace; in another namespace it may differ.
    pub pid: u32,
    /// When it attached, in wall-clock milliseconds since 1970.
    pub attached_ms: u64,
    /// Whether it is alive.
    pub life: Life,
    /// Whether this entry is the opening on which the list was requested.
    pub is_asker: bool,
    /// The [leases](crate::Lease) that it holds, by number.
    pub leases: [bool; LEASES],
    /// Its threads that have a slot.
    pub threads: Vec<AttachedThread>,
}

/// Whether an attached process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Alive according to the kernel. It may be stopped.
    Alive,
    /// It is dead, and its remains have not been repaired yet.
    Dead,
    /// A reaper is repairing its remains, or died while doing so.
    Reaping,
}

/// A thread that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedThread {
    /// The slot, which locks and claims name as their holder.
    pub slot: SlotId,
    /// The thread's pin, if it has one.
    pub pin: Option<ThreadPin>,
    /// The intents that it has announced, by [`Lane`].
    pub intents: [Option<Intent>; Lane::ALL.len()],
}

/// A thread's pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPin {
    /// The epoch in which it began; `None` while it is being revoked.
    pub epoch: Option<Epoch>,
    /// Whether it cannot be revoked.
    pub firm: bool,
}

impl Participants {
    /// A number that changes with each opening of the region, in any process. If it is unchanged
    /// later, no opening has been added since, though some may have ended. Costs a load for each
    /// process entry; 0 in a forked child.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        let inner = self.inner();
        if inner.is_forked() {
            return 0;
        }
        let entries = inner.control().processes().iter();
        let incarnations = entries.map(|entry| u64::from(process::read(&entry.state).incarnation));
        incarnations.sum()
    }

    /// All attached processes, in the order of their entries, each as it was at some moment of the
    /// call. Costs some system calls for each process, and a load for each slot in use. Empty in a
    /// forked child.
    #[must_use]
    pub fn attached(&self) -> Vec<Attached> {
        let inner = self.inner();
        if inner.is_forked() {
            return Vec::new();
        }
        let me = inner.me();
        let holders: [_; LEASES] = std::array::from_fn(|number| inner.lease_process(number));
        let mut attached = Vec::new();
        for (index, entry) in (1_u16..).zip(inner.control().processes()) {
            let status = process::read(&entry.state);
            let life = match status.state {
                SlotState::Free => continue,
                SlotState::Reaping => Life::Reaping,
                SlotState::Live if inner.liveness().is_alive(u32::from(index)) => Life::Alive,
                SlotState::Live => Life::Dead,
            };
            let owned = inner.control().slots().filter_map(|(slot, lines)| {
                let owner = slot_owner::read(&lines.owner);
                (!owner.is_free() && owner.process == index).then(|| thread(slot, lines))
            });
            attached.push(Attached {
                pid: inner.entry_pid(index),
                attached_ms: entry.attached_ms.load(Relaxed),
                life,
                is_asker: (index, status.incarnation) == (me.process, me.incarnation),
                leases: holders.map(|holder| holder == Some(index)),
                threads: owned.collect(),
            });
        }
        attached
    }
}

fn thread(slot: SlotId, lines: &SlotLines) -> AttachedThread {
    let word = lines.pin.load(Acquire);
    let pin = match epoch::kind_of(word) {
        PinKind::None | PinKind::Revoked => None,
        PinKind::Revoking => Some(ThreadPin {
            epoch: None,
            firm: false,
        }),
        kind @ (PinKind::Firm | PinKind::Revocable) => Some(ThreadPin {
            epoch: epoch::pinned_epoch(word).map(Epoch::from_u64),
            firm: kind == PinKind::Firm,
        }),
    };
    AttachedThread {
        slot,
        pin,
        intents: lines.intents.each_ref().map(intent::read_line),
    }
}
