//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{AttachError, CreateError};

impl Classified for AttachError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Registry(error) => error.kind(),
            Self::Segment(error) => error.kind(),
            Self::Map(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

impl Classified for CreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Halfway { .. } => ErrorKind::Busy,
            Self::Segment(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Attach(error) => error.kind(),
        }
    }
}
