//! The reader's side of the change feed, see [`crate::feed`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::{Lease, LeaseError, SlotId};
use thiserror::Error;

use crate::error::WriteError;
use crate::feed::area::FeedArea;
use crate::feed::item::items_of;
use crate::feed::ring::{FeedHeader, HEADER_BYTES, NextEntry, State};
use crate::feed::{Item, entries};
use crate::session::FEED_LEASE;
use crate::store::components::Store;

/// The right to drain the change feed of a store that was created with one
/// ([`Builder::change_feed`](crate::Builder::change_feed)).
///
/// The feed holds every change of the store, by any process, in an order in which it may be
/// replayed; [`entries`](crate::feed::entries) parses the drained bytes. A *position* is a byte of
/// the endless stream of entries. The space of entries is freed when they are marked as
/// [durable](Self::set_durable). Writers wait for space while the durable position moves, and get
/// [`WriteError::FeedFull`] if it does not move for ten seconds, or for one if nobody drains the
/// feed.
///
/// Of all openings in all processes one at a time has it, until it drops it or dies. The next one
/// drains from the durable position on, so it receives again what was drained and not durable yet.
///
/// ```
/// use mneme_log::{LogStore, feed::{Item, entries}};
///
/// let store = LogStore::builder().capacity(64 << 20).change_feed(true).open_private()?;
/// let mut feed = store.change_feed()?;
/// store.put(b"muse", b"Clio")?;
/// let mut bytes = Vec::new();
/// let drained = feed.drain(1 << 20, &mut bytes)?;
/// let mut seen = Vec::new();
/// for entry in entries(drained.start, &bytes) {
///     for item in entry?.items() {
///         if let Item::Put { key, bytes, .. } = item? {
///             seen.push((key.to_vec(), bytes.to_vec()));
///         }
///     }
/// }
/// assert_eq!(seen, [(b"muse".to_vec(), b"Clio".to_vec())]);
/// // Once they are kept elsewhere.
/// feed.set_durable(drained.end)?;
/// assert_eq!(feed.tail(), drained.end);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChangeFeed {
    lease: Lease,
    store: Arc<Store>,
    /// The end of what was drained.
    at: u64,
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ChangeFeed");
        debug.field("lease", &self.lease).field("at", &self.at);
        debug.finish_non_exhaustive()
    }
}

/// Runs `changes` between an `Open` and a `Close`: see
/// [`LogStore::feed_together`](crate::LogStore::feed_together).
pub(crate) fn feed_together<R>(
    store: &Store,
    changes: impl FnOnce() -> R,
) -> Result<R, WriteError> {
    let Some(feed) = store.session().feed.kept() else {
        return Ok(changes());
    };
    let opened = store.session().with_feed(|| {
        let slot = store.session().writer()?;
        let by = slot.id();
        // If changes of this thread already belong together, these changes join them.
        if feed.has_opened(by) {
            return Ok(None);
        }
        feed.open(&slot)?;
        Ok(Some(by))
    })?;
    let _closing = opened.map(|by| Closing { store, feed, by });
    Ok(changes())
}

/// Enters the `Close`, after a panic too. It never leaves [`feed_together`], so no caller can
/// forget it.
struct Closing<'s> {
    store: &'s Store,
    feed: &'s FeedArea,
    /// The thread that has entered the `Open`: after a panic it may have another slot.
    by: SlotId,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if let Ok(slot) = self.store.session().writer() {
            // Space is reserved for it; it fails only because of damage, which the check reports.
            let _ = self.feed.close(&slot, self.by);
        }
    }
}

/// Why a change feed cannot be drained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The store was created without one.
    #[error("this store has no change feed; it gets one when it is created")]
    NoFeed,
    /// Another opening drains it, perhaps in this process.
    #[error("the change feed is being drained by process {pid} (0: not to be seen from here)")]
    Taken {
        /// Its process. 0 if it is just beginning or ending, or is not visible from here.
        pid: u32,
    },
    /// The holder cannot be determined.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The requested position was not drained, or was durable before.
    #[error(
        "position {position} is not between the durable one, {durable}, and what was drained, {drained}"
    )]
    NotDrained {
        /// The requested position.
        position: u64,
        /// The durable position.
        durable: u64,
        /// The end of what was drained.
        drained: u64,
    },
    /// The feed is damaged, this opening may only read, or what a dead thread left cannot be
    /// repaired.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The part of a store's change feed that no drainer has kept elsewhere: see
/// [`LogStore::salvage_feed`](crate::LogStore::salvage_feed).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SalvagedFeed {
    /// The drainer's [note](ChangeFeed::note).
    pub note: [u64; 4],
    /// Where the entries begin: everything before was kept elsewhere.
    pub start: u64,
    /// Whole entries, for [`entries`](crate::feed::entries).
    pub bytes: Vec<u8>,
}

impl SalvagedFeed {
    pub(crate) fn of(feed: &FeedArea) -> Self {
        let mut bytes = Vec::new();
        let to = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
        let all = feed.ring().salvage(to);
        end_unfinished(&mut bytes);
        // The ring's words say nothing about the content of an entry.
        let readable = entries(all.start, &bytes)
            .map_while(Result::ok)
            .take_while(|entry| entry.items().all(|item| item.is_ok()))
            .map(|entry| entry.stride())
            .sum();
        bytes.truncate(readable);
        Self {
            // Relaxed: no process drains it any more.
            note: feed.note().each_ref().map(|word| word.load(Relaxed)),
            start: all.start,
            bytes,
        }
    }
}

/// Makes entries void that their threads have not completed. Such a change may be visible, but its
/// thread's call has not returned, and no other thread has changed the record since. Whether a
/// database has lost its root decides where later changes took place. That is not known, so the
/// bytes end there. A new root is bound before it is linked: no later change took place in it.
fn end_unfinished(bytes: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let Some(header) = FeedHeader::of_word(u64::from_le_bytes(*word)) else {
            break;
        };
        let [begin, end] = [at, at + header.stride() as usize];
        if header.state() == State::Reserved {
            let body = &bytes[begin + HEADER_BYTES..begin + header.bytes()];
            let first = items_of(0, body).next();
            let makes_root =
                |databases: &[[u8; 8]], dead: &[[u8; 8]]| dead.is_empty() && databases.len() == 1;
            if let Some(Ok(Item::Bind { databases, dead })) = first
                && !makes_root(databases, dead)
            {
                bytes.truncate(begin);
                break;
            }
            bytes[begin..begin + HEADER_BYTES].copy_from_slice(&header.with(State::Void).word());
        }
        at = end;
    }
}

impl ChangeFeed {
    pub(crate) fn take(store: &Arc<Store>) -> Result<ChangeFeed, FeedError> {
        store.session().may_write()?;
        let feed = store.session().feed.kept().ok_or(FeedError::NoFeed)?;
        let participants = &store.session().participants;
        // The holder may end before it is identified.
        for _ in 0..8 {
            if let Some(lease) = participants.try_lease(FEED_LEASE)? {
                // The last drainer may have died before it had freed what it had made durable.
                if feed.ring().freed.load(Relaxed) != feed.durable() {
                    feed.ring().set_durable(feed.durable(), feed.retained());
                }
                return Ok(ChangeFeed {
                    lease,
                    at: feed.durable(),
                    store: Arc::clone(store),
                });
            }
            if let Some(pid) = participants.lease_holder(FEED_LEASE)? {
                return Err(FeedError::Taken { pid });
            }
        }
        Err(FeedError::Taken { pid: 0 })
    }

    fn feed(&self) -> Result<&FeedArea, FeedError> {
        self.store.session().feed.kept().ok_or(FeedError::NoFeed)
    }

    /// Appends whole entries to `bytes`: about `most` bytes, and at least one entry if there is
    /// one. Returns their positions. Stops before an entry whose change is still being made. What a
    /// dead thread left is repaired first.
    ///
    /// # Errors
    /// The feed is damaged, or what a dead thread left cannot be repaired now. Nothing was drained.
    pub fn drain(&mut self, most: usize, bytes: &mut Vec<u8>) -> Result<Range<u64>, FeedError> {
        let slot = self.store.session().writer()?;
        let feed = self.feed()?;
        let ring = feed.ring();
        let (start, mut reaped) = (self.at, false);
        let mut end = start;
        while end.wrapping_sub(start) < most.max(1) as u64 {
            match ring.next(end).map_err(|refused| feed.refused(refused))? {
                NextEntry::Complete(stride) => end = end.wrapping_add(stride),
                NextEntry::Unfinished(of)
                    if !reaped && self.store.session().participants.is_dead(of) =>
                {
                    reaped = true;
                    match self.store.reap(&slot) {
                        // Entries that are whole are returned first.
                        Err(_) if end != start => break,
                        reaped => drop(reaped?),
                    }
                }
                NextEntry::Unfinished(_) | NextEntry::Nothing => break,
            }
        }
        let begin = bytes.len();
        bytes.resize(begin + end.wrapping_sub(start) as usize, 0);
        // Whole words: every entry is padded.
        let mut places = bytes[begin..].as_chunks_mut::<8>().0.iter_mut();
        ring.copy(start, end, |word| {
            if let Some(place) = places.next() {
                *place = word.to_le_bytes();
            }
        });
        self.at = end;
        Ok(start..end)
    }

    /// Drains again what is not durable: the next [`drain`](Self::drain) begins at the durable
    /// position. For the case that drained entries could not be kept.
    pub fn rewind(&mut self) {
        self.at = self.durable();
    }

    /// Forgets all entries, and continues at `position`, a multiple of eight, as if everything
    /// before it were durable. For a store that was just rebuilt from a copy, so that its feed
    /// continues the copied one.
    ///
    /// No other thread of any process may write to the store meanwhile.
    ///
    /// # Errors
    /// This is a forked child.
    ///
    /// # Panics
    /// `position` is not a multiple of eight.
    pub fn restart_at(&mut self, position: u64) -> Result<(), FeedError> {
        assert!(
            position.is_multiple_of(8),
            "no entry of a feed begins at {position}"
        );
        self.store.session().writer()?;
        let ring = self.feed()?.ring();
        // The ring of a new store is clear, and up to 64 MiB long.
        if !ring.is_clear(position) {
            ring.clear(position);
        }
        self.at = position;
        Ok(())
    }

    /// Four words that the drainer keeps in the store for its successor; zeros at first.
    ///
    /// # Errors
    /// This is a forked child.
    pub fn note(&self) -> Result<[u64; 4], FeedError> {
        self.store.session().writer()?;
        // Relaxed: the lease orders this opening behind the one that stored them.
        Ok(self
            .feed()?
            .note()
            .each_ref()
            .map(|word| word.load(Relaxed)))
    }

    /// Stores word number `i` of the note, 0 to 3, at one instant.
    ///
    /// # Errors
    /// This is a forked child.
    ///
    /// # Panics
    /// There is no such word.
    pub fn set_note(&mut self, i: usize, word: u64) -> Result<(), FeedError> {
        self.store.session().writer()?;
        self.feed()?.note()[i].store(word, Relaxed);
        Ok(())
    }

    /// Marks everything before `position`, which was drained, as kept elsewhere. Its space is free
    /// for new entries.
    ///
    /// # Errors
    /// It was not drained, or a later position was durable before. Nothing has changed.
    pub fn set_durable(&mut self, position: u64) -> Result<(), FeedError> {
        // Not in a forked child, which does not have the lease.
        self.store.session().writer()?;
        let feed = self.feed()?;
        let durable = feed.durable();
        if position < durable || position > self.at {
            return Err(FeedError::NotDrained {
                position,
                durable,
                drained: self.at,
            });
        }
        feed.ring().set_durable(position, feed.retained());
        Ok(())
    }

    /// The tail, if it does not lie between the pieces of a change (see
    /// [`Assembly`](crate::feed::Assembly)). The entries from there on continue any copy of the
    /// store that is begun after everything before it was drained. `None`: a change is being
    /// entered in pieces.
    #[must_use]
    pub fn clean_position(&self) -> Option<u64> {
        self.store
            .session()
            .mapped_feed()
            .and_then(FeedArea::clean_position)
    }

    /// Whether a thread of any process has changes [bracketed](crate::LogStore::feed_together).
    #[must_use]
    pub fn is_within_group(&self) -> bool {
        self.store
            .session()
            .mapped_feed()
            .is_some_and(FeedArea::is_within_group)
    }

    /// The position before which everything is durable; 0 in a forked child.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.store
            .session()
            .mapped_feed()
            .map_or(0, FeedArea::durable)
    }

    /// The first position after everything that has been entered. Whatever a thread has seen in the
    /// store before it calls this lies before it. 0 in a forked child.
    #[must_use]
    pub fn tail(&self) -> u64 {
        let feed = self.store.session().mapped_feed();
        feed.map_or(0, |feed| feed.ring().tail())
    }

    /// The maximum number of bytes in the feed. Once a quarter of them is not durable, it is time
    /// to make them durable.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.store.session().feed.ring().size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::ring::entry_bytes;
    use crate::feed::{RemovalCause, binding};

    /// A thread had swapped databases, and another had continued in them, when both died.
    #[test]
    fn entries_that_an_unfinished_swap_decides_are_not_salvaged() {
        let entry = |state, item: Item<'_>| {
            let mut body = Vec::new();
            item.encode(|part| body.extend_from_slice(part));
            entry_bytes(state, SlotId(3), &body)
        };
        let change = Item::Remove {
            root: 1,
            key: b"key",
            cause: RemovalCause::Asked,
        };
        let databases = &[binding(0, 2), binding(1, 1)];
        let swap = Item::Bind {
            databases,
            dead: &[],
        };
        let [first, last] = [entry(State::Whole, change), entry(State::Whole, change)];
        let salvaged = |unfinished| {
            let mut bytes = [&first[..], &entry(State::Reserved, unfinished), &last].concat();
            end_unfinished(&mut bytes);
            bytes
        };
        assert_eq!(salvaged(swap), first);
        let drop = Item::Bind {
            databases: &[binding(0, 0)],
            dead: &[[1, 0, 0, 0, 0, 0, 0, 0]],
        };
        assert_eq!(salvaged(drop), first);
        // No later entry depends on a root that was not linked yet.
        let new = Item::Bind {
            databases: &[binding(2, 3)],
            dead: &[],
        };
        let void = entry(State::Void, new);
        assert_eq!(salvaged(new), [&first[..], &void, &last].concat());
        // A void change does not affect the others.
        let void = entry(State::Void, change);
        assert_eq!(salvaged(change), [&first[..], &void, &last].concat());
    }
}
