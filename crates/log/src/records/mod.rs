//! Records: reading, publishing and changing what is stored under a key.
//!
//! [`Records`] is built on the [index](Index), which finds a record, and the log below that, in
//! which it lies. It neither frees space nor looks for it: an operation that lacks some ends, and
//! reports that.

pub(crate) mod access;
pub(crate) mod change_set;
pub(crate) mod elements;
pub(crate) mod expiry;
pub(crate) mod feed_entry;
pub(crate) mod in_place;
pub(crate) mod keyspace;
pub(crate) mod patch;
pub(crate) mod publish;
pub(crate) mod random;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod swap;
pub(crate) mod value;
pub(crate) mod watched;

use crate::index::Index;
use crate::log::Log;
use crate::region::policy::UpdatePolicy;
use crate::session::Session;

/// The records of an open store.
pub(crate) struct Records {
    index: Index,
    /// Whether reads lend values in place. They copy if values are overwritten in place, or if this
    /// opening was asked for copies.
    pub lends: bool,
}

impl Records {
    pub fn new(index: Index, lends: bool) -> Records {
        Records { index, lends }
    }

    #[inline(always)]
    pub fn index(&self) -> &Index {
        &self.index
    }

    #[inline(always)]
    pub fn log(&self) -> &Log {
        self.index.log()
    }

    #[inline(always)]
    pub fn session(&self) -> &Session {
        self.index.session()
    }

    /// Whether values are overwritten in place.
    #[inline]
    pub(crate) fn overwrites(&self) -> bool {
        self.session().tables.policy == UpdatePolicy::InPlace
    }
}
