//! Two regions that any number of "processes" open, each at addresses of its own; who is alive is
//! said by a script.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part; a test fails by panicking"
)]

use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use mneme_log::{LogStore, UpdatePolicy, control_bytes};
use mneme_sys::fault::{self, Action};
use mneme_sys::{Access, PagePolicy, Region, ScriptedLiveness};

pub const CAPACITY: usize = 64 << 20;

/// The regions and the script.
pub struct Memory {
    pub data: Region,
    control: Region,
    pub script: ScriptedLiveness,
}

impl Memory {
    /// Memory of [`CAPACITY`] with a store that process 1 created.
    pub fn new() -> (Memory, LogStore) {
        Memory::with(CAPACITY)
    }

    /// The same, of another capacity.
    pub fn with(capacity: usize) -> (Memory, LogStore) {
        Memory::with_policy(capacity, UpdatePolicy::Append)
    }

    /// The same, of another policy.
    pub fn with_policy(capacity: usize, policy: UpdatePolicy) -> (Memory, LogStore) {
        Memory::growing(capacity, capacity, policy)
    }

    /// The same, of memory that may grow to `max`.
    pub fn growing(capacity: usize, max: usize, policy: UpdatePolicy) -> (Memory, LogStore) {
        let control_len = control_bytes().next_multiple_of(2 << 20);
        let data = Region::memfd("log-data", capacity, max, PagePolicy::Small).unwrap();
        let control =
            Region::memfd("log-control", control_len, control_len, PagePolicy::Small).unwrap();
        let memory = Memory {
            data,
            control,
            script: ScriptedLiveness::new(),
        };
        let (data, control) = memory.map();
        let store = LogStore::builder()
            .maintainer(false)
            .update_policy(policy)
            .create_in(data, control, Arc::new(memory.script.process(1)))
            .unwrap();
        (memory, store)
    }

    fn map(&self) -> (Region, Region) {
        let again = |r: &Region| {
            let fd = r.duplicate_fd().unwrap().unwrap();
            Region::map(fd, Access::ReadWrite, r.max(), PagePolicy::Small).unwrap()
        };
        (again(&self.data), again(&self.control))
    }

    /// The store as another process opens it.
    pub fn open(&self, process: u32) -> LogStore {
        self.try_open(process).unwrap()
    }

    pub fn try_open(&self, process: u32) -> Result<LogStore, mneme_log::OpenError> {
        let (data, control) = self.map();
        LogStore::builder().maintainer(false).open_in(
            data,
            control,
            Arc::new(self.script.process(process)),
        )
    }
}

/// A thread that stands still at a named place, alive, until it is told to go on.
pub struct Stopped<T> {
    go_on: mpsc::Sender<()>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Stopped<T> {
    /// Runs `work` in a thread of its own up to its `nth` passage of `name`, and leaves it there.
    pub fn at(name: &'static str, nth: u64, work: impl FnOnce() -> T + Send + 'static) -> Self {
        Stopped::try_at(name, nth, work)
            .unwrap_or_else(|| panic!("the place {name} is never reached"))
    }

    /// The same; `None` if the work ended before.
    pub fn try_at(
        name: &'static str,
        nth: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Self> {
        let (arrived, at_place) = mpsc::channel();
        let (go_on, told) = mpsc::channel::<()>();
        let told = Mutex::new(told);
        let thread = std::thread::spawn(move || {
            let stop = move || {
                arrived.send(()).unwrap();
                let _ = told.lock().unwrap().recv();
            };
            fault::arm(name, Action::Call(Arc::new(stop)), nth);
            let result = work();
            fault::disarm();
            result
        });
        at_place.recv().ok()?;
        Some(Stopped { go_on, thread })
    }

    /// Lets it go on, and waits for its result.
    pub fn finish(self) -> T {
        self.go_on.send(()).unwrap();
        self.thread.join().unwrap()
    }
}
