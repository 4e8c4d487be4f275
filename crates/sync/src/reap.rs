//! Reaping: what the dead left is repaired, then given back.
//!
//! **However often a reaper dies over it, every dead thread's slot is repaired before anybody
//! reuses it, and its counts are kept exactly once.** For each dead process the reaper takes its
//! liveness lock (so there is one reaper), marks its entry as being reaped, hands each of its
//! slots to the repair and clears that slot's intents; then, for those that were repaired, it folds
//! the counters, ends the pins (which protected what the repairs had to read) and frees them; the
//! entry comes last. A death in between leaves a state from which the next reaper does the rest:
//! at worst it repairs once more what was just repaired.
//!
//! A slot is an *orphan* if its owner is an earlier incarnation of the process entry than the
//! present one: where all entries were taken, a new process has taken over that of a dead one. The
//! entry's liveness lock is the new process' then, so the reaper of orphans holds a liveness lock
//! of its own ([`ORPHANS_LOCK`]). Any participant reaps orphans, whichever entry they belong to;
//! the reaper of an entry leaves them to that pass.

use crate::epoch::{PinKind, kind_of};
use crate::layout::{LEASES, MAX_PROCESSES, SlotLines};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::process::{self, SlotState, SlotStatus};
use crate::undo::UndoArea;
use crate::{AttachError, Intent, Lane, ReapError, SlotId, counter_fold, intent, slot_owner};
use std::sync::atomic::Ordering::Relaxed;

/// Index of the liveness lock that the reaper of orphans holds: behind those of the leases.
const ORPHANS_LOCK: u32 = MAX_PROCESSES + 1 + LEASES as u32;

/// What a reap came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Dead processes whose entries are free again.
    pub processes: u32,
    /// Their thread slots, free again.
    pub slots: u32,
}

/// The slot of a dead thread, as its repair sees it.
pub struct DeadSlot<'a> {
    id: SlotId,
    inner: &'a Inner,
    lines: &'a SlotLines,
}

impl DeadSlot<'_> {
    /// The slot's number: what locks and claims of the dead name as their holder.
    #[must_use]
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// The dead thread's generation of the slot; see [`Slot::generation`](crate::Slot::generation).
    #[must_use]
    pub fn generation(&self) -> u16 {
        slot_owner::read(&self.lines.owner).generation
    }

    /// The process id that the dead process had.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.pid_of(self.id)
    }

    /// Whether the thread was pinned firmly, as it is while it changes something.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        // Relaxed: its owner is dead.
        kind_of(self.lines.pin.load(Relaxed)) == PinKind::Firm
    }

    /// What the thread had announced in a lane, if anything.
    #[must_use]
    pub fn intent(&self, lane: Lane) -> Option<Intent> {
        intent::read_line(&self.lines.intents[lane as usize])
    }

    /// Clears one lane's intent: what it announced is finished or undone. For a repair of several
    /// steps of which the earlier must not be done again; when the repair returns `Ok`, all lanes
    /// are cleared anyway.
    pub fn clear_intent(&self, lane: Lane) {
        intent::clear_line(&self.lines.intents[lane as usize]);
    }

    /// The thread's undo area.
    #[must_use]
    pub fn undo(&self) -> UndoArea<'_> {
        let map = self.inner.control();
        UndoArea::new(map.undo_offset(self.id), map.undo(self.id))
    }

    /// What the thread has counted for the index `root` in counter `db`; see
    /// [`Slot::counted`](crate::Slot::counted).
    #[must_use]
    pub fn counted(&self, db: usize, root: u64) -> i64 {
        self.lines.counted(db, root)
    }

    /// Sets the thread's part of counter `db`: to the value that its intent names, so that it is
    /// right however often it is done.
    pub fn set_count(&self, db: usize, root: u64, value: i64) {
        if let Some(counter) = self.lines.counters.get(db) {
            counter_fold::set(&counter.words(), root, value.cast_unsigned());
        }
    }
}

impl std::fmt::Debug for DeadSlot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadSlot")
            .field("id", &self.id)
            .field("pid", &self.pid())
            .finish()
    }
}

impl Participants {
    /// Finds processes that died attached, has each of their thread slots repaired, and frees
    /// slots and entries.
    ///
    /// `repair` finishes or undoes what the intents announce, frees the locks that the slot
    /// holds, and must be idempotent: it is run again for a slot whose reaper died. It runs in
    /// the calling thread, which may use its own slot meanwhile. A dead process that another
    /// participant is reaping is skipped. Without the dead, it costs a system call for each
    /// attached process. Call it after opening, and from time to time.
    ///
    /// # Errors
    /// The first error of a repair. That slot is left for the next reap; all others are repaired
    /// and freed, so that a death whose repair must wait holds up no other.
    pub fn reap<E>(
        &self,
        mut repair: impl FnMut(&DeadSlot<'_>) -> Result<(), E>,
    ) -> Result<Reaped, ReapError<E>> {
        let inner = self.inner();
        let (mut reaped, mut first) = (Reaped::default(), None);
        if inner.is_forked() {
            return Ok(reaped);
        }
        inner.release_left_over(false);
        let me = inner.me();
        for (index, entry) in (1_u16..).zip(inner.control().processes()) {
            if index == me.process
                || process::read(&entry.state).state == SlotState::Free
                || inner.liveness().is_alive(u32::from(index))
            {
                continue;
            }
            let Some(taken) = inner.liveness().try_take(u32::from(index))? else {
                continue;
            };
            let status = process::read(&entry.state);
            if status.state != SlotState::Free {
                self.prepare_to_reap();
                mneme_sys::fault!("sync.reap.taken");
                process::write(
                    &entry.state,
                    SlotStatus {
                        state: SlotState::Reaping,
                        ..status
                    },
                );
                mneme_sys::fault!("sync.reap.marked");
                let left = |lines: &SlotLines| {
                    let owner = slot_owner::read(&lines.owner);
                    (owner.process, owner.incarnation) == (index, status.incarnation)
                };
                let (slots, failed) = inner.reap_slots(left, &mut repair);
                reaped.slots += slots;
                if let Some(error) = failed {
                    first.get_or_insert(error);
                    continue;
                }
                inner.end_watches(index);
                process::write(
                    &entry.state,
                    SlotStatus {
                        state: SlotState::Free,
                        ..status
                    },
                );
                mneme_sys::fault!("sync.reap.freed");
                reaped.processes += 1;
            }
            drop(taken);
        }
        if inner.has_orphans() {
            // `None`: another participant reaps them, or this is a repair within a reap of them.
            let taken = inner.liveness().try_take(ORPHANS_LOCK)?;
            if taken.is_some() {
                self.prepare_to_reap();
                mneme_sys::fault!("sync.reap.orphans");
                let is_orphan = |lines: &SlotLines| inner.is_orphan(lines);
                let (slots, failed) = inner.reap_slots(is_orphan, &mut repair);
                reaped.slots += slots;
                first = first.or(failed);
            }
        }
        first.map_or(Ok(reaped), Err)
    }
}

impl Inner {
    /// See [`slot_owner::is_orphan`].
    fn is_orphan(&self, lines: &SlotLines) -> bool {
        slot_owner::is_orphan(&lines.owner, |process| {
            let entry = self.control().process(process)?;
            Some(process::read(&entry.state).incarnation)
        })
    }

    fn has_orphans(&self) -> bool {
        self.control()
            .slots()
            .any(|(_, lines)| self.is_orphan(lines))
    }

    /// Repairs and frees the slots whose owners are dead, as the caller knows. Returns how many,
    /// and the first error. A slot whose repair fails stays as it is.
    fn reap_slots<E>(
        &self,
        is_dead: impl Fn(&SlotLines) -> bool,
        repair: &mut impl FnMut(&DeadSlot<'_>) -> Result<(), E>,
    ) -> (u32, Option<ReapError<E>>) {
        // All slots, not only those below the mark: reaping is rare, and forgets none.
        let dead: Vec<(SlotId, &SlotLines)> = (1_u16..)
            .zip(self.control().all_slots())
            .filter(|(_, lines)| is_dead(lines))
            .map(|(id, lines)| (SlotId(id), lines))
            .collect();
        let (mut repaired, mut first) = (Vec::new(), None);
        for (id, lines) in dead {
            let slot = DeadSlot {
                id,
                inner: self,
                lines,
            };
            if let Err(source) = repair(&slot) {
                first.get_or_insert(ReapError::Repair { slot: id, source });
                continue;
            }
            mneme_sys::fault!("sync.reap.repaired");
            for line in &lines.intents {
                intent::clear_line(line);
            }
            mneme_sys::fault!("sync.reap.cleared");
            repaired.push(id);
        }
        if let Err(error) = self.fold_slots(repaired.iter().copied()) {
            let error = match error {
                AttachError::Liveness(source) => ReapError::Liveness(source),
                _ => ReapError::Locked(crate::opening::REGION_LOCK_TIMEOUT),
            };
            return (0, first.or(Some(error)));
        }
        for id in &repaired {
            self.clear_slot(*id);
        }
        // Never more than 65,535.
        (u32::try_from(repaired.len()).unwrap_or(u32::MAX), first)
    }

    /// Entries that are not free, with their pids.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (u16, u32)> {
        (1_u16..)
            .zip(self.control().processes())
            .filter(|(_, entry)| process::read(&entry.state).state != SlotState::Free)
            .map(|(i, entry)| (i, u32::try_from(entry.pid.load(Relaxed)).unwrap_or(0)))
    }
}
