//! The ring of the change feed: **entries come out whole, once, and in the order of their
//! positions. Nothing after an entry that is neither whole nor void comes out. No thread waits for
//! another to reserve, to fill or to complete an entry.**
//!
//! The feed is an endless stream of words. A *position* is a byte of that stream; the byte at
//! position `p` lies at byte `p mod n` of the ring, in lap `p / n`. An entry is a header word and a
//! body, at a multiple of eight; it may wrap around the ring's end. Four words govern the ring:
//!
//! - `tail`: the first position after all entries that are known to be reserved. It may not yet
//!   count the entry that a thread has just reserved there: any thread that finds the header of
//!   such an entry moves the tail past it.
//! - `durable`: everything before this position is kept elsewhere.
//! - `oldest`: everything before this position may be overwritten. A reader that may lose entries
//!   loads it after it has copied one.
//! - `freed`: everything before this position is blank again, for the next lap.
//!
//! The steps of an entry:
//!
//! - *reserved*: its header replaces the blank word at the tail, by one exchange; then the tail
//!   moves past it. So the tail is after an entry before the entry's change can be seen.
//! - *filled*: the body is stored.
//! - *completed*: the header's state becomes whole, or void if there was no change.
//! - *drained*: the words are copied out, void entries too, so that positions have no gaps.
//! - *freed*: `oldest` moves, the words are blanked for the next lap, and then `freed` moves.
//!
//! **A blank word is not zero.** It is computed from the ring's secret and the lap, so it differs
//! from lap to lap. A thread that has read the tail, and is stopped for a lap, may try to exchange
//! a word that by then lies in the middle of another entry. Zero is a frequent word there. The
//! blank word of an earlier lap does not occur there, unless a client has guessed the secret. So
//! the exchange fails, and the thread looks again.
//!
//! The models in `models::feed` check this.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mneme_sync::{SlotId, Word};

use crate::region::layout::MAX_ENTRY;

/// The words of a feed, in a region or in a model.
pub(crate) struct FeedRing<'r, W> {
    /// The first position behind the entries that are known to be reserved.
    pub tail: &'r W,
    /// The position before which everything is kept elsewhere.
    pub durable: &'r W,
    /// The position before which entries may be overwritten.
    pub oldest: &'r W,
    /// The position before which everything is blank for the next lap.
    pub freed: &'r W,
    /// A power of two.
    pub words: &'r [W],
    /// The secret from which blank words are computed.
    pub secret: u64,
    /// Bytes that are reserved for entries that end something.
    pub spare: u64,
}

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Its thread is filling it, or making its change.
    Reserved = 1,
    /// Its change has happened.
    Whole = 2,
    /// Its change has not happened, and will not happen.
    Void = 3,
}

/// The header of an entry. Bits 0..2 are the state, 2..19 the bytes of the entry from its header
/// on, 19..30 the slot of its thread, 30..37 the number of its opening, 37..64 the lap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FeedHeader(u64);

const BYTES_SHIFT: u32 = 2;
const SLOT_SHIFT: u32 = BYTES_SHIFT + 17;
const SLOTS: u64 = (1 << 11) - 1;
const PROCESS_SHIFT: u32 = SLOT_SHIFT + 11;
const PROCESSES: u64 = (1 << 7) - 1;
const LAP_SHIFT: u32 = PROCESS_SHIFT + 7;
const LAPS: u64 = u64::MAX >> LAP_SHIFT;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 8;

impl FeedHeader {
    pub fn new(state: State, bytes: usize, by: Author, lap: u64) -> FeedHeader {
        FeedHeader(
            (lap & LAPS) << LAP_SHIFT
                | (u64::from(by.process) & PROCESSES) << PROCESS_SHIFT
                | (u64::from(by.slot.0) & SLOTS) << SLOT_SHIFT
                | (bytes as u64) << BYTES_SHIFT
                | state as u64,
        )
    }

    /// The header in a word, of whatever lap. `None`: no thread stores such a header.
    pub fn of_word(word: u64) -> Option<FeedHeader> {
        let header = FeedHeader(word);
        let bytes = header.bytes();
        (word & 3 != 0 && (HEADER_BYTES..=MAX_ENTRY).contains(&bytes)).then_some(header)
    }

    /// Its bytes.
    pub fn word(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub fn state(self) -> State {
        match self.0 & 3 {
            1 => State::Reserved,
            2 => State::Whole,
            _ => State::Void,
        }
    }

    /// Bytes of the entry, without the padding behind it.
    pub fn bytes(self) -> usize {
        (self.0 >> BYTES_SHIFT & 0x1_ffff) as usize
    }

    /// The distance to the next entry in bytes.
    pub fn stride(self) -> u64 {
        (self.bytes() as u64).next_multiple_of(8)
    }

    pub fn slot(self) -> SlotId {
        SlotId((self.0 >> SLOT_SHIFT & SLOTS) as u16)
    }

    /// Whether the opening with this number has made the entry.
    pub fn is_of(self, process: u16) -> bool {
        self.0 >> PROCESS_SHIFT & PROCESSES == u64::from(process) & PROCESSES
    }

    fn is_of_lap(self, lap: u64) -> bool {
        self.0 >> LAP_SHIFT == lap & LAPS
    }

    pub fn with(self, state: State) -> FeedHeader {
        FeedHeader(self.0 & !3 | state as u64)
    }
}

/// The thread and the opening that make an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Author {
    /// The thread.
    pub slot: SlotId,
    /// The number of its opening.
    pub process: u16,
}

/// An entry that this thread has to fill and to complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "nothing behind it is drained until it is completed"]
pub(crate) struct Reserved {
    /// The position of its header.
    pub at: u64,
    header: FeedHeader,
}

impl Reserved {
    /// The position behind it.
    pub fn end(self) -> u64 {
        self.at.wrapping_add(self.header.stride())
    }

    /// Whether the opening with this number is making it.
    pub fn is_of(self, process: u16) -> bool {
        self.header.is_of(process)
    }
}

/// Why no entry was reserved, or none could be drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RingRefused {
    /// Too much of the ring is not durable yet.
    Full,
    /// At this position there is neither a blank word nor a header: the ring is damaged.
    Damaged(u64),
}

/// How a look at the next entry ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextEntry {
    /// Nothing is there yet.
    Nothing,
    /// The thread in this slot has not completed it.
    Unfinished(SlotId),
    /// It is complete, and the next one follows at this distance in bytes.
    Complete(u64),
}

/// What a reader that may lose entries finds at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadEntry {
    /// Nothing is there yet.
    Nothing,
    /// Its thread has not completed it.
    Unfinished(FeedHeader),
    /// It was complete; it was copied unless it is void.
    Complete(FeedHeader),
    /// It was overwritten before it was copied. The oldest entry is at this position.
    Lost(u64),
}

/// Words of a ring, in the order of their positions: up to the ring's end, and from its beginning.
pub(crate) type Words<'r, W> = [&'r [W]; 2];

impl<'r, W: Word> FeedRing<'r, W> {
    /// Bytes of the ring.
    pub fn size(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn word(&self, at: u64) -> &W {
        &self.words[(at / 8) as usize & (self.words.len() - 1)]
    }

    fn lap(&self, at: u64) -> u64 {
        // A division by a power of two, which the compiler does not know to be one.
        at >> self.size().trailing_zeros()
    }

    /// The blank word of a lap. No header has its lowest bits.
    fn blank(&self, lap: u64) -> u64 {
        let mixed = self.secret.wrapping_add(lap);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 32) & !3
    }

    /// Blanks a ring that no thread uses, for positions from `first` on, a multiple of eight.
    pub fn clear(&self, first: u64) {
        self.blank_between(first, first.wrapping_add(self.size()));
        for word in [self.tail, self.durable, self.oldest] {
            word.store(first, Relaxed);
        }
        // SYNC: as in `free`.
        self.freed.store(first, Release);
    }

    /// Whether nothing was entered since [`clear`](Self::clear). For a ring that no other thread
    /// uses.
    pub fn is_clear(&self, first: u64) -> bool {
        let words = [self.tail, self.durable, self.freed];
        words.iter().all(|word| word.load(Acquire) == first) && self.header(first).is_none()
    }

    /// The header at `at`, if an entry was reserved there in this lap.
    fn header(&self, at: u64) -> Option<FeedHeader> {
        // SYNC: pairs with the Release stores and exchanges of headers.
        let header = FeedHeader::of_word(self.word(at).load(Acquire))?;
        header.is_of_lap(self.lap(at)).then_some(header)
    }

    /// The first position after all entries that are known to be reserved. A thread that has seen a
    /// change finds the tail after the entry of that change.
    pub fn tail(&self) -> u64 {
        // SYNC: pairs with the Release in `pass`.
        self.tail.load(Acquire)
    }

    fn pass(&self, at: u64, header: FeedHeader) {
        // SYNC: pairs with the Acquire load in `tail`: a thread that loads it sees the headers
        // before it.
        self.tail
            .fetch_max(at.wrapping_add(header.stride()), AcqRel);
    }

    /// Whether entries of `bytes` bytes would find free space.
    pub fn has_space(&self, bytes: u64) -> bool {
        self.space_behind(self.tail(), bytes.next_multiple_of(8) + self.spare)
    }

    fn space_behind(&self, tail: u64, bytes: u64) -> bool {
        // SYNC: pairs with the Release in `free`: the words are blank.
        let freed = self.freed.load(Acquire);
        tail.wrapping_add(bytes).wrapping_sub(freed) as i64 <= self.size() as i64
    }

    /// Step *reserved*, for an entry of `bytes` bytes (its header included) by the thread `me`. The
    /// caller holds the lock that orders its change among others: the home bucket of the key.
    ///
    /// # Errors
    /// There is no free space, or the ring is damaged. Nothing was reserved.
    pub fn reserve(&self, me: Author, bytes: usize) -> Result<Reserved, RingRefused> {
        self.reserve_and_leave(me, bytes, self.spare)
    }

    /// As [`reserve`](Self::reserve), for an entry that ends something. It finds space as long as
    /// each thread enters at most one such entry before it reserves another.
    pub fn reserve_end(&self, me: Author, bytes: usize) -> Result<Reserved, RingRefused> {
        self.reserve_and_leave(me, bytes, 0)
    }

    fn reserve_and_leave(
        &self,
        me: Author,
        bytes: usize,
        spare: u64,
    ) -> Result<Reserved, RingRefused> {
        let stride = (bytes as u64).next_multiple_of(8);
        loop {
            let at = self.tail();
            if !self.space_behind(at, stride + spare) {
                return Err(RingRefused::Full);
            }
            let lap = self.lap(at);
            let header = FeedHeader::new(State::Reserved, bytes, me, lap);
            let blank = self.blank(lap);
            // SYNC: Release and Acquire pass on what the thread has seen: a thread that finds this
            // header sees the earlier moves of the tail.
            let Err(found) = self
                .word(at)
                .compare_exchange(blank, header.0, AcqRel, Acquire)
            else {
                mneme_sys::fault!("log.feed.reserved");
                self.pass(at, header);
                mneme_sys::fault!("log.feed.passed");
                // SYNC: pairs with the Acquire fences in `read` and `walk`: a thread that loads a
                // word of the body sees that the earlier content was freed, by whichever thread.
                W::fence(Release);
                return Ok(Reserved { at, header });
            };
            match FeedHeader::of_word(found).filter(|other| other.is_of_lap(lap)) {
                Some(other) => self.pass(at, other),
                // This thread was stopped, and the word belongs to a later lap. An exchange sees
                // the last move of the tail even if the word was stored by a Relaxed store of a
                // body.
                None if self.tail.fetch_add(0, AcqRel) != at => {}
                None => return Err(RingRefused::Damaged(at)),
            }
        }
    }

    /// `count` words from `at` on, at most a lap.
    #[inline]
    fn words_from(&self, at: u64, count: usize) -> Words<'r, W> {
        let (before, behind) = self
            .words
            .split_at((at / 8) as usize & (self.words.len() - 1));
        match behind.split_at_checked(count) {
            Some((all, _)) => [all, &[]],
            None => [behind, &before[..(count - behind.len()).min(before.len())]],
        }
    }

    /// Step *filled*: the words of an entry's body, to be stored with Relaxed: the header publishes
    /// them.
    pub fn body(&self, entry: Reserved) -> Words<'r, W> {
        let at = entry.at.wrapping_add(HEADER_BYTES as u64);
        self.words_from(at, entry.header.stride() as usize / 8 - 1)
    }

    /// Step *completed*.
    pub fn complete(&self, entry: Reserved, state: State) {
        // SYNC: pairs with the Acquire load in `header`: the body is filled.
        let word = self.word(entry.at);
        word.store(entry.header.with(state).0, Release);
        mneme_sys::fault!("log.feed.completed");
    }

    /// Completes the entry at `at` for a thread that died, unless it is complete.
    pub fn settle_at(&self, at: u64, state: State) {
        if let Some(header) = self.header(at).filter(|h| h.state() == State::Reserved) {
            self.complete(Reserved { at, header }, state);
        }
    }

    /// Whether the thread `of` has not completed the entry at `at`.
    pub fn is_reserved_by(&self, at: u64, of: SlotId) -> bool {
        let header = self.header(at);
        header.is_some_and(|h| h.state() == State::Reserved && h.slot() == of)
    }

    /// Completes the entries that dead threads have left: each has left at most one.
    pub fn settle(
        &self,
        left_by: impl Fn(SlotId) -> bool,
        state: State,
    ) -> Result<(), RingRefused> {
        // Here is an entry whose thread died before it moved the tail.
        let end = self.tail();
        if let Some(header) = self.header(end) {
            self.pass(end, header);
        }
        self.walk(|at, header| {
            if header.state() == State::Reserved && left_by(header.slot()) {
                self.complete(Reserved { at, header }, state);
            }
        })
    }

    /// Visits the entries that are not durable, up to the present tail.
    ///
    /// # Errors
    /// Something that is not an entry lies between them.
    pub fn walk(&self, mut visit: impl FnMut(u64, FeedHeader)) -> Result<(), RingRefused> {
        let end = self.tail();
        // SYNC: pairs with the Release in `set_durable`. Everything before it is complete.
        let mut at = self.durable.load(Acquire);
        while (end.wrapping_sub(at) as i64) > 0 {
            match self.header(at) {
                Some(header) => {
                    // SYNC: pairs with the Release fences in `free` and `reserve`: a word of a
                    // later body may look like a header of this lap, but is not one.
                    W::fence(Acquire);
                    let durable = self.durable.load(Relaxed);
                    if durable.wrapping_sub(at) as i64 > 0 {
                        at = durable;
                        continue;
                    }
                    visit(at, header);
                    at = at.wrapping_add(header.stride());
                }
                // An exchange, for the reason given in `reserve`.
                None => match self.durable.fetch_add(0, AcqRel) {
                    // It was freed meanwhile.
                    durable if durable.wrapping_sub(at) as i64 > 0 => at = durable,
                    _ => return Err(RingRefused::Damaged(at)),
                },
            }
        }
        Ok(())
    }

    /// Looks at the entry at `at`. The caller has drained nothing after that.
    pub fn next(&self, at: u64) -> Result<NextEntry, RingRefused> {
        if self.tail() == at {
            return Ok(NextEntry::Nothing);
        }
        let header = self.header(at).ok_or(RingRefused::Damaged(at))?;
        Ok(match header.state() {
            State::Reserved => NextEntry::Unfinished(header.slot()),
            State::Whole | State::Void => NextEntry::Complete(header.stride()),
        })
    }

    /// Step *drained*: hands out the words of complete entries from `at` to `end`.
    pub fn copy(&self, at: u64, end: u64, mut to: impl FnMut(u64)) {
        for words in self.words_from(at, (end.wrapping_sub(at) / 8) as usize) {
            // Relaxed: the headers were loaded with Acquire.
            words.iter().for_each(|word| to(word.load(Relaxed)));
        }
    }

    /// Hands out the words of all entries that are not durable, as they lie, up to the first place
    /// without an entry. Returns their positions. Changes nothing.
    pub fn salvage(&self, mut to: impl FnMut(u64)) -> Range<u64> {
        // SYNC: as in `walk`.
        let start = self.durable.load(Acquire);
        let mut end = start;
        // The walk ends at damage.
        let _ = self.walk(|at, header| {
            if at == end {
                to(header.0);
                end = at.wrapping_add(header.stride());
                self.copy(at.wrapping_add(HEADER_BYTES as u64), end, &mut to);
            }
        });
        start..end
    }

    /// Notes that everything before `position`, which was drained, is kept elsewhere. The last
    /// `retained` bytes of that, or somewhat more, stay for readers that may lose entries. Called
    /// by one thread at a time.
    pub fn set_durable(&self, position: u64, retained: u64) {
        // SYNC: pairs with the loads in `settle`: a thread that misses a header sees that.
        self.durable.store(position, Release);
        mneme_sys::fault!("log.feed.durable");
        match retained {
            0 => self.free(position),
            _ => self.free(self.complete_from_oldest(|end| {
                // In bytes behind the oldest: positions wrap.
                (position.wrapping_sub(retained).wrapping_sub(end) as i64) > 0
            })),
        }
    }

    /// Frees about `bytes` bytes of the oldest entries, and completes any freeing that was
    /// interrupted. It stops at an entry that is not complete. For a ring that nobody drains.
    /// Called by one thread at a time.
    pub fn free_oldest(&self, bytes: u64) {
        let (begin, tail) = (self.oldest.load(Relaxed), self.tail());
        self.free(self.complete_from_oldest(|end| end != tail && end.wrapping_sub(begin) < bytes));
    }

    /// The first position from the oldest on that is not `wanted`, or whose entry is not complete.
    fn complete_from_oldest(&self, wanted: impl Fn(u64) -> bool) -> u64 {
        let mut end = self.oldest.load(Relaxed);
        while wanted(end)
            && let Some(header) = self.header(end)
            && header.state() != State::Reserved
        {
            end = end.wrapping_add(header.stride());
        }
        end
    }

    /// Copies the entry at `at`, where an entry begins, for a reader that no other thread waits
    /// for. The words of an entry that is not `wanted` are not copied.
    pub fn read(
        &self,
        at: u64,
        wanted: impl Fn(FeedHeader) -> bool,
        mut to: impl FnMut(u64),
    ) -> ReadEntry {
        if self.tail() == at {
            return ReadEntry::Nothing;
        }
        let header = self.header(at);
        let complete = header.filter(|header| header.state() != State::Reserved);
        if let Some(header) = complete.filter(|h| h.state() == State::Whole && wanted(*h)) {
            to(header.0);
            let end = at.wrapping_add(header.stride());
            self.copy(at.wrapping_add(HEADER_BYTES as u64), end, to);
        }
        // SYNC: pairs with the Release fences in `free` and `reserve`: a thread that has loaded a
        // word that was overwritten sees that.
        W::fence(Acquire);
        // SYNC: pairs with the Release store in `free`: a thread that sees that entries were
        // overwritten sees what was noted about them before they were complete.
        let oldest = self.oldest.load(Acquire);
        match (header, complete) {
            _ if oldest.wrapping_sub(at) as i64 > 0 => ReadEntry::Lost(oldest),
            (_, Some(header)) => ReadEntry::Complete(header),
            (Some(header), None) => ReadEntry::Unfinished(header),
            // It is damaged.
            (None, None) => ReadEntry::Lost(self.tail()),
        }
    }

    /// Stores the blank words of these positions, at most a lap.
    fn blank_between(&self, mut at: u64, end: u64) {
        while at != end {
            let next_lap = self.lap(at).wrapping_add(1).wrapping_mul(self.size());
            let bytes = end.wrapping_sub(at).min(next_lap.wrapping_sub(at));
            let blank = self.blank(self.lap(at));
            // Relaxed: published by `freed`. Until then no thread takes one for a place to reserve.
            for words in self.words_from(at, (bytes / 8) as usize) {
                words.iter().for_each(|word| word.store(blank, Relaxed));
            }
            at = at.wrapping_add(bytes);
        }
    }

    /// Step *freed*, from `freed` on. If it is interrupted by a death, the next call completes it.
    fn free(&self, end: u64) {
        let (begin, size) = (self.freed.load(Relaxed), self.size());
        if end.wrapping_sub(begin) > size {
            // One of them is damaged. What was not drained stays as it is; the ring fills up.
            return;
        }
        // SYNC: the store pairs with the Acquire load in `read`, the fence with the Acquire fences
        // there and in `walk`.
        self.oldest.store(end, Release);
        W::fence(Release);
        self.blank_between(begin.wrapping_add(size), end.wrapping_add(size));
        mneme_sys::fault!("log.feed.blanked");
        // SYNC: pairs with the Acquire load in `space_behind`.
        self.freed.store(end, Release);
    }
}

/// The bytes of an entry of lap 0.
#[cfg(test)]
pub(crate) fn entry_bytes(state: State, slot: SlotId, body: &[u8]) -> Vec<u8> {
    let by = Author { slot, process: 0 };
    let header = FeedHeader::new(state, HEADER_BYTES + body.len(), by, 0);
    let mut bytes = [&header.0.to_le_bytes(), body].concat();
    bytes.resize(header.stride() as usize, 0);
    bytes
}
