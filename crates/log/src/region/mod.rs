//! The content of a store's region, byte by byte, and how it is accessed: nothing here knows what
//! an operation is.

pub(crate) mod expiry;
pub(crate) mod kind;
pub(crate) mod layout;
pub(crate) mod mem;
pub(crate) mod patch_word;
pub(crate) mod policy;
pub(crate) mod racing;
pub(crate) mod record;
pub(crate) mod space;
