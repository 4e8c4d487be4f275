//! Named segments: ranges of memory that outlive every process, with a fixed place in the address
//! space, so that pointers between their parts stay true in every process; and spaces, sets of
//! them.
//!
//! The design is SpaceJMP's (El Hajj et al., ASPLOS 2016; §3 to §5), on a stock kernel: names live
//! in the file system, fixed addresses in a window that each process reserves once.
//!
//! # Use
//!
//! ```
//! use mneme_space::{Access, Attachment, Registry, Schema, SegMap, SegString, Segment};
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
//! attached.enter(|here| {
//!     let heap = here.heap("visits")?;
//!     let visits = here.create_root::<Visits>("visits", SegMap::new_in)?;
//!     visits.insert(SegString::from_str_in("Ada", heap), 1);
//!     Ok::<_, mneme_space::RootError>(())
//! })??;
//! drop(attached);
//!
//! // Later, in another process with the permission: the same map, at the same address.
//! let found = Segment::open(&registry, "visits")?;
//! let attached = Attachment::new([(&found, Access::ReadOnly)])?;
//! let of_ada = attached.read(|here| Ok::<_, mneme_space::RootError>(
//!     here.root::<Visits>("visits")?.get("Ada").copied(),
//! ))??;
//! assert_eq!(of_ada, Some(1));
//! # drop(attached);
//! found.remove()?;
//! # std::fs::remove_dir_all(&root)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Guides: `docs/guides/sharing-data.md` and `docs/guides/keeping-data.md`; what the others
//! see when a process dies: `docs/failures.md`.
//!
//! # Names
//!
//! A [`Registry`] is a directory; each segment is a directory in it, with a description (`meta`,
//! JSON), a `control` file for locks and participants, and a link to its `data`. `ls`, `du`,
//! `chmod`, quotas and backups work on them. A segment appears under its name whole or not at all.
//! What a process that died half-way leaves is listed by [`Registry::check`] and removed by
//! [`Registry::clean`], or by the next one that creates something; nothing exists that no file
//! names.
//!
//! # Addresses
//!
//! A segment lies at the same address in every process, unless it is
//! [floating](SegmentBuilder::floating). The registry gives each slots of 1 GiB that no other has;
//! a [clone](Segment::clone_as) has its original's, for it holds the same pointers, and in one
//! process the two are there in turns. What is mapped is mapped once, however many parts of a
//! program use it, and grows in place.
//!
//! # Spaces
//!
//! A [`Space`] is a named set of segments, each with the access that an attachment gets. No two of
//! them overlap, so that all can be mapped at once.
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
//! A program that must not have a space's segments mapped, or has others at their addresses, can
//! have a process that lives there [run functions](Space::call) for it: a request and a reply of
//! bytes, some 4 us.
//!
//! # Permissions
//!
//! Those of a file. A user who may only read maps the data read-only; readers' locks are in
//! `control`, which is writable for all who may read the data.
//!
//! # Memory
//!
//! [`Backing`] says what keeps the bytes. Memory, or space on the medium, is taken when a segment
//! is made and when it grows: a lack of it is an error there and never a signal later.
//!
//! # Processes
//!
//! Any number of processes may do any of this at a time, and each may be killed at any instruction.
//! A forked child must not touch what its parent has mapped; see [`MapError::Forked`].

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
    AttachError, CloneError, CreateError, CreateWithError, DescriptionError, EnterError, FileError,
    GrowError, ImportError, MapError, NameError, OpenError, RegistryError, RemoveError,
    RenameError, RestoreError,
};
pub use hashmap::SegMap;
pub use heap::{Heap, HeapError, HeapProblem, HeapReport, HeapStats, UntypedHeap};
pub use local::{LocalError, LocalSegment};
pub use map::Mapping;
pub use name::Name;
pub use ptr::{Ptr, PtrError};
pub use registry::{Registry, RegistryOptions};
pub use root::RootError;
pub use section::Section;
pub use segment::note::{NoteError, NoteHold};
pub use segment::{
    Backing, Condition, Importable, Parts, Presence, Segment, SegmentBuilder, SegmentInfo,
};
pub use space::{
    MAX_MEMBERS, MemberInfo, Space, SpaceBuilder, SpaceChangeError, SpaceCreateError, SpaceInfo,
    SpaceOpenError, SpaceRemoveError,
};
pub use stored::{Schema, Shape, Stored};
pub use string::SegString;
pub use uuid::Uuid;

/// What a process may do with a segment, and which pages a segment would like.
pub use mneme_sys::{Access, PagePolicy};

/// A vector in a segment.
pub type SegVec<'s, T> = allocator_api2::vec::Vec<T, Heap<'s>>;
/// A value of its own in a segment; of a list's or tree's next node, for instance.
pub type SegBox<'s, T> = allocator_api2::boxed::Box<T, Heap<'s>>;

/// The derived code names this crate.
extern crate self as mneme_space;

/// The guides' examples.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/sharing-data.md")]
    pub struct Sharing;
    #[doc = include_str!("../../../docs/guides/keeping-data.md")]
    pub struct Keeping;
}
