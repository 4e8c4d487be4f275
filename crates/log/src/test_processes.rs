//! A region with several openings, each for a process of its own, for tests in which one dies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_sys::{Access, PagePolicy, Region, ScriptedLiveness};

use crate::region::policy::UpdatePolicy;
use crate::store::LogStore;
use crate::{Builder, control_bytes};

pub(crate) struct World {
    data: Region,
    control: Region,
    pub script: ScriptedLiveness,
}

fn builder() -> Builder {
    LogStore::builder().maintainer(false)
}

impl World {
    /// A store that process 1 created.
    pub fn new(capacity: usize, max: usize, policy: UpdatePolicy) -> (World, LogStore) {
        let control = control_bytes().next_multiple_of(2 << 20);
        let [data, control] = [("data", capacity, max), ("control", control, control)]
            .map(|(name, len, max)| Region::memfd(name, len, max, PagePolicy::Small).unwrap());
        let script = ScriptedLiveness::new();
        let world = World {
            data,
            control,
            script,
        };
        let [data, control] = world.map();
        let store = builder().update_policy(policy);
        let store = store.create_in(data, control, Arc::new(world.script.process(1)));
        (world, store.unwrap())
    }

    fn map(&self) -> [Region; 2] {
        [&self.data, &self.control].map(|region| {
            let file = region.duplicate_fd().unwrap().unwrap();
            Region::map(file, Access::ReadWrite, region.max(), PagePolicy::Small).unwrap()
        })
    }

    /// Opens the store for another process.
    pub fn open(&self, process: u32) -> LogStore {
        let [data, control] = self.map();
        let liveness = Arc::new(self.script.process(process));
        builder().open_in(data, control, liveness).unwrap()
    }
}
