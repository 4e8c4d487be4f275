//! Patching: a part of a long value is changed in place, so that the cost of a change does not
//! depend on the length of the value.
//!
//! A record becomes *patchable* by the first change of a part of it (see [`crate::store::part`]). A
//! word before the value has its length, counts the patches, and says whether the value is
//! *sealed*: then it never changes again, like all other records in the log. **A thread that needs
//! the whole value, in one place and for long, seals it first**: readers that lend, transactions,
//! compaction. The next patch then makes a new record, which costs about as much as the reading
//! did. So a value is copied at most as often as it is read as a whole.
//!
//! - A patch is made under the bucket's lock. After the value's end, where no thread looks, bytes
//!   are written directly. Other bytes are written to the thread's redo area first; then the intent
//!   names them; then the word is made odd by an exchange that fails if the record is sealed; then
//!   come the bytes, and last the word with the new length.
//! - A reader of a part copies it and accepts the copy if the word is even and counts the same
//!   number of patches before and after (a sequence lock of the record's own: changes of its
//!   neighbours in the bucket make no difference). So does a reader of the whole. If it has failed
//!   often and may write, it seals the value.
//! - A death in the middle leaves the bucket locked with the bit that makes readers wait, an odd
//!   word and the intent: the reaper patches again from the redo area. Before the word was odd,
//!   nothing was begun.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use mneme_sync::Slot;

use crate::buffer::{NoMemory, reserve};
use crate::error::{Corrupt, ReadError, WriteError};
use crate::feed::item::Item;
use crate::index::intent::{OPERATION_LANE, PatchGuard};
use crate::index::lookup::{FoundEntry, Lookup, Seen};
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::Records;
use crate::records::change_set::{ChangeSet, Changed, Piece, write_down};
use crate::region::mem::Loc;
use crate::region::patch_word::{PatchWord, SEALED, Seal, seal};
use crate::region::record::{MAX_IN_PLACE, Record};
use crate::session::{Wait, back_off};

/// The longest part of a value that is overwritten in place: the redo area can hold it.
const MAX_INSIDE: usize = MAX_IN_PLACE;
/// The maximum number of bytes that are written after a value's end under its bucket's lock.
const MAX_BEHIND: usize = 1 << 20;
/// How long a reader retries on a value that is always being patched.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The minimum number of retries: the reader may itself have been kept from running.
const LOOKS: u32 = 500;
/// The minimum number of retries in an opening that may only read, which cannot seal the value.
const LOOKS_TO_READ: u32 = 32;

/// What a patch writes: `bytes` from `at` on, with zeros before them where the value ends earlier.
#[derive(Clone, Copy)]
pub(crate) struct Write<'b> {
    pub at: usize,
    pub bytes: &'b [u8],
}

impl<'b> Write<'b> {
    /// The length of a value of `len` bytes afterwards.
    pub fn len_after(&self, len: usize) -> usize {
        len.max(self.at.saturating_add(self.bytes.len()))
    }

    /// The bytes that overwrite a value of `len` bytes, and those after its end.
    fn parts(&self, len: usize) -> (&'b [u8], &'b [u8]) {
        let inside = len.saturating_sub(self.at).min(self.bytes.len());
        self.bytes.split_at(inside)
    }
}

/// A reader that retries because the value was patched meanwhile.
#[derive(Default)]
pub(crate) struct Overtaken {
    rounds: u32,
    began: Option<u64>,
}

impl Overtaken {
    /// Backs off before the next retry. Retries must end: an opening that may write seals a value
    /// that is patched all the time, and one that may only read gets an error.
    #[cold]
    pub fn again(&mut self, records: &Records) -> Result<(), ReadError> {
        let now = records.session().clock.now_ns();
        let since = Duration::from_nanos(now.saturating_sub(*self.began.get_or_insert(now)));
        let least = match records.session().read_only {
            true => LOOKS_TO_READ,
            false => LOOKS,
        };
        if since > TIMEOUT && self.rounds > least {
            return Err(match records.session().read_only {
                true => ReadError::Overtaken(since),
                false => Corrupt::at(0, "a value is being patched, and nobody patches it").into(),
            });
        }
        back_off(&mut self.rounds);
        Ok(())
    }
}

/// A patchable record as its patch was decided on.
pub(crate) struct Target<'m> {
    pub loc: Loc,
    pub record: Record<'m>,
    pub expires: u64,
    pub word: PatchWord,
}

impl Records {
    /// As [`Records::find`], with a value that can no longer be patched: it is sealed. An opening
    /// that may only read cannot seal it; there `copy` is the value while the record
    /// [`changes`](Record::changes).
    #[inline(always)]
    pub(crate) fn find_whole<'m>(
        &'m self,
        root: Root,
        place: Place,
        segment: Option<SegmentRef>,
        key: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<Seen<Option<FoundEntry<'m>>>, ReadError> {
        let seen = self.index().find(root, place, segment, key)?;
        self.make_whole(root, place, seen, key, copy)
    }

    /// The rest of [`Records::find_whole`], after [`Records::find`].
    #[inline(always)]
    pub(crate) fn make_whole<'m>(
        &'m self,
        root: Root,
        place: Place,
        seen: Seen<Option<FoundEntry<'m>>>,
        key: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<Seen<Option<FoundEntry<'m>>>, ReadError> {
        match &seen {
            Some((Some(found), _)) if found.record.header().is_patchable() => {
                self.seal_whole(root, place, seen, key, copy)
            }
            _ => Ok(seen),
        }
    }

    /// The rest of [`Records::make_whole`] for a patchable record.
    #[cold]
    #[inline(never)]
    fn seal_whole<'m>(
        &'m self,
        root: Root,
        place: Place,
        mut seen: Seen<Option<FoundEntry<'m>>>,
        key: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<Seen<Option<FoundEntry<'m>>>, ReadError> {
        let mut overtaken = Overtaken::default();
        loop {
            let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
            let whole = match found {
                Some(found) if !found.record.seals(self.session().read_only) => {
                    self.copy_whole(&found.record, copy)?
                }
                _ => true,
            };
            if whole {
                return Ok(seen);
            }
            // A patching thread holds the bucket: the next look waits for that.
            overtaken.again(self)?;
            let segment = self.session().mem.index_segment(root, place)?;
            seen = self.index().find(root, place, segment, key)?;
        }
    }

    /// Copies a value that does not lie in a record with slack. Returns false if it was patched
    /// meanwhile, or is being patched.
    pub(crate) fn copy_whole(
        &self,
        record: &Record<'_>,
        copy: &mut Vec<u8>,
    ) -> Result<bool, NoMemory> {
        copy.clear();
        if record.seals(self.session().read_only) {
            reserve(copy, record.value_len())?;
            record.copy_value(copy);
            return Ok(true);
        }
        let Some((_, word)) = record.patch().filter(|_| self.session().read_only) else {
            return Ok(false);
        };
        let len = word.len().min(record.header().patch_capacity());
        reserve(copy, len)?;
        copy.resize(len, 0);
        Ok(!word.is_odd() && record.copy_part(word, 0, copy))
    }

    /// Patches the value of `key`, if it is as it was when the patch was decided on. The caller has
    /// been pinned since it saw `target`.
    pub(crate) fn patch(
        &self,
        slot: &Slot<'_>,
        at: (Root, Place),
        key: &[u8],
        target: &Target<'_>,
        write: Write<'_>,
    ) -> Result<Changed, WriteError> {
        let item = Item::Patch {
            root: self.index().root_id(at.0)?,
            key,
            offset: write.at as u32,
            length: write.len_after(target.word.len()) as u32,
            bytes: write.bytes,
        };
        let patch = || self.try_patch(slot, at, key, target, write, item);
        match patch() {
            Err(WriteError::FeedFull) => self.in_pieces(slot, item, patch),
            patched => patched,
        }
    }

    fn try_patch(
        &self,
        slot: &Slot<'_>,
        (root, place): (Root, Place),
        key: &[u8],
        target: &Target<'_>,
        write: Write<'_>,
        item: Item<'_>,
    ) -> Result<Changed, WriteError> {
        let (inside, behind) = write.parts(target.word.len());
        let pieces = [Piece {
            loc: target.loc,
            record: target.record,
            offset: target.record.header().value_offset() + write.at,
            bytes: inside,
        }];
        let pieces = &pieces[..usize::from(!inside.is_empty())];
        if !write_down(slot, pieces) {
            return Ok(Changed::Unable);
        }
        let mut wait = Wait::new();
        let (held, segment) = loop {
            let Some(segment) = self.session().mem.index_segment(root, place)? else {
                return Ok(Changed::Overtaken);
            };
            if let Some(held) = self.lock_home(slot, segment, place, &mut wait)? {
                break (held, segment);
            }
        };
        let found = self.session().mem.find_in(segment, place.tag, key);
        let mut patched = false;
        if let Ok(Some(found)) = &found
            && target.is(found)
            && !self.has_passed(target.expires)
            && let Some((word, _)) = found.record.patch()
        {
            let len = target.word.len();
            let (held, fed) = self.enter_or_unlock(slot, held, || Ok(item))?;
            self.note_change(root, place);
            // No reader looks beyond the value's end.
            target
                .record
                .write_behind(len, write.at + inside.len(), behind);
            mneme_sys::fault!("log.patch.behind");
            let guard = PatchGuard {
                record: target.loc,
                before: target.word,
                len: write.len_after(len) as u32,
            };
            let set = ChangeSet {
                pieces,
                guard: Some((word, guard)),
                counted: None,
            };
            patched = self.change_bytes(slot, &held, &set);
            if patched {
                self.complete_change(fed);
            } else {
                self.void_change(fed);
            }
            held.unlock();
        } else {
            // Nothing was changed: readers that check the version need not retry.
            held.unlock_unchanged();
        }
        mneme_sys::fault!("log.patch.unlocked");
        slot.intent(OPERATION_LANE).clear();
        found?;
        Ok(match patched {
            true => Changed::Done,
            false => Changed::Overtaken,
        })
    }

    /// Completes the copy of a patchable record. Its bucket is held, so that no thread patches
    /// either.
    ///
    /// If the copy is marked as sealed, it was made of a sealed value (see [`Record::unseal`]), and
    /// is right. In any other case the value may have changed since.
    pub(crate) fn complete_patchable(&self, record: &Record<'_>, copy: &Record<'_>) {
        let (Some((_, now)), Some((word, copied))) = (record.patch(), copy.patch()) else {
            return;
        };
        if !copied.is_sealed() {
            copy.write_part(0, record.value());
        }
        // Relaxed: published with the record.
        word.store(PatchWord::new(now.len()).0, Relaxed);
    }
}

impl Target<'_> {
    /// Whether the record that was found is unchanged.
    fn is(&self, found: &FoundEntry<'_>) -> bool {
        found.entry.loc() == self.loc
            && found.record.header().shape() == self.record.header().shape()
            && found.record.expires() == self.expires
            && (found.record.patch()).is_some_and(|(_, word)| word == self.word)
    }

    /// Whether `write` can be made where the record lies.
    pub fn takes(&self, write: &Write<'_>) -> bool {
        let header = self.record.header();
        let (inside, _) = write.parts(self.word.len());
        let after = write.len_after(self.word.len());
        header.is_patchable()
            && !self.word.is_sealed()
            && inside.len() <= MAX_INSIDE
            && after - self.word.len() <= MAX_BEHIND
            && after <= header.patch_capacity()
    }
}

impl<'m> Record<'m> {
    /// The value, or, while it can still be patched, its `copy`.
    pub fn value_or<'v>(&self, copy: &'v [u8]) -> &'v [u8]
    where
        'm: 'v,
    {
        match self.changes() {
            true => copy,
            false => self.value(),
        }
    }

    /// Whether the value can still be patched.
    pub fn changes(&self) -> bool {
        self.patch().is_some_and(|(_, word)| !word.is_sealed())
    }

    /// Seals a value that can be patched, unless the opening is `read_only`; returns whether it no
    /// longer changes.
    pub fn seals(&self, read_only: bool) -> bool {
        match self.patch() {
            None => true,
            Some((_, now)) if read_only => now.is_sealed(),
            Some((word, _)) => seal(word) == Seal::Sealed,
        }
    }

    /// Clears the seal in the word of a copy that only this thread can find. This notes that the
    /// value was not sealed when the copying began: the bytes may have been read before the word,
    /// and be older.
    pub fn unseal(&self) {
        if let Some((word, now)) = self.patch() {
            // Relaxed: no other thread has the word.
            word.store(now.0 & !SEALED, Relaxed);
        }
    }

    /// Copies a part of the value, which another thread may be patching. Returns false if it was
    /// patched meanwhile.
    pub fn copy_part(&self, seen: PatchWord, at: usize, to: &mut [u8]) -> bool {
        let Some((word, _)) = self.patch() else {
            return false;
        };
        debug_assert!(at + to.len() <= self.header().patch_capacity());
        // SAFETY: the part is the record's, which is mapped; a thread that writes to it meanwhile
        // does so by `write_part`.
        unsafe { mneme_sys::racy::load(self.value_address().wrapping_add(at), to) };
        // SYNC: pairs with the release fence in `begin`.
        fence(Acquire);
        PatchWord::load(word).same_bytes(seen)
    }

    /// Writes a part of the value. The bucket is held and the word is odd, or no other thread has
    /// the record.
    pub fn write_part(&self, at: usize, bytes: &[u8]) {
        self.store(self.header().value_offset() + at, bytes);
    }

    /// Writes a part of a value of `len` bytes, and the bytes after its end. No other thread has
    /// the record.
    pub fn write_over(&self, len: usize, write: Write<'_>) {
        let (inside, behind) = write.parts(len);
        self.write_part(write.at, inside);
        self.write_behind(len, write.at + inside.len(), behind);
    }

    /// Writes `bytes` at `at`, after the value's end at `len`, and zeros between. The bucket is
    /// held.
    pub fn write_behind(&self, len: usize, at: usize, bytes: &[u8]) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut gap = len..at.max(len);
        while !gap.is_empty() {
            let n = gap.len().min(ZEROS.len());
            self.write_part(gap.start, &ZEROS[..n]);
            gap.start += n;
        }
        self.write_part(at, bytes);
    }
}
