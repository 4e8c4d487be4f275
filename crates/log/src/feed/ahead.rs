//! Changes that are too long for an entry: their items are sent ahead in pieces, without a lock,
//! and one entry under the locks makes them take effect.
//!
//! Each thread sends one change ahead at a time. Its *group* in the feed's header records this: it
//! is noted before the first piece is reserved, and cleared once an entry says that the pieces are
//! no longer needed. The reaper does that for a dead thread. So a tail at which no group is noted
//! does not lie between the pieces of a change.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sync::{Slot, SlotId};
use mneme_sys::fault::without;

use super::area::{FeedArea, Filler};
use super::item::{Item, PIECE, encode_piece_head};
use super::ring::{HEADER_BYTES, Reserved, RingRefused};
use crate::error::WriteError;
use crate::region::layout::FEED_GROUPS;

/// What a thread has sent ahead or opened, in four words of the feed's header.
#[repr(C)]
pub(super) struct Group {
    /// 1 while it has sent pieces that are needed.
    noted: AtomicU64,
    /// Its id: the position of its first piece, in words.
    id: AtomicU64,
    /// Bytes of all its pieces; 0: some are not entered yet.
    length: AtomicU64,
    /// 1 if the thread has entered an `Open` whose `Close` is still missing.
    open: AtomicU64,
}

impl FeedArea {
    /// Slots count from 1, so the slot with number `FEED_GROUPS` has the first group.
    fn group(&self, of: SlotId) -> &Group {
        &self.groups()[usize::from(of.0) % FEED_GROUPS]
    }

    /// Enters these items in pieces, which have no effect until [`enter`](Self::enter) enters the
    /// same items. The caller holds no lock that others wait for. A change that takes more than a
    /// quarter of the ring calls `wait` until there is space, which may fail; a shorter one needs
    /// space at once.
    ///
    /// # Errors
    /// There is no space. The pieces are given up.
    #[cold]
    pub fn send_ahead(
        &self,
        slot: &Slot<'_>,
        items: &[Item<'_>],
        wait: impl FnMut() -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let length = items.iter().map(|item| item.encoded_len() as u64).sum();
        let ring = self.ring();
        let waits = length > ring.size() / 4;
        if !waits && !self.has_ample_space() {
            return Err(WriteError::FeedFull);
        }
        let group = self.group(slot.id());
        group.length.store(0, Relaxed);
        if !without("feed.noted") {
            // SYNC: pairs with the Acquire load in `clean_position`.
            group.noted.store(1, Release);
        }
        mneme_sys::fault!("log.feed.ahead");
        let mut sender = Sender {
            feed: self,
            slot,
            wait,
            waits,
            length,
            sent: 0,
            id: 0,
            piece: None,
            failed: None,
        };
        for item in items {
            item.encode(|part| sender.push(part));
        }
        let has_sent = sender.sent > 0;
        if let Some(error) = sender.failed {
            if has_sent {
                self.forget(slot, slot.id())?;
            } else {
                // No end is entered: it would take reserved space again at each attempt.
                group.noted.store(0, Release);
            }
            return Err(error);
        }
        group.length.store(length, Relaxed);
        Ok(())
    }

    /// The only item of the entry that makes the pieces sent ahead by this thread take effect.
    pub(super) fn sent(&self, slot: &Slot<'_>) -> Option<Item<'static>> {
        let group = self.group(slot.id());
        let (id, length) = (group.id.load(Relaxed), group.length.load(Relaxed));
        (group.noted.load(Relaxed) != 0 && length != 0).then_some(Item::Pieces { id, length })
    }

    /// If the thread in `of` has sent pieces ahead, enters that they are no longer needed: the
    /// change has taken effect or was given up, or the thread is dead.
    #[cold]
    pub fn forget(&self, slot: &Slot<'_>, of: SlotId) -> Result<(), WriteError> {
        let group = self.group(of);
        // SYNC: pairs with the Release in `send_ahead`, of a dead thread's.
        if group.noted.load(Acquire) == 0 {
            return Ok(());
        }
        let id = group.id.load(Relaxed);
        self.enter_end(slot, Item::Pieces { id, length: 0 })?;
        mneme_sys::fault!("log.feed.forgotten");
        group.length.store(0, Relaxed);
        // SYNC: pairs with the Acquire load in `clean_position`.
        group.noted.store(0, Release);
        Ok(())
    }

    /// Enters an `Open`. Everything up to the thread's [`close`](Self::close) belongs together.
    pub fn open(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        let group = self.group(slot.id());
        let entry = self.enter(slot, &[Item::Open])?;
        // Set before the entry is complete: the reaper closes every `Open` that can be read.
        group.open.store(entry.is_some().into(), Release);
        if let Some(entry) = entry {
            mneme_sys::fault!("log.feed.opening");
            self.complete(entry);
            mneme_sys::fault!("log.feed.opened");
        }
        Ok(())
    }

    /// Enters the `Close` that the thread in `of` still has to enter, if any.
    pub fn close(&self, slot: &Slot<'_>, of: SlotId) -> Result<(), WriteError> {
        let group = self.group(of);
        // SYNC: pairs with the Release in `open`, of a dead thread's.
        if group.open.load(Acquire) != 0 {
            self.enter_end(slot, Item::Close)?;
            mneme_sys::fault!("log.feed.closed");
            group.open.store(0, Release);
        }
        Ok(())
    }

    /// Whether a thread still has to enter a `Close`.
    pub fn is_within_group(&self) -> bool {
        // SYNC: pairs with the Release in `open`.
        let is_open = |group: &Group| group.open.load(Acquire) != 0;
        self.groups().iter().any(is_open)
    }

    /// Whether the thread in `of` still has to enter a `Close`.
    pub fn has_opened(&self, of: SlotId) -> bool {
        self.group(of).open.load(Acquire) != 0
    }

    /// Enters an item that ends a group.
    fn enter_end(&self, slot: &Slot<'_>, end: Item<'_>) -> Result<(), WriteError> {
        let bytes = HEADER_BYTES + end.encoded_len();
        let reserved = self.ring().reserve_end(self.author(slot), bytes);
        let entry = reserved.map_err(|refused| self.refused(refused))?;
        self.note_last(entry);
        self.fill(entry, [end]);
        self.complete(entry);
        Ok(())
    }

    /// Ends what all threads have sent ahead or opened, when no thread of their incarnation is
    /// left.
    pub fn end_all(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        (0..self.groups().len()).try_for_each(|i| {
            self.forget(slot, SlotId(i as u16))?;
            self.close(slot, SlotId(i as u16))
        })
    }

    /// The tail, unless a piece before it belongs to a change that takes effect after it.
    pub fn clean_position(&self) -> Option<u64> {
        let none_is_noted = |ids: &mut dyn FnMut(usize, u64) -> bool| {
            self.groups().iter().enumerate().all(|(i, group)| {
                // SYNC: pairs with the Release stores in `send_ahead` and `forget`: a thread that
                // sees that a group has ended sees its id.
                group.noted.load(Acquire) == 0 && ids(i, group.id.load(Relaxed))
            })
        };
        let mut before = Vec::with_capacity(self.groups().len());
        let mut note = |_, id| {
            before.push(id);
            true
        };
        if !none_is_noted(&mut note) {
            return None;
        }
        // A group whose note is not seen below has its first piece after this tail. A group that
        // has begun and ended in between has another id.
        let tail = self.ring().tail();
        none_is_noted(&mut |i, id| before[i] == id).then_some(tail)
    }
}

/// Enters bytes in pieces.
struct Sender<'f, 's, W> {
    feed: &'f FeedArea,
    slot: &'f Slot<'s>,
    wait: W,
    waits: bool,
    /// The total number of bytes, and the number for which pieces were reserved.
    length: u64,
    sent: u64,
    id: u64,
    /// The piece that is being filled, and how many bytes it still lacks.
    piece: Option<(Reserved, Filler<'f>, usize)>,
    failed: Option<WriteError>,
}

impl<'f, W: FnMut() -> Result<(), WriteError>> Sender<'f, '_, W> {
    fn push(&mut self, mut part: &[u8]) {
        while !part.is_empty() && self.failed.is_none() {
            let (entry, mut filler, lacks) = match self.piece.take() {
                Some(piece) => piece,
                None => match self.begin() {
                    Ok(piece) => piece,
                    Err(error) => {
                        self.failed = Some(error);
                        return;
                    }
                },
            };
            let (now, later) = part.split_at(part.len().min(lacks));
            filler.push(now);
            part = later;
            if now.len() < lacks {
                self.piece = Some((entry, filler, lacks - now.len()));
                continue;
            }
            filler.end();
            self.feed.complete(entry);
            mneme_sys::fault!("log.feed.piece");
        }
    }

    /// Reserves the next piece.
    fn begin(&mut self) -> Result<(Reserved, Filler<'f>, usize), WriteError> {
        let bytes = (self.length - self.sent).min(PIECE as u64) as usize;
        let head = |id| encode_piece_head(id, self.sent, bytes);
        let ring = self.feed.ring();
        let entry = loop {
            match ring.reserve(
                self.feed.author(self.slot),
                HEADER_BYTES + head(0).len() + bytes,
            ) {
                Ok(entry) => break entry,
                Err(RingRefused::Full) if self.waits => (self.wait)()?,
                Err(refused) => return Err(self.feed.refused(refused)),
            }
        };
        if self.sent == 0 {
            self.id = entry.at / 8;
            // Noted before the piece is complete: if this thread dies, the reaper enters that this
            // id has no effect.
            self.feed.group(self.slot.id()).id.store(self.id, Relaxed);
        }
        let mut filler = self.feed.filler(entry);
        filler.push(&head(self.id));
        self.sent += bytes as u64;
        Ok((entry, filler, bytes))
    }
}
