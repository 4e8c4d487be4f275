//! Creates an arena in a region, opens an existing one, or refuses with the reason.
//!
//! Creation writes the region's magic number last, so a creator that dies leaves no arena. Opening
//! trusts nothing that it has not compared: versions, checksums, and sizes with the region and with
//! each other.

use crate::arena::Arena;
use crate::backed::Backed;
use crate::descriptor::{State, Status};
use crate::frame::{FRAME_BYTES, MAX_FRAMES};
use crate::layout::{
    ARENA_HEADER, ArenaGeometry, ArenaHeader, FORMAT, FORMAT_LENDING, LAYOUT_HASH,
    LAYOUT_HASH_LENDING, LendingShape, MAGIC,
};
use crate::lending::LendingOptions;
use crate::zone::planned;
use crate::{CreateError, OpenError};
use mneme_sync::Participants;
use mneme_sys::{HeaderError, NodeId, Region, RegionError, RegionHeader, Topology};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// The options of a new arena.
#[derive(Clone)]
pub struct ArenaOptions {
    /// The identity of the region, for which the control region was created.
    pub uuid: [u8; 16],
    /// The size of the client area in bytes, for the tenant's own header and tables.
    pub client_bytes: usize,
    /// The number of NUMA nodes to spread the frames over, at least 1. Fixed at creation.
    pub nodes: u16,
    /// The machine's topology, which determines the order in which other nodes replace a full one.
    pub topology: Arc<dyn Topology>,
    /// The number of frames that ordinary claims may not use. See [`Arena::set_reserve`].
    pub reserve_frames: u32,
    /// Whether, and how much, idle frames are lent to a [`Discardable`](crate::Discardable) cache.
    /// Fixed at creation; the cache's documentation says what it demands of clients that claim.
    pub lending: Option<LendingOptions>,
}

impl std::fmt::Debug for ArenaOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArenaOptions")
            .field("client_bytes", &self.client_bytes)
            .field("nodes", &self.nodes)
            .field("reserve_frames", &self.reserve_frames)
            .field("lending", &self.lending)
            .finish_non_exhaustive()
    }
}

impl Arena {
    /// Creates an arena in a region, whose content is lost. The frames' memory is not touched; the
    /// client area is zeroed.
    ///
    /// Nobody else may use the region until this returns. If this process dies meanwhile, the
    /// region contains no arena.
    ///
    /// # Errors
    /// The options, the region's size, or a read-only region.
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
        let lending = match &options.lending {
            Some(lending) => Some(lending.shape(options.nodes)?),
            None => None,
        };
        let geometry = ArenaGeometry::new(max, client, lending)
            .ok_or(too_small(max.saturating_add(FRAME_BYTES)))?;
        let needed = (u64::from(geometry.first_frame) + 1) * FRAME_BYTES;
        if len < needed {
            return Err(too_small(needed));
        }
        let order = node_order(options.nodes, &*options.topology);
        // These frames are never claimed, but all participants write to them.
        region.reserve(0..(u64::from(geometry.first_frame) * FRAME_BYTES) as usize)?;
        let backed = Backed::new(&region, geometry.max_frames, order.len() as u16);
        let arena = Arena {
            region,
            participants,
            geometry,
            order,
            backed,
            kept: OnceLock::new(),
        };
        let mut seed = [0; 8];
        if arena.geometry.lending.is_some() {
            mneme_sys::random_bytes(&mut seed).map_err(CreateError::Random)?;
        }
        arena.format(
            &options,
            (len / FRAME_BYTES) as u32,
            u64::from_le_bytes(seed),
        )?;
        Ok(arena)
    }

    fn format(&self, options: &ArenaOptions, end: u32, seed: u64) -> Result<(), RegionError> {
        let geometry = &self.geometry;
        // The old identity is removed first and the new one written last, so that there is never a
        // valid header over other content.
        self.region.at::<AtomicU64>(0)?.store(0, Release);
        let words = (geometry.client + geometry.client_bytes).div_ceil(8) - ARENA_HEADER / 8;
        for word in self
            .region
            .slice_at::<AtomicU64>(ARENA_HEADER, words as usize)?
        {
            // Only nonzero words are written, so a fresh region's pages stay unallocated.
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
        if let (Some(lending), Some(wanted)) = (self.lending()?, &options.lending) {
            header.buckets.store(lending.index().len() as u64, Relaxed);
            lending.header().begin(seed, wanted.max_frames);
        }
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
        let (format, layout_hash) = geometry.format();
        RegionHeader {
            magic: MAGIC,
            format,
            header_len: mneme_sys::HEADER_LEN as u32,
            layout_hash,
            uuid: options.uuid,
            max_len: u64::from(geometry.max_frames) * FRAME_BYTES,
            committed_len: u64::from(end) * FRAME_BYTES,
            client: [0; 8],
            checksum: 0,
        }
        .write(&self.region)
    }

    /// The identity of a region that contains an arena, with which its control region is opened.
    ///
    /// # Errors
    /// As [`open`](Self::open) for the region's header.
    pub fn identity(region: &Region) -> Result<[u8; 16], OpenError> {
        Ok(read_header(region)?.uuid)
    }

    /// Opens the arena in a region, which others may have open too. If it is mapped read-only,
    /// nothing can be claimed, released, repaired or checked ([`RegionError::ReadOnly`]), but all
    /// queries work.
    ///
    /// # Errors
    /// The region contains no arena, one of another version (both are named), or a damaged or torn
    /// one; or the arena's owners were slots of an earlier incarnation of the control region.
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

    /// Opens the arena of a region that *nobody else has open*, whoever its owners were: the lock
    /// is reset, extents that nobody adopted are freed, and all derived data are recomputed.
    /// O(frames).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn recover(
        region: Arc<Region>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Arena, OpenError> {
        let arena = Arena::open_alone(region, participants, topology)?;
        arena.recover_around(|| Ok::<_, OpenError>(()))?;
        Ok(arena)
    }

    /// The incarnation of the control region whose slots own the extents in a region's arena.
    ///
    /// # Errors
    /// As [`open`](Self::open) for the region's header.
    pub fn incarnation_of(region: &Region) -> Result<u64, OpenError> {
        Arena::identity(region)?;
        let header: &ArenaHeader = region.view_at(ARENA_HEADER)?;
        Ok(header.incarnation.load(Relaxed))
    }

    /// Opens the arena of a region that *nobody else has open*, whoever its owners were, for a
    /// tenant that repairs its own part [during](Self::recover_around) the arena's recovery. Before
    /// that the arena may only be read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_alone(
        region: Arc<Region>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Arena, OpenError> {
        Arena::attach(region, participants, &*topology)
    }

    fn attach(
        region: Arc<Region>,
        participants: Participants,
        topology: &dyn Topology,
    ) -> Result<Arena, OpenError> {
        let identity = read_header(&region)?;
        let header: &ArenaHeader = region.view_at(ARENA_HEADER)?;
        let nodes = header.nodes.load(Relaxed);
        let lending = (identity.format == FORMAT_LENDING).then(|| LendingShape {
            nodes: nodes as u16,
            buckets: header.buckets.load(Relaxed),
        });
        let client_bytes = header.client_bytes.load(Relaxed);
        let geometry = ArenaGeometry::new(identity.max_len, client_bytes, lending)
            .ok_or(OpenError::Damaged("its sizes are impossible"))?;
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
        let backed = Backed::new(&region, geometry.max_frames, order.len() as u16);
        Ok(Arena {
            region,
            participants,
            geometry,
            order,
            backed,
            kept: OnceLock::new(),
        })
    }
}

/// The header of a region whose arena may or may not lend.
fn read_header(region: &Region) -> Result<RegionHeader, HeaderError> {
    let header = RegionHeader::read_unchecked(region)?;
    match header.format {
        FORMAT_LENDING => header.validate(MAGIC, FORMAT_LENDING, LAYOUT_HASH_LENDING)?,
        _ => header.validate(MAGIC, FORMAT, LAYOUT_HASH)?,
    }
    Ok(header)
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
            // Nodes that this machine does not know come last, and each node comes first for
            // itself.
            order.extend((0..nodes).filter(|node| *node >= known));
            if let Some(own) = order.iter().position(|node| *node == from) {
                order[..=own].rotate_right(1);
            }
            order
        })
        .collect()
}
