//! Counting: sums over all threads' counts, and moving a thread's counts to the base when its slot
//! is released. `counter_fold` has the protocol and its argument.

use crate::layout::{COUNTERS, SlotLines};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::{AttachError, SlotId, counter_fold};
use std::sync::atomic::Ordering::Relaxed;

/// The number of attempts before a sum is returned as it is. If counts move during every one of
/// them, the sum may be wrong by the counts being moved.
const TRIES: usize = 1_000;

impl Participants {
    /// The value of counter `db` (below 128) for the index `root`: the sum over all threads,
    /// including those that have ended. 0 if no thread has counted for that index.
    ///
    /// Costs a load for each slot in use, and no lock. Counts added meanwhile may or may not be
    /// included.
    #[must_use]
    pub fn counters(&self, db: usize, root: u64) -> i64 {
        if db >= COUNTERS || root == 0 || self.inner().is_forked() {
            return 0;
        }
        self.inner().sum(db as u8, root).cast_signed()
    }
}

impl Inner {
    fn sum(&self, counter: u8, root: u64) -> u64 {
        let header = self.control().header();
        let (journal, index) = (header.journal.words(), usize::from(counter));
        let base = header.base[index].words();
        let once = || {
            let slots = self
                .control()
                .slots()
                .map(|(id, lines)| (id.0, lines.counters[index].words()));
            counter_fold::sum(&journal, &base, slots, counter, root)
        };
        for _ in 0..TRIES {
            if let Ok(sum) = once() {
                return sum;
            }
        }
        once().unwrap_or_else(|disturbed| disturbed)
    }

    /// Moves the counts of these slots to the base. Their threads must no longer count.
    pub(crate) fn fold_slots(
        &self,
        slots: impl IntoIterator<Item = SlotId>,
    ) -> Result<(), AttachError> {
        let mut due = slots
            .into_iter()
            .filter_map(|id| Some((id, self.control().slot(id)?)))
            // Relaxed: nobody else writes them any more.
            .filter(|(_, lines)| lines.counters.iter().any(|c| c.root.load(Relaxed) != 0))
            .peekable();
        if due.peek().is_none()
            && !counter_fold::look(&self.control().header().journal.words()).is_open()
        {
            return Ok(());
        }
        let region = self.lock_region()?;
        self.finish_fold();
        for (id, lines) in due {
            self.fold_slot(id, lines);
        }
        drop(region);
        Ok(())
    }

    /// Moves the counts of one slot. The caller must hold the region's lock, and no journal may be
    /// open.
    pub(crate) fn fold_slot(&self, id: SlotId, lines: &SlotLines) {
        let header = self.control().header();
        for (i, (mine, base)) in (0_u8..).zip(lines.counters.iter().zip(&header.base)) {
            counter_fold::fold(
                &header.journal.words(),
                &base.words(),
                &mine.words(),
                id.0,
                i,
            );
        }
    }

    /// Completes the move of counts that a dead process left unfinished. The caller must hold the
    /// region's lock.
    pub(crate) fn finish_fold(&self) {
        let header = self.control().header();
        let journal = header.journal.words();
        let open = counter_fold::look(&journal);
        if !open.is_open() {
            return;
        }
        let words =
            |slot, i: usize| Some((self.control().slot(slot)?.counters.get(i)?, &header.base[i]));
        if let Some((mine, base)) = words(SlotId(open.slot()), usize::from(open.counter())) {
            counter_fold::apply(&journal, &base.words(), &mine.words());
        }
    }
}
