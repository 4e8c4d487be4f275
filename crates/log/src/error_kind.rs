//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};

impl Classified for Corrupt {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Damaged
    }
}

impl Classified for ReadError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Slot(error) => error.kind(),
            Self::Stalled(_) | Self::Reap(_) | Self::Overtaken(_) => ErrorKind::Stalled,
            Self::Corrupt(error) => error.kind(),
            Self::NoSuchDatabase(_) => ErrorKind::Invalid,
        }
    }
}

impl Classified for WriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfMemory { .. } => ErrorKind::NoMemory,
            Self::KeyTooLong(_) | Self::ValueTooLong(_) | Self::NoSuchDatabase(_) => {
                ErrorKind::Invalid
            }
            Self::Stalled(_) | Self::Reap(_) | Self::Overtaken(_) | Self::FeedFull => {
                ErrorKind::Stalled
            }
            Self::Slot(error) => error.kind(),
            Self::Corrupt(error) => error.kind(),
            Self::ReadOnly => ErrorKind::ReadOnly,
        }
    }
}

impl Classified for BatchError {
    fn kind(&self) -> ErrorKind {
        self.source.kind()
    }
}

impl Classified for GrowError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::BeyondMax { .. } | Self::TooLarge { .. } => ErrorKind::NoMemory,
            Self::Region(error) => error.kind(),
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Slot(error) => error.kind(),
            Self::ReadOnly => ErrorKind::ReadOnly,
        }
    }
}

impl Classified for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::CapacityTooSmall(_) | Self::MaxBelowCapacity { .. } | Self::LentIndex { .. } => {
                ErrorKind::Invalid
            }
            Self::CapacityTooLarge { .. } => ErrorKind::NoMemory,
            Self::Region(error) => error.kind(),
            Self::Format { .. } | Self::Corrupt(_) => ErrorKind::Damaged,
            Self::Arena(error) => error.kind(),
            Self::Frames(error) => error.kind(),
            Self::CreateControl(error) => error.kind(),
            Self::Control(error) => error.kind(),
            Self::NotClean(_) => ErrorKind::Poisoned,
            Self::NotRecovered => ErrorKind::ReadOnly,
            Self::Random(_) | Self::Maintainer(_) => ErrorKind::Io,
        }
    }
}
