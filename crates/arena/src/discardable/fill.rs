//! How a record is put into the cache: into the frame that its node is filling.

use super::index::{Entry, UNIT, low_generation, tag_of};
use super::record::{RecordPlace, bytes_of};
use super::{Discardable, Dropped, MAX_RECORD, PutError, Stored};
use crate::descriptor::{State, Status};
use crate::frame::{FRAME_BYTES, Frame};
use crate::lending::{FillNode, Lending, NOT_BEGUN};
use mneme_sync::{Guard, Slot};
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of puts in a row that may find a fill lock held before the caller asks whether its
/// owner is alive.
const ASK_AFTER: u64 = 16;

/// A record that is about to be put.
pub(super) struct DraftRecord<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The version of its bucket when the value was current.
    pub version: u64,
}

impl Discardable {
    pub(super) fn store(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        record: &DraftRecord<'_>,
    ) -> Result<Stored, PutError> {
        let bytes = record.key.len().saturating_add(record.value.len());
        if bytes > MAX_RECORD {
            return Err(PutError::TooLarge {
                bytes,
                most: MAX_RECORD,
            });
        }
        self.arena.may_write()?;
        let lending = self.lending()?;
        for node in self.arena.nodes_from(node) {
            let Some(fill) = lending.node(*node) else {
                continue;
            };
            let Some(guard) = self.fill_lock(slot, fill) else {
                return Ok(Stored::Dropped(Dropped::Busy));
            };
            let Some(place) = self.append(&lending, fill, *node, record)? else {
                continue;
            };
            drop(guard);
            mneme_sys::fault!("arena.lend.stored");
            return Ok(self.enter(&lending, place, record));
        }
        Ok(Stored::Dropped(Dropped::NoFrame))
    }

    /// The lock for what the node fills. Nobody waits for it: a put that finds it held is dropped.
    /// A dead owner's lock is taken over.
    fn fill_lock<'a>(&'a self, slot: &Slot<'a>, fill: &'a FillNode) -> Option<Guard<'a>> {
        self.arena.participants.admit(slot).ok()?;
        let acquired = fill.lock.try_lock_free(slot).or_else(|| {
            let found_busy = self.found_busy.fetch_add(1, Relaxed);
            found_busy
                .is_multiple_of(ASK_AFTER)
                .then(|| fill.lock.try_lock(slot))
                .flatten()
        })?;
        let died = acquired.owner_died();
        let guard = acquired.into_inner();
        if died {
            // Each step leaves a state that the next owner can continue from: see `append`.
            guard.repaired();
        }
        Some(guard)
    }

    /// Writes the record after the last one of the frame that the node is filling, or begins a
    /// frame. `None` if no frame is available.
    ///
    /// A dead owner may have left a frame that it was not certain to keep, which is given back; a
    /// half-filled frame, which is filled further; or bytes after the last record, which are
    /// overwritten, since no entry leads to them.
    fn append(
        &self,
        lending: &Lending<'_>,
        fill: &FillNode,
        node: u16,
        record: &DraftRecord<'_>,
    ) -> Result<Option<RecordPlace>, RegionError> {
        let bytes = bytes_of(record.key.len(), record.value.len()) as u64;
        let mut place = None;
        if let Some((frame, generation)) = self.filling(fill)? {
            // SYNC: pairs with the Release store below, by a previous owner.
            let used = fill.used.load(Acquire);
            if used == NOT_BEGUN {
                self.arena.give_back(lending, frame.0, None);
            } else if used.is_multiple_of(UNIT as u64) && used.saturating_add(bytes) <= FRAME_BYTES
            {
                place = Some((frame, generation, used));
            } else {
                self.seal(lending, frame, generation)?;
            }
        }
        let (frame, generation, used) = match place {
            Some(place) => place,
            None => {
                let refill = || self.name_victims(lending, NodeId(node));
                let Some(rented) = self.arena.rent(lending, node, refill)? else {
                    return Ok(None);
                };
                self.admission.note_frame(rented.evicted);
                if let Some(uses) = lending.uses(rented.frame.0) {
                    uses.hits.store(0, Relaxed);
                }
                (rented.frame, rented.generation, 0)
            }
        };
        let place = RecordPlace {
            frame,
            generation,
            offset: used as u32,
        };
        let region = self.arena.region();
        self.records
            .write(region, place, record.hash, record.key, record.value)?;
        mneme_sys::fault!("arena.lend.written");
        // SYNC: pairs with the Acquire load above.
        fill.used.store(used + bytes, Release);
        Ok(Some(place))
    }

    /// The frame that is being filled, with its generation.
    fn filling(&self, fill: &FillNode) -> Result<Option<(Frame, u32)>, RegionError> {
        // SYNC: pairs with the Release store in `rent`.
        let Ok(frame) = u32::try_from(fill.frame.load(Acquire)) else {
            return Ok(None);
        };
        let status = self.arena.table()?.get(frame).and_then(|it| it.status());
        Ok(status
            .filter(|status| status.state == State::Filling)
            .map(|status| (Frame(frame), status.generation)))
    }

    /// Makes the frame available for claims. It is never written again.
    fn seal(
        &self,
        lending: &Lending<'_>,
        frame: Frame,
        generation: u32,
    ) -> Result<(), RegionError> {
        if let Some(uses) = lending.uses(frame.0) {
            let born = lending.header().born.fetch_add(1, Relaxed);
            uses.born.store(born.wrapping_add(1), Relaxed);
        }
        mneme_sys::fault!("arena.lend.numbered");
        if let Some(descriptor) = self.arena.table()?.get(frame.0) {
            descriptor.seal(generation);
        }
        mneme_sys::fault!("arena.lend.sealed");
        Ok(())
    }

    /// Enters the record into the index.
    fn enter(&self, lending: &Lending<'_>, place: RecordPlace, record: &DraftRecord<'_>) -> Stored {
        let Some(bucket) = self.bucket(lending, record.hash) else {
            return Stored::Dropped(Dropped::Superseded);
        };
        let entry = Entry {
            frame: place.frame.0,
            offset: place.offset,
            generation: low_generation(place.generation),
            tag: tag_of(record.hash),
        };
        let choice = (record.hash >> 16) as usize;
        let entered = bucket.insert(record.version, entry, choice, |other| {
            self.lent_as(other).is_none()
        });
        mneme_sys::fault!("arena.lend.entered");
        if entered {
            Stored::Kept
        } else {
            Stored::Dropped(Dropped::Superseded)
        }
    }

    /// The generation of the entry's frame, if that frame is lent and may be the one meant.
    pub(super) fn lent_as(&self, entry: Entry) -> Option<u32> {
        let generation = self.arena.table().ok()?.get(entry.frame)?.lent()?;
        (low_generation(generation) == entry.generation).then_some(generation)
    }

    /// Gives back all rented frames.
    pub(super) fn give_back_rented(&self, lending: &Lending<'_>) -> Result<(), RegionError> {
        for node in 0..self.arena.nodes() {
            for (frame, generation) in self.arena.rented_on(NodeId(node))? {
                let rented = Status {
                    state: State::Rented,
                    ..Status::free(generation)
                };
                self.arena.give_back(lending, frame, Some(rented));
            }
        }
        Ok(())
    }
}
