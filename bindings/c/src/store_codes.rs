//! The code of every error of stores, as [`crate::codes`] has them for segments. Each match is
//! exhaustive.

use mneme_log::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};
use mneme_shared::{AttachError, CreateError};

use crate::code::{Code, Coded};

impl Coded for Corrupt {
    fn code(&self) -> Code {
        Code::Damaged
    }
}

impl Coded for ReadError {
    fn code(&self) -> Code {
        match self {
            Self::Slot(error) => error.code(),
            Self::Stalled(_) | Self::Reap(_) | Self::Overtaken(_) => Code::Stalled,
            Self::Corrupt(error) => error.code(),
            Self::NoSuchDatabase(_) => Code::Invalid,
        }
    }
}

impl Coded for WriteError {
    fn code(&self) -> Code {
        match self {
            Self::OutOfMemory { .. } => Code::NoMemory,
            Self::KeyTooLong(_) | Self::ValueTooLong(_) | Self::NoSuchDatabase(_) => Code::Invalid,
            Self::Stalled(_) | Self::Reap(_) | Self::Overtaken(_) => Code::Stalled,
            Self::Slot(error) => error.code(),
            Self::Corrupt(error) => error.code(),
            Self::ReadOnly => Code::ReadOnly,
        }
    }
}

impl Coded for BatchError {
    fn code(&self) -> Code {
        self.source.code()
    }
}

impl Coded for GrowError {
    fn code(&self) -> Code {
        match self {
            Self::BeyondMax { .. } | Self::TooLarge { .. } => Code::NoMemory,
            Self::Region(error) => error.code(),
            Self::Stalled(_) => Code::Stalled,
            Self::Slot(error) => error.code(),
            Self::ReadOnly => Code::ReadOnly,
        }
    }
}

impl Coded for mneme_arena::CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Options(_) => Code::Internal,
            Self::TooSmall { .. } | Self::TooLarge { .. } => Code::Invalid,
            Self::Region(error) => error.code(),
        }
    }
}

impl Coded for mneme_arena::OpenError {
    fn code(&self) -> Code {
        match self {
            Self::Header(error) => error.code(),
            Self::Torn { .. } | Self::Damaged(_) | Self::OtherIncarnation { .. } => Code::Damaged,
            Self::Stalled(_) => Code::Stalled,
            Self::Slot(error) => error.code(),
            Self::Region(error) => error.code(),
        }
    }
}

impl Coded for OpenError {
    fn code(&self) -> Code {
        match self {
            Self::CapacityTooSmall(_) | Self::MaxBelowCapacity { .. } => Code::Invalid,
            Self::CapacityTooLarge { .. } => Code::NoMemory,
            Self::Region(error) => error.code(),
            Self::Format { .. } | Self::Corrupt(_) => Code::Damaged,
            Self::Arena(error) => error.code(),
            Self::Frames(error) => error.code(),
            Self::CreateControl(error) => error.code(),
            Self::Control(error) => error.code(),
            Self::NotClean(_) => Code::Poisoned,
            Self::NotRecovered => Code::ReadOnly,
            Self::Random(_) | Self::Maintainer(_) => Code::Io,
        }
    }
}

impl Coded for AttachError {
    fn code(&self) -> Code {
        match self {
            Self::Registry(error) => error.code(),
            Self::Segment(error) => error.code(),
            Self::Map(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}

impl Coded for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Halfway { .. } => Code::Busy,
            Self::Segment(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Attach(error) => error.code(),
        }
    }
}
