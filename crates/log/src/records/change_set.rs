//! Changing bytes in place: **a change set is made whole or not at all**, whenever its thread dies,
//! over any number of records.
//!
//! A change set is a list of [`Piece`]s: bytes, and where they go. Values that are overwritten,
//! parts of long values and expiries are changed in this way. Nothing else changes a published
//! record except its marks. The caller holds the home bucket of the key. The steps, each with its
//! fault point:
//!
//! - *written down*: the pieces lie in the thread's redo area.
//! - *announced*: its intent names the change set. If the thread dies after this, a repairer makes
//!   the change.
//! - *excluded*: readers that copy wait until the home is unlocked.
//! - *begun*: the [guard](PatchGuard), if there is one, is odd. This fails if a reader has sealed
//!   it: then nothing is changed.
//! - *stored*: the pieces lie in their records, words by a store each.
//! - *ended*: the guard is even again, and has the new length.
//! - *counted*: the thread's counts of records are those that the intent names.
//!
//! A change set of one word lies in the intent itself, and need not exclude readers: a word is
//! never seen torn.
//!
//! A repairer makes the same steps from *excluded* on. Each of these steps is idempotent.
//! `models::change_sets` checks this, with twins that leave a step out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::{DeadSlot, Slot, UndoArea, Word};

use crate::error::Corrupt;
use crate::index::bucket::Held;
use crate::index::counts::{self, CountsAfter, RecordCounts};
use crate::index::intent::{HomeChange, PatchGuard, TRANSACTION_LANE};
use crate::index::lookup::FoundEntry;
use crate::records::Records;
use crate::region::layout::notes_area;
use crate::region::mem::Loc;
use crate::region::patch_word::{PatchWord, begin, finish};
use crate::region::record::{EXPIRY_AT, Header, Record};
use crate::region::space::KeyspaceId;

/// Words before the bytes of a piece in the redo area: the record, then offset and length.
const PIECE_WORDS: usize = 2;

/// Bytes, and their place in a record.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'b> {
    pub loc: Loc,
    /// The record at `loc`.
    pub record: Record<'b>,
    /// The offset from the record's start.
    pub offset: usize,
    pub bytes: &'b [u8],
}

/// The change of a thread's counts by a change set.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub space: KeyspaceId,
    /// The id of the index' root.
    pub root: u64,
    pub delta: RecordCounts,
}

impl Counted {
    #[inline]
    fn afterwards(self, slot: &Slot<'_>) -> Option<CountsAfter> {
        CountsAfter::of(slot, self.space, self.root, self.delta)
    }

    #[inline]
    fn count(self, slot: &Slot<'_>) {
        counts::count(slot, self.space, self.root, self.delta);
    }
}

/// A change set, as the holder of the home makes it.
pub(crate) struct ChangeSet<'b> {
    pub pieces: &'b [Piece<'b>],
    /// The word of the patchable record that has the pieces.
    pub guard: Option<(&'b AtomicU64, PatchGuard)>,
    pub counted: Option<Counted>,
}

/// The result of a change whose decision depended on the state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    Done,
    /// The record has changed since then. Nothing was changed.
    Overtaken,
    /// No change set can be made here, see [`write_down`]. Nothing was changed.
    Unable,
}

/// Step *written down*. Called before the home is locked, so that the lock is held for less time.
/// Returns false if no change set can be made: within the body of a transaction the area holds
/// notes about its locks.
#[inline(always)]
#[must_use]
pub(crate) fn write_down(slot: &Slot<'_>, pieces: &[Piece<'_>]) -> bool {
    if slot.intent(TRANSACTION_LANE).stands() {
        return false;
    }
    let mut area = notes_area(slot.undo()).words();
    for piece in pieces {
        let (chunks, rest) = piece.bytes.as_chunks::<8>();
        let words = PIECE_WORDS + chunks.len() + usize::from(!rest.is_empty());
        let Some((piece_area, behind)) = area.split_at_checked(words) else {
            return false;
        };
        area = behind;
        let (place, words) = piece_area.split_at(PIECE_WORDS);
        // Relaxed: the intent's Release stores publish it.
        place[0].store(piece.loc.bits(), Relaxed);
        place[1].store(
            (piece.offset as u64) << 32 | piece.bytes.len() as u64,
            Relaxed,
        );
        let whole = words[..chunks.len()].as_ptr().cast_mut().cast();
        // SAFETY: so many words are the area's, which is mapped for writing; a repairer reads them
        // as words, or copies them so.
        unsafe { mneme_sys::racy::store(chunks.as_flattened(), whole) };
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            words[chunks.len()].store(u64::from_le_bytes(bytes), Relaxed);
        }
    }
    true
}

/// What a dead thread has written down: the record, the offset and the bytes of each piece.
fn read_back(area: UndoArea<'_>, pieces: u8) -> Option<Vec<(Loc, usize, Vec<u8>)>> {
    let words = area.words();
    let (mut at, mut found) = (0, Vec::new());
    for _ in 0..pieces {
        // Relaxed: the intent was read with Acquire before.
        let word = |i: usize| words.get(i).map(|word| word.load(Relaxed));
        let (loc, place) = (Loc::of_word(word(at)?), word(at + 1)?);
        let (offset, len) = ((place >> 32) as usize, place as u32 as usize);
        at += PIECE_WORDS;
        let mut bytes = vec![0; len.min(area.len())];
        if bytes.len() != len || !area.read(at * 8, &mut bytes) {
            return None;
        }
        at += len.div_ceil(8);
        found.push((loc, offset, bytes));
    }
    Some(found)
}

/// Steps *begun* to *ended* by a repairer, which may find any of them done. `store` stores the
/// pieces. Returns false if the guard was sealed before the thread could begin: nothing is changed.
pub(crate) fn make_again<W: Word>(guard: Option<(&W, PatchGuard)>, store: impl FnOnce()) -> bool {
    let Some((word, guard)) = guard else {
        store();
        return true;
    };
    let now = PatchWord::load(word);
    let odd = guard.before.odd();
    // A reader may seal it first.
    let is_begun = now == odd || now == guard.before && begin(word, now);
    if is_begun {
        store();
        finish(word, odd, guard.len as usize);
    }
    is_begun || !now.same_bytes(guard.before)
}

impl Piece<'_> {
    /// Whether the pieces were made for the record that was found. If the header was damaged
    /// meanwhile, nothing that was read from it before is used.
    #[inline]
    pub fn is_of(&self, found: &FoundEntry<'_>) -> bool {
        found.entry.loc() == self.loc
            && found.record.header().shape() == self.record.header().shape()
    }

    #[inline(always)]
    fn store(&self) {
        self.record.store(self.offset, self.bytes);
    }

    /// Whether a piece that was read back changes only what may change in its record: the value,
    /// its length, the expiry.
    fn is_sound(&self) -> bool {
        let header = self.record.header();
        let is_word = self.bytes.len() == 8;
        match self.offset {
            0 => {
                let word = self
                    .bytes
                    .first_chunk()
                    .copied()
                    .map_or(0, u64::from_le_bytes);
                let has_all = self.bytes.len() <= 8 + 8 * usize::from(header.has_expiry());
                has_all && Header(word).shape() == header.shape() && Header(word).is_record()
            }
            EXPIRY_AT if header.has_expiry() => is_word,
            offset => {
                let end = offset.saturating_add(self.bytes.len());
                offset >= header.value_offset() && end as u64 <= header.size()
            }
        }
    }
}

impl Records {
    /// Makes a change set that is written down, from *announced* to *counted*. Returns false if its
    /// guard was sealed: nothing is changed. The caller holds the home, and has found there the
    /// records for which the pieces were made.
    #[inline(always)]
    pub(crate) fn change_bytes(
        &self,
        slot: &Slot<'_>,
        held: &Held<'_>,
        set: &ChangeSet<'_>,
    ) -> bool {
        let counts = set
            .counted
            .and_then(|c| CountsAfter::of(slot, c.space, c.root, c.delta));
        let announced = HomeChange::Bytes {
            pieces: set.pieces.len() as u8,
            guard: set.guard.map(|(_, guard)| guard),
            counts,
        };
        announced.announce(slot);
        mneme_sys::fault!("log.change.announced");
        held.exclude_readers();
        mneme_sys::fault!("log.change.excluded");
        if let Some((word, guard)) = set.guard {
            if !begin(word, guard.before) {
                return false;
            }
            mneme_sys::fault!("log.change.begun");
        }
        if mneme_sys::fault::ENABLED
            && let Some(first) = set.pieces.first()
        {
            // With fault points compiled in, a piece has a middle at which it can be abandoned. A
            // word has none.
            let half = first.bytes.len() / 16 * 8;
            first.record.store(first.offset, &first.bytes[..half]);
            mneme_sys::fault!("log.change.half");
        }
        for piece in set.pieces {
            piece.store();
            mneme_sys::fault!("log.change.stored");
        }
        if let Some((word, guard)) = set.guard {
            finish(word, guard.before.odd(), guard.len as usize);
            mneme_sys::fault!("log.change.ended");
        }
        if let Some(counted) = set.counted {
            counted.count(slot);
            mneme_sys::fault!("log.change.counted");
        }
        true
    }

    /// Makes the change set of one word, which its intent holds: from *announced* to *counted*,
    /// without the steps in between, which a single store does not need.
    #[inline(always)]
    pub(crate) fn change_word(
        &self,
        slot: &Slot<'_>,
        (loc, record): (Loc, &Record<'_>),
        (offset, word): (usize, u64),
        counted: Counted,
    ) {
        let announced = HomeChange::Word {
            record: loc,
            offset: offset as u64,
            word,
            counts: counted.afterwards(slot),
        };
        announced.announce(slot);
        mneme_sys::fault!("log.change.announced");
        record.store(offset, &word.to_le_bytes());
        mneme_sys::fault!("log.change.stored");
        counted.count(slot);
        mneme_sys::fault!("log.change.counted");
    }

    /// Repeats the change set of one word of a dead thread.
    pub(crate) fn change_word_again(
        &self,
        dead: &DeadSlot<'_>,
        loc: Loc,
        (offset, word): (u64, u64),
        counts: Option<CountsAfter>,
    ) -> Result<(), Corrupt> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let word = word.to_le_bytes();
        self.sound_piece(loc, offset, &word)?.store();
        mneme_sys::fault!("log.redo.stored");
        if let Some(counts) = counts {
            counts.finish(dead);
        }
        Ok(())
    }

    /// A piece that a dead thread has left, if it fits the record.
    fn sound_piece<'p>(
        &'p self,
        loc: Loc,
        offset: usize,
        bytes: &'p [u8],
    ) -> Result<Piece<'p>, Corrupt> {
        let piece = Piece {
            loc,
            record: self.session().mem.record(loc)?,
            offset,
            bytes,
        };
        match piece.is_sound() {
            true => Ok(piece),
            false => Err(Corrupt::at(
                loc.byte(),
                "a redo does not fit the record that it names",
            )),
        }
    }

    /// Completes the change set of a dead thread with this intent. Its home is held. Returns false
    /// if the guard was sealed: nothing is changed.
    pub(crate) fn change_bytes_again(
        &self,
        dead: &DeadSlot<'_>,
        held: &Held<'_>,
        (pieces, guard): (u8, Option<PatchGuard>),
        counts: Option<CountsAfter>,
    ) -> Result<bool, Corrupt> {
        let unsound = |loc: Loc, what: &str| Corrupt::at(loc.byte(), what.to_owned());
        let Some(found) = read_back(notes_area(dead.undo()), pieces) else {
            let what = "an intent names more than the redo area of its thread holds";
            return Err(unsound(Loc::of_word(0), what));
        };
        let pieces = found.iter();
        let pieces = pieces.map(|(loc, offset, bytes)| self.sound_piece(*loc, *offset, bytes));
        let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let guard = match guard {
            None => None,
            Some(guard) => {
                let record = self.session().mem.record(guard.record)?;
                let capacity = record.patch().map(|_| record.header().patch_capacity());
                match record.patch() {
                    Some((word, _)) if capacity >= Some(guard.len as usize) => Some((word, guard)),
                    _ => {
                        return Err(unsound(
                            guard.record,
                            "an intent names a guard that is none",
                        ));
                    }
                }
            }
        };
        // The thread may have died before it excluded readers.
        held.exclude_readers();
        let made = make_again(guard, || {
            for piece in &pieces {
                piece.store();
                mneme_sys::fault!("log.redo.stored");
            }
        });
        if let Some(counts) = counts.filter(|_| made) {
            counts.finish(dead);
        }
        Ok(made)
    }
}

#[cfg(feature = "fault")]
pub(crate) mod deaths;
