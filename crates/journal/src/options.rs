//! The options and the statistics of a journal.

use std::sync::Arc;

use mneme_sys::{Clock, SystemClock};

use crate::{Identity, Runs};

/// The options of a journal.
#[derive(Clone)]
pub struct Options {
    /// The store that it belongs to.
    pub identity: Identity,
    /// The size of a file in bytes: a multiple of 4 KiB, at least 16 KiB; the default is 64 MiB.
    pub file_bytes: u64,
    /// The number of bytes that the journal must always be able to accept, whatever happens to the
    /// disk's free space: the size of the ring that it drains. The default is 0. A new journal is
    /// nearly full until [`prepare`](crate::Journal::prepare) has created the spares.
    pub reserve: u64,
    /// The number of bytes of removed files to keep as spares. Writing into a spare needs no zeros
    /// and no work of the file system. The default is 1 GiB.
    pub recycled: u64,
    /// The id of the run that an opening begins: a random number that the caller has drawn and
    /// recorded elsewhere. A failed opening may be repeated with it and is still one run. By
    /// default the journal draws one.
    pub run: Option<u64>,
    /// Whether a run may begin before all existing files, which become invalid then. The default is
    /// false, because that gives up their content.
    pub replaces: bool,
    /// The runs of a base file whose journal is gone; the first run of a new journal follows them.
    /// Empty by default. Used only if there are no files.
    pub follows: Runs,
    /// The clock for the times of frames.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Options for that store, with files of 64 MiB, no reserve, 1 GiB recycled and the system's
    /// clock.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            file_bytes: 64 << 20,
            reserve: 0,
            recycled: 1 << 30,
            run: None,
            replaces: false,
            follows: Runs::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("identity", &self.identity)
            .field("file_bytes", &self.file_bytes)
            .field("reserve", &self.reserve)
            .field("recycled", &self.recycled)
            .finish_non_exhaustive()
    }
}

/// A journal's activity since it was opened, and its current files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// The number of bytes of the stream that were appended.
    pub appended: u64,
    /// The number of bytes that were written: frames with their padding, and headers.
    pub written: u64,
    /// The number of frames.
    pub frames: u64,
    /// The number of syncs of files.
    pub syncs: u64,
    /// The number of files that hold the stream.
    pub files: u64,
    /// The number of preallocated files.
    pub spares: u64,
    /// The number of bytes of the stream that fit into preallocated files.
    pub free_space: u64,
}
