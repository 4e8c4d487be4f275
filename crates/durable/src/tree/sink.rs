//! The tree as a [`Sink`] of the pump: appended entries are gathered, and a sync is a commit.

use std::sync::Arc;

use mneme_journal::JournalStats;
use mneme_sys::Clock;
use mneme_sys::medium::{Directory, Storage};
use mneme_tree::{Store, StoreError};

use super::file::{look_named, to_watch};
use super::layout::CommitStamp;
use super::replica::Replica;
use crate::DurableError;
use crate::sink::{ENTRY, EntriesRefused, Sink};

/// Bytes drained at once.
const GROUP: usize = (1 << 20) - ENTRY;

pub(crate) struct TreeSink {
    replica: Replica,
    /// The file of the tree under its name in the directory, unless that name is a link.
    file: Option<Box<dyn Storage>>,
    run: u64,
    position: u64,
    clock: Arc<dyn Clock>,
    /// The commit that begins the run found no space: no entries are accepted before it succeeds.
    begins: bool,
    /// The last commit found no space.
    is_full: bool,
    /// Something else failed: no entries are accepted any more.
    is_failed: bool,
    stats: JournalStats,
}

impl TreeSink {
    /// Begins a run after the replica's last commit with a commit that records it. On a full disk
    /// that commit is made later: the tree can be read meanwhile.
    pub fn begin(
        replica: Replica,
        run: u64,
        directory: &dyn Directory,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DurableError> {
        let CommitStamp {
            run: last,
            position,
            ..
        } = replica.stamp();
        let mut sink = Self {
            replica,
            position,
            file: to_watch(directory)?,
            run,
            clock,
            // A new tree records the run already.
            begins: last != run,
            is_full: false,
            is_failed: false,
            stats: JournalStats {
                files: 1,
                ..JournalStats::default()
            },
        };
        match sink.begins.then(|| sink.commit()) {
            Some(Err(EntriesRefused::Failed(error))) => Err(error),
            _ => Ok(sink),
        }
    }

    /// The tree that backups are read from.
    pub fn store(&self) -> &Store {
        self.replica.store()
    }

    /// Makes the appended entries durable.
    fn commit(&mut self) -> Result<(), EntriesRefused> {
        let stamp = CommitStamp {
            run: self.run,
            position: self.position,
            wall_ms: self.clock.wall_ms(),
        };
        let committed = self.replica.commit(stamp).map_err(DurableError::from);
        if let Err(error) = committed.and_then(|()| look_named(self.file.as_deref())) {
            return Err(self.refused(error));
        }
        (self.begins, self.is_full) = (false, false);
        Ok(())
    }

    /// Forgets the entries that are not durable.
    fn refused(&mut self, error: DurableError) -> EntriesRefused {
        let error = match error {
            DurableError::Tree(StoreError::NoSpace { .. }) => match self.replica.reset() {
                Ok(()) => {
                    self.is_full = true;
                    self.position = self.durable();
                    return EntriesRefused::NoSpace;
                }
                Err(error) => error,
            },
            error => error,
        };
        self.is_failed = true;
        EntriesRefused::Failed(error)
    }

    fn usable(&self) -> Result<(), DurableError> {
        match self.is_failed {
            true => Err(StoreError::Poisoned.into()),
            false => Ok(()),
        }
    }
}

impl Sink for TreeSink {
    fn group_bytes(&self) -> usize {
        GROUP
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), EntriesRefused> {
        let applied = self.usable().and_then(|()| self.replica.bytes(at, bytes));
        applied.map_err(|error| self.refused(error))?;
        self.position = at + bytes.len() as u64;
        self.stats.appended += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<u64, EntriesRefused> {
        self.usable().map_err(EntriesRefused::Failed)?;
        if self.position != self.durable() {
            self.commit()?;
            self.stats.syncs += 1;
        }
        Ok(self.position)
    }

    /// Frees a few leaves of dropped trees.
    fn idle(&mut self) -> Result<(), EntriesRefused> {
        self.usable().map_err(EntriesRefused::Failed)?;
        match self.replica.store().bury_some() {
            // It succeeds once there is space.
            Ok(_) | Err(StoreError::NoSpace { .. }) => Ok(()),
            Err(error) => Err(self.refused(error.into())),
        }
    }

    fn remove_before(&mut self, _: u64) -> Result<(), DurableError> {
        Ok(())
    }

    fn prepare(&mut self, _: u64) -> Result<bool, DurableError> {
        self.usable()?;
        match self.begins.then(|| self.commit()) {
            None | Some(Ok(())) => Ok(true),
            Some(Err(EntriesRefused::Failed(error))) => Err(error),
            Some(Err(_)) => Err(StoreError::NoSpace { wanted: 0 }.into()),
        }
    }

    fn is_nearly_full(&self) -> bool {
        self.is_full || self.begins
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn durable(&self) -> u64 {
        self.replica.stamp().position
    }

    fn first(&self) -> u64 {
        self.durable()
    }

    fn has_begun(&self) -> bool {
        !self.begins
    }

    fn stats(&self) -> JournalStats {
        self.stats
    }

    fn close(self: Box<Self>) -> Result<(), DurableError> {
        Ok(self.replica.into_store().close()?)
    }
}
