//! Where a store's change feed lies, and how a change is entered: in the data region, after the
//! log's tables. Openings that may only read cannot write it.
//!
//! ```text
//! 0      tail
//! 128    freed, durable, oldest, losses
//! 160    the lock of the thread that frees, in a feed that is not kept
//! 256    the entry of a database being dropped: its position plus one, 0: none; the dropped root
//! 272    the entry of a swap under way: its position plus one, 0: none
//! 480    the drainer's note
//! 512    for each thread slot, 32 bytes: the change whose pieces it sends ahead
//! 33280  for each opening a word: where its last entry for others ends
//! 33792  the ring
//! ```
//!
//! **A feed that is kept** has a follower that must lose nothing, a journal or a tree. Even while
//! no process drains it, every change is entered whole, and waits for space. **Any other feed** is
//! for followers that may lose entries. A change is entered without its value, and only if another
//! opening follows. Writers overwrite the oldest entries; a change that finds no space is counted
//! as lost. Followers that may lose entries only read the feed, of whichever kind it is: no thread
//! waits for such a follower, wherever it stops or dies.

use std::ptr::NonNull;
use std::slice::Iter;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use mneme_sync::{Interest, Participants, RobustLock, Slot, SlotId};

use super::ahead::Group;
use super::bell::FeedBell;
use super::item::{Item, RemovalCause};
use super::ring::{Author, FeedRing, HEADER_BYTES, Reserved, RingRefused, State};
use crate::error::{Corrupt, OpenError, WriteError};
use crate::region::layout::{
    FEED_GROUPS, FEED_HEADER, FEED_OPENINGS, FEED_SPARE, MAX_ENTRY, Tables,
};
use crate::region::mem::{Loc, Mem};

#[repr(C)]
struct Words {
    tail: AtomicU64,
    spare: [AtomicU64; 15],
    freed: AtomicU64,
    durable: AtomicU64,
    oldest: AtomicU64,
    losses: AtomicU64,
    freeing: RobustLock,
    spare_of_drainer: [AtomicU64; 11],
    dropping: Binding,
    swapping: Binding,
    spare_of_bindings: [AtomicU64; 24],
    note: [AtomicU64; 4],
    groups: [Group; FEED_GROUPS],
    last: [AtomicU64; FEED_OPENINGS],
}
const _: () = assert!(size_of::<Words>() as u64 == FEED_HEADER);

/// A `Bind` being made, for the thread that inherits the lock under which it is made.
#[repr(C)]
struct Binding {
    /// Its position plus one.
    entry: AtomicU64,
    /// The location of the root that is dropped.
    root: AtomicU64,
}

/// The feed of an open store.
pub(crate) struct FeedArea {
    words: NonNull<Words>,
    ring: NonNull<AtomicU64>,
    ring_words: usize,
    secret: u64,
    /// Whether a journal or a tree keeps what is entered.
    kept: bool,
    participants: Participants,
    bell: FeedBell,
    /// Whether this opening's changes are entered.
    enters: AtomicBool,
    /// Whether changes that no caller has requested are not entered.
    rests: AtomicBool,
    /// Swaps of databases by this opening.
    own_swaps: AtomicU64,
    /// Listeners of this opening that receive its own removals.
    hearing: AtomicUsize,
    /// The position up to which space was freed when a change had exhausted its attempts. While it
    /// stays there, a thread that frees is stopped, and others try only once.
    stuck: AtomicU64,
    /// Keeps the memory.
    _mem: Mem,
}

// SAFETY: the pointers lead into the data region, which `_mem` keeps, and to atomics only.
unsafe impl Send for FeedArea {}
// SAFETY: as above.
unsafe impl Sync for FeedArea {}

/// How often a change that may be lost tries to find space.
const TRIES: u32 = 64;

/// What makes a `Bind` exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binds {
    /// A database is cleared, under the lock of the roots.
    Dropping,
    /// Two are swapped, under the lock of swaps.
    Swapping,
}

impl FeedArea {
    /// The feed of the store with these tables.
    ///
    /// # Errors
    /// It does not lie within the regions.
    pub fn of(mem: &Mem, tables: &Tables, of: &Participants) -> Result<FeedArea, OpenError> {
        let (at, ring, seed) = (tables.feed_at(), tables.feed.bytes(), tables.seed);
        let address = mem.address(Loc::of_byte(at), FEED_HEADER + ring)?;
        let behind = address.wrapping_add(size_of::<Words>());
        let pointers = NonNull::new(address.cast()).zip(NonNull::new(behind.cast()));
        let (words, behind) = pointers.ok_or_else(|| Corrupt::at(at, "the feed lies nowhere"))?;
        Ok(FeedArea {
            words,
            ring: behind,
            ring_words: (ring / 8) as usize,
            // Clients can observe only the order of keys, which depends on it.
            secret: seed.rotate_left(32) ^ 0x6d6e_656d_6566_6565,
            kept: tables.feed.is_kept(),
            participants: of.clone(),
            bell: FeedBell::of(of)?,
            enters: AtomicBool::new(true),
            rests: AtomicBool::new(false),
            own_swaps: AtomicU64::new(0),
            hearing: AtomicUsize::new(0),
            // No position.
            stuck: AtomicU64::new(1),
            _mem: mem.clone(),
        })
    }

    /// Begins a feed in which nothing was entered. No other thread uses it.
    pub fn clear(&self) {
        if self.kept {
            return self.ring().clear(0);
        }
        let words = self.words();
        for word in [&words.tail, &words.oldest, &words.losses] {
            word.store(0, Relaxed);
        }
        words.last.iter().for_each(|last| last.store(0, Relaxed));
        // Its owner may belong to an earlier incarnation of the control region.
        words.freeing.orphan();
        // The first thread that finds no space blanks the ring, whose memory is not touched before.
        let ring = self.ring();
        ring.words[0].store(0, Relaxed);
        words.freed.store(ring.size().wrapping_neg(), Release);
    }

    /// This feed, if it is kept.
    pub fn kept(&self) -> Option<&FeedArea> {
        self.kept.then_some(self)
    }

    /// The bell of its followers.
    pub fn bell(&self) -> &FeedBell {
        &self.bell
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: `of` checked that it lies in the region, which never shrinks and is kept; atomics
        // alone, at a multiple of 8 bytes.
        unsafe { self.words.as_ref() }
    }

    pub fn ring(&self) -> FeedRing<'_, AtomicU64> {
        let words = self.words();
        FeedRing {
            tail: &words.tail,
            // A feed that is not kept retains nothing.
            durable: if self.kept {
                &words.durable
            } else {
                &words.oldest
            },
            oldest: &words.oldest,
            freed: &words.freed,
            // SAFETY: as in `words`.
            words: unsafe { std::slice::from_raw_parts(self.ring.as_ptr(), self.ring_words) },
            secret: self.secret,
            spare: if self.kept { FEED_SPARE } else { 0 },
        }
    }

    pub(super) fn groups(&self) -> &[Group; FEED_GROUPS] {
        &self.words().groups
    }

    /// Whether a quarter of the ring is free. A thread that waits for space waits for that much:
    /// space for one entry would be taken by others before the thread could use it.
    pub fn has_ample_space(&self) -> bool {
        let ring = self.ring();
        ring.has_space(ring.size() / 4)
    }

    /// Whether this opening's changes are entered from now on. No other thread changes the store.
    pub fn set_enters(&self, enters: bool) {
        self.enters.store(enters, Relaxed);
    }

    /// Whether this opening's changes are entered.
    pub fn enters(&self) -> bool {
        self.enters.load(Relaxed)
    }

    /// Sets whether changes that no caller has requested are left out from now on. No other thread
    /// changes the store.
    pub fn set_rests(&self, rests: bool) {
        self.rests.store(rests, Relaxed);
    }

    /// Whether changes that no caller has requested are left out.
    pub fn rests(&self) -> bool {
        self.rests.load(Relaxed)
    }

    /// Counts a swap of databases that this opening has made.
    pub fn count_own_swap(&self) {
        // SYNC: pairs with the Acquire load in `own_swaps`.
        self.own_swaps.fetch_add(1, Release);
    }

    /// How many swaps of databases this opening has made. Its listeners do not read its entries.
    pub fn own_swaps(&self) -> u64 {
        // SYNC: pairs with the Release in `count_own_swap`: a thread that sees the count sees the
        // swap.
        self.own_swaps.load(Acquire)
    }

    /// The position before which everything is kept elsewhere.
    pub fn durable(&self) -> u64 {
        // SYNC: pairs with the Release in `FeedRing::set_durable`.
        self.words().durable.load(Acquire)
    }

    /// Whether this opening's changes are to be entered. The caller has announced the change.
    #[inline(always)]
    pub fn is_followed(&self) -> bool {
        self.kept || self.has_other_followers()
    }

    /// Whether another opening listens. The caller has announced its change.
    #[inline(always)]
    pub fn has_other_followers(&self) -> bool {
        self.participants.is_watched_by_others(Interest::Changes)
    }

    /// Counts a listener of this opening that from now on receives its own removals, or no longer
    /// does.
    pub fn hear_removals(&self, hears: bool) {
        // SYNC: pairs with the load in `are_removals_reported`, by the barrier with which the
        // listener looks for changes that are under way.
        match hears {
            true => self.hearing.fetch_add(1, Relaxed),
            false => self.hearing.fetch_sub(1, Relaxed),
        };
    }

    /// Whether removals that this opening makes by itself are entered for its own listeners. The
    /// caller has announced the change, and has checked for [others](Self::is_followed).
    pub fn are_removals_reported(&self) -> bool {
        self.hearing.load(Relaxed) != 0
    }

    /// The number that replaces this opening's in an entry that is for its own listeners, too. With
    /// more than 64 openings it may be the number of another opening. The removals that the other
    /// one makes by itself are then reported only to its own listeners of removals.
    pub fn own_removals(&self) -> u16 {
        let own = self.participants.process_number();
        own.wrapping_add(FEED_OPENINGS as u16)
    }

    /// The author of an entry of these items.
    fn author_of(&self, slot: &Slot<'_>, items: &[Item<'_>]) -> Author {
        match items {
            [Item::Remove { cause, .. }]
                if *cause != RemovalCause::Asked && self.are_removals_reported() =>
            {
                Author {
                    process: self.own_removals(),
                    ..self.author(slot)
                }
            }
            _ => self.author(slot),
        }
    }

    pub(super) fn author(&self, slot: &Slot<'_>) -> Author {
        Author {
            slot: slot.id(),
            process: self.participants.process_number(),
        }
    }

    /// Steps *reserved* and *filled* of an entry of these items. The caller has announced its
    /// change, and holds the lock that orders it among others. `None`: it is not entered.
    ///
    /// Items that are too long for an entry were [sent ahead](Self::send_ahead). The entry says
    /// that they take effect.
    ///
    /// # Errors
    /// There is no free space, or the items are too long and were not sent ahead. Nothing was
    /// reserved.
    #[cold]
    #[inline(never)]
    pub fn enter(
        &self,
        slot: &Slot<'_>,
        items: &[Item<'_>],
    ) -> Result<Option<Reserved>, WriteError> {
        // Relaxed, as there: no other thread changes the store while they are not.
        if !self.enters() {
            return Ok(None);
        }
        if !self.kept {
            return Ok(self.enter_abridged(slot, items));
        }
        let bytes = HEADER_BYTES + items.iter().map(Item::encoded_len).sum::<usize>();
        if bytes > MAX_ENTRY {
            return self.enter_sent(slot).map(Some);
        }
        let reserved = self.ring().reserve(self.author_of(slot, items), bytes);
        let entry = reserved.map_err(|refused| self.refused(refused))?;
        self.note_last(entry);
        self.fill(entry, items.iter().copied());
        mneme_sys::fault!("log.feed.filled");
        Ok(Some(entry))
    }

    /// As [`enter`](Self::enter), for followers that may lose entries.
    fn enter_abridged(&self, slot: &Slot<'_>, items: &[Item<'_>]) -> Option<Reserved> {
        let author = self.author_of(slot, items);
        let items = items.iter().map(|item| item.abridged());
        let bytes = HEADER_BYTES + items.clone().map(|item| item.encoded_len()).sum::<usize>();
        let ring = self.ring();
        let (freed, mut tries) = (ring.freed.load(Relaxed), 0);
        let most = match self.stuck.load(Relaxed) == freed {
            true => 1,
            false => TRIES,
        };
        let entry = loop {
            if bytes <= MAX_ENTRY
                && let Ok(entry) = ring.reserve(author, bytes)
            {
                break entry;
            }
            // A thread that frees is stopped, or an entry that is not complete blocks the way.
            if bytes > MAX_ENTRY || tries == most {
                if tries == most {
                    self.stuck.store(freed, Relaxed);
                }
                self.lose();
                return None;
            }
            tries += 1;
            // Its last owner may have died in the middle.
            match self.words().freeing.try_lock(slot) {
                Some(acquired) => {
                    let guard = acquired.into_inner();
                    guard.repaired();
                    if !ring.has_space(bytes as u64) {
                        ring.free_oldest(ring.size() / 4);
                    }
                }
                None => std::thread::yield_now(),
            }
        };
        self.note_last(entry);
        self.fill(entry, items);
        mneme_sys::fault!("log.feed.filled");
        Some(entry)
    }

    /// Notes for followers where this opening's last entry ends. The entry is not complete.
    pub(super) fn note_last(&self, entry: Reserved) {
        let own = self.participants.process_number();
        if self.has_other_followers() {
            // SYNC: followers load it once it was overwritten, which orders it.
            self.last_of(own).fetch_max(entry.end(), Relaxed);
        }
        if entry.is_of(self.own_removals()) {
            // SYNC: as above. For followers of this opening, it is as if another had entered it.
            self.last_of(own.wrapping_add(1))
                .fetch_max(entry.end(), Relaxed);
        }
    }

    fn last_of(&self, process: u16) -> &AtomicU64 {
        &self.words().last[usize::from(process) % FEED_OPENINGS]
    }

    /// Whether another opening may have entered something after `at`, counting complete entries
    /// only.
    pub fn have_others_entered(&self, at: u64) -> bool {
        let own = self.last_of(self.participants.process_number());
        let others = self
            .words()
            .last
            .iter()
            .filter(|last| !std::ptr::eq(*last, own));
        others
            .map(|last| last.load(Relaxed))
            .any(|last| last.wrapping_sub(at) as i64 > 0)
    }

    /// Counts a change that was not entered, before the change is made. A thread that sees the new
    /// count sees the change announced.
    #[cold]
    fn lose(&self) {
        // SYNC: pairs with the Acquire load in `losses`.
        self.words().losses.fetch_add(1, Release);
        mneme_sys::fault!("log.feed.lost");
        self.bell.ring();
    }

    /// How often a change was not entered.
    pub fn losses(&self) -> u64 {
        // SYNC: pairs with the Release in `lose`.
        self.words().losses.load(Acquire)
    }

    /// Wakes followers, so that they look again.
    fn ring_for_others(&self) {
        if self.has_other_followers() {
            self.bell.ring();
        }
    }

    /// Wakes the followers of a complete entry, so that they look again.
    fn ring_for_followers(&self, entry: Reserved) {
        match entry.is_of(self.own_removals()) {
            true => self.bell.ring(),
            false => self.ring_for_others(),
        }
    }

    /// The number of durable bytes that stay in the ring for followers that may lose entries.
    pub fn retained(&self) -> u64 {
        match self.participants.is_watched(Interest::Changes) {
            true => self.ring().size() / 8,
            false => 0,
        }
    }

    /// As [`enter`](Self::enter), for items that the thread has sent ahead.
    pub fn enter_sent(&self, slot: &Slot<'_>) -> Result<Reserved, WriteError> {
        let item = self.sent(slot).ok_or(WriteError::FeedFull)?;
        let bytes = HEADER_BYTES + item.encoded_len();
        let reserved = self.ring().reserve(self.author(slot), bytes);
        let entry = reserved.map_err(|refused| self.refused(refused))?;
        self.note_last(entry);
        self.fill(entry, [item]);
        mneme_sys::fault!("log.feed.filled");
        Ok(entry)
    }

    /// Step *filled*.
    #[inline]
    pub(super) fn fill<'i>(&self, entry: Reserved, items: impl IntoIterator<Item = Item<'i>>) {
        let mut filler = self.filler(entry);
        for item in items {
            item.encode(|part| filler.push(part));
        }
        filler.end();
    }

    #[inline]
    pub(super) fn filler(&self, entry: Reserved) -> Filler<'_> {
        let [words, behind] = self.ring().body(entry);
        Filler {
            words: words.iter(),
            behind,
            word: 0,
            bits: 0,
        }
    }

    /// Whether these items are to be kept whole and are too long for an entry.
    pub fn is_too_long(&self, items: &[Item<'_>]) -> bool {
        let bytes = || items.iter().map(Item::encoded_len).sum::<usize>();
        self.kept && HEADER_BYTES + bytes() > MAX_ENTRY
    }

    /// Step *completed*: the change has happened.
    #[cold]
    #[inline(never)]
    pub fn complete(&self, entry: Reserved) {
        self.ring().complete(entry, State::Whole);
        self.ring_for_followers(entry);
    }

    /// Step *completed*: the change has not happened.
    #[cold]
    #[inline(never)]
    pub fn void(&self, entry: Reserved) {
        self.ring().complete(entry, State::Void);
        self.ring_for_followers(entry);
    }

    pub fn refused(&self, refused: RingRefused) -> WriteError {
        match refused {
            RingRefused::Full => WriteError::FeedFull,
            RingRefused::Damaged(at) => {
                let what = format!("no entry at position {at} of the change feed");
                Corrupt::at(at % self.ring().size(), what).into()
            }
        }
    }

    /// Completes the entry that the dead thread has left, if there is one.
    pub fn settle(&self, dead: SlotId, state: State) -> Result<(), WriteError> {
        let settled = self.ring().settle(|slot| slot == dead, state);
        // Listeners of this opening are woken too: the dead thread may have been about to do it.
        if self.participants.is_watched(Interest::Changes) {
            self.bell.ring();
        }
        settled.map_err(|r| self.refused(r))
    }

    /// Voids all entries that are not complete, when no thread of their incarnation is left.
    pub fn void_all(&self) -> Result<(), WriteError> {
        let settled = self.ring().settle(|_| true, State::Void);
        settled.map_err(|r| self.refused(r))
    }

    /// Words in which the drainer leaves notes for its successor.
    pub fn note(&self) -> &[AtomicU64; 4] {
        &self.words().note
    }

    fn binding(&self, binds: Binds) -> &Binding {
        match binds {
            Binds::Dropping => &self.words().dropping,
            Binds::Swapping => &self.words().swapping,
        }
    }

    /// Notes an entry that says what the holder of a lock is about to do, and the root that is
    /// dropped. It is noted before that step begins.
    pub fn note_binding(&self, binds: Binds, entry: Reserved, root: u64) {
        let binding = self.binding(binds);
        // Relaxed: the lock's next owner acquires it.
        binding.root.store(root, Relaxed);
        // SYNC: pairs with the Acquire load in `noted_binding`.
        binding.entry.store(entry.at.wrapping_add(1), Release);
        mneme_sys::fault!("log.feed.bound");
    }

    /// The noted position of the entry, and the root.
    fn noted_binding(&self, binds: Binds) -> Option<(u64, u64)> {
        let binding = self.binding(binds);
        // SYNC: pairs with the Release in `note_binding`.
        let entry = binding.entry.load(Acquire).checked_sub(1)?;
        Some((entry, binding.root.load(Relaxed)))
    }

    /// Completes the entry that is noted, if any: as whole if what it says has happened or will
    /// happen, else as void. The caller holds the lock, whose last owner may have died.
    pub fn settle_binding(&self, binds: Binds, happened: impl FnOnce(u64) -> bool) {
        if let Some((entry, root)) = self.noted_binding(binds) {
            let state = match happened(root) {
                true => State::Whole,
                false => State::Void,
            };
            self.ring().settle_at(entry, state);
            self.ring_for_others();
            mneme_sys::fault!("log.feed.settled");
            self.binding(binds).entry.store(0, Release);
        }
    }

    /// Whether an entry is noted that `dead` has not completed.
    pub fn has_bound(&self, binds: Binds, dead: SlotId) -> bool {
        let noted = self.noted_binding(binds);
        noted.is_some_and(|(entry, _)| self.ring().is_reserved_by(entry, dead))
    }
}

/// Stores the bytes of a body by whole words.
pub(super) struct Filler<'r> {
    /// The next words of the body up to the ring's end, and those at its beginning.
    words: Iter<'r, AtomicU64>,
    behind: &'r [AtomicU64],
    /// The low bytes of the next word, and how many bits they have.
    word: u64,
    bits: u32,
}

impl Filler<'_> {
    #[inline]
    pub fn push(&mut self, part: &[u8]) {
        let (chunks, rest) = part.as_chunks::<8>();
        let bits = self.bits;
        match bits {
            0 => chunks
                .iter()
                .for_each(|chunk| self.store(u64::from_le_bytes(*chunk))),
            _ => {
                for chunk in chunks {
                    let bytes = u64::from_le_bytes(*chunk);
                    self.store(self.word | bytes << bits);
                    self.word = bytes >> (64 - bits);
                }
            }
        }
        let bytes = rest
            .iter()
            .rev()
            .fold(0, |bytes, byte| bytes << 8 | u64::from(*byte));
        self.word |= bytes << bits;
        self.bits += 8 * rest.len() as u32;
        if self.bits >= 64 {
            self.store(self.word);
            // A part of the rest is stored already: what is left is shorter than a word.
            self.word = bytes >> (64 - bits);
            self.bits -= 64;
        }
    }

    pub fn end(mut self) {
        if self.bits > 0 {
            self.store(self.word);
        }
    }

    #[inline]
    fn store(&mut self, word: u64) {
        let place = match self.words.next() {
            None => {
                self.words = std::mem::take(&mut self.behind).iter();
                self.words.next()
            }
            place => place,
        };
        // There is a place for every byte for which the entry was reserved. Relaxed: the header
        // publishes it.
        if let Some(place) = place {
            place.store(word, Relaxed);
        }
    }
}
