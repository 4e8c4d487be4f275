//! The pump's end of a tree: what is appended is gathered, and a sync is a commit.

use std::sync::Arc;

use mneme_journal::JournalStats;
use mneme_sys::Clock;
use mneme_sys::medium::Directory;
use mneme_tree::StoreError;

use super::file::look_named;
use super::layout::Stamp;
use super::replica::Replica;
use crate::DurableError;
use crate::sink::{ENTRY, Refused, Sink};

/// Bytes that are drained at once.
const GROUP: usize = (1 << 20) - ENTRY;

pub(crate) struct TreeSink {
    replica: Replica,
    directory: Arc<dyn Directory>,
    run: u64,
    position: u64,
    clock: Arc<dyn Clock>,
    /// The last commit found no space.
    is_full: bool,
    /// Something else has failed: nothing is taken any more.
    is_failed: bool,
    stats: JournalStats,
}

impl TreeSink {
    /// Goes on behind the replica's last commit, which is of this run.
    pub fn new(replica: Replica, directory: Arc<dyn Directory>, clock: Arc<dyn Clock>) -> Self {
        let Stamp { run, position, .. } = replica.stamp();
        Self {
            replica,
            directory,
            run,
            position,
            clock,
            is_full: false,
            is_failed: false,
            stats: JournalStats {
                files: 1,
                ..JournalStats::default()
            },
        }
    }

    /// Forgets what is not durable.
    fn refused(&mut self, error: DurableError) -> Refused {
        let error = match error {
            DurableError::Tree(StoreError::NoSpace { .. }) => match self.replica.reset() {
                Ok(()) => {
                    self.is_full = true;
                    self.position = self.durable();
                    return Refused::NoSpace;
                }
                Err(error) => error,
            },
            error => error,
        };
        self.is_failed = true;
        Refused::Failed(error)
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

    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        let applied = self.usable().and_then(|()| self.replica.bytes(at, bytes));
        applied.map_err(|error| self.refused(error))?;
        self.position = at + bytes.len() as u64;
        self.stats.appended += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<u64, Refused> {
        self.usable().map_err(Refused::Failed)?;
        if self.position != self.durable() {
            let stamp = Stamp {
                run: self.run,
                position: self.position,
                wall_ms: self.clock.wall_ms(),
            };
            let committed = self.replica.commit(stamp).map_err(DurableError::from);
            if let Err(error) = committed.and_then(|()| look_named(&*self.directory)) {
                return Err(self.refused(error));
            }
            self.is_full = false;
            self.stats.syncs += 1;
        }
        Ok(self.position)
    }

    fn idle(&mut self) -> Result<(), Refused> {
        Ok(())
    }

    fn remove_before(&mut self, _: u64) -> Result<(), DurableError> {
        Ok(())
    }

    fn prepare(&mut self, _: u64) -> Result<bool, DurableError> {
        self.usable()?;
        Ok(true)
    }

    fn is_nearly_full(&self) -> bool {
        self.is_full
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

    fn stats(&self) -> JournalStats {
        self.stats
    }

    fn close(self: Box<Self>) -> Result<(), DurableError> {
        Ok(self.replica.into_store().close()?)
    }
}
