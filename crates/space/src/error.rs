//! This crate's errors: one enum for each family of operations.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mneme_sync::{SlotError, Stalled};
use mneme_sys::{HeaderError, LivenessError, RegionError, WindowError};

use crate::heap::HeapError;
use crate::{ContentsInfo, Uuid};

/// Why a text cannot be the name of a segment or a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a name has at least one byte")]
    Empty,
    /// The name is longer than allowed.
    #[error("a name has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The name begins with a dot, like hidden files and the file system's `.` and `..`.
    #[error("a name may not begin with a dot: {name:?}")]
    Hidden {
        /// The name.
        name: String,
    },
    /// A character that a file name cannot contain or that a terminal cannot show.
    #[error("a name may have neither slashes nor control characters: {name:?} has {found:?}")]
    Character {
        /// The name.
        name: String,
        /// The first such character.
        found: char,
    },
    /// Only servers and upgrades give names of this form.
    #[error(
        "{name:?} cannot be chosen: names with a letter after a '~' are reserved for servers and upgrades"
    )]
    Reserved {
        /// The name.
        name: String,
    },
}

/// The file system refused an operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub struct FileError {
    /// The operation, for example "open".
    pub what: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Adds the operation and the path to an I/O error; for `map_err`.
    pub(crate) fn at(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { what, path, source }
    }
}

/// Why the file that describes a registry, a segment or a space cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has another version of the format.
    #[error("{} has format {found}, this build reads format {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u64,
        /// The version that this build reads.
        expected: u32,
    },
    /// The file is truncated, damaged, or contradicts itself.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Why an operation on a registry failed, or on a note beside a segment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name of a segment, or of a note beside it, is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The file system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file `registry` cannot be used.
    #[error("the registry's description is not usable")]
    Description(#[source] DescriptionError),
    /// A directory at a path that any user could have created belongs to another user.
    #[error("{} belongs to user {owner}, not to this process's user: it is not used", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The segment belongs to another user, and only the owner may write notes beside it.
    #[error("the segment belongs to user {owner}, who alone may keep notes beside it")]
    NotOwner {
        /// The owner.
        owner: u32,
    },
    /// Another process holds the registry's lock and does not release it.
    #[error("{} was not free within {waited:?}; its holder is alive: is it stopped?", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
    },
    /// The kernel's lock on a file failed.
    #[error("the kernel's lock on {} failed", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: LivenessError,
    },
    /// The window of addresses that was asked for is impossible.
    #[error(
        "a window of {slots} slots at {base:#x} is impossible: it begins at a multiple of 1 GiB and ends below 2^47"
    )]
    Window {
        /// The window's first address.
        base: usize,
        /// The number of slots of 1 GiB.
        slots: usize,
    },
    /// The control file of a segment or a space could not be created again.
    #[error("the control file {} could not be created again", path.display())]
    Mend {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<CreateError>,
    },
    /// The kernel has no randomness for an identity.
    #[error("no randomness for an identity")]
    Random(#[source] io::Error),
}

/// Why a segment could not be created, or a data file not imported under a name. Nothing of it
/// exists then; a file that was to be imported is unchanged and has its old name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is taken. If two processes create a segment at once, the second gets this error.
    #[error("there is a segment {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// A segment of that name exists, but cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sizes are impossible.
    #[error("a segment of {size} bytes growing to {max} is impossible")]
    Size {
        /// The initial size in bytes.
        size: usize,
        /// The maximum size in bytes.
        max: usize,
    },
    /// The requested address cannot be used.
    #[error("a segment of at most {max} bytes cannot lie at {base:#x}: {why}")]
    Base {
        /// The address.
        base: usize,
        /// The maximum size in bytes.
        max: usize,
        /// The reason.
        why: &'static str,
    },
    /// The registry's window has no run of free slots as long as the segment needs.
    #[error(
        "no {slots} slots of 1 GiB in a row are free in the registry's window; widen it or remove segments"
    )]
    NoSlot {
        /// The number of slots needed.
        slots: usize,
    },
    /// The machine does not have the requested backing.
    #[error("the backing is not available: {why}")]
    Backing {
        /// What is missing and what to do about it.
        why: String,
    },
    /// The registry cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data file could not be created, or the memory or disk space for it could not be
    /// allocated.
    #[error("no data file {}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: RegionError,
    },
    /// The control file could not be created.
    #[error("no control file {}", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: mneme_sync::CreateError,
    },
    /// The segment is too small for a heap, or the heap could not be created.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The name for the kind of contents cannot be shown: it must have 1 to 64 bytes and no control
    /// characters.
    #[error("{kind:?} is no name for what a segment holds: 1 to 64 bytes, no control characters")]
    Kind {
        /// The name given.
        kind: String,
    },
    /// This process could not become the first participant of the segment that it created.
    #[error("the new segment's data could not be opened")]
    Join(#[from] Box<MapError>),
    /// The crate that lays out the contents wrote another header than the one it announced.
    #[error("the segment was laid out as something else than it should be")]
    LaidOut(#[source] OpenError),
    /// The file to be imported is not a segment's data file, or is damaged.
    #[error("this is not the data of a segment that could be imported")]
    ImportData(#[source] OpenError),
    /// Another crate laid out the file to be imported, and the information in its lost control file
    /// cannot be reconstructed.
    #[error(
        "{} is laid out by another crate (it begins with {magic:?}), and cannot be used without its control file",
        path.display()
    )]
    ImportContents {
        /// The data file.
        path: PathBuf,
        /// The first bytes of the data.
        magic: String,
    },
    /// The file to be imported does not record the address at which its pointers are valid.
    #[error("{} does not say at which address it lies: name the address", path.display())]
    NoBase {
        /// The data file.
        path: PathBuf,
    },
    /// The address given is not the one recorded in the file.
    #[error("{} lies at {found:#x}, not at {given:#x}", path.display())]
    OtherBase {
        /// The data file.
        path: PathBuf,
        /// The address recorded in the file.
        found: usize,
        /// The address given.
        given: usize,
    },
    /// A living process has the file to be imported mapped.
    #[error("{} is in use", path.display())]
    InUse {
        /// The data file.
        path: PathBuf,
    },
    /// A segment of this registry already uses these data.
    #[error("a segment of this registry has the data {}", path.display())]
    Named {
        /// The data file.
        path: PathBuf,
    },
    /// The registry has data of the same identity: the file is a copy.
    #[error("the registry has data of this identity already: {}", path.display())]
    SameIdentity {
        /// The existing data file.
        path: PathBuf,
    },
}

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no segment of that name.
    #[error("there is no segment {name:?} in {}", registry.display())]
    NotFound {
        /// The name.
        name: String,
        /// The registry's directory.
        registry: PathBuf,
    },
    /// The segment's description cannot be used.
    #[error("the segment's description is not usable")]
    Description(#[from] DescriptionError),
    /// The file system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data file does not exist: memory does not survive a reboot, and a disk may not be
    /// mounted.
    #[error("the segment's data file {} is gone", path.display())]
    DataGone {
        /// The file.
        path: PathBuf,
    },
    /// The data file has no valid header.
    #[error("{} is no usable segment", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: HeaderError,
    },
    /// The data file and the description contradict each other.
    #[error("{} does not fit the segment's description: {why}", path.display())]
    Mismatch {
        /// The data file.
        path: PathBuf,
        /// The contradiction.
        why: &'static str,
    },
    /// The data file is shorter than the committed length in its header: content was lost.
    #[error("{} has {len} bytes, {committed} were committed", path.display())]
    Truncated {
        /// The data file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// The committed length in the header, in bytes.
        committed: u64,
    },
}

/// Why a segment could not be mapped into this process, or could not grow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The data or the control file is gone, or may not be opened with this access.
    #[error(transparent)]
    File(#[from] FileError),
    /// The segment is no longer what it was when the handle was opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The registry's window of addresses is not free in this process.
    #[error("the window of fixed addresses cannot be reserved")]
    Window(#[from] WindowError),
    /// Another segment is mapped at these addresses, and not only attached, so that it cannot be
    /// moved: a clone, the original, or a segment of another registry.
    #[error("the segment belongs at {base:#x}, where segment {by} is mapped in this process")]
    Occupied {
        /// The segment's address.
        base: usize,
        /// The segment whose addresses overlap.
        by: Uuid,
    },
    /// A thread of this process is in a section of another segment at these addresses.
    #[error(
        "the segment belongs at {base:#x}, where a thread of this process is in a section of segment {by}"
    )]
    Busy {
        /// The segment's address.
        base: usize,
        /// The segment whose addresses overlap.
        by: Uuid,
    },
    /// The data cannot be mapped.
    #[error("the segment's data cannot be mapped")]
    Region(#[from] RegionError),
    /// The segment has its maximum size, or there is not enough memory or disk space for it to
    /// grow. It has the size that it had before.
    #[error("the segment cannot grow")]
    Grow(#[source] RegionError),
    /// This process cannot become a participant of the segment.
    #[error("the control file {} is not usable", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: mneme_sync::OpenError,
    },
    /// The control file cannot be locked, for instance because this process may not write it; even
    /// visitors that only read must be able to.
    #[error("this process cannot be a participant of {}", path.display())]
    Liveness {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: LivenessError,
    },
    /// Other processes use the segment's data through another control file, whose locks are
    /// independent of this one's. That control file belongs to a copy of the segment's directory,
    /// or was deleted. Remove the copy, or wait until those processes leave.
    #[error(
        "{} is in use through another control file: that of a copy of the segment's directory, or a deleted one",
        path.display()
    )]
    OtherControl {
        /// The data file.
        path: PathBuf,
    },
    /// The data file was replaced while other processes use the one that had this name before. The
    /// file that they use is the segment. When they leave, it is gone, and the replacement can be
    /// opened.
    #[error(
        "{} has replaced a data file that other processes still use: end them, or put their file back",
        path.display()
    )]
    OtherData {
        /// The data file.
        path: PathBuf,
    },
    /// Another crate lays out the segment's contents: only its operations can enter, copy or change
    /// them.
    #[error("segment {name:?} holds a {kind}, which only its own operations open, copy and change")]
    Contents {
        /// The segment's name.
        name: String,
        /// The kind of contents, for people.
        kind: String,
    },
    /// The segment holds other contents than those asked for, or has another format or layout.
    #[error(
        "segment {name:?} holds {}, and {wanted} was asked for",
        holds.as_ref().map_or_else(|| "a heap or plain bytes".to_owned(), ToString::to_string)
    )]
    OtherContents {
        /// The segment's name.
        name: String,
        /// The actual contents; `None` if no other crate lays them out.
        holds: Option<Box<ContentsInfo>>,
        /// The contents asked for.
        wanted: Box<ContentsInfo>,
    },
    /// The machine went down while a process had the segment open for writing. The kernel may have
    /// written only some of the changes to the medium.
    #[error(
        "the machine went down while {} was in use: what is on the medium may be a mixture of old and new, and nothing \
         tells; remove the segment and create it again",
        path.display()
    )]
    NotClean {
        /// The data file.
        path: PathBuf,
    },
    /// Another process that is opening the segment, or writing it through before it leaves, does
    /// not finish.
    #[error(
        "another process was opening or leaving {} for {waited:?}: is it stopped, or the medium slow?",
        path.display()
    )]
    Door {
        /// The data file.
        path: PathBuf,
        /// How long this process waited.
        waited: Duration,
    },
    /// This process was forked from one that has segments mapped at their addresses. It can neither
    /// use those mappings nor replace them. Floating segments can be mapped.
    #[error(
        "this process was forked from one that has segments mapped; it must be started anew (exec) to map them"
    )]
    Forked,
    /// The file can be read but not written: the segment can be mapped for reading only.
    #[error("{} may not be written by this process", path.display())]
    NotWritable {
        /// The data file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Why a segment could not be cloned, or its contents not be replaced by a clone's. Nothing of a
/// new clone exists then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloneError {
    /// The clone could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The original could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A process is changing the original and does not finish, or the original's lock cannot be
    /// tried.
    #[error("the segment could not be locked against changes")]
    Enter(#[from] EnterError),
    /// This process has no slot in the original's control region.
    #[error("no thread slot in the segment's control region")]
    Slot(#[from] SlotError),
    /// The control region has no lock for the segment.
    #[error("the segment's control region has no lock for it")]
    NoGate,
    /// A process died while changing the original: its contents may be half changed.
    #[error("segment {name:?} was being changed by a process that died; recover it first")]
    Poisoned {
        /// The original's name.
        name: String,
    },
    /// The two are not a segment and its clone, or are one and the same.
    #[error(
        "segment {name:?} cannot have the content of {other:?}: a clone has the same address and greatest size"
    )]
    Unlike {
        /// The segment to be restored.
        name: String,
        /// The segment whose contents were to be copied.
        other: String,
    },
    /// The calling thread is in a section: it would wait for itself.
    #[error("the calling thread is in a section")]
    Nested,
    /// A process is in the segment and does not leave.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The memory could not be reached.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Why a segment could not be removed, or renamed, which removes its old name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no segment of that name.
    #[error("there is no segment {name:?}")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The new name is taken.
    #[error("there is a segment {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// A process has the segment mapped.
    #[error("segment {name:?} is mapped by a living process")]
    InUse {
        /// The name.
        name: String,
    },
    /// An opening that cleans up requested the removal, but the segment was not created by an
    /// opening.
    #[error(
        "segment {name:?} was created as {made_as:?}, by neither a server nor an upgrade: rename it or remove it"
    )]
    NotALeftover {
        /// The name.
        name: String,
        /// The name under which it was created.
        made_as: String,
    },
    /// The registry cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused an operation. If the name is gone, cleaning removes the rest.
    #[error(transparent)]
    File(#[from] FileError),
}

impl RemoveError {
    /// Whether the new name is taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Exists { .. })
    }
}

/// Why segments could not be attached, or a section could not begin. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    /// The calling thread is in a section already: it would wait for itself.
    #[error("the calling thread is in a section already")]
    Nested,
    /// The holder of a segment's lock is alive and does not release it.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// A process died or panicked while changing the segment: accept it, rebuild it, or use a
    /// clone.
    #[error("segment {segment:?} is poisoned: a process died or panicked while changing it")]
    Poisoned {
        /// Its name.
        segment: String,
    },
    /// A control region has no free thread slot; a forked child must attach for itself.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A segment's data file was truncated.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A segment could not be mapped at its address; [`MapError::Busy`] if a thread of this process
    /// is in a section of another segment there.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The space has changed, and its current members could not be attached.
    #[error("the space has changed, and its current members could not be attached")]
    Follow(#[source] Box<EnterError>),
    /// The segment to recover is not attached for writing.
    #[error("segment {name:?} is not attached for writing")]
    NotWritable {
        /// Its name.
        name: String,
    },
    /// The segment's heap cannot be used.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The space, or a member of it, could not be opened.
    #[error(transparent)]
    Space(#[from] crate::SpaceError),
    /// A segment is named twice.
    #[error("segment {name:?} is attached twice")]
    Twice {
        /// Its name.
        name: String,
    },
    /// Two segments claim the same addresses, for instance a clone and its original. They can be
    /// attached separately.
    #[error("segments {one:?} and {other:?} claim the same addresses")]
    Overlap {
        /// The name of one.
        one: String,
        /// The name of the other.
        other: String,
    },
    /// The segment has no address of its own. It cannot contain pointers, and is used through its
    /// mapping.
    #[error("segment {name:?} has no address of its own; map it instead")]
    Floating {
        /// Its name.
        name: String,
    },
    /// The control region has no lock for the segment.
    #[error("the segment's control region has no lock for it")]
    NoGate,
    /// The segment to be detached was not attached individually.
    #[error("segment {name:?} is not attached individually")]
    NotAttached {
        /// Its name.
        name: String,
    },
}
