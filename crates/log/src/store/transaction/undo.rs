//! The notes that a transaction writes before it locks its first bucket, and the repair from these
//! notes if its thread dies.
//!
//! An intent on the transactions' lane has the transaction's phase and the location of its *notes*:
//! in the thread's undo area, or, if they are long, in an extent that the thread has claimed and
//! not adopted, so that the arena takes it back by itself. The notes are words:
//!
//! | words | what |
//! |---|---|
//! | one a home bucket | its location |
//! | five a write | page word, home's location, old entry, new entry, location of the old entry |
//! | four a database | its number, the root's id, the thread's two counters for it afterwards |
//!
//! The [`Phase`]: while it is *locking*, and again once it is undone, nothing is published. While
//! it is *inserting*, entries of new keys may be present. Each can be taken out, because no other
//! thread changes the entries of a held bucket. Once it is *committed*, it takes place:
//! replacements and removals follow after that, and can be repeated. Before the commit no live
//! record is unlinked.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use mneme_arena::{Class, Extent, FRAME_BYTES};
use mneme_sync::{DeadSlot, Slot, UndoArea};

use crate::error::{Corrupt, WriteError};
use crate::index::bucket::{Bucket, Entry};
use crate::index::counts::{self, RecordCounts};
use crate::index::intent::IndexIntent;
pub(super) use crate::index::intent::{NoteCounts as Counts, Phase, TRANSACTION_LANE as LANE};
use crate::index::lookup::Lookup;
use crate::index::shape::SegmentRef;
use crate::log::segment::frame_byte;
use crate::region::layout::notes_area;
use crate::region::mem::Loc;
use crate::region::space::DATABASES;
use crate::region::space::KeyspaceId;
use crate::store::components::Store;

use super::Transaction;

/// The arena tag of notes that do not fit the undo area.
const TAG_NOTES: u16 = 3;

const WRITE_WORDS: usize = 5;
const COUNT_WORDS: usize = 4;

impl Counts {
    pub fn words(self) -> usize {
        self.homes + self.writes * WRITE_WORDS + self.databases * COUNT_WORDS
    }

    pub fn bytes(self) -> u64 {
        self.words() as u64 * 8
    }
}

/// A write, in the form of the notes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    pub segment: SegmentRef,
    pub home: Loc,
    /// `Entry(0)`: an insertion.
    pub old: Entry,
    /// `Entry(0)`: a removal.
    pub new: Entry,
    /// The place of `old`.
    pub at: Loc,
}

impl Noted {
    /// Whether the key is new.
    pub fn is_insertion(self) -> bool {
        self.old.is_empty() && !self.new.is_empty()
    }
}

/// A transaction's notes, wherever they lie.
#[derive(Clone, Copy)]
pub(super) struct Notes<'m> {
    words: &'m [AtomicU64],
    counts: Counts,
}

impl<'m> Notes<'m> {
    fn new(words: &'m [AtomicU64], counts: Counts) -> Option<Notes<'m>> {
        let words = words.get(..counts.words())?;
        Some(Notes { words, counts })
    }

    // Relaxed throughout: the intent's Release stores publish the notes, and its Acquire loads come
    // before reading them.

    pub fn set_home(&self, i: usize, home: Loc) {
        self.words[i].store(home.bits(), Relaxed);
    }

    fn homes(&self) -> impl Iterator<Item = Loc> {
        let homes = &self.words[..self.counts.homes];
        homes.iter().map(|w| Loc::of_word(w.load(Relaxed)))
    }

    fn write_at(&self, i: usize) -> &'m [AtomicU64] {
        let first = self.counts.homes + i * WRITE_WORDS;
        &self.words[first..first + WRITE_WORDS]
    }

    pub fn set_write(&self, i: usize, noted: Noted) {
        let words = [
            noted.segment.word(),
            noted.home.bits(),
            noted.old.0,
            noted.new.0,
            noted.at.bits(),
        ];
        for (word, value) in self.write_at(i).iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    fn writes(&self) -> impl Iterator<Item = Result<Noted, Corrupt>> {
        (0..self.counts.writes).map(|i| {
            let word = |k: usize| self.write_at(i)[k].load(Relaxed);
            let home = Loc::of_word(word(1));
            Ok(Noted {
                segment: SegmentRef::of_word(word(0), home)?,
                home,
                old: Entry(word(2)),
                new: Entry(word(3)),
                at: Loc::of_word(word(4)),
            })
        })
    }

    fn count_at(&self, i: usize) -> &'m [AtomicU64] {
        let first = self.counts.homes + self.counts.writes * WRITE_WORDS + i * COUNT_WORDS;
        &self.words[first..first + COUNT_WORDS]
    }

    pub fn set_count(&self, i: usize, space: KeyspaceId, root: u64, counted: RecordCounts) {
        let words = [
            u64::from(space.number()),
            root,
            counted.records as u64,
            counted.expiring as u64,
        ];
        for (word, value) in self.count_at(i).iter().zip(words) {
            word.store(value, Relaxed);
        }
    }

    fn counters(&self) -> impl Iterator<Item = (KeyspaceId, u64, RecordCounts)> {
        (0..self.counts.databases).map(|i| {
            let word = |k: usize| self.count_at(i)[k].load(Relaxed);
            let space = KeyspaceId::new((word(0) % DATABASES as u64) as u8);
            let counted = RecordCounts {
                records: word(2) as i64,
                expiring: word(3) as i64,
            };
            (space, word(1), counted)
        })
    }
}

/// Space for notes, freed when its owner drops it.
pub(super) struct NoteMemory<'c> {
    area: UndoArea<'c>,
    extent: Option<Extent>,
}

impl NoteMemory<'_> {
    /// Words that it holds.
    pub fn words(&self) -> usize {
        let frames = self.extent.map(|extent| u64::from(extent.frames));
        match frames {
            Some(frames) => (frames * FRAME_BYTES / 8) as usize,
            None => self.area.words().len(),
        }
    }
}

impl Transaction<'_> {
    /// The maximum number of bytes of the arena that the notes on its reads and writes so far take.
    pub(super) fn notes_bytes(&self) -> u64 {
        let writes = self.writes.len();
        let counts = Counts {
            homes: self.reads.len() + writes,
            writes,
            databases: 1,
        };
        match counts.bytes() {
            few if few <= notes_area(self.slot.undo()).len() as u64 => 0,
            bytes => bytes,
        }
    }
}

impl Store {
    /// Space for this number of notes, of `class` if it takes whole frames. `None`: there is no
    /// free space for them.
    pub(super) fn note_memory<'s>(
        &self,
        slot: &Slot<'s>,
        counts: Counts,
        class: Class,
    ) -> Result<Option<NoteMemory<'s>>, WriteError> {
        let area = notes_area(slot.undo());
        let bytes = counts.bytes();
        let mut extent = None;
        if bytes > area.len() as u64 {
            let frames = bytes.div_ceil(FRAME_BYTES) as u32;
            let node = (self.session().topology).node_of(self.session().topology.current_cpu());
            extent = self.log().claim(slot, frames, node, class, TAG_NOTES)?;
            if extent.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(NoteMemory { area, extent }))
    }

    /// The notes in `memory`, and their location for the intent.
    pub(super) fn notes<'n>(
        &'n self,
        memory: &NoteMemory<'n>,
        counts: Counts,
    ) -> Result<(Notes<'n>, u64), Corrupt> {
        let at = memory.extent.map_or(0, |e| frame_byte(e.start));
        Ok((self.notes_at(at, memory.area, counts)?, at))
    }

    fn notes_at<'n>(
        &'n self,
        at: u64,
        area: UndoArea<'n>,
        counts: Counts,
    ) -> Result<Notes<'n>, Corrupt> {
        let words = if at == 0 {
            area.words()
        } else {
            self.session()
                .mem
                .word_slice(Loc::of_byte(at & !7), counts.words())?
        };
        Notes::new(words, counts).ok_or_else(|| {
            Corrupt::at(
                at,
                "a transaction's intent names more notes than its memory holds",
            )
        })
    }

    /// Frees the space.
    pub(super) fn drop_notes(
        &self,
        slot: &Slot<'_>,
        memory: NoteMemory<'_>,
    ) -> Result<(), WriteError> {
        memory
            .extent
            .map_or(Ok(()), |e| self.log().release(slot, e))
    }

    /// Repairs a transaction whose thread died: undoes it, or completes it if it was committed.
    pub(crate) fn repair_transaction(&self, dead: &DeadSlot<'_>) -> Result<(), WriteError> {
        let Some(IndexIntent::Transaction {
            phase,
            notes,
            counts,
        }) = IndexIntent::of_dead(dead, LANE)?
        else {
            return Ok(());
        };
        let notes = self.notes_at(notes, notes_area(dead.undo()), counts)?;
        let held = |home: Loc| -> Result<bool, Corrupt> {
            let bucket = Bucket::of_words(self.session().mem.words(home)?);
            Ok(bucket.inherit(dead.id()).is_some())
        };
        // In the phase *locking* the notes of its writes are still those of an earlier user.
        let is_noted = phase != Phase::Locking;
        for noted in notes.writes().filter(|_| is_noted) {
            let noted = noted?;
            // A home that it no longer holds was repaired by an earlier repair, or unlocked before
            // it died.
            if !held(noted.home)? {
                continue;
            }
            if phase == Phase::Inserting {
                self.take_back(noted)?;
            } else if phase == Phase::Committed {
                self.carry_out(noted)?;
                if !noted.old.is_empty() {
                    let record = self.session().mem.record(noted.old.loc())?;
                    self.index().note_main_gone(&record);
                    self.log()
                        .mark_dead(noted.old.loc(), record.header().size())?;
                }
            }
        }
        mneme_sys::fault!("txn.repair.settled");
        if phase == Phase::Committed {
            for (space, root, counted) in notes.counters() {
                counts::set_of_the_dead(dead, space, root, counted);
            }
            // Before the homes are unlocked, so that later changes of the keys come after it.
            self.records().settle_change_of(dead, true)?;
        }
        mneme_sys::fault!("txn.repair.counted");
        for home in notes.homes() {
            let bucket = Bucket::of_words(self.session().mem.words(home)?);
            if let Some(held) = bucket.inherit(dead.id()) {
                held.unlock();
            }
            mneme_sys::fault!("txn.repair.unlocked");
        }
        // The arena takes the notes back next: a later reaper must not read them.
        dead.clear_intent(LANE);
        Ok(())
    }

    /// Takes an insertion out again, if it was published. Its home is held.
    pub(super) fn take_back(&self, noted: Noted) -> Result<(), Corrupt> {
        match noted.is_insertion() {
            true => self.clear_entry(noted.segment, noted.new),
            false => Ok(()),
        }
    }

    /// Makes a replacement or removal of a committed transaction, unless it was made already. Its
    /// home is held.
    pub(super) fn carry_out(&self, noted: Noted) -> Result<(), Corrupt> {
        // An absent key was inserted already, or needs no removal. An empty slot may be taken by
        // another key at any moment.
        if noted.old.is_empty() {
            return Ok(());
        }
        if noted.new.is_empty() {
            return self.clear_entry(noted.segment, noted.old);
        }
        let word = self.session().mem.word(noted.at)?;
        // Fails if it was made already. SYNC: pairs with the Acquire load in `Bucket::entry`.
        let _ = word.compare_exchange(noted.old.0, noted.new.0, AcqRel, Relaxed);
        Ok(())
    }

    fn clear_entry(&self, segment: SegmentRef, entry: Entry) -> Result<(), Corrupt> {
        if let Some(found) = self.session().mem.find_entry(segment, entry)? {
            found.bucket.replace(found.slot, Entry(0));
        }
        Ok(())
    }
}
