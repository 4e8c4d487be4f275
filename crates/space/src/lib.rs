//! Named segments: ranges of memory that outlive every process and have a fixed place in the
//! address space, so that pointers between their parts are valid in every process. A space is a set
//! of segments.
//!
//! The design is SpaceJMP's (El Hajj et al., ASPLOS 2016; §3 to §5), on a stock kernel: names live
//! in the file system, fixed addresses in a window that each process reserves once.
//!
//! # Use
//!
//! ```
//! use mneme_space::{
//!     Access, Attachment, EnterError, Registry, Schema, SegMap, SegString, Segment,
//! };
//!
//! // What the segment leads to: the type of its root, for whichever section it is seen in.
//! struct Visits;
//! impl Schema for Visits {
//!     type Root<'s> = SegMap<'s, SegString<'s>, u64>;
//! }
//!
//! # let root = format!("/dev/shm/mneme-space-doc-{}", std::process::id());
//! let registry = Registry::open(&root)?;                       // or open_default()
//! let made = registry.segment("visits").max_size(8 << 30).mode(0o660).create()?;
//! let attached = Attachment::new([(&made, Access::ReadWrite)])?;
//! attached.try_enter(|here| {
//!     let heap = here.heap("visits")?;
//!     let visits = here.create_root::<Visits>("visits", SegMap::new_in)?;
//!     visits.insert(SegString::from_str_in("Ada", heap), 1);
//!     Ok::<_, EnterError>(())
//! })?;
//! drop(attached);
//!
//! // Later, in another process with the permission: the same map, at the same address.
//! let found = Segment::open(&registry, "visits")?;
//! let attached = Attachment::new([(&found, Access::ReadOnly)])?;
//! let of_ada = attached.try_read(|here| {
//!     Ok::<_, EnterError>(here.root::<Visits>("visits")?.get("Ada").copied())
//! })?;
//! assert_eq!(of_ada, Some(1));
//! # drop(attached);
//! found.remove()?;
//! # std::fs::remove_dir_all(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Guides: `docs/guides/sharing-data.md` and `docs/guides/keeping-data.md`. `docs/failures.md` says
//! what other processes see when one dies.
//!
//! # Names
//!
//! A [`Registry`] is a directory. Each segment is a directory in it, with a description (`meta`,
//! JSON), a `control` file for locks and participants, and a link to its `data`. `ls`, `du`,
//! `chmod`, quotas and backups work on them. A segment's name appears only when the segment is
//! complete. What a process leaves that dies half-way is listed by [`Registry::check`], and removed
//! by [`Registry::clean`] or by the next process that creates something; every data file is named
//! by some description.
//!
//! # Addresses
//!
//! A segment lies at the same address in every process, unless it is
//! [floating](SegmentBuilder::floating). The registry gives each segment slots of 1 GiB that no
//! other segment has. A [clone](Segment::clone_as) has its original's slots, because it holds the
//! same pointers; in one process the two take turns at these addresses. A process maps a segment
//! once, however many parts of the program use it, and the mapping grows in place.
//!
//! # Spaces
//!
//! A [`Space`] is a named set of segments, each with the access that an attachment gets. No two of
//! them overlap, so all can be mapped at once.
//!
//! ```
//! use mneme_space::{Access, Registry, Space};
//!
//! # let root = format!("/dev/shm/mneme-space-doc-spaces-{}", std::process::id());
//! let registry = Registry::open(&root)?;
//! let (reference, index) = (registry.segment("reference").create()?, registry.segment("index").create()?);
//! let space = registry.space("alignment").mode(0o660).create()?;
//! space.add(&reference, Access::ReadOnly)?;
//! space.add(&index, Access::ReadWrite)?;
//!
//! // Later, elsewhere:
//! let found = Space::open(&registry, "alignment")?;
//! let attached = found.attach()?;
//! attached.enter(|here| assert_eq!(here.segments().count(), 2))?;
//! # drop(attached);
//! # found.remove()?;
//! # registry.remove_segment("reference")?;
//! # registry.remove_segment("index")?;
//! # std::fs::remove_dir_all(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Calls
//!
//! A program that must not map a space's segments, or that has others at their addresses, can have
//! a process that resides in the space [run functions](Space::call) for it. A request and a reply
//! of bytes take some 4 us.
//!
//! # Permissions
//!
//! Segments have the permissions of files. A user who may only read maps the data read-only.
//! Readers' locks are in `control`, which every user who may read the data may also write.
//!
//! # Memory
//!
//! [`Backing`] says where the bytes are kept. Memory, or space on the medium, is allocated when a
//! segment is created and when it grows: if there is not enough, that call returns an error, and no
//! signal (`SIGBUS`) follows later.
//!
//! # Processes
//!
//! Any number of processes may do all of this at the same time, and each may be killed at any
//! instruction. A forked child must not touch what its parent has mapped; see [`MapError::Forked`].

mod attach;
mod call;
mod clean;
mod contents;
mod error;
mod error_kind;
mod hashmap;
mod heap;
mod hexadecimal;
mod local;
mod making;
mod map;
mod name;
mod process_mapping;
mod ptr;
mod registry;
mod root;
mod section;
mod segment;
mod space;
mod stored;
mod string;
mod uuid;

pub use attach::{Attachment, Entered, SectionGuard};
pub use call::{CallError, Caller, Calls, Functions, MAX_MESSAGE, Residence};
pub use clean::Finding;
pub use contents::{Contents, ContentsInfo};
pub use error::{
    CloneError, CreateError, DescriptionError, EnterError, FileError, MapError, NameError,
    OpenError, RegistryError, RemoveError,
};
pub use hashmap::SegMap;
pub use heap::{Heap, HeapError, HeapProblem, HeapReport, HeapStats, UntypedHeap};
pub use local::LocalSegment;
pub use map::Mapping;
pub use name::Name;
pub use ptr::{Ptr, PtrError};
pub use registry::{Registry, RegistryOptions};
pub use section::Section;
pub use segment::note::NoteHold;
pub use segment::{
    Backing, Condition, Importable, Parts, Presence, Segment, SegmentBuilder, SegmentInfo,
};
pub use space::{MAX_MEMBERS, MemberInfo, Space, SpaceBuilder, SpaceError, SpaceInfo};
pub use stored::{Schema, Shape, Stored};
pub use string::SegString;
pub use uuid::Uuid;

/// The access that a process has to a segment, and the kind of pages that a segment prefers.
pub use mneme_sys::{Access, PagePolicy};

/// A vector in a segment.
pub type SegVec<'s, T> = allocator_api2::vec::Vec<T, Heap<'s>>;
/// A single value in a segment, for instance the next node of a list or tree.
pub type SegBox<'s, T> = allocator_api2::boxed::Box<T, Heap<'s>>;

/// Derived code names this crate by its name.
extern crate self as mneme_space;

/// Compiles the examples in the guides.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/sharing-data.md")]
    pub struct Sharing;
    #[doc = include_str!("../../../docs/guides/keeping-data.md")]
    pub struct Keeping;
}
