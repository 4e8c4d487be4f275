//! Removing what has expired. The sweep walks all spaces in the order of their hashes: slowly while
//! it finds little, faster while much of what it sees has expired. A store that never held an
//! expiring record is never swept.

use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::Slot;

use super::Reclaim;
use crate::error::{Corrupt, WriteError};
use crate::index::bucket::Entry;
use crate::index::counts::Expiries;
use crate::index::walk::HashOrder;
use crate::records::publish::{Expect, KeyChange, Published};
use crate::region::mem::Loc;
use crate::region::space::KeyspaceId;

/// Home buckets examined in one step of the sweep.
const STEP: usize = 32;
/// Steps of a round in which little has expired.
const STEPS: u32 = 4;
/// How long a round lasts while it finds much.
const LIMIT_NS: u64 = 500_000;

/// The position of a walk over all records of all databases that looks for records with an expiry.
#[derive(Debug)]
pub(crate) struct ExpirySweep {
    pub space: KeyspaceId,
    pub at: HashOrder,
}

impl Reclaim {
    /// Removes a record that has expired, if it is still there. Returns whether it was. `place` is
    /// that of its key.
    pub(crate) fn remove_expired(
        &self,
        slot: &Slot<'_>,
        change: KeyChange<'_>,
        loc: Loc,
    ) -> Result<bool, WriteError> {
        let pin = slot.pin();
        let change = KeyChange {
            expect: Expect::ExpiredAt(loc),
            new: None,
            ..change
        };
        let removed = match self.records().publish(slot, &pin, &change) {
            // It stays, though it has expired, until there is space in the change feed.
            Err(WriteError::FeedFull) => false,
            published => published? == Published::Absent,
        };
        if removed {
            // SYNC: pairs with nothing; a statistic.
            self.session().tables.header().expired.fetch_add(1, Relaxed);
        }
        Ok(removed)
    }

    /// One round of the sweep. Returns the number of records that it removed. After damage it
    /// continues, and returns the error at the end. The next round continues after the damage too.
    pub(crate) fn sweep_expired(
        &self,
        slot: &Slot<'_>,
        sweep: &mut ExpirySweep,
    ) -> Result<usize, WriteError> {
        let expiring = &self.session().tables.header().expiring;
        // Relaxed: a note that is seen late is seen by the next round.
        if expiring.load(Relaxed) == 0 && sweep.is_at_start() {
            return Ok(0);
        }
        let began = self.session().clock.now_ns();
        let (mut removed_in_all, mut damage) = (0, None);
        for step in 1.. {
            if sweep.is_at_start() {
                // Any thread that finds or stores an expiring record after this sets the note
                // again.
                self.records().begin_expecting();
                mneme_sys::fault!("expiry.sweep.begun");
            }
            let (seen, removed) = match self.sweep_step(slot, sweep) {
                Ok(step) => step,
                Err(WriteError::Corrupt(corrupt)) => {
                    damage.get_or_insert(corrupt);
                    (0, 0)
                }
                Err(error) => {
                    // Records behind the damage may be expiring: the next sweep looks again.
                    self.records().expect_expiries();
                    return Err(error);
                }
            };
            removed_in_all += removed;
            let plenty = removed * 10 > seen
                && self.session().clock.now_ns().saturating_sub(began) < LIMIT_NS;
            if sweep.is_at_start() || (step >= STEPS && !plenty) {
                break;
            }
        }
        damage.map_or(Ok(removed_in_all), |corrupt| Err(corrupt.into()))
    }

    /// Abandons a sweep: another one finds the records that this one has not reached.
    pub(crate) fn leave_sweep(&self, sweep: &ExpirySweep) {
        if !sweep.is_at_start() {
            self.records().expect_expiries();
        }
    }

    /// Removes every record that has expired. Returns their number. Damage is skipped, and reported
    /// afterwards.
    pub(crate) fn remove_all_expired(&self) -> Result<usize, WriteError> {
        let slot = self.session().writer()?;
        let mut sweep = ExpirySweep::default();
        let (mut removed, mut damage) = (0, None);
        loop {
            match self.sweep_expired(&slot, &mut sweep) {
                Ok(some) => removed += some,
                Err(error) => note(&mut damage, error)?,
            }
            if sweep.is_at_start() {
                return damage.map_or(Ok(removed), |corrupt| Err(corrupt.into()));
            }
        }
    }

    /// Examines the next few buckets. Returns the number of records there, and how many of them it
    /// removed.
    ///
    /// After any error, the sweep's position is past the place of the error. The step continues
    /// after damage, and returns the first damage at the end.
    fn sweep_step(
        &self,
        slot: &Slot<'_>,
        sweep: &mut ExpirySweep,
    ) -> Result<(usize, usize), WriteError> {
        let index = self.index();
        let _pin = slot.pin();
        let root = match index.root(sweep.space) {
            Ok(Some(root)) => root,
            none => {
                sweep.next_space();
                return none.map(|_| (0, 0)).map_err(Into::into);
            }
        };
        let mut damage = None;
        let mut entries: Vec<(u32, Entry)> = Vec::new();
        for _ in 0..STEP {
            if sweep.at.is_over(index.partitions()) {
                break;
            }
            let partition = sweep.at.place().partition;
            let handed_out = index.entries_here(root, &mut sweep.at, |entry| {
                self.session().mem.prefetch(entry.loc());
                entries.push((partition, entry));
            });
            if let Err(error) = handed_out {
                index.pass_by(root, &mut sweep.at);
                note(&mut damage, error.into())?;
            }
        }
        let (mut removed, mut expiries) = (0, Expiries::default());
        for &(partition, entry) in &entries {
            let record = match self.session().mem.record(entry.loc()) {
                Ok(record) if record.expires() != 0 => record,
                Ok(_) => continue,
                Err(corrupt) => {
                    damage.get_or_insert(corrupt);
                    continue;
                }
            };
            self.records().expect_expiries();
            if self.records().is_expired(&record) {
                let mut place = index.place(record.key());
                place.partition = partition;
                let change = KeyChange::removal(root, place, record.key());
                match self.remove_expired(slot, change, entry.loc()) {
                    Ok(gone) => removed += usize::from(gone),
                    Err(error) => note(&mut damage, error)?,
                }
            } else {
                expiries.add(record.expires());
            }
        }
        if let Err(corrupt) = index.note_expiries(root, expiries) {
            damage.get_or_insert(corrupt);
        }
        if sweep.at.is_over(index.partitions()) {
            sweep.next_space();
        }
        damage.map_or(Ok((entries.len(), removed)), |corrupt| Err(corrupt.into()))
    }
}

/// Keeps the first damage that is found; any other error ends the work.
fn note(damage: &mut Option<Corrupt>, error: WriteError) -> Result<(), WriteError> {
    match error {
        WriteError::Corrupt(corrupt) => {
            damage.get_or_insert(corrupt);
            Ok(())
        }
        error => Err(error),
    }
}

impl Default for ExpirySweep {
    fn default() -> ExpirySweep {
        ExpirySweep {
            space: KeyspaceId::new(0),
            at: HashOrder::default(),
        }
    }
}

impl ExpirySweep {
    pub fn is_at_start(&self) -> bool {
        self.space == KeyspaceId::new(0) && self.at == HashOrder::default()
    }

    pub fn next_space(&mut self) {
        self.at = HashOrder::default();
        self.space = KeyspaceId::new(self.space.number() + 1);
    }
}
