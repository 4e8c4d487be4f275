//! A store that is kept as a tree ([`mneme_tree`]): every drained prefix of its change feed is one
//! commit, in place and without a journal.

mod build;
mod file;
mod layout;
mod pending;
mod records;
mod replica;
mod sink;
#[cfg(test)]
mod tests;

pub(crate) use build::{Build, adopt};
pub(crate) use layout::{CommitStamp, FILE};
pub(crate) use records::TreeRecords;
pub(crate) use replica::Replica;
pub(crate) use sink::TreeSink;

use crate::DurableError;
use crate::directory::Opened;

/// Opens the tree of a directory that has one.
pub(crate) fn open(opened: &Opened) -> Result<Replica, DurableError> {
    Replica::open(file::open(opened, FILE)?)
}
