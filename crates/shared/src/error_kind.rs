//! The kind of each error of this crate.

use crate::{AttachError, CreateError};

mneme_sys::kinds! {
    AttachError as (Registry, Segment, Map, Store) {}
    CreateError as (Segment, Store, Attach) {
        Halfway => Busy,
    }
}
