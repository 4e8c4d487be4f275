//! Assigns each error of this crate its kind.

use crate::{AttachError, CreateError};

mneme_sys::kinds! {
    AttachError as (Registry, Segment, Map, Store) {
        LocalPrograms => Permission,
    }
    CreateError as (Segment, Store, Attach) {
        Halfway => Busy,
    }
}
