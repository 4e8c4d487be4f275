//! Changes that are too long for an entry: their items go ahead in pieces, unlocked, and one entry
//! under the locks says that they take place.
//!
//! Each thread sends one change ahead at a time. Its *group* says so in the feed's header: it is
//! noted before the first piece is reserved, and cleared once an entry says that the pieces are
//! needed no more. The reaper does that for the dead. So a tail at which no group is noted lies
//! between no change's pieces.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sync::{Slot, SlotId};
use mneme_sys::fault::without;

use super::area::{FeedArea, Filler};
use super::item::{Item, PIECE, encode_piece_head};
use super::ring::{HEADER_BYTES, Reserved, RingRefused};
use crate::error::WriteError;
use crate::region::layout::FEED_GROUPS;

/// What a thread has sent ahead or opened. Four words of the feed's header.
#[repr(C)]
pub(super) struct Group {
    /// Whether it has sent pieces that are needed: 1.
    noted: AtomicU64,
    /// Its id: the position of its first piece, in words.
    id: AtomicU64,
    /// Bytes of all its pieces; 0: not all are entered.
    length: AtomicU64,
    /// Whether the thread has entered an `Open` that no `Close` ends: 1.
    open: AtomicU64,
}

impl FeedArea {
    /// Slots count from 1: the last one has the first group.
    fn group(&self, of: SlotId) -> &Group {
        &self.groups()[usize::from(of.0) % FEED_GROUPS]
    }

    /// Enters these items in pieces, which are nothing until [`enter`](Self::enter) enters the same
    /// ones. The caller holds no lock that others wait for. A change that takes more than a quarter
    /// of the ring waits for space by `wait`, which may fail; another finds it at once.
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
                // No end is needed: it would take space that is kept, again at each try.
                group.noted.store(0, Release);
            }
            return Err(error);
        }
        group.length.store(length, Relaxed);
        Ok(())
    }

    /// The entry's only item, by which the pieces take place that the thread has sent ahead.
    pub(super) fn sent(&self, slot: &Slot<'_>) -> Option<Item<'static>> {
        let group = self.group(slot.id());
        let (id, length) = (group.id.load(Relaxed), group.length.load(Relaxed));
        (group.noted.load(Relaxed) != 0 && length != 0).then_some(Item::Pieces { id, length })
    }

    /// Says that the pieces that the thread in `of` has sent ahead are needed no more, if it has
    /// sent some: the change has taken place or was given up, or the thread is dead.
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
        // Before the entry is whole: the reaper ends what may be read.
        group.open.store(entry.is_some().into(), Release);
        if let Some(entry) = entry {
            mneme_sys::fault!("log.feed.opening");
            self.complete(entry);
            mneme_sys::fault!("log.feed.opened");
        }
        Ok(())
    }

    /// Enters the `Close` that the thread in `of` owes, if it does.
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

    /// Whether a thread owes a `Close`.
    pub fn is_within_group(&self) -> bool {
        // SYNC: pairs with the Release in `open`.
        let is_open = |group: &Group| group.open.load(Acquire) != 0;
        self.groups().iter().any(is_open)
    }

    /// Whether the thread in `of` owes a `Close`.
    pub fn has_opened(&self, of: SlotId) -> bool {
        self.group(of).open.load(Acquire) != 0
    }

    /// Enters what ends something.
    fn enter_end(&self, slot: &Slot<'_>, end: Item<'_>) -> Result<(), WriteError> {
        let bytes = HEADER_BYTES + end.encoded_len();
        let reserved = self.ring().reserve_end(self.author(slot), bytes);
        let entry = reserved.map_err(|refused| self.refused(refused))?;
        self.fill(entry, [end]);
        self.complete(entry);
        Ok(())
    }

    /// Ends what all threads have sent ahead or opened: none of their time is left.
    pub fn end_all(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        (0..self.groups().len()).try_for_each(|i| {
            self.forget(slot, SlotId(i as u16))?;
            self.close(slot, SlotId(i as u16))
        })
    }

    /// The tail, if no piece before it is of a change that takes place behind it.
    pub fn clean_position(&self) -> Option<u64> {
        let none_is_noted = |ids: &mut dyn FnMut(usize, u64) -> bool| {
            self.groups().iter().enumerate().all(|(i, group)| {
                // SYNC: pairs with the Release stores in `send_ahead` and `forget`: with the end of
                // a group comes its id.
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
        // A group whose note is not seen below has its first piece behind this tail. One that has
        // begun and ended in between has another id.
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
    /// Bytes in all, and those that pieces were reserved for.
    length: u64,
    sent: u64,
    id: u64,
    /// The piece that is being filled, and how many bytes it lacks.
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
            // Before the piece is whole: the reaper says of this id that nothing comes of it.
            self.feed.group(self.slot.id()).id.store(self.id, Relaxed);
        }
        let mut filler = self.feed.filler(entry);
        filler.push(&head(self.id));
        self.sent += bytes as u64;
        Ok((entry, filler, bytes))
    }
}
