//! Figures about the content of a database.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::error::ReadError;
use crate::records::Records;
use crate::records::read::copying::Looked;

/// Figures about a database, as [`LogStore::keyspace`](crate::LogStore::keyspace) returns them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceInfo {
    /// Its records, including those that have expired and were not yet removed.
    pub records: u64,
    /// Of these, those with an expiry.
    pub expiring: u64,
    /// The mean time until these expire. It is an estimate, sampled by the maintainer when it looks
    /// for expired records. `None` until the maintainer has seen one, and if none has an expiry.
    pub mean_ttl: Option<Duration>,
}

impl Records {
    /// Records of `database`, as counted by all threads that added and removed them.
    pub(crate) fn len(&self, database: u8) -> Result<u64, ReadError> {
        self.look_copying(database, |_, space| {
            Ok(Looked::Seen(self.index().counted_in(space)?.0))
        })
    }

    /// The counts and the mean expiry of a database.
    pub(crate) fn keyspace(&self, database: u8) -> Result<KeyspaceInfo, ReadError> {
        self.look_copying(database, |_, space| {
            let Some(root) = self.index().root(space)? else {
                return Ok(Looked::Seen(KeyspaceInfo::default()));
            };
            let (records, expiring) = self.index().counted_under(root)?;
            let [at, samples] = self.session().mem.words::<2>(root.expiries())?;
            let known = expiring != 0 && samples.load(Relaxed) != 0;
            let left = at
                .load(Relaxed)
                .saturating_sub(self.session().clock.wall_ms());
            Ok(Looked::Seen(KeyspaceInfo {
                records,
                expiring,
                mean_ttl: known.then_some(Duration::from_millis(left)),
            }))
        })
    }
}
