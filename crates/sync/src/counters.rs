//! Counting: what all threads together have counted, and the moving of a thread's counts to the
//! base when its slot is given back. The protocol and its argument are in `fold`.

use crate::layout::{COUNTERS, SlotLines};
use crate::opening::Inner;
use crate::participants::Participants;
use crate::{AttachError, SlotId, counter_fold};
use std::sync::atomic::Ordering::Relaxed;

/// Looks at a sum before taking it as it comes: only a reader that is overtaken by that many
/// moving counters, one after the other, is off by what they carried.
const TRIES: usize = 1_000;

impl Participants {
    /// What counter `db` (below 128) says for the index `root`: the sum over all threads, the
    /// living and the gone. 0 for an index nobody has counted for.
    ///
    /// A look at every slot in use; no locks. Threads that count meanwhile are in it or not.
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

    /// Moves the counts of these slots to the base. Their threads count no more.
    pub(crate) fn fold_slots(
        &self,
        slots: impl IntoIterator<Item = SlotId>,
    ) -> Result<(), AttachError> {
        let mut due = slots
            .into_iter()
            .filter_map(|id| Some((id, self.control().slot(id)?)))
            // Relaxed: no one else writes them any more.
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

    /// With the region's lock, and no journal open: moves one slot's counts.
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

    /// With the region's lock: finishes what a dead mover has left open.
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
