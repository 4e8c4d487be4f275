//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{
    AttachError, CloneError, CreateError, DescriptionError, EnterError, FileError, GrowError,
    HeapError, MapError, NameError, OpenError, RegistryError, RemoveError, RestoreError, RootError,
    SpaceChangeError, SpaceCreateError, SpaceOpenError, SpaceRemoveError,
};

impl Classified for FileError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
    }
}

impl Classified for NameError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Name
    }
}

impl Classified for DescriptionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File(error) => error.kind(),
            Self::Format { .. } | Self::Damaged { .. } => ErrorKind::Damaged,
        }
    }
}

impl Classified for RegistryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } => ErrorKind::Stalled,
            Self::Random(_) => ErrorKind::Io,
            Self::File(_)
            | Self::Description(_)
            | Self::NotOurs { .. }
            | Self::Lock { .. }
            | Self::Window { .. }
            | Self::Mend { .. } => ErrorKind::Registry,
        }
    }
}

impl Classified for HeapError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Outside | Self::NoSegment { .. } => ErrorKind::Outside,
            Self::AnotherSegment { .. } | Self::Taken { .. } | Self::NoHome => ErrorKind::Internal,
            Self::Refused | Self::Full { .. } | Self::Growth { .. } => ErrorKind::NoMemory,
            Self::NoHeap { .. } | Self::Damaged => ErrorKind::Damaged,
            Self::Size { .. } => ErrorKind::Invalid,
            Self::Seed(_) => ErrorKind::Io,
        }
    }
}

impl Classified for RootError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Heap(error) => error.kind(),
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Layout { .. } => ErrorKind::Root,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::NoBlock { .. } => ErrorKind::Invalid,
            Self::Damaged { .. } => ErrorKind::Damaged,
        }
    }
}

impl Classified for CreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Size { .. } => ErrorKind::Invalid,
            Self::Base { .. } => ErrorKind::Address,
            Self::NoSlot { .. } => ErrorKind::NoMemory,
            Self::Backing { .. } => ErrorKind::Backing,
            Self::Registry(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Data { source, .. } => source.kind(),
            Self::Control { source, .. } => source.kind(),
            Self::Heap(error) => error.kind(),
            Self::Open(error) => error.kind(),
            Self::Join(error) => error.kind(),
            Self::Kind { .. } => ErrorKind::Invalid,
        }
    }
}

impl Classified for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::NotFound { .. } | Self::DataGone { .. } => ErrorKind::NotFound,
            Self::Description(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Header { source, .. } => source.kind(),
            Self::Mismatch { .. } | Self::Truncated { .. } => ErrorKind::Damaged,
        }
    }
}

impl Classified for MapError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::File(error) => error.kind(),
            Self::Open(error) => error.kind(),
            Self::Window(error) => error.kind(),
            Self::Occupied { .. }
            | Self::Busy { .. }
            | Self::OtherControl { .. }
            | Self::OtherData { .. } => ErrorKind::Busy,
            Self::Region(error) => error.kind(),
            Self::Control { source, .. } => source.kind(),
            Self::Liveness { source, .. } => source.kind(),
            Self::Forked => ErrorKind::Forked,
            Self::NotWritable { .. } => ErrorKind::Permission,
            Self::Contents { .. } | Self::OtherContents { .. } => ErrorKind::Invalid,
            Self::NotClean { .. } => ErrorKind::Poisoned,
            Self::Door { .. } => ErrorKind::Stalled,
        }
    }
}

impl Classified for GrowError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Map(error) => error.kind(),
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for CloneError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Create(error) => error.kind(),
            Self::Map(error) => error.kind(),
            Self::Enter(error) => error.kind(),
            Self::Slot(error) => error.kind(),
            Self::NoGate => ErrorKind::Damaged,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
        }
    }
}

impl Classified for RestoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unlike { .. } => ErrorKind::Invalid,
            Self::Clone(error) => error.kind(),
            Self::Map(error) => error.kind(),
            Self::Slot(error) => error.kind(),
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Nested => ErrorKind::Inside,
            Self::Grow(error) => error.kind(),
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for RemoveError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::InUse { .. } => ErrorKind::Busy,
            Self::Registry(error) => error.kind(),
            Self::File(error) => error.kind(),
        }
    }
}

impl Classified for AttachError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Space(error) => error.kind(),
            Self::Map(error) => error.kind(),
            Self::Twice { .. } => ErrorKind::Exists,
            Self::Overlap { .. } => ErrorKind::Overlap,
            Self::Floating { .. } => ErrorKind::Address,
            Self::NoGate => ErrorKind::Damaged,
            Self::NotAttached { .. } => ErrorKind::NotFound,
        }
    }
}

impl Classified for EnterError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Nested => ErrorKind::Inside,
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
            Self::Slot(error) => error.kind(),
            Self::Region(error) => error.kind(),
            Self::Map(error) => error.kind(),
            Self::Follow(error) => error.kind(),
            Self::NotAttached { .. } => ErrorKind::NotFound,
            Self::Heap(error) => error.kind(),
        }
    }
}

impl Classified for SpaceCreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Original(error) => error.kind(),
            Self::Registry(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Control(error) => error.kind(),
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for SpaceOpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Replaced { .. } | Self::Stale { .. } => ErrorKind::Stale,
            Self::Description(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Control(error) => error.kind(),
            Self::Member { source, .. } => source.kind(),
        }
    }
}

impl Classified for SpaceChangeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(error) => error.kind(),
            Self::Twice { .. } => ErrorKind::Exists,
            Self::NotMember { .. } => ErrorKind::NotFound,
            Self::Floating { .. } => ErrorKind::Address,
            Self::Overlap { .. } => ErrorKind::Overlap,
            Self::OtherRegistry { .. } | Self::Contents { .. } => ErrorKind::Invalid,
            Self::Full { .. } => ErrorKind::NoMemory,
            Self::Lock(error) => error.kind(),
            Self::File(error) => error.kind(),
        }
    }
}

impl Classified for SpaceRemoveError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(error) => error.kind(),
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::InUse { .. } => ErrorKind::Busy,
            Self::Registry(error) => error.kind(),
            Self::File(error) => error.kind(),
        }
    }
}
