//! A region and its control region, opened several times, each time at another address and as
//! another "process" with scripted liveness.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use mneme_arena::{
    Arena, ArenaOptions, ClaimError, Class, Discardable, Extent, FRAME_BYTES, LendingOptions,
    OpenError,
};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{
    Access, NodeId, PagePolicy, Region, Reserve, ScriptedLiveness, SyntheticTopology, Topology,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub const FRAME: usize = FRAME_BYTES as usize;
pub const UUID: [u8; 16] = *b"an arena's tests";
pub const NODE: NodeId = NodeId(0);

/// The state that all openings share.
pub struct World {
    script: ScriptedLiveness,
    data: Region,
    control: Region,
    topology: Arc<dyn Topology>,
    processes: AtomicU32,
}

/// One opening.
pub struct Process {
    pub number: u32,
    pub arena: Arc<Arena>,
}

#[derive(Clone, Copy)]
pub struct Shape {
    /// The initial and maximum number of frames, including the arena's own.
    pub frames: usize,
    pub max_frames: usize,
    pub nodes: u16,
    pub reserve: u32,
    pub client_bytes: usize,
    /// The number of records that the cache's index is made for; 0 if nothing is lent.
    pub records: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            frames: 17,
            max_frames: 65,
            nodes: 1,
            reserve: 0,
            client_bytes: 4096,
            records: 0,
        }
    }
}

impl Shape {
    pub fn options(self) -> ArenaOptions {
        ArenaOptions {
            uuid: UUID,
            client_bytes: self.client_bytes,
            nodes: self.nodes,
            topology: Arc::new(SyntheticTopology::new(self.nodes, 1)),
            reserve_frames: self.reserve,
            lending: (self.records > 0).then_some(LendingOptions {
                records: self.records,
                max_frames: u32::MAX,
            }),
        }
    }
}

fn again(region: &Region, max: usize) -> Region {
    let fd = region
        .duplicate_fd()
        .expect("a memfd")
        .expect("a descriptor");
    Region::map_with(fd, Access::ReadWrite, max, PagePolicy::Small, Reserve::Lazy).unwrap()
}

/// A world and the process that created its arena.
pub fn world(shape: Shape) -> (World, Process) {
    let options = ControlOptions {
        max_processes: 16,
        max_threads: 64,
        undo_bytes: 64,
        ..ControlOptions::new(UUID)
    };
    let arena = shape.options();
    let world = World {
        script: ScriptedLiveness::new(),
        data: Region::memfd(
            "arena test",
            shape.frames * FRAME,
            shape.max_frames * FRAME,
            PagePolicy::Small,
        )
        .unwrap(),
        control: Region::memfd(
            "arena test control",
            options.region_len(),
            options.region_len(),
            PagePolicy::Small,
        )
        .unwrap(),
        topology: Arc::clone(&arena.topology),
        processes: AtomicU32::new(1),
    };
    let (number, liveness) = world.process();
    let control = again(&world.control, world.control.max());
    let participants = Participants::create(control, options, liveness).unwrap();
    let arena = Arena::create(
        Arc::new(again(&world.data, world.data.max())),
        participants,
        arena,
    )
    .unwrap();
    let arena = Arc::new(arena);
    (world, Process { number, arena })
}

impl World {
    fn process(&self) -> (u32, Arc<mneme_sys::ScriptedProcess>) {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        (number, Arc::new(self.script.process(number)))
    }

    /// The data region, mapped again at another address.
    pub fn map(&self) -> Region {
        again(&self.data, self.data.max())
    }

    pub fn participants(&self) -> (u32, Participants) {
        let (number, liveness) = self.process();
        (
            number,
            Participants::open(again(&self.control, self.control.max()), UUID, liveness).unwrap(),
        )
    }

    pub fn try_open(&self) -> Result<Process, OpenError> {
        let (number, participants) = self.participants();
        Arena::open(
            Arc::new(self.map()),
            participants,
            Arc::clone(&self.topology),
        )
        .map(|arena| Process {
            number,
            arena: Arc::new(arena),
        })
    }

    pub fn open(&self) -> Process {
        self.try_open().unwrap()
    }

    pub fn kill(&self, process: u32) {
        self.script.kill(process);
    }
}

impl Process {
    pub fn claim(&self, frames: u32) -> Result<Extent, ClaimError> {
        self.claim_as(frames, 1, NODE, Class::Ordinary, 0)
    }

    pub fn claim_as(
        &self,
        frames: u32,
        align: u32,
        node: NodeId,
        class: Class,
        tag: u16,
    ) -> Result<Extent, ClaimError> {
        let slot = self.arena.participants().slot().unwrap();
        self.arena.claim(&slot, frames, align, node, class, tag)
    }

    pub fn hold(&self, frames: u32) -> Extent {
        let extent = self.claim(frames).unwrap();
        self.arena.adopt(extent).unwrap();
        extent
    }

    /// The arena's cache.
    pub fn cache(&self) -> Discardable {
        Discardable::open(Arc::clone(&self.arena)).unwrap()
    }

    /// Claims and releases that many frames from the lowest address on, so that they can be lent.
    pub fn warm(&self, frames: u32) {
        let extent = self.claim(frames).unwrap();
        self.release(extent).unwrap();
    }

    pub fn release(&self, extent: Extent) -> Result<(), mneme_arena::ReleaseError> {
        let slot = self.arena.participants().slot().unwrap();
        self.arena.release(&slot, extent)
    }

    pub fn grow(&self, frames: usize) -> Result<(), mneme_arena::GrowError> {
        let slot = self.arena.participants().slot().unwrap();
        self.arena.grow(&slot, (frames * FRAME) as u64)
    }

    /// Reaps dead processes, and repairs.
    pub fn reap(&self) -> u32 {
        let reaped = self
            .arena
            .participants()
            .reap(|dead| self.arena.repair(dead).map(|_| ()))
            .unwrap();
        reaped.processes
    }

    #[track_caller]
    pub fn assert_whole(&self) {
        assert_eq!(self.arena.check().unwrap(), []);
    }
}
