//! Checks whether what a transaction has read is unchanged.

use crate::error::{Corrupt, WriteError};
use crate::index::bucket::HomeWord;
use crate::index::lookup::Lookup;
use crate::index::resize::retired;
use crate::session::Wait;

use super::commit::CommitOutcome;
use super::home_buckets::{Home, Homes};
use super::{Read, Transaction};

/// The number of checks of keys that were absent before a transaction that only reads runs again.
const RETRY_LIMIT: usize = 64;

impl Transaction<'_> {
    /// The outcome of a transaction without writes. It locks nothing, so that openings which may
    /// only read can do this too. If all is as it was when the last key was read, the body saw all
    /// of it as it was at that time.
    ///
    /// A record is never seen at its place again after it was replaced, but an absent one may have
    /// been present meanwhile. So everything is checked until the homes of the absent keys are
    /// found twice with the same version: between those two checks all of it was as it was read.
    pub(super) fn settle_reads(&self) -> Result<CommitOutcome, WriteError> {
        let mut wait = Wait::new();
        let mut before: Vec<Option<HomeWord>> = self.reads.iter().map(|read| read.seen).collect();
        for _ in 0..RETRY_LIMIT {
            if self.has_outlived_what_it_saw() {
                return Ok(CommitOutcome::Conflict);
            }
            let mut settled = true;
            for (read, before) in self.reads.iter().zip(&mut before) {
                let Some(now) = self.look_again(read, &mut wait)? else {
                    return Ok(CommitOutcome::Conflict);
                };
                if read.entry.is_none()
                    && let (Some(now), Some(then)) = (now, *before)
                {
                    settled &= now.same_version(then);
                }
                *before = now;
            }
            if settled {
                return Ok(match self.roots_are_current()? {
                    true => CommitOutcome::Committed,
                    false => CommitOutcome::Conflict,
                });
            }
        }
        Ok(CommitOutcome::Conflict)
    }

    /// The home of a key that is unchanged since it was read, if it has a home. `None`: the key has
    /// changed.
    fn look_again(
        &self,
        read: &Read,
        wait: &mut Wait,
    ) -> Result<Option<Option<HomeWord>>, WriteError> {
        let (Some(root), Some(seen)) = (read.root, read.seen) else {
            return Ok(self.is_still_nothing(read)?.then_some(None));
        };
        loop {
            let segment = self.store.session().mem.index_segment(root, read.place)?;
            let looked = (self.store)
                .index()
                .find(root, read.place, segment, &read.key)?;
            let Some((found, now)) = looked else {
                return Ok(None);
            };
            let same = found.map(|f| f.entry) == read.entry;
            if !same || !read.mutable {
                return Ok(same.then_some(Some(now)));
            }
            // A holder that has not published yet, or has not unlocked yet, may change a record
            // without another entry or version.
            let word = now.word;
            if !now.same_version(seen) || (seen.word.locked() && !word.locked()) {
                return Ok(None);
            }
            if !word.locked() {
                return Ok(Some(Some(now)));
            }
            if word.holder() == self.slot.id() {
                // This thread holds the lock itself, in an outer transaction that has locked ahead:
                // nothing changes under it.
                return Ok(Some(Some(now)));
            }
            if !word.retired() {
                self.store.index().wait_for(self.slot, wait, word)?;
            } else if !wait.found_retired(now.at.bits()) {
                return Err(retired(now.at).into());
            }
        }
    }

    /// Whether there is still no bucket for a key that had none.
    fn is_still_nothing(&self, read: &Read) -> Result<bool, WriteError> {
        Ok(match read.root {
            None => self.store.index().root(read.space)?.is_none(),
            Some(root) => self
                .store
                .session()
                .mem
                .index_segment(root, read.place)?
                .is_none(),
        })
    }

    /// The present home of a key that was read. If the key had no bucket it may have one now that
    /// was made for this transaction.
    pub(super) fn home_of_read(&self, read: &Read) -> Result<Option<Home>, Corrupt> {
        let used = || self.roots.iter().filter_map(|(_, root)| *root);
        let made = || used().find(|root| root.space() == read.space);
        let segment = match read.root.or_else(made) {
            Some(root) => self.store.session().mem.index_segment(root, read.place)?,
            None => None,
        };
        Ok(segment.map(|segment| Home::of(segment, read.place)))
    }

    /// Whether the databases that were used still have the same indexes. A cleared database has
    /// another index, or none: the transaction would take place before the clearing there, and
    /// after it in what it changes elsewhere.
    pub(super) fn roots_are_current(&self) -> Result<bool, Corrupt> {
        for (database, used) in &self.roots {
            if self.store.index().root(self.space_of(*database))? != *used {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a key is unchanged since it was read. All homes are held.
    pub(super) fn is_as_read(
        &self,
        read: &Read,
        home: Option<Home>,
        homes: &mut Homes<'_>,
    ) -> Result<bool, WriteError> {
        let Some(home) = home else {
            return Ok(read.seen.is_none() && self.is_still_nothing(read)?);
        };
        let now = HomeWord {
            at: home.loc,
            word: homes.lock_of(home).word(),
        };
        if read.seen.is_some_and(|seen| now.same_version(seen)) {
            return Ok(true);
        }
        let found = (self.store.session().mem).find_in(home.segment, read.place.tag, &read.key)?;
        Ok(!read.mutable && found.map(|f| f.entry) == read.entry)
    }
}
