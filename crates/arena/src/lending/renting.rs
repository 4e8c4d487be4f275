//! How a tenant gets a frame to fill, and how frames are returned. Works without the arena's lock,
//! except [`Arena::end_lending`]; the documentation of `lending` says why that is safe.

use super::{FillNode, Lending, NOT_BEGUN, TRIES};
use crate::arena::Arena;
use crate::descriptor::{DescriptorTable, State, Status};
use crate::frame::Frame;
use crate::free_runs::words_of;
use mneme_sys::{NodeId, RegionError};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A frame to fill.
pub(crate) struct Rented {
    pub frame: Frame,
    pub generation: u32,
    /// Whether it contained records.
    pub evicted: bool,
}

impl Arena {
    /// The next frame that the policy evicts, if it is still rented.
    pub(super) fn take_victim(
        &self,
        table: &DescriptorTable<'_, AtomicU64>,
        fill: &FillNode,
    ) -> Option<(u32, Status)> {
        let range = self.geometry.first_frame..self.end_frame();
        fill.victims.iter().find_map(|victim| {
            if victim.load(Relaxed) == 0 {
                return None;
            }
            let named = victim.swap(0, Relaxed);
            let (frame, generation) = (named as u32, (named >> 32) as u32);
            let status = table.get(frame)?.status()?;
            (range.contains(&frame)
                && status.state == State::Rented
                && status.generation == generation)
                .then_some((frame, status))
        })
    }

    /// Whether another frame may be lent: neither the reserve nor the configured maximum forbids
    /// it, and no claim is in progress.
    fn may_lend(&self, lending: &Lending<'_>, from_idle: bool) -> Result<bool, RegionError> {
        let header = lending.header;
        if from_idle && header.lent.load(Relaxed) >= header.max_frames.load(Relaxed) {
            return Ok(false);
        }
        // The lock is read before the tree: if it is free, the tree shows what earlier claims have
        // taken.
        if self.lock_word()?.owner().is_some() {
            return Ok(false);
        }
        mneme_sys::fault!("arena.lend.looked");
        // The tree's count may or may not include frames that are being filled.
        let claimable = self.summary()?.free().saturating_sub(self.withheld());
        let filling = lending.nodes.len() as u32;
        Ok(claimable >= self.reserve_now()?.saturating_add(filling))
    }

    /// Takes a frame of the node for filling: an idle one, or else the policy's victim. Only for
    /// the holder of the node's fill lock; `refill` chooses victims if there are none.
    pub(crate) fn rent(
        &self,
        lending: &Lending<'_>,
        node: u16,
        refill: impl Fn() -> Result<(), RegionError>,
    ) -> Result<Option<Rented>, RegionError> {
        let table = self.table()?;
        let Some(fill) = lending.node(node) else {
            return Ok(None);
        };
        for _ in 0..TRIES {
            let idle = match self.may_lend(lending, true)? {
                true => self.highest_idle(lending, node)?,
                false => None,
            };
            let candidate = match idle {
                Some(frame) => {
                    // Before the descriptor is read: a release first frees the frame and then sets
                    // its bit.
                    lending.mark_idle(&(frame..frame + 1), false);
                    table
                        .get(frame)
                        .and_then(|descriptor| Some((frame, descriptor.status()?)))
                }
                None if !self.may_lend(lending, false)? => return Ok(None),
                None => match self.take_victim(&table, fill) {
                    None => {
                        refill()?;
                        self.take_victim(&table, fill)
                    }
                    victim => victim,
                },
            };
            let Some((frame, seen)) = candidate else {
                return Ok(None);
            };
            if idle.is_some() && (!seen.is_spare()) {
                continue;
            }
            let Some(descriptor) = table.get(frame) else {
                continue;
            };
            fill.used.store(NOT_BEGUN, Relaxed);
            // SYNC: pairs with the Acquire load in `mask_filling`: a claim that finds the frame
            // filling finds it named here.
            fill.frame.store(u64::from(frame), Release);
            mneme_sys::fault!("arena.lend.named");
            let Some(generation) = descriptor.begin_filling(seen) else {
                continue;
            };
            mneme_sys::fault!("arena.lend.taken");
            if seen.state == State::Free {
                lending.count_lent(1);
            }
            if !self.may_lend(lending, false)? {
                self.give_back(lending, frame, None);
                fill.frame.store(0, Release);
                return Ok(None);
            }
            // SYNC: pairs with the Acquire load of the lock's next owner, if this one dies.
            fill.used.store(0, Release);
            mneme_sys::fault!("arena.lend.kept");
            return Ok(Some(Rented {
                frame: Frame(frame),
                generation,
                evicted: seen.state == State::Rented,
            }));
        }
        Ok(None)
    }

    /// Frees a lent frame whose status is `seen`, or its current one if `None`.
    pub(crate) fn give_back(&self, lending: &Lending<'_>, frame: u32, seen: Option<Status>) {
        let given = self.table().is_ok_and(|table| {
            let descriptor = table.get(frame);
            descriptor.is_some_and(|descriptor| {
                let seen = seen.or_else(|| descriptor.status());
                seen.is_some_and(|seen| descriptor.give_back(seen))
            })
        });
        if given {
            lending.count_lent(-1);
            lending.mark_idle(&(frame..frame + 1), true);
        }
    }

    /// The highest frame of the node that the idle bitmap names.
    fn highest_idle(&self, lending: &Lending<'_>, node: u16) -> Result<Option<u32>, RegionError> {
        let zones: Vec<_> = self.zones()?.filter(|zone| zone.node == node).collect();
        Ok(zones.into_iter().rev().find_map(|zone| {
            let words: Vec<(u32, u64)> = words_of(&zone.range()).collect();
            words.into_iter().rev().find_map(|(index, mask)| {
                let bits = lending.idle.get(index as usize)?.load(Relaxed) & mask;
                (bits != 0).then(|| index * 64 + 63 - bits.leading_zeros())
            })
        }))
    }

    /// Counts the lent frames, and marks the idle ones.
    pub(crate) fn recount_lent(&self, lending: &Lending<'_>) -> Result<(), RegionError> {
        let table = self.table()?;
        let mut lent = 0;
        for frame in self.geometry.first_frame..self.end_frame() {
            match table.get(frame).and_then(|descriptor| descriptor.status()) {
                Some(status) if status.state.is_lent() => lent += 1,
                Some(status) if status.is_spare() => {
                    lending.mark_idle(&(frame..frame + 1), true);
                }
                _ => {}
            }
        }
        lending.header.lent.store(lent, Relaxed);
        Ok(())
    }

    /// Gives back everything that is lent and empties the index: for an arena that nobody else has
    /// open.
    pub(crate) fn end_lending(&self) -> Result<(), RegionError> {
        let Some(lending) = self.lending()? else {
            return Ok(());
        };
        for bucket in lending.index {
            bucket.reset();
        }
        mneme_sys::fault!("arena.recover.emptied");
        for node in lending.nodes {
            node.frame.store(0, Relaxed);
            node.masked.store(0, Relaxed);
            node.victims
                .iter()
                .for_each(|victim| victim.store(0, Relaxed));
        }
        for frame in self.geometry.first_frame..self.end_frame() {
            self.give_back(&lending, frame, None);
        }
        lending.header.lent.store(0, Relaxed);
        Ok(())
    }

    /// The frames in the node's zones that are rented, with their generations.
    pub(crate) fn rented_on(&self, node: NodeId) -> Result<Vec<(u32, u32)>, RegionError> {
        let table = self.table()?;
        let mut rented = Vec::new();
        for zone in self.zones()?.filter(|zone| zone.node == node.0) {
            rented.extend(zone.range().filter_map(|frame| {
                let status = table.get(frame)?.status()?;
                (status.state == State::Rented).then_some((frame, status.generation))
            }));
        }
        Ok(rented)
    }
}
