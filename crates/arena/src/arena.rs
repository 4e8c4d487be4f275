//! [`Arena`]: one opening of a region that is divided into extents.

use crate::AdoptError;
use crate::backed::Backed;
use crate::descriptor::{Descriptor, DescriptorTable, State};
use crate::frame::{Extent, Frame};
use crate::free_runs::Summary;
use crate::layout::{ARENA_HEADER, ArenaGeometry, ArenaHeader};
use crate::runs::RunsNode;
use crate::zone::{MAX_ZONES, Zone, ZoneEntry};
use mneme_sync::{Participants, RobustLock, SlotId};
use mneme_sys::{Access, NodeId, Region, RegionError};
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, OnceLock};

/// Information about the extent that contains a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentInfo {
    /// The extent.
    pub extent: Extent,
    /// The tag that its claimer gave it.
    pub tag: u16,
    /// Whether it has been adopted.
    pub state: ExtentState,
    /// Increases with every claim of any of its frames (and wraps after 2^32). A caller that
    /// remembers it together with a place in the extent can later detect whether the place still
    /// belongs to the same extent.
    pub generation: u32,
}

/// The state of a claimed extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
    /// Claimed by that thread slot, which has yet to adopt it. If the slot's process dies before
    /// that, [`Arena::repair`] frees the extent.
    Claimed(SlotId),
    /// Part of the tenant's structure until it is released.
    Held,
}

/// One opening of a region that is divided into extents.
///
/// `Send` and `Sync`. All state lies in the region: any number of openings, at any addresses, in
/// any number of processes, may be used at once, as long as they share one control region.
pub struct Arena {
    pub(crate) region: Arc<Region>,
    pub(crate) participants: Participants,
    pub(crate) geometry: ArenaGeometry,
    /// `order[n]` lists the arena's nodes by their distance from node `n`, nearest first.
    pub(crate) order: Vec<Vec<u16>>,
    pub(crate) backed: Backed,
    /// Dropped last: see [`Arena::keep_alive`].
    pub(crate) kept: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("region", &self.region)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl Arena {
    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The participants whose slots own claimed extents.
    pub fn participants(&self) -> &Participants {
        &self.participants
    }

    /// Keeps a value as long as this opening exists, for instance the value that records that its
    /// memory is in use: a cache in the arena may outlive the store that manages it. Only the first
    /// call has an effect.
    pub fn keep_alive(&self, what: Arc<dyn Any + Send + Sync>) {
        let _ = self.kept.set(what);
    }

    /// The bytes of the region that belong to the tenant itself; zeroed at creation, never moved.
    /// The range begins at a multiple of 128.
    pub fn client(&self) -> Range<u64> {
        self.geometry.client..self.geometry.client + self.geometry.client_bytes
    }

    /// The number of NUMA nodes that the arena is spread over.
    pub fn nodes(&self) -> u16 {
        // The list of node 0's neighbours contains each node once.
        self.order.first().map_or(1, |order| order.len() as u16)
    }

    /// The node that the frame is on; node 0 for a frame that is not available for claims.
    pub fn node_of(&self, frame: Frame) -> NodeId {
        if self.nodes() < 2 {
            return NodeId(0);
        }
        let found = self
            .zones()
            .ok()
            .and_then(|mut zones| zones.find(|zone| zone.range().contains(&frame.0)));
        NodeId(found.map_or(0, |zone| zone.node))
    }

    /// Changes how many frames are reserved from ordinary claims. Affects claims that begin
    /// afterwards, in all openings; existing extents are not touched.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn set_reserve(&self, frames: u32) -> Result<(), RegionError> {
        self.may_write()?;
        // Relaxed: nothing else depends on the number.
        self.header()?.reserve_frames.store(frames, Relaxed);
        Ok(())
    }

    /// The extent that contains the frame, if there is one; lock-free, a handful of loads from one
    /// or two cache lines.
    ///
    /// The answer was true at one moment during the call. For an extent that the caller holds it
    /// stays true.
    #[inline]
    pub fn extent_of(&self, frame: Frame) -> Option<ExtentInfo> {
        let run = self.table().ok()?.run_of(frame.0)?;
        Some(ExtentInfo {
            extent: Extent {
                start: Frame(run.head),
                frames: run.frames,
            },
            tag: run.status.tag,
            state: match run.status.state {
                State::Held => ExtentState::Held,
                _ => ExtentState::Claimed(SlotId(run.status.owner)),
            },
            generation: run.status.generation,
        })
    }

    /// All extents, in the order of their addresses. Lock-free; each existed at the moment at which
    /// it was visited.
    pub fn extents(&self) -> impl Iterator<Item = ExtentInfo> + '_ {
        let mut next = self.geometry.first_frame;
        std::iter::from_fn(move || {
            let end = self.end_frame();
            while next < end {
                let found = self.extent_of(Frame(next));
                next += 1;
                if let Some(info) = found.filter(|info| info.extent.start.0 == next - 1) {
                    next = next - 1 + info.extent.frames;
                    return Some(info);
                }
            }
            None
        })
    }

    /// Makes a claimed extent part of the tenant's structure: from now on it outlives its claimer.
    ///
    /// The tenant links the extent first, then adopts it. If it dies in between, its own repair
    /// finds the link through its own intent and adopts or unlinks the extent, *before*
    /// [`repair`](Self::repair) runs. Costs one compare-and-swap.
    ///
    /// # Errors
    /// No such extent is claimed, or it has already been adopted.
    pub fn adopt(&self, extent: Extent) -> Result<(), AdoptError> {
        use crate::descriptor::NotAdoptable;
        let Some(range) = self.range_of(extent) else {
            return Err(AdoptError::NotClaimed { extent });
        };
        self.may_write()?;
        mneme_sys::fault!("arena.adopt.begin");
        let adopted = self.table()?.adopt(range);
        mneme_sys::fault!("arena.adopt.done");
        adopted.map_err(|why| match why {
            NotAdoptable::NoSuchRun => AdoptError::NotClaimed { extent },
            NotAdoptable::AlreadyHeld => AdoptError::AlreadyHeld { extent },
        })
    }

    /// The frames of the extent, if such an extent could have been claimed.
    pub(crate) fn range_of(&self, extent: Extent) -> Option<Range<u32>> {
        let end = extent.start.0.checked_add(extent.frames)?;
        (extent.frames > 0
            && extent.start.0 >= self.geometry.first_frame
            && end <= self.end_frame())
        .then_some(extent.start.0..end)
    }

    /// The header, which is also accessible in a region that is mapped read-only: a caller that
    /// stores has taken the lock or called [`may_write`](Self::may_write) before.
    pub(crate) fn header(&self) -> Result<&ArenaHeader, RegionError> {
        self.region.view_at(ARENA_HEADER)
    }

    /// Refuses if the region is mapped read-only.
    pub(crate) fn may_write(&self) -> Result<(), RegionError> {
        match self.region.access() {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(RegionError::ReadOnly),
        }
    }

    /// The lock. A caller that may not write cannot take it.
    pub(crate) fn lock_word(&self) -> Result<&RobustLock, RegionError> {
        self.may_write()?;
        Ok(&self.header()?.lock.lock)
    }

    #[inline]
    pub(crate) fn table(&self) -> Result<DescriptorTable<'_, AtomicU64>, RegionError> {
        let descriptors: &[Descriptor] = self
            .region
            .view_slice_at(self.geometry.descriptors, self.geometry.max_frames as usize)?;
        Ok(DescriptorTable(descriptors))
    }

    pub(crate) fn summary(&self) -> Result<Summary<'_>, RegionError> {
        let shape = &self.geometry.shape;
        let words: &[AtomicU64] = self
            .region
            .view_slice_at(self.geometry.bitmap, shape.words())?;
        let nodes: &[RunsNode] = self
            .region
            .view_slice_at(self.geometry.tree, shape.nodes())?;
        Ok(Summary::new(shape, words, nodes))
    }

    /// The number of the frame after the last one, that is, the number of all frames of the region,
    /// including those with the arena's own tables. Costs one load.
    pub fn end_frame(&self) -> u32 {
        // SYNC: pairs with the Release store at the end of a growth: the new descriptors are
        // visible.
        let end = self
            .header()
            .map_or(0, |header| header.end_frame.load(Acquire));
        end.clamp(self.geometry.first_frame, self.geometry.max_frames)
    }

    fn zone_entries(&self) -> Result<&[ZoneEntry], RegionError> {
        self.region.view_slice_at(self.geometry.zones, MAX_ZONES)
    }

    /// The zones, clipped to the current frames.
    pub(crate) fn zones(&self) -> Result<impl Iterator<Item = Zone> + '_, RegionError> {
        let (first, end) = (self.geometry.first_frame, self.end_frame());
        let count = self.header()?.zone_count.load(Relaxed);
        Ok(self
            .zone_entries()?
            .iter()
            .take(count as usize)
            .map(move |entry| {
                let zone = entry.load();
                let start = zone.start.clamp(first, end);
                Zone {
                    start,
                    end: zone.end.clamp(start, end),
                    node: zone.node,
                }
            }))
    }

    /// The zones as they are stored.
    pub(crate) fn raw_zones(&self) -> Result<Vec<Zone>, RegionError> {
        let count = self.header()?.zone_count.load(Relaxed);
        Ok(self
            .zone_entries()?
            .iter()
            .take(count as usize)
            .map(ZoneEntry::load)
            .collect())
    }

    pub(crate) fn store_zones(&self, zones: &[Zone]) -> Result<(), RegionError> {
        for (entry, zone) in self.zone_entries()?.iter().zip(zones) {
            entry.store(*zone);
        }
        // Relaxed, like the entries.
        self.header()?.zone_count.store(zones.len() as u32, Relaxed);
        Ok(())
    }

    /// The arena's nodes, the nearest to `node` first.
    pub fn nodes_from(&self, node: NodeId) -> &[u16] {
        self.order
            .get(usize::from(node.0))
            .or(self.order.first())
            .map_or(&[], Vec::as_slice)
    }

    /// Asks the kernel to place these frames on their zones' nodes. This is a preference: if it is
    /// not granted (for a node that this machine does not have), frames lie where they are first
    /// touched.
    pub(crate) fn bind(&self, zones: &[Zone], frames: Range<u32>) {
        if self.nodes() < 2 {
            return;
        }
        for zone in zones {
            let (start, end) = (zone.start.max(frames.start), zone.end.min(frames.end));
            if start < end {
                let bytes = Extent {
                    start: Frame(start),
                    frames: end - start,
                };
                let _ = self.region.bind(
                    bytes.offset() as usize..bytes.end() as usize,
                    NodeId(zone.node),
                );
            }
        }
    }
}
