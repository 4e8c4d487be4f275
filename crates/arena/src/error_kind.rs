//! Assigns each error of this crate its kind.

use mneme_sys::{Classified, ErrorKind};

use crate::{
    AdoptError, ClaimError, CreateError, LendingError, OpenError, PrivateError, PutError,
    ReleaseError,
};

mneme_sys::kinds! {
    CreateError as (Region) {
        Options => Internal,
        Random => Io,
        TooSmall | TooLarge => Invalid,
    }
    OpenError as (Header, Slot, Region) {
        Torn | Damaged | OtherIncarnation => Damaged,
        Stalled => Stalled,
    }
    ClaimError as (Backing) {
        OutOfMemory | NoContiguousRun => NoMemory,
        Invalid => Invalid,
        Stalled => Stalled,
        Damaged => Damaged,
    }
    AdoptError as (Region) {
        NotClaimed | AlreadyHeld => Invalid,
    }
    ReleaseError as (Region) {
        Foreign | NotClaimed | Mismatch => Invalid,
        Stalled => Stalled,
        Damaged => Damaged,
    }
    LendingError as (Region) {
        LendsNothing => Invalid,
    }
    PutError as (Region) {
        TooLarge => Invalid,
    }
}

impl Classified for PrivateError {
    fn kind(&self) -> ErrorKind {
        match self {
            // The number of records comes from the caller.
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
