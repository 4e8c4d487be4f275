//! What can go wrong, one enum for each family of operations.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mneme_sync::{SlotError, Stalled};
use mneme_sys::{HeaderError, LivenessError, RegionError, WindowError};

use crate::heap::HeapError;
use crate::{ContentsInfo, Uuid};

/// Why a text is no name of a segment or a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("a name has at least one byte")]
    Empty,
    /// It is longer than a name may be.
    #[error("a name has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// It begins with a dot, as the file system's own and hidden names do.
    #[error("a name may not begin with a dot: {name:?}")]
    Hidden {
        /// The name.
        name: String,
    },
    /// A character that a file's name cannot have, or that no terminal can show.
    #[error("a name may have neither slashes nor control characters: {name:?} has {found:?}")]
    Character {
        /// The name.
        name: String,
        /// The first such character.
        found: char,
    },
    /// It is of the form of names that openings give.
    #[error(
        "{name:?} is not a name to choose: what has a letter behind a '~' is kept beside a segment by a server or an upgrade"
    )]
    Reserved {
        /// The name.
        name: String,
    },
}

/// The file system refused something.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub struct FileError {
    /// What was tried.
    pub what: &'static str,
    /// With which file or directory.
    pub path: PathBuf,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`.
    pub(crate) fn at(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { what, path, source }
    }
}

/// A file that describes something is not what this build writes.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is of another version of the format.
    #[error("{} has format {found}, this build reads format {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u64,
        /// The version asked for.
        expected: u32,
    },
    /// It is truncated, damaged, or contradicts itself.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a registry could not be opened or worked on.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file `registry` is not usable.
    #[error("the registry's description is not usable")]
    Description(#[source] DescriptionError),
    /// A directory with a name that anybody could have taken belongs to another user.
    #[error("{} belongs to user {owner}, not to this process' user: it is not used", path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Another process holds the registry's lock and does not get on.
    #[error("{} was not free within {waited:?}; its holder is alive: is it stopped?", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The kernel's lock on a file failed.
    #[error("the kernel's lock on {} failed", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: LivenessError,
    },
    /// The bounds asked for the window of addresses are impossible.
    #[error(
        "a window of {slots} slots at {base:#x} is impossible: it begins at a multiple of 1 GiB and ends below 2^47"
    )]
    Window {
        /// Its first address.
        base: usize,
        /// Slots of 1 GiB.
        slots: usize,
    },
    /// The control file of a segment or a space could not be made anew.
    #[error("the control file {} could not be made anew", path.display())]
    Mend {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<CreateError>,
    },
    /// The kernel has no randomness for an identity.
    #[error("no randomness for an identity")]
    Random(#[source] io::Error),
}

/// Why a segment could not be made. Nothing of it exists then.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is a segment of that name; of two processes that create it at once, the second gets
    /// this.
    #[error("there is a segment {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is one, and it cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sizes make no sense.
    #[error("a segment of {size} bytes growing to {max} is impossible")]
    Size {
        /// Bytes to begin with.
        size: usize,
        /// Bytes it may grow to.
        max: usize,
    },
    /// The address asked for cannot be had.
    #[error("a segment of at most {max} bytes cannot lie at {base:#x}: {why}")]
    Base {
        /// The address.
        base: usize,
        /// Bytes it may grow to.
        max: usize,
        /// What forbids it.
        why: &'static str,
    },
    /// No run of free slots is as long as the segment needs.
    #[error(
        "no {slots} slots of 1 GiB in a row are free in the registry's window; widen it or remove segments"
    )]
    NoSlot {
        /// Slots needed.
        slots: usize,
    },
    /// The machine does not have that backing.
    #[error("the backing cannot be had: {why}")]
    Backing {
        /// What is missing and what to do.
        why: String,
    },
    /// The registry cannot be worked on.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data could not be given their memory or space.
    #[error("no data file {}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: RegionError,
    },
    /// The control region could not be made.
    #[error("no control file {}", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: mneme_sync::CreateError,
    },
    /// There is no free space for a heap.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// What it shall hold has no name that could be shown: 1 to 64 bytes, no control characters.
    #[error("{kind:?} is no name for what a segment holds: 1 to 64 bytes, no control characters")]
    Kind {
        /// The name given.
        kind: String,
    },
    /// This process could not be the first participant of what it made.
    #[error("the new segment's data could not be opened")]
    Join(#[from] Box<MapError>),
}

/// Why a data file could not be given a name. The file and its old name are as they were then.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The segment could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The file is not a segment's data file, or is damaged.
    #[error("this is not the data of a segment that could be imported")]
    Data(#[source] OpenError),
    /// Another crate laid the segment out, and what its lost control file held cannot be known.
    #[error(
        "{} is laid out by another crate (it begins with {magic:?}), and cannot be used without its control file",
        path.display()
    )]
    Contents {
        /// The data file.
        path: PathBuf,
        /// The first bytes of it.
        magic: String,
    },
    /// The file does not say at which address its pointers are true.
    #[error("{} does not say at which address it lies: name the address", path.display())]
    NoBase {
        /// The data file.
        path: PathBuf,
    },
    /// The address given is not the one that the file says.
    #[error("{} lies at {found:#x}, not at {given:#x}", path.display())]
    OtherBase {
        /// The data file.
        path: PathBuf,
        /// The address in the file.
        found: usize,
        /// The address given.
        given: usize,
    },
    /// A living process has it mapped.
    #[error("{} is in use", path.display())]
    InUse {
        /// The data file.
        path: PathBuf,
    },
    /// A segment of the registry has these data.
    #[error("a segment of this registry has the data {}", path.display())]
    Named {
        /// The data file.
        path: PathBuf,
    },
    /// The registry has data of the same identity: the file is a copy.
    #[error("the registry has data of this identity already: {}", path.display())]
    Exists {
        /// The data that it has.
        path: PathBuf,
    },
}

/// Why a segment that another crate lays out could not be made; `E` is that crate's error. Nothing
/// of the segment exists then.
#[derive(Debug, thiserror::Error)]
pub enum CreateWithError<E> {
    /// The segment could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The other crate could not lay it out.
    #[error("the segment's contents could not be laid out")]
    LayOut(#[source] E),
    /// It wrote another header than it should have.
    #[error("the segment was laid out as something else than it should be")]
    Header(#[source] OpenError),
}

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name is none.
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
    /// Its description is not usable.
    #[error("the segment's description is not usable")]
    Description(#[from] DescriptionError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its data file does not exist: memory does not survive a reboot, a disk may not be mounted.
    #[error("the segment's data file {} is gone", path.display())]
    DataGone {
        /// The file.
        path: PathBuf,
    },
    /// Its data file does not begin as a segment does.
    #[error("{} is no usable segment", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: HeaderError,
    },
    /// Its parts do not belong together.
    #[error("{} does not fit the segment's description: {why}", path.display())]
    Mismatch {
        /// The data file.
        path: PathBuf,
        /// What contradicts what.
        why: &'static str,
    },
    /// Its data file is shorter than what was committed: it lost content.
    #[error("{} has {len} bytes, {committed} were committed", path.display())]
    Truncated {
        /// The data file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Bytes that the header records.
        committed: u64,
    },
}

/// Why a segment could not be mapped into this process.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The data or the control file may not be opened so, or is gone.
    #[error(transparent)]
    File(#[from] FileError),
    /// The segment is no longer what it was when it was opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The registry's window of addresses is not free in this process.
    #[error("the window of fixed addresses cannot be reserved")]
    Window(#[from] WindowError),
    /// Another segment lies at these addresses and is mapped there for good, not just attached: a
    /// clone, its original, or one of another registry.
    #[error("the segment belongs at {base:#x}, where segment {by} is mapped in this process")]
    Occupied {
        /// The segment's address.
        base: usize,
        /// The segment whose addresses overlap.
        by: Uuid,
    },
    /// Another segment lies at these addresses, and a thread of this process is in a section of it.
    #[error(
        "the segment belongs at {base:#x}, where a thread of this process is inside of segment {by}"
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
    /// This process cannot be a participant of the segment.
    #[error("the control file {} is not usable", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: mneme_sync::OpenError,
    },
    /// The control file cannot be locked, for instance because it may not be written: visitors that
    /// only read need that too.
    #[error("this process cannot take part in {}", path.display())]
    Liveness {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: LivenessError,
    },
    /// Others take part in the segment's data by another control file, whose lock knows nothing of
    /// this one's: of a copy of the segment's directory, or one that was deleted. Remove the copy,
    /// or wait until they leave.
    #[error(
        "{} is in use by way of another control file: of a copy of the segment's directory, or one that was deleted",
        path.display()
    )]
    OtherControl {
        /// The data file.
        path: PathBuf,
    },
    /// Others take part in data that were there before under this name, which were replaced by
    /// these. What they have is the segment. It is gone once they leave; the replacement can be had
    /// then.
    #[error(
        "{} has taken the place of data that others have still: end them, or put their file back",
        path.display()
    )]
    OtherData {
        /// The data file.
        path: PathBuf,
    },
    /// Another crate lays out what the segment holds: only that can enter, copy or change it.
    #[error("segment {name:?} holds a {kind}, which only its own operations open, copy and change")]
    Contents {
        /// The segment.
        name: String,
        /// What it holds, in words.
        kind: String,
    },
    /// The segment holds something else than what was asked for, or the same in another format or
    /// layout.
    #[error(
        "segment {name:?} holds {}, and {wanted} was asked for",
        holds.as_ref().map_or_else(|| "a heap or plain bytes".to_owned(), ToString::to_string)
    )]
    OtherContents {
        /// The segment.
        name: String,
        /// What it holds; `None`: nothing that another crate lays out.
        holds: Option<Box<ContentsInfo>>,
        /// What was asked for.
        wanted: Box<ContentsInfo>,
    },
    /// The machine went down while a process had the segment open for writing: the kernel had
    /// written some of what it changed to the medium, and perhaps not all.
    #[error(
        "the machine went down while {} was in use: what is on the medium may be a mixture of old and new, and nothing \
         tells; remove the segment, and make it anew",
        path.display()
    )]
    NotClean {
        /// The data file.
        path: PathBuf,
    },
    /// Another process that is opening the segment, or writing it through before it leaves, does
    /// not get on.
    #[error(
        "another process was opening or leaving {} for {waited:?}: is it stopped, or the medium slow?",
        path.display()
    )]
    Door {
        /// The data file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// This process was forked from one that has segments mapped at their addresses, which it can
    /// neither use nor have anew. Segments that float can be mapped.
    #[error(
        "this process was forked from one that has segments mapped; it must be started anew (exec) to map them"
    )]
    Forked,
    /// The file may be read, but not written: the segment can be mapped for reading only.
    #[error("{} may not be written by this process", path.display())]
    NotWritable {
        /// The data file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// Why a segment could not grow. It is as large as before.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The segment could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// It has its greatest size, or the memory or space is not there.
    #[error("the segment cannot grow")]
    Region(#[from] RegionError),
}

/// Why a segment could not be cloned. Nothing of the clone exists then.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The clone could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The original could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A process is changing the original and does not leave, or its lock cannot be tried.
    #[error("the segment could not be had while nobody changes it")]
    Enter(#[from] EnterError),
    /// This process has no slot in the original's control region.
    #[error("no thread slot in the segment's control region")]
    Slot(#[from] SlotError),
    /// The control region has no gate for the segment's lock.
    #[error("the segment's control region has no lock for it")]
    NoGate,
    /// Somebody died while changing the original: what it holds may be half changed.
    #[error("segment {name:?} was being changed by somebody who died; recover it first")]
    Poisoned {
        /// The original's name.
        name: String,
    },
}

/// Why a segment could not be looked at, or given a clone's content.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The two are not a segment and its clone, or the same.
    #[error(
        "segment {name:?} cannot have the content of {other:?}: a clone has the same address and greatest size"
    )]
    Unlike {
        /// The segment to be restored.
        name: String,
        /// The one whose content it should have.
        other: String,
    },
    /// The calling thread is in a section: it would wait for itself.
    #[error("the calling thread is in a section")]
    Nested,
    /// The other one needs recovery itself, or could not be had while nobody changes it.
    #[error(transparent)]
    Clone(#[from] CloneError),
    /// One of them could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Somebody is inside and does not leave.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// No thread slot in a control region.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// It could not be made as long as the other.
    #[error(transparent)]
    Grow(#[from] GrowError),
    /// The memory could not be reached.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Why a segment could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no segment of that name.
    #[error("there is no segment {name:?}")]
    NotFound {
        /// The name.
        name: String,
    },
    /// A process has it mapped.
    #[error("segment {name:?} is mapped by a living process")]
    InUse {
        /// The name.
        name: String,
    },
    /// An opening would remove it, and no opening has made it.
    #[error(
        "segment {name:?} was made as {made_as:?}, by no server and no upgrade: give it another name, or remove it"
    )]
    NotALeftover {
        /// The name.
        name: String,
        /// The name that it was made under.
        made_as: String,
    },
    /// The registry cannot be worked on.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused something. If the name is gone, cleaning removes the rest.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a segment could not be given another name. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// A name is none.
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
    /// A process has it mapped.
    #[error("segment {name:?} is mapped by a living process")]
    InUse {
        /// The name.
        name: String,
    },
    /// The registry cannot be worked on.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
}

impl RenameError {
    /// Whether the new name is taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Exists { .. })
    }
}

/// Why segments could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The space, or a member of it, could not be opened.
    #[error(transparent)]
    Space(#[from] crate::SpaceOpenError),
    /// One of them could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// One segment is named twice.
    #[error("segment {name:?} is attached twice")]
    Twice {
        /// It.
        name: String,
    },
    /// Two of them claim the same addresses: a clone and its original, for instance. They can be
    /// attached apart.
    #[error("segments {one:?} and {other:?} claim the same addresses")]
    Overlap {
        /// One of them.
        one: String,
        /// The other.
        other: String,
    },
    /// A segment without an address: what lies in it points nowhere, and is used by its mapping.
    #[error("segment {name:?} has no address of its own; map it instead")]
    Floating {
        /// It.
        name: String,
    },
    /// The control region has no gate for the segment's lock.
    #[error("the segment's control region has no lock for it")]
    NoGate,
    /// A segment to be taken off is not attached by itself.
    #[error("segment {name:?} is not attached by itself")]
    NotAttached {
        /// It.
        name: String,
    },
}

/// Why a section could not begin. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The calling thread is in a section already: it would wait for itself.
    #[error("the calling thread is in a section already")]
    Nested,
    /// The holder of a segment's lock lives and does not leave.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// Somebody died, or panicked, while changing the segment: accept it, rebuild it, or take a
    /// clone.
    #[error("segment {segment:?} is poisoned: somebody died or panicked while changing it")]
    Poisoned {
        /// It.
        segment: String,
    },
    /// No thread slot in a control region; a forked child must attach for itself.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A segment's data file was truncated.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A segment could not be brought to its address; [`MapError::Busy`] if another has it that a
    /// thread of this process is in.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The space has changed, and could not be attached as it is now.
    #[error("the space has changed and cannot be followed")]
    Follow(#[from] AttachError),
    /// The segment to recover is not attached for writing.
    #[error("segment {name:?} is not attached for writing")]
    NotAttached {
        /// It.
        name: String,
    },
    /// There is no free space for a heap.
    #[error(transparent)]
    Heap(#[from] HeapError),
}
