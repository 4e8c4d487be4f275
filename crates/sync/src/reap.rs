//! Reaping: what dead threads left is repaired, and then their slots are freed.
//!
//! **Every dead thread's slot is repaired before it is reused, and its counts are kept exactly
//! once, however often reapers die.** For each dead process the reaper takes the liveness lock (so
//! there is one reaper), marks the entry as being reaped, hands each slot to the repair, and clears
//! that slot's intents. Then, for the repaired slots, it folds the counters, ends the pins (which
//! protected what the repairs had to read), and frees the slots. The entry is freed last. A death
//! in between leaves a state from which the next reaper continues: at worst it repeats a repair.
//!
//! A slot is an *orphan* if its owner is an earlier incarnation of the process entry than the
//! current one: when all entries were taken, a new process has taken over a dead process's entry.
//! The new process then holds the entry's liveness lock, so the reaper of orphans holds a liveness
//! lock of its own ([`ORPHANS_LOCK`]). Any participant reaps orphans, whichever entry they belong
//! to; the reaper of an entry leaves them to that pass.

use crate::epoch::{PinKind, kind_of};
use crate::layout::{LEASES, MAX_PROCESSES, SlotLines};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::process::{self, SlotState, SlotStatus};
use crate::undo::UndoArea;
use crate::{AttachError, Intent, Lane, ReapError, SlotId, counter_fold, intent, slot_owner};
use std::sync::atomic::Ordering::Relaxed;

/// The index of the liveness lock that the reaper of orphans holds. It follows those of the leases.
const ORPHANS_LOCK: u32 = MAX_PROCESSES + 1 + LEASES as u32;

/// The result of a reap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Dead processes whose entries were freed.
    pub processes: u32,
    /// Thread slots of those processes that were freed.
    pub slots: u32,
}

/// The slot of a dead thread, for its repair.
pub struct DeadSlot<'a> {
    id: SlotId,
    inner: &'a Inner,
    lines: &'a SlotLines,
}

impl DeadSlot<'_> {
    /// The slot's number, which locks and claims of the dead thread name as their holder.
    #[must_use]
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// The dead thread's generation of the slot; see [`Slot::generation`](crate::Slot::generation).
    #[must_use]
    pub fn generation(&self) -> u16 {
        slot_owner::read(&self.lines.owner).generation
    }

    /// The id of the dead process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.pid_of(self.id)
    }

    /// Whether the thread was pinned firmly, as threads are while they change something.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        // Relaxed: its owner is dead.
        kind_of(self.lines.pin.load(Relaxed)) == PinKind::Firm
    }

    /// The intent that the thread had announced in a lane, if any.
    #[must_use]
    pub fn intent(&self, lane: Lane) -> Option<Intent> {
        intent::read_line(&self.lines.intents[lane as usize])
    }

    /// Clears one lane's intent: the operation is finished or undone. For repairs in several steps,
    /// of which the earlier ones must not be repeated; when the repair returns `Ok`, all lanes are
    /// cleared in any case.
    pub fn clear_intent(&self, lane: Lane) {
        intent::clear_line(&self.lines.intents[lane as usize]);
    }

    /// The thread's undo area.
    #[must_use]
    pub fn undo(&self) -> UndoArea<'_> {
        UndoArea::new(self.inner.control().undo(self.id))
    }

    /// The thread's count for the index `root` in counter `db`; see
    /// [`Slot::counted`](crate::Slot::counted).
    #[must_use]
    pub fn counted(&self, db: usize, root: u64) -> i64 {
        self.lines.counted(db, root)
    }

    /// Sets the thread's part of counter `db` to the value in its intent, so that repeating this
    /// has no effect.
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
    /// Finds processes that died while attached, lets `repair` repair each of their thread slots,
    /// and frees slots and entries.
    ///
    /// `repair` must finish or undo what the intents announce and release the locks that the slot
    /// holds. It must be idempotent: it runs again for a slot whose reaper died. It runs in the
    /// calling thread, which may use its own slot meanwhile. A dead process that another
    /// participant is reaping is skipped. If no process is dead, this costs a system call for each
    /// attached process. Call it after opening, and from time to time.
    ///
    /// # Errors
    /// The first error of a repair. That slot is left for the next reap; all others are repaired
    /// and freed, so a repair that must wait does not delay others.
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
            // `None`: another participant reaps them, or this is a repair during such a reap.
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
    /// Whether the slot is an orphan; see [`slot_owner::is_orphan`].
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

    /// Repairs and frees the slots whose owners the caller knows to be dead. Returns their number
    /// and the first error. A slot whose repair fails is left unchanged.
    fn reap_slots<E>(
        &self,
        is_dead: impl Fn(&SlotLines) -> bool,
        repair: &mut impl FnMut(&DeadSlot<'_>) -> Result<(), E>,
    ) -> (u32, Option<ReapError<E>>) {
        // All slots, not only those below the mark: reaping is rare, and must not miss any.
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
