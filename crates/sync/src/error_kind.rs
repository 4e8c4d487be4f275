//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{AttachError, CreateError, OpenError, SlotError};

impl Classified for SlotError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooManyThreads { .. } => ErrorKind::NoMemory,
            Self::Forked => ErrorKind::Forked,
            Self::ThreadEnding => ErrorKind::Invalid,
            Self::Barrier(_) => ErrorKind::Permission,
        }
    }
}

impl Classified for AttachError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Full { .. } => ErrorKind::Busy,
            Self::Barrier => ErrorKind::Permission,
            Self::Locked(_) => ErrorKind::Stalled,
            Self::Liveness(error) => error.kind(),
            Self::Region(error) => error.kind(),
            Self::Random(_) => ErrorKind::Io,
        }
    }
}

impl Classified for CreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Options(_) => ErrorKind::Internal,
            Self::TooSmall { .. } => ErrorKind::NoMemory,
            Self::InUse { .. } => ErrorKind::Busy,
            Self::Attach(error) => error.kind(),
        }
    }
}

impl Classified for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Header(_) | Self::OtherData { .. } | Self::Damaged(_) | Self::Torn { .. } => {
                ErrorKind::Damaged
            }
            Self::Stale => ErrorKind::ReadOnly,
            Self::Attach(error) => error.kind(),
        }
    }
}
