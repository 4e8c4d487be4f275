//! Statistics of a control region, and a check of its invariants.

use crate::control_region::ControlRegion;
use crate::epoch::{self, Epoch};
use crate::layout::{COUNTERS, SlotLines};
use crate::participants::Participants;
use crate::process::{self, SlotState};
use crate::slot_owner::{self, SlotOwner};
use crate::{Lane, SlotId, intent, lock_word};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The pin that delays reclamation most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestPin {
    /// The epoch in which it began.
    pub epoch: Epoch,
    /// Its thread's slot.
    pub slot: SlotId,
    /// Its process.
    pub pid: u32,
    /// Whether it cannot be revoked.
    pub firm: bool,
}

/// Statistics of a control region, read without locks; each is true at some moment of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The current epoch.
    pub epoch: u64,
    /// Epochs below this number are known to be over.
    pub quiesced: u64,
    /// The oldest pin, if there is one.
    pub oldest_pin: Option<OldestPin>,
    /// The number of slots with an owner, alive or not yet reaped.
    pub slots: u32,
    /// The number of slots.
    pub max_threads: u32,
    /// The number of processes attached, alive or not yet reaped.
    pub processes: u32,
    /// The number of process entries.
    pub max_processes: u32,
    /// The number of attempts to revoke pins so far.
    pub revocations: u64,
    /// How often the region has been built or rebuilt; see [`Participants::incarnation`].
    pub incarnation: u64,
    /// Whether pins use the free side of an asymmetric barrier.
    pub asymmetric: bool,
}

impl Participants {
    /// The region's statistics; reads every entry and every slot in use. All zero in a forked
    /// child.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.inner();
        if inner.is_forked() {
            return Stats::default();
        }
        let header = inner.control().header();
        let oldest_pin = inner.oldest().map(|(epoch, slot, firm)| OldestPin {
            epoch: Epoch::from_u64(epoch),
            slot,
            pid: inner.pid_of(slot),
            firm,
        });
        let used = inner
            .control()
            .slots()
            .filter(|(_, s)| !slot_owner::read(&s.owner).is_free());
        let geometry = inner.control().geometry();
        Stats {
            epoch: header.epoch.word.load(Acquire),
            quiesced: header.quiesced.word.load(Acquire),
            oldest_pin,
            slots: u32::try_from(used.count()).unwrap_or(u32::MAX),
            max_threads: u32::from(geometry.max_threads),
            processes: u32::try_from(inner.attached().count()).unwrap_or(u32::MAX),
            max_processes: geometry.max_processes,
            revocations: header.revocations.word.load(Relaxed),
            incarnation: self.incarnation(),
            asymmetric: self.is_asymmetric(),
        }
    }

    /// Checks all invariants of the control region and reports violations; empty if there are none.
    /// May run while others work.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let inner = self.inner();
        let mut problems = Vec::new();
        if inner.is_forked() {
            return problems;
        }
        let control = inner.control();
        let header = control.header();
        let highest = header.highest_slot.word.load(Acquire);
        let quiesced = header.quiesced.word.load(Acquire);
        for (id, lines) in (1_u16..).zip(control.all_slots()) {
            let owner = slot_owner::read(&lines.owner);
            let mut found = match owner.is_free() {
                true => check_free_slot(id, lines),
                false => check_owned_slot(control, id, lines, owner, highest),
            };
            // A slot that got another owner meanwhile is not judged.
            if slot_owner::read(&lines.owner) == owner {
                problems.append(&mut found);
            }
        }
        let now = header.epoch.word.load(Acquire);
        if quiesced > now {
            problems.push(format!(
                "epoch {quiesced} is said to be over, the epoch is {now}"
            ));
        }
        for (i, gate) in header.gates.iter().enumerate() {
            if let Some(owner) = lock_word::look(gate.lock.word()).owner()
                && control.slot(owner.slot).is_none()
            {
                problems.push(format!(
                    "gate {i} is held by slot {}, which is none",
                    owner.slot
                ));
            }
        }
        let journal = crate::counter_fold::look(&header.journal.words());
        if journal.is_open()
            && (usize::from(journal.counter()) >= COUNTERS
                || control.slot(SlotId(journal.slot())).is_none())
        {
            problems.push("the journal of counts names a counter or slot that is none".to_owned());
        }
        problems
    }
}

/// The violations in slot `id`, which has no owner.
fn check_free_slot(id: u16, lines: &SlotLines) -> Vec<String> {
    let mut found = Vec::new();
    if lines.pin.load(Acquire) != epoch::UNPINNED {
        found.push(format!("slot {id} is free but pinned"));
    }
    if lines.inside.load(Acquire) != 0 {
        found.push(format!("slot {id} is free but inside a gate"));
    }
    for lane in Lane::ALL {
        if intent::read_line(&lines.intents[lane as usize]).is_some() {
            found.push(format!(
                "slot {id} is free but has an intent in lane {lane:?}"
            ));
        }
    }
    let counts = lines.counters.iter().map(|counter| &counter.root);
    if counts.map(|root| root.load(Acquire)).any(|root| root != 0) {
        found.push(format!("slot {id} is free but has counts"));
    }
    found
}

/// The violations in slot `id` of `owner`; `highest` is the mark below which slots have been used.
fn check_owned_slot(
    control: &ControlRegion,
    id: u16,
    lines: &SlotLines,
    owner: SlotOwner,
    highest: u64,
) -> Vec<String> {
    let mut found = Vec::new();
    if u64::from(id) > highest {
        found.push(format!("slot {id} has an owner above the mark {highest}"));
    }
    let entry = control.process(owner.process);
    match entry.map(|entry| process::read(&entry.state)) {
        None => found.push(format!(
            "slot {id} belongs to process entry {}, which does not exist",
            owner.process
        )),
        // An orphan, whose owner is an earlier incarnation, waits for its reaper.
        Some(status)
            if status.state == SlotState::Free && status.incarnation == owner.incarnation =>
        {
            found.push(format!(
                "slot {id} belongs to process entry {}, which is free",
                owner.process
            ));
        }
        Some(_) => {}
    }
    let pinned = epoch::pinned_epoch(lines.pin.load(Acquire));
    let now = control.header().epoch.word.load(Acquire);
    if pinned.is_some_and(|pinned| pinned > now) {
        found.push(format!("slot {id} is pinned in the future of epoch {now}"));
    }
    found
}
