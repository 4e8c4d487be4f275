//! The machine as Mneme sees it: memory regions, CPUs and NUMA nodes, time, randomness, liveness of
//! processes, and the few instructions that the standard library does not provide.
//!
//! Only this crate asks the operating system for memory, CPUs or time. The crates above receive
//! these traits as arguments, and tests pass the synthetic implementations:
//!
//! | seam | the machine | for tests |
//! |---|---|---|
//! | [`Topology`] | [`SysfsTopology`] | [`SyntheticTopology`] |
//! | [`Clock`] | [`SystemClock`] | [`ManualClock`] |
//! | [`Liveness`] | [`OfdLiveness`] | [`ScriptedLiveness`] |
//! | [`Medium`](medium::Medium) | `FileMedium` | [`RecordingMedium`](medium::RecordingMedium) |
//!
//! Linux only, on x86-64 and aarch64. Under Miri, [`Region`] is an aligned heap allocation, the
//! barrier is a plain fence and [`racy`] uses its portable implementation, so that the crates above
//! can run there.

pub mod barrier;
mod clock;
mod core_dumps;
mod cpu;
mod crc32c;
pub mod descriptors;
mod entropy;
mod error_kind;
pub mod fault;
mod file_system;
pub mod files;
pub mod fork;
pub mod futex;
#[cfg(not(miri))]
mod guaranteed;
mod liveness;
pub mod medium;
mod memory;
mod open_files;
mod prefetch;
mod process;
pub mod racy;
mod region;
mod rtm;
mod switched;
mod syncs;
mod terminal;
mod topology;
mod usage;
mod view;
mod write_back;
#[cfg(not(miri))]
mod write_protect;

pub use clock::{Clock, ManualClock, SystemClock};
pub use core_dumps::forbid_core_dumps;
pub use cpu::{CpuId, CpuSource, cpu_source, current_cpu, time_stamp};
pub use crc32c::crc32c;
pub use entropy::{boot_id, random_bytes};
pub use error_kind::{Classified, ErrorKind, with_causes};
pub use file_system::Caution;
pub use liveness::{
    ChildrensByte, Liveness, LivenessError, OfdLiveness, ScriptedLiveness, ScriptedProcess,
    SharedByte, Taken,
};
pub use memory::{MemoryLimit, huge_page_setting, memory_info, memory_limit, total_memory};
pub use open_files::allow_open_files;
pub use prefetch::prefetch;
pub use process::{ProcessState, end_process, process_state};
pub use region::{
    Access, FRAME, HEADER_LEN, HeaderError, InRegion, PageKind, PagePolicy, PageReport, Region,
    RegionError, RegionHeader, Reserve, Window, WindowError, huge_pool_free,
};
pub use rtm::{Rtm, TransactionAborted};
pub use switched::{SwitchedFile, SwitchedWindow};
pub use terminal::terminal_size;
pub use topology::{NodeId, SyntheticTopology, SysfsTopology, Topology};
pub use usage::{CpuTime, TimeOf, cpu_time, resident_memory};
pub use view::View;
pub use write_back::WriteBack;
#[cfg(not(miri))]
pub use write_protect::WriteProtected;
