//! Two regions that any number of "processes" open, each at addresses of its own. A script decides
//! which of them are alive.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part; a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_log::{Builder, LogStore, UpdatePolicy, control_bytes};
use mneme_sys::{Access, ManualClock, PagePolicy, Region, ScriptedLiveness};

pub mod stopped;

pub const CAPACITY: usize = 64 << 20;

pub const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];

/// Wall-clock milliseconds at which the stores of [`two`] begin.
pub const NOW: u64 = 1_000_000;

/// Two openings of one store, as by two processes. The clock does not advance.
pub fn two(policy: UpdatePolicy) -> (Memory, LogStore, LogStore, Arc<ManualClock>) {
    two_of(LogStore::builder().update_policy(policy))
}

/// As [`two`], with options.
pub fn two_of(builder: Builder) -> (Memory, LogStore, LogStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000, NOW));
    let builder = builder.clock(clock.clone()).entropy([7; 24]);
    let (memory, one) = Memory::built(CAPACITY, CAPACITY, builder);
    let other = memory.open(2);
    (memory, one, other, clock)
}

/// The regions and the script. Every opening has to be closed before this is dropped, except those
/// of abandoned threads, which never look at it again, and would keep its memory.
pub struct Memory {
    pub data: Region,
    pub control: Region,
    builder: Builder,
    pages: PagePolicy,
    /// Whether the bytes stay when this is dropped, because the caller uses them further.
    is_kept: bool,
    pub script: ScriptedLiveness,
}

/// Fails with a description of what is wrong with a store, if anything.
#[track_caller]
pub fn sound(store: &LogStore, context: &str) {
    let problems = store.check().unwrap().problems;
    assert_eq!(problems, Vec::<String>::new(), "{context}");
}

impl Memory {
    /// Runs `work` in a thread of `process`, which dies at `name`, and the process with it.
    #[track_caller]
    pub fn abandon<T: Send + 'static>(
        &self,
        process: u32,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) {
        use mneme_sys::fault::{Action, Outcome, run};
        let outcome = run(name, Action::Abandon, 1, work);
        assert!(matches!(outcome, Outcome::Abandoned), "{name}");
        self.script.kill(process);
    }

    /// Memory of [`CAPACITY`] with a store that process 1 created.
    pub fn new() -> (Memory, LogStore) {
        Memory::with(CAPACITY)
    }

    /// Memory of another capacity, with a store that process 1 created.
    pub fn with(capacity: usize) -> (Memory, LogStore) {
        Memory::with_policy(capacity, UpdatePolicy::Append)
    }

    /// As [`Memory::with`], with an update policy.
    pub fn with_policy(capacity: usize, policy: UpdatePolicy) -> (Memory, LogStore) {
        Memory::growing(capacity, capacity, policy)
    }

    /// As [`Memory::with_policy`], of memory that may grow to `max`.
    pub fn growing(capacity: usize, max: usize, policy: UpdatePolicy) -> (Memory, LogStore) {
        Memory::built(capacity, max, LogStore::builder().update_policy(policy))
    }

    /// As [`Memory::growing`], with options by which it is created and also opened.
    pub fn built(capacity: usize, max: usize, builder: Builder) -> (Memory, LogStore) {
        let control_len = control_bytes().next_multiple_of(2 << 20);
        let data = Region::memfd("log-data", capacity, max, PagePolicy::Small).unwrap();
        let control =
            Region::memfd("log-control", control_len, control_len, PagePolicy::Small).unwrap();
        let memory = Memory {
            data,
            control,
            builder: builder.maintainer(false),
            pages: PagePolicy::Small,
            is_kept: false,
            script: ScriptedLiveness::new(),
        };
        let (data, control) = memory.map(Access::ReadWrite);
        let builder = memory.builder.clone();
        let store = builder
            .create_in(data, control, Arc::new(memory.script.process(1)))
            .unwrap();
        (memory, store)
    }

    /// Memory of a store that every process has left. Its bytes belong to the caller and stay.
    pub fn around(data: Region, control: Region, builder: Builder, pages: PagePolicy) -> Memory {
        Memory {
            data,
            control,
            builder: builder.maintainer(false),
            pages,
            is_kept: true,
            script: ScriptedLiveness::new(),
        }
    }

    /// Data and control as another process maps them: the data with this access, the control for
    /// reading and writing.
    fn map(&self, access: Access) -> (Region, Region) {
        let again = |r: &Region, access, pages| {
            let fd = r.duplicate_fd().unwrap().unwrap();
            Region::map(fd, access, r.max(), pages).unwrap()
        };
        let control = again(&self.control, Access::ReadWrite, self.pages);
        (again(&self.data, access, self.pages), control)
    }

    /// The store as another process opens it.
    pub fn open(&self, process: u32) -> LogStore {
        self.try_open(process).unwrap()
    }

    /// As [`Memory::open`], with a maintainer.
    pub fn open_maintained(&self, process: u32) -> LogStore {
        let (data, control) = self.map(Access::ReadWrite);
        let builder = self.builder.clone().maintainer(true);
        let liveness = Arc::new(self.script.process(process));
        builder.open_in(data, control, liveness).unwrap()
    }

    /// An opening that copies what it reads. `access` decides whether it may store to the data.
    pub fn open_to_copy(&self, process: u32, access: Access) -> LogStore {
        let (data, control) = self.map(access);
        let builder = self.builder.clone().lending(false);
        let liveness = Arc::new(self.script.process(process));
        builder.open_in(data, control, liveness).unwrap()
    }

    /// Opens the store in a thread that may be abandoned in the middle of it.
    pub fn opener(
        &self,
        process: u32,
    ) -> impl FnOnce() -> Result<LogStore, mneme_log::OpenError> + use<> {
        let (data, control) = self.map(Access::ReadWrite);
        let builder = self.builder.clone();
        let liveness = Arc::new(self.script.process(process));
        move || builder.open_in(data, control, liveness)
    }

    /// The state for the machine's next boot, if the regions survive it and no process is left: a
    /// control region of another boot.
    pub fn reboot(&self) {
        // The boot id's place: 5 words into the control header.
        let words = self.control.slice_at::<AtomicU64>(128 + 40, 2).unwrap();
        words[0].fetch_xor(1, Relaxed);
    }

    /// The data as they are.
    pub fn bytes(&self) -> Vec<u64> {
        let words = self.data.slice_at::<AtomicU64>(0, self.data.len() / 8);
        words.unwrap().iter().map(|w| w.load(Relaxed)).collect()
    }

    pub fn try_open(&self, process: u32) -> Result<LogStore, mneme_log::OpenError> {
        self.try_open_for(process, Access::ReadWrite)
    }

    /// The store, opened by a process that cannot store to the data: any store would end the
    /// process.
    pub fn open_to_read(&self, process: u32) -> LogStore {
        self.try_open_for(process, Access::ReadOnly).unwrap()
    }

    pub fn try_open_for(
        &self,
        process: u32,
        access: Access,
    ) -> Result<LogStore, mneme_log::OpenError> {
        let (data, control) = self.map(access);
        let liveness = Arc::new(self.script.process(process));
        // An opening that may only read has no maintainer, even if one is requested.
        let builder = self.builder.clone().maintainer(access == Access::ReadOnly);
        builder.open_in(data, control, liveness)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for region in [&self.data, &self.control] {
            let file = region.duplicate_fd().unwrap().unwrap();
            mneme_sys::fault::discard(&file, region.max()).unwrap();
        }
    }
}
