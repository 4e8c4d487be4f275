//! Converting the samples of reads into marks of the records, see [`crate::records::access`].

use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::{Slot, UndoArea};

use super::Reclaim;
use super::evict::Evict;
use crate::error::ReadError;
use crate::index::bucket::Bucket;
use crate::records::access::{of_place_word, take};
use crate::region::mem::Loc;
use crate::region::record::Header;

impl Reclaim {
    /// Marks the records at all places that were noted, if the eviction policy needs that.
    pub(crate) fn fold_accesses(&self, slot: &Slot<'_>) -> Result<(), ReadError> {
        if self.session().tables.header().samples.load(Relaxed) != 0 {
            for area in self.session().participants.undo_areas() {
                self.fold(slot, area)?;
            }
        }
        Ok(())
    }

    /// Marks the records at the places that the calling thread has noted. A thread that writes much
    /// thus folds often enough even without a maintainer.
    pub(crate) fn fold_own_accesses(&self, slot: &Slot<'_>) -> Result<(), ReadError> {
        if self.session().tables.header().samples.load(Relaxed) != 0 {
            self.fold(slot, slot.undo())?;
        }
        Ok(())
    }

    fn fold(&self, slot: &Slot<'_>, area: UndoArea<'_>) -> Result<(), ReadError> {
        let mut places = Vec::new();
        take(area, &mut places);
        let policy = self.eviction();
        for some in places.chunks(32) {
            let _pin = slot.pin();
            self.mark_all(some, policy)?;
        }
        Ok(())
    }

    /// The caller is pinned.
    fn mark_all(&self, words: &[u64], policy: Evict) -> Result<(), ReadError> {
        let mut found: Vec<(&Bucket, u32)> = Vec::with_capacity(words.len());
        for &word in words {
            let (space, place) = of_place_word(word);
            if u64::from(place.partition) < self.index().partitions()
                && let Some(root) = self.index().root(space)?
                && let Some((_, home)) = self.index().prefetch_bucket(root, place)?
            {
                found.push((home, place.tag));
            }
        }
        for &(home, tag) in &found {
            if let Some(loc) = home.probable(tag) {
                self.session().mem.prefetch(loc);
            }
        }
        for (home, tag) in found {
            for (_, entry) in home.entries_of(tag) {
                self.mark(entry.loc(), policy)?;
            }
        }
        Ok(())
    }

    /// Marks the record at `loc`, which was found published under the caller's pin.
    fn mark(&self, loc: Loc, policy: Evict) -> Result<(), ReadError> {
        let word = self.session().mem.word(loc)?;
        let header = Header(word.load(Relaxed));
        let marks = policy.marked(header.marks(), loc.bits() ^ self.session().clock.now_ns());
        if header.is_record() && marks != header.marks() {
            // Relaxed: a hint. It fails if a value's length changes at the same time.
            let marked = header.with_marks(marks).0;
            let _ = word.compare_exchange(header.0, marked, Relaxed, Relaxed);
        }
        Ok(())
    }
}
