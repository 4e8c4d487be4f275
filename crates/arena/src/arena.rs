//! [`Arena`]: one opening of a region that is divided into extents.

use crate::descriptor::{Descriptor, State, Status, Table};
use crate::frame::{Extent, FRAME_BYTES, Frame, MAX_FRAMES};
use crate::layout::{ARENA_HEADER, ArenaHeader, FORMAT, Geometry, LAYOUT_HASH, MAGIC};
use crate::runs::RunsNode;
use crate::summary::Summary;
use crate::zone::{MAX_ZONES, Zone, ZoneEntry, planned};
use crate::{AdoptError, CreateError, OpenError};
use mneme_sync::{Participants, RobustLock, SlotId};
use mneme_sys::{NodeId, Region, RegionError, RegionHeader, Topology};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How a new arena is made.
#[derive(Clone)]
pub struct ArenaOptions {
    /// Identity of the region, the same that the control region was created for.
    pub uuid: [u8; 16],
    /// Bytes of the client area, for the tenant's own header and tables.
    pub client_bytes: usize,
    /// NUMA nodes to spread the frames over, at least 1. Fixed for the life of the arena.
    pub nodes: u16,
    /// The machine, for the order in which other nodes stand in for one that is full.
    pub topology: Arc<dyn Topology>,
    /// Frames that ordinary claims may not take. See [`Arena::set_reserve`].
    pub reserve_frames: u32,
}

impl std::fmt::Debug for ArenaOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArenaOptions")
            .field("client_bytes", &self.client_bytes)
            .field("nodes", &self.nodes)
            .field("reserve_frames", &self.reserve_frames)
            .finish_non_exhaustive()
    }
}

/// What is known of the extent that holds a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentInfo {
    /// The whole extent.
    pub extent: Extent,
    /// What its claimer gave it as a tag.
    pub tag: u16,
    /// Whether it has been adopted.
    pub state: ExtentState,
    /// Grows with every claim of any of its frames (and wraps after 2^32): who remembers it with a place in the extent
    /// notices later whether that place is still of the same extent.
    pub generation: u32,
}

/// How firmly an extent is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
    /// Claimed by that thread slot, which will adopt it. If it dies before, [`Arena::repair`] gives the extent back.
    Claimed(SlotId),
    /// Part of the tenant's structure until it is released.
    Held,
}

/// One opening of a region that is divided into extents.
///
/// `Send` and `Sync`. All state lies in the region: any number of openings, at any addresses, in any number of
/// processes, may be used at once, as long as they share one control region.
pub struct Arena {
    pub(crate) region: Arc<Region>,
    pub(crate) participants: Participants,
    pub(crate) geometry: Geometry,
    /// `order[n]`: the arena's nodes, the one nearest to node `n` first.
    order: Vec<Vec<u16>>,
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
    /// Divides a region anew; what was in it is lost. The frames' memory is not touched, the client area is zeroed.
    ///
    /// Nobody else may use the region until this returns. If this process dies meanwhile, the region is no arena.
    ///
    /// # Errors
    /// The options, the region's size, or its being read-only.
    pub fn create(
        region: Arc<Region>,
        participants: Participants,
        options: ArenaOptions,
    ) -> Result<Arena, CreateError> {
        if options.nodes == 0 {
            return Err(CreateError::Options("an arena has at least one node"));
        }
        let (len, max) = (region.len() as u64, region.max() as u64);
        if max / FRAME_BYTES > u64::from(MAX_FRAMES) {
            return Err(CreateError::TooLarge { max });
        }
        let client = options.client_bytes as u64;
        let too_small = |needed| CreateError::TooSmall {
            len,
            max,
            client,
            needed,
        };
        let geometry =
            Geometry::new(max, client).ok_or(too_small(max.saturating_add(FRAME_BYTES)))?;
        let needed = (u64::from(geometry.first_frame) + 1) * FRAME_BYTES;
        if len < needed {
            return Err(too_small(needed));
        }
        let order = node_order(options.nodes, &*options.topology);
        let arena = Arena {
            region,
            participants,
            geometry,
            order,
        };
        arena.format(&options, (len / FRAME_BYTES) as u32)?;
        Ok(arena)
    }

    fn format(&self, options: &ArenaOptions, end: u32) -> Result<(), RegionError> {
        let geometry = &self.geometry;
        // First the old identity goes, last the new one comes: at no moment is there a header over other content.
        self.region.at::<AtomicU64>(0)?.store(0, Release);
        let words = (geometry.client + geometry.client_bytes).div_ceil(8) - ARENA_HEADER / 8;
        for word in self
            .region
            .slice_at::<AtomicU64>(ARENA_HEADER, words as usize)?
        {
            // Only what is not zero is written: a fresh region keeps its pages unallocated.
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        let header = self.header()?;
        header.client_bytes.store(geometry.client_bytes, Relaxed);
        header
            .checksum
            .store(geometry.checksum(u32::from(options.nodes)), Relaxed);
        header.max_frames.store(geometry.max_frames, Relaxed);
        header.first_frame.store(geometry.first_frame, Relaxed);
        header.nodes.store(u32::from(options.nodes), Relaxed);
        header
            .incarnation
            .store(self.participants.incarnation(), Relaxed);
        header.reserve_frames.store(options.reserve_frames, Relaxed);
        let zones = planned(&[], geometry.first_frame, end, options.nodes);
        self.bind(&zones, geometry.first_frame..end);
        self.store_zones(&zones)?;
        let table = self.table()?;
        for descriptor in table.0.iter().take(geometry.first_frame as usize) {
            descriptor.set(Status {
                state: State::Own,
                ..Status::free(0)
            });
        }
        for descriptor in &table.0[geometry.first_frame as usize..end as usize] {
            descriptor.set(Status::free(0));
        }
        header.end_frame.store(end, Release);
        let summary = self.summary()?;
        summary.mark(geometry.first_frame..end, true);
        summary.refresh(0..geometry.max_frames);
        RegionHeader {
            magic: MAGIC,
            format: FORMAT,
            header_len: mneme_sys::HEADER_LEN as u32,
            layout_hash: LAYOUT_HASH,
            uuid: options.uuid,
            max_len: u64::from(geometry.max_frames) * FRAME_BYTES,
            committed_len: u64::from(end) * FRAME_BYTES,
            client: [0; 8],
            checksum: 0,
        }
        .write(&self.region)
    }

    /// The identity of a region that holds an arena: what its control region is opened with.
    ///
    /// # Errors
    /// As [`open`](Self::open) for the region's header.
    pub fn identity(region: &Region) -> Result<[u8; 16], OpenError> {
        Ok(RegionHeader::read(region, MAGIC, FORMAT, LAYOUT_HASH)?.uuid)
    }

    /// Opens the arena in a region that others may have open too.
    ///
    /// # Errors
    /// The region holds no arena, one of another version (both are named), a damaged or a torn one; or the arena's
    /// owners were slots of an earlier incarnation of the control region.
    pub fn open(
        region: Arc<Region>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Arena, OpenError> {
        let arena = Arena::attach(region, participants, &*topology)?;
        let (known, control) = (
            arena.header()?.incarnation.load(Relaxed),
            arena.participants.incarnation(),
        );
        if known != control {
            return Err(OpenError::OtherIncarnation {
                arena: known,
                control,
            });
        }
        Ok(arena)
    }

    /// Opens the arena of a region that *nobody else has open*, whatever its owners were: the lock is reset, extents that
    /// nobody adopted are given back, and what is derived is derived anew. O(frames).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn recover(
        region: Arc<Region>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Arena, OpenError> {
        let arena = Arena::attach(region, participants, &*topology)?;
        arena.recover_alone()?;
        Ok(arena)
    }

    fn attach(
        region: Arc<Region>,
        participants: Participants,
        topology: &dyn Topology,
    ) -> Result<Arena, OpenError> {
        let identity = RegionHeader::read(&region, MAGIC, FORMAT, LAYOUT_HASH)?;
        let header: &ArenaHeader = region.at(ARENA_HEADER)?;
        let geometry = Geometry::new(identity.max_len, header.client_bytes.load(Relaxed))
            .ok_or(OpenError::Damaged("its sizes are impossible"))?;
        let nodes = header.nodes.load(Relaxed);
        if header.checksum.load(Relaxed) != geometry.checksum(nodes)
            || header.max_frames.load(Relaxed) != geometry.max_frames
            || header.first_frame.load(Relaxed) != geometry.first_frame
        {
            return Err(OpenError::Damaged("its checksum is wrong"));
        }
        let nodes = u16::try_from(nodes).ok().filter(|nodes| *nodes > 0);
        let nodes = nodes.ok_or(OpenError::Damaged("its number of nodes is impossible"))?;
        // SYNC: pairs with the Release store at the end of a growth.
        let end = header.end_frame.load(Acquire);
        if end <= geometry.first_frame || end > geometry.max_frames {
            return Err(OpenError::Damaged("its end lies outside of its tables"));
        }
        let tables = geometry.client + geometry.client_bytes;
        let needed = tables.max(u64::from(end) * FRAME_BYTES);
        let mut len = region.len() as u64;
        if len < needed {
            len = region.refresh()? as u64;
        }
        if len < needed {
            return Err(OpenError::Torn { needed, len });
        }
        let order = node_order(nodes, topology);
        Ok(Arena {
            region,
            participants,
            geometry,
            order,
        })
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The participants whose slots own what is claimed.
    pub fn participants(&self) -> &Participants {
        &self.participants
    }

    /// The bytes of the region that belong to the tenant itself; zeroed at creation, never moved. The range begins at a
    /// multiple of 128.
    pub fn client(&self) -> Range<u64> {
        self.geometry.client..self.geometry.client + self.geometry.client_bytes
    }

    /// NUMA nodes that the arena is spread over.
    pub fn nodes(&self) -> u16 {
        // As long as the list of what is nearest to node 0, which names each once.
        self.order.first().map_or(1, |order| order.len() as u16)
    }

    /// Changes how many frames are kept from ordinary claims. It takes effect for claims that begin afterwards, in all
    /// openings; what they have already is not touched.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn set_reserve(&self, frames: u32) -> Result<(), RegionError> {
        // Relaxed: the number stands for itself.
        self.header()?.reserve_frames.store(frames, Relaxed);
        Ok(())
    }

    /// The extent that holds the frame, if one does; lock-free, a handful of loads from one or two cache lines.
    ///
    /// The answer was true at one moment during the call. Of an extent that the caller holds it stays true.
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

    /// All extents, in the order of their addresses. Lock-free; each was there when the walk came past.
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
    /// The tenant links the extent first, then adopts it; if it dies in between, its own repair finds the link by its own
    /// intent and adopts or unlinks, *before* [`repair`](Self::repair) runs. One CAS.
    ///
    /// # Errors
    /// No such extent is claimed, or it was adopted already.
    pub fn adopt(&self, extent: Extent) -> Result<(), AdoptError> {
        use crate::descriptor::NotAdoptable;
        let Some(range) = self.range_of(extent) else {
            return Err(AdoptError::NotClaimed { extent });
        };
        mneme_sys::fault!("arena.adopt.begin");
        let adopted = self.table()?.adopt(range);
        mneme_sys::fault!("arena.adopt.done");
        adopted.map_err(|why| match why {
            NotAdoptable::NoSuchRun => AdoptError::NotClaimed { extent },
            NotAdoptable::AlreadyHeld => AdoptError::AlreadyHeld { extent },
        })
    }

    /// The frames of the extent, if it is one that could have been claimed.
    pub(crate) fn range_of(&self, extent: Extent) -> Option<Range<u32>> {
        let end = extent.start.0.checked_add(extent.frames)?;
        (extent.frames > 0
            && extent.start.0 >= self.geometry.first_frame
            && end <= self.end_frame())
        .then_some(extent.start.0..end)
    }

    pub(crate) fn header(&self) -> Result<&ArenaHeader, RegionError> {
        self.region.at(ARENA_HEADER)
    }

    /// Where the lock's word lies in the region.
    pub(crate) fn lock_offset(&self) -> u64 {
        ARENA_HEADER + std::mem::offset_of!(ArenaHeader, lock) as u64
    }

    pub(crate) fn lock_word(&self) -> Result<&RobustLock, RegionError> {
        Ok(&self.header()?.lock.lock)
    }

    #[inline]
    pub(crate) fn table(&self) -> Result<Table<'_, AtomicU64>, RegionError> {
        let descriptors: &[Descriptor] = self
            .region
            .slice_at(self.geometry.descriptors, self.geometry.max_frames as usize)?;
        Ok(Table(descriptors))
    }

    pub(crate) fn summary(&self) -> Result<Summary<'_>, RegionError> {
        let shape = &self.geometry.shape;
        let words: &[AtomicU64] = self.region.slice_at(self.geometry.bitmap, shape.words())?;
        let nodes: &[RunsNode] = self.region.slice_at(self.geometry.tree, shape.nodes())?;
        Ok(Summary::new(shape, words, nodes))
    }

    /// The frame behind the last one, whatever the header says.
    pub(crate) fn end_frame(&self) -> u32 {
        // SYNC: pairs with the Release store at the end of a growth: the new descriptors are there.
        let end = self
            .header()
            .map_or(0, |header| header.end_frame.load(Acquire));
        end.clamp(self.geometry.first_frame, self.geometry.max_frames)
    }

    fn zone_entries(&self) -> Result<&[ZoneEntry], RegionError> {
        self.region.slice_at(self.geometry.zones, MAX_ZONES)
    }

    /// The zones as far as they lie among the frames.
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

    /// The zones as they are written.
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
        // Relaxed: as the entries.
        self.header()?.zone_count.store(zones.len() as u32, Relaxed);
        Ok(())
    }

    /// The arena's nodes, the nearest to `node` first.
    pub(crate) fn nodes_from(&self, node: NodeId) -> &[u16] {
        self.order
            .get(usize::from(node.0))
            .or(self.order.first())
            .map_or(&[], Vec::as_slice)
    }

    /// Asks the kernel to place these frames on their zones' nodes. A preference: where it is not granted (a node that
    /// this machine does not have), frames lie where they are first touched.
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

/// For each node of the machine, the arena's nodes by their distance from it.
fn node_order(nodes: u16, topology: &dyn Topology) -> Vec<Vec<u16>> {
    let known = u16::try_from(topology.nodes()).unwrap_or(u16::MAX);
    (0..known.max(nodes))
        .map(|from| {
            let mut order: Vec<u16> = topology
                .by_distance(NodeId(from))
                .into_iter()
                .map(|node| node.0)
                .filter(|node| *node < nodes)
                .collect();
            // Nodes that this machine does not know come last, and a node comes first for itself.
            order.extend((0..nodes).filter(|node| *node >= known));
            if let Some(own) = order.iter().position(|node| *node == from) {
                order[..=own].rotate_right(1);
            }
            order
        })
        .collect()
}
