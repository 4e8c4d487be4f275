//! How a journal is kept, and what it counts.

use std::sync::Arc;

use mneme_sys::{Clock, SystemClock};

use crate::{Identity, Runs};

/// How a journal is kept.
#[derive(Clone)]
pub struct Options {
    /// The store that it belongs to.
    pub identity: Identity,
    /// Bytes of a file. A multiple of 4 KiB, of at least 16 KiB; 64 MiB unless set.
    pub file_bytes: u64,
    /// Bytes that the journal must always be able to take, whatever happens to the disk's free
    /// space: those of the ring that it drains. 0 unless set. A new journal is nearly full until
    /// [`prepare`](crate::Journal::prepare) has made the spares.
    pub reserve: u64,
    /// Bytes of removed files that are kept as spares. Writing into a spare costs no zeros and no
    /// work of the file system. 1 GiB unless set.
    pub recycled: u64,
    /// The number of the run that an opening begins: a random one, that the caller has drawn and
    /// noted elsewhere. An opening that has failed may be tried again with it: it is one run. The
    /// journal draws one unless set.
    pub run: Option<u64>,
    /// Whether a run may begin before all files that there are, which count no more then. False
    /// unless set: it gives them up.
    pub replaces: bool,
    /// The runs of a base file whose journal is gone, which the first run of a new journal follows.
    /// Empty unless set. It counts only where there are no files.
    pub follows: Runs,
    /// Where the times of frames come from.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// For that store, with files of 64 MiB, no reserve, 1 GiB recycled and the system's clock.
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

/// What a journal has done since it was opened, and what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalStats {
    /// Bytes of the stream that were appended.
    pub appended: u64,
    /// Bytes that were written: frames with their padding, and headers.
    pub written: u64,
    /// Frames.
    pub frames: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Files that hold the stream.
    pub files: u64,
    /// Preallocated files.
    pub spares: u64,
    /// Bytes of the stream that fit into what is preallocated.
    pub free_space: u64,
}
