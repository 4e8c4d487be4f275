//! The kind of each error of this crate.

use mneme_sys::{Classified, ErrorKind};

use crate::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};

impl Classified for Corrupt {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Damaged
    }
}

mneme_sys::kinds! {
    ReadError as (Slot, Corrupt) {
        Stalled | Reap | Overtaken => Stalled,
        NoMemory => NoMemory,
        NoSuchDatabase | WrongKind => Invalid,
    }
    WriteError as (Slot, Corrupt) {
        OutOfMemory | NoMemory => NoMemory,
        KeyTooLong | ValueTooLong | NoSuchDatabase | WrongKind => Invalid,
        Stalled | Reap | Overtaken | FeedFull => Stalled,
        ReadOnly => ReadOnly,
    }
    GrowError as (Region, Slot) {
        BeyondMax | TooLarge => NoMemory,
        Stalled => Stalled,
        ReadOnly => ReadOnly,
    }
    OpenError as (Region, Arena, Frames, CreateControl, Control) {
        CapacityTooSmall | MaxBelowCapacity | LentIndex => Invalid,
        CapacityTooLarge => NoMemory,
        Format | Corrupt => Damaged,
        NotClean => Poisoned,
        NotRecovered => ReadOnly,
        Random | Maintainer => Io,
    }
}

impl Classified for BatchError {
    fn kind(&self) -> ErrorKind {
        self.source.kind()
    }
}
