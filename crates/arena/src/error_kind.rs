//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{
    AdoptError, ClaimError, CreateError, LendingError, OpenError, PrivateError, PutError,
    ReleaseError,
};

impl Classified for CreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Options(_) => ErrorKind::Internal,
            Self::Random(_) => ErrorKind::Io,
            Self::TooSmall { .. } | Self::TooLarge { .. } => ErrorKind::Invalid,
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Header(error) => error.kind(),
            Self::Torn { .. } | Self::Damaged(_) | Self::OtherIncarnation { .. } => {
                ErrorKind::Damaged
            }
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Slot(error) => error.kind(),
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for ClaimError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfMemory { .. } | Self::NoContiguousRun { .. } => ErrorKind::NoMemory,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Backing(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Damaged,
        }
    }
}

impl Classified for AdoptError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotClaimed { .. } | Self::AlreadyHeld { .. } => ErrorKind::Invalid,
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for ReleaseError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Foreign { .. } | Self::NotClaimed { .. } | Self::Mismatch { .. } => {
                ErrorKind::Invalid
            }
            Self::Stalled(_) => ErrorKind::Stalled,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for LendingError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::LendsNothing => ErrorKind::Invalid,
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for PutError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } => ErrorKind::Invalid,
            Self::Region(error) => error.kind(),
        }
    }
}

impl Classified for PrivateError {
    fn kind(&self) -> ErrorKind {
        match self {
            // The caller's number of records.
            Self::Arena(CreateError::Options(_)) => ErrorKind::Invalid,
            Self::Arena(error) => error.kind(),
            Self::Region(error) => error.kind(),
            Self::Participants(error) => error.kind(),
            Self::Slot(error) => error.kind(),
            Self::Claim(error) => error.kind(),
            Self::Release(error) => error.kind(),
            Self::Open(error) => error.kind(),
            Self::Random(_) => ErrorKind::Io,
        }
    }
}
