//! The code of every error of the crates below. Each match is exhaustive: a new kind of error gets
//! its code here or does not compile.

use std::io::{self, ErrorKind};

use mneme_space::{
    AttachError, CloneError, CreateError, DescriptionError, EnterError, FileError, GrowError,
    HeapError, MapError, NameError, OpenError, RegistryError, RemoveError, RestoreError, RootError,
    SpaceChangeError, SpaceCreateError, SpaceOpenError, SpaceRemoveError,
};
use mneme_sync::SlotError;
use mneme_sys::{HeaderError, LivenessError, RegionError, WindowError};

use crate::code::{Code, Coded};

fn of_io(error: &io::Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::Permission,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::OutOfMemory => {
            Code::NoMemory
        }
        _ => Code::Io,
    }
}

impl Coded for FileError {
    fn code(&self) -> Code {
        of_io(&self.source)
    }
}

impl Coded for NameError {
    fn code(&self) -> Code {
        Code::Name
    }
}

impl Coded for DescriptionError {
    fn code(&self) -> Code {
        match self {
            Self::File(error) => error.code(),
            Self::Format { .. } | Self::Damaged { .. } => Code::Damaged,
        }
    }
}

impl Coded for RegistryError {
    fn code(&self) -> Code {
        match self {
            Self::Locked { .. } => Code::Stalled,
            Self::Random(_) => Code::Io,
            Self::File(_)
            | Self::Description(_)
            | Self::NotOurs { .. }
            | Self::Lock { .. }
            | Self::Window { .. }
            | Self::Mend { .. } => Code::Registry,
        }
    }
}

impl Coded for RegionError {
    fn code(&self) -> Code {
        match self {
            Self::Size { .. } => Code::Invalid,
            Self::Reserve { .. }
            | Self::NoMemory { .. }
            | Self::NoSpace { .. }
            | Self::BeyondMax { .. } => Code::NoMemory,
            Self::OutOfBounds { .. } | Self::Misaligned { .. } | Self::Shrunk { .. } => {
                Code::Damaged
            }
            Self::Place { .. } => Code::Address,
            Self::Parked => Code::Busy,
            Self::ReadOnly => Code::ReadOnly,
            Self::Unsupported { .. } => Code::Backing,
            Self::Os { source, .. } => of_io(source),
        }
    }
}

impl Coded for HeaderError {
    fn code(&self) -> Code {
        match self {
            Self::Region(error) => error.code(),
            Self::Magic { .. }
            | Self::Format { .. }
            | Self::Layout { .. }
            | Self::Damaged { .. } => Code::Damaged,
        }
    }
}

impl Coded for WindowError {
    fn code(&self) -> Code {
        match self {
            Self::Bounds { .. } | Self::Conflict { .. } => Code::Address,
            Self::Reserve { .. } => Code::NoMemory,
            Self::Unsupported => Code::Backing,
        }
    }
}

impl Coded for LivenessError {
    fn code(&self) -> Code {
        match self {
            Self::Held { .. } => Code::Busy,
            Self::Forked | Self::Dead => Code::Forked,
            Self::NotWritable(source) | Self::Os { source, .. } => of_io(source),
        }
    }
}

impl Coded for SlotError {
    fn code(&self) -> Code {
        match self {
            Self::TooManyThreads { .. } => Code::NoMemory,
            Self::Forked => Code::Forked,
            Self::ThreadEnding => Code::Invalid,
            Self::Barrier(_) => Code::Permission,
        }
    }
}

impl Coded for mneme_sync::AttachError {
    fn code(&self) -> Code {
        match self {
            Self::Full { .. } => Code::Busy,
            Self::Barrier => Code::Permission,
            Self::Locked(_) => Code::Stalled,
            Self::Liveness(error) => error.code(),
            Self::Region(error) => error.code(),
            Self::Random(_) => Code::Io,
        }
    }
}

impl Coded for mneme_sync::CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Options(_) => Code::Internal,
            Self::TooSmall { .. } => Code::NoMemory,
            Self::InUse { .. } => Code::Busy,
            Self::Attach(error) => error.code(),
        }
    }
}

impl Coded for mneme_sync::OpenError {
    fn code(&self) -> Code {
        match self {
            Self::Header(_) | Self::OtherData { .. } | Self::Damaged(_) | Self::Torn { .. } => {
                Code::Damaged
            }
            Self::Stale => Code::ReadOnly,
            Self::Attach(error) => error.code(),
        }
    }
}

impl Coded for HeapError {
    fn code(&self) -> Code {
        match self {
            Self::Outside | Self::NoSegment { .. } => Code::Outside,
            Self::AnotherSegment { .. } | Self::Taken { .. } | Self::NoHome => Code::Internal,
            Self::Refused | Self::Full { .. } | Self::Growth { .. } => Code::NoMemory,
            Self::NoHeap { .. } | Self::Damaged => Code::Damaged,
            Self::Size { .. } => Code::Invalid,
            Self::Seed(_) => Code::Io,
        }
    }
}

impl Coded for RootError {
    fn code(&self) -> Code {
        match self {
            Self::Heap(error) => error.code(),
            Self::Missing { .. } => Code::NotFound,
            Self::Exists { .. } => Code::Exists,
            Self::Layout { .. } => Code::Root,
            Self::ReadOnly { .. } => Code::ReadOnly,
            Self::NoBlock { .. } => Code::Invalid,
            Self::Damaged { .. } => Code::Damaged,
        }
    }
}

impl Coded for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::Exists { .. } => Code::Exists,
            Self::Size { .. } => Code::Invalid,
            Self::Base { .. } => Code::Address,
            Self::NoSlot { .. } => Code::NoMemory,
            Self::Backing { .. } => Code::Backing,
            Self::Registry(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Data { source, .. } => source.code(),
            Self::Control { source, .. } => source.code(),
            Self::Heap(error) => error.code(),
            Self::Open(error) => error.code(),
            Self::Join(error) => error.code(),
            Self::Kind { .. } => Code::Invalid,
        }
    }
}

impl Coded for OpenError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::NotFound { .. } | Self::DataGone { .. } => Code::NotFound,
            Self::Description(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Header { source, .. } => source.code(),
            Self::Mismatch { .. } | Self::Truncated { .. } => Code::Damaged,
        }
    }
}

impl Coded for MapError {
    fn code(&self) -> Code {
        match self {
            Self::File(error) => error.code(),
            Self::Open(error) => error.code(),
            Self::Window(error) => error.code(),
            Self::Occupied { .. }
            | Self::Busy { .. }
            | Self::OtherControl { .. }
            | Self::OtherData { .. } => Code::Busy,
            Self::Region(error) => error.code(),
            Self::Control { source, .. } => source.code(),
            Self::Liveness { source, .. } => source.code(),
            Self::Forked => Code::Forked,
            Self::NotWritable { .. } => Code::Permission,
            Self::Contents { .. } | Self::OtherContents { .. } => Code::Invalid,
            Self::NotClean { .. } => Code::Poisoned,
            Self::Door { .. } => Code::Stalled,
        }
    }
}

impl Coded for GrowError {
    fn code(&self) -> Code {
        match self {
            Self::Map(error) => error.code(),
            Self::Region(error) => error.code(),
        }
    }
}

impl Coded for CloneError {
    fn code(&self) -> Code {
        match self {
            Self::Create(error) => error.code(),
            Self::Map(error) => error.code(),
            Self::Enter(error) => error.code(),
            Self::Slot(error) => error.code(),
            Self::NoGate => Code::Damaged,
            Self::Poisoned { .. } => Code::Poisoned,
        }
    }
}

impl Coded for RestoreError {
    fn code(&self) -> Code {
        match self {
            Self::Unlike { .. } => Code::Invalid,
            Self::Clone(error) => error.code(),
            Self::Map(error) => error.code(),
            Self::Slot(error) => error.code(),
            Self::Stalled(_) => Code::Stalled,
            Self::Nested => Code::Inside,
            Self::Grow(error) => error.code(),
            Self::Region(error) => error.code(),
        }
    }
}

impl Coded for RemoveError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::NotFound { .. } => Code::NotFound,
            Self::InUse { .. } => Code::Busy,
            Self::Registry(error) => error.code(),
            Self::File(error) => error.code(),
        }
    }
}

impl Coded for AttachError {
    fn code(&self) -> Code {
        match self {
            Self::Space(error) => error.code(),
            Self::Map(error) => error.code(),
            Self::Twice { .. } => Code::Exists,
            Self::Overlap { .. } => Code::Overlap,
            Self::Floating { .. } => Code::Address,
            Self::NoGate => Code::Damaged,
            Self::NotAttached { .. } => Code::NotFound,
        }
    }
}

impl Coded for EnterError {
    fn code(&self) -> Code {
        match self {
            Self::Nested => Code::Inside,
            Self::Stalled(_) => Code::Stalled,
            Self::Poisoned { .. } => Code::Poisoned,
            Self::Slot(error) => error.code(),
            Self::Region(error) => error.code(),
            Self::Map(error) => error.code(),
            Self::Follow(error) => error.code(),
            Self::NotAttached { .. } => Code::NotFound,
            Self::Heap(error) => error.code(),
        }
    }
}

impl Coded for SpaceCreateError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::Exists { .. } => Code::Exists,
            Self::Original(error) => error.code(),
            Self::Registry(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Control(error) => error.code(),
            Self::Region(error) => error.code(),
        }
    }
}

impl Coded for SpaceOpenError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::NotFound { .. } => Code::NotFound,
            Self::Replaced { .. } | Self::Stale { .. } => Code::Stale,
            Self::Description(error) => error.code(),
            Self::File(error) => error.code(),
            Self::Control(error) => error.code(),
            Self::Member { source, .. } => source.code(),
        }
    }
}

impl Coded for SpaceChangeError {
    fn code(&self) -> Code {
        match self {
            Self::Open(error) => error.code(),
            Self::Twice { .. } => Code::Exists,
            Self::NotMember { .. } => Code::NotFound,
            Self::Floating { .. } => Code::Address,
            Self::Overlap { .. } => Code::Overlap,
            Self::OtherRegistry { .. } | Self::Contents { .. } => Code::Invalid,
            Self::Full { .. } => Code::NoMemory,
            Self::Lock(error) => error.code(),
            Self::File(error) => error.code(),
        }
    }
}

impl Coded for SpaceRemoveError {
    fn code(&self) -> Code {
        match self {
            Self::Name(error) => error.code(),
            Self::NotFound { .. } => Code::NotFound,
            Self::InUse { .. } => Code::Busy,
            Self::Registry(error) => error.code(),
            Self::File(error) => error.code(),
        }
    }
}
