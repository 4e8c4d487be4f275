//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{CreateError, OpenError};

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
