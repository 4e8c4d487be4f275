//! Assigns each error of this crate its kind.

use crate::{AttachError, CreateError, OpenError, SlotError};

mneme_sys::kinds! {
    SlotError {
        TooManyThreads => NoMemory,
        Forked => Forked,
        ThreadEnding => Invalid,
        Barrier => Permission,
    }
    AttachError as (Liveness, Region) {
        Full => Busy,
        Barrier => Permission,
        Locked => Stalled,
        Random => Io,
    }
    CreateError as (Attach) {
        Options => Internal,
        TooSmall => NoMemory,
        InUse => Busy,
    }
    OpenError as (Attach) {
        Header | OtherData | Damaged | Torn => Damaged,
        Stale => ReadOnly,
    }
}
