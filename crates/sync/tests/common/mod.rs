//! One region, opened by several scripted "processes".
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use mneme_sync::{ControlOptions, OpenError, Participants};
use mneme_sys::{Access, OfdLiveness, PagePolicy, Region, ScriptedLiveness};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub const UUID: [u8; 16] = *b"a data region id";

pub fn options() -> ControlOptions {
    ControlOptions {
        max_processes: 8,
        max_threads: 16,
        undo_bytes: 256,
        ..ControlOptions::new(UUID)
    }
}

pub fn private(options: ControlOptions) -> Participants {
    Participants::private(options).unwrap()
}

pub fn map(fd: OwnedFd) -> Region {
    Region::map(fd, Access::ReadWrite, 1 << 26, PagePolicy::Small).unwrap()
}

/// The region in that file.
pub fn open(path: &str) -> Region {
    let file = std::fs::File::options().read(true).write(true).open(path);
    map(file.unwrap().into())
}

/// Liveness by locks on that file.
pub fn liveness(path: &str) -> Arc<OfdLiveness> {
    Arc::new(OfdLiveness::open(Path::new(path), 0).unwrap())
}

/// A region that the scripted processes open, each at its own address.
pub struct World {
    pub script: ScriptedLiveness,
    region: Region,
}

impl World {
    /// Creates the region; the script's process 1 has created its content.
    pub fn new(options: ControlOptions) -> (World, Participants) {
        let world = World {
            script: ScriptedLiveness::new(),
            region: Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap(),
        };
        let process = Arc::new(world.script.process(1));
        let first = Participants::create(world.copy(), options, process).unwrap();
        (world, first)
    }

    /// Another mapping of the region.
    pub fn copy(&self) -> Region {
        map(self.region.duplicate_fd().unwrap().unwrap())
    }

    pub fn open(&self, process: u32) -> Result<Participants, OpenError> {
        Participants::open(self.copy(), UUID, Arc::new(self.script.process(process)))
    }
}

/// One region at two addresses: `a` is the script's process 1, `b` its process 2.
pub struct Pair {
    pub a: Participants,
    pub b: Participants,
    pub script: ScriptedLiveness,
}

impl Pair {
    pub fn new() -> Pair {
        let (world, a) = World::new(options());
        let b = world.open(2).unwrap();
        assert_ne!(a.region().base(), b.region().base());
        let script = world.script;
        Pair { a, b, script }
    }

    /// Another mapping of the region.
    pub fn copy(&self) -> Region {
        map(self.a.region().duplicate_fd().unwrap().unwrap())
    }
}
