//! Expiry: from its time on a record is absent for all readers, whether or not it has been removed.
//!
//! Readers only compare its time with the clock. Expired records are removed by writers of their
//! key, by compaction, and by the maintainer's sweep. The sweep goes round all spaces in the order
//! of their hashes: slowly while it finds little, faster while much of what it sees has expired. A
//! store that never held an expiring record is never swept.
//!
//! A record has a word for its expiry if it was stored with one, or if its value is long: setting
//! the expiry of such a record is one store under its bucket's lock. Any other record is copied.

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use mneme_sync::Slot;

use crate::change_set::Counted;
use crate::core::{Core, Wait};
use crate::counts::{Counts, Expiries};
use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::bucket::Entry;
use crate::index::root::Root;
use crate::index::{Lookup, Place};
use crate::intent::OPERATION_LANE;
use crate::mem::Loc;
use crate::notify::Kind;
use crate::ops::{Decision, Updated};
use crate::publish::{Change, Expect, Published};
use crate::record::{EXPIRY_AT, Record};
use crate::scan::HashOrder;
use crate::spaces::Space;

/// When a record expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Expiry {
    /// It does not.
    #[default]
    Never,
    /// From this time on it is gone: wall-clock milliseconds since 1970.
    At(u64),
}

impl Expiry {
    /// As a record's word holds it, where zero stands for never.
    pub(crate) fn word(self) -> u64 {
        match self {
            Expiry::Never => 0,
            Expiry::At(ms) => ms.max(1),
        }
    }

    pub(crate) fn of_word(word: u64) -> Expiry {
        match word {
            0 => Expiry::Never,
            ms => Expiry::At(ms),
        }
    }
}

/// What is stored under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored<'v> {
    /// The value.
    pub value: &'v [u8],
    /// When it expires.
    pub expiry: Expiry,
}

impl<'v> Stored<'v> {
    pub(crate) fn of(record: &Record<'v>) -> Stored<'v> {
        Stored {
            value: record.value(),
            expiry: Expiry::of_word(record.expires()),
        }
    }
}

/// Home buckets looked at in one step of the sweep.
const STEP: usize = 32;
/// Steps of a round in which little has expired.
const STEPS: u32 = 4;
/// How long a round lasts while it finds much.
const LIMIT_NS: u64 = 2_500_000;

/// The position of a walk over all records of all databases that looks for records with an expiry.
#[derive(Debug)]
pub(crate) struct ExpirySweep {
    pub space: Space,
    pub at: HashOrder,
}

/// What a look says of a key whose record was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Live,
    Expired,
    /// It has expired by now. When the record was seen it may have been live, and may have another
    /// expiry since: look again.
    Unsure,
}

/// A time that had come before the present look. A read begins with none.
#[derive(Default, Debug)]
pub(crate) struct Before(Cell<u64>);

impl Core {
    /// What a look that found a record with this expiry says of its key.
    ///
    /// Only a record that had expired *before* the look was absent when it was seen. The first look
    /// that finds an expired record therefore notes the time for the next one. Live records cost no
    /// more than one look at the clock.
    #[inline]
    pub(crate) fn life(&self, expires: u64, before: &Before) -> Life {
        if expires == 0 {
            return Life::Live;
        }
        if expires <= before.0.get() {
            return Life::Expired;
        }
        let now = self.clock.wall_ms();
        if expires > now {
            return Life::Live;
        }
        before.0.set(now);
        // SYNC: pairs with the fence in `is_live_at`: the next look sees the bit of a change that
        // has found the record live, or that change finds it expired.
        fence(SeqCst);
        Life::Unsure
    }

    /// Whether the record's time has come.
    #[inline]
    pub(crate) fn is_expired(&self, record: &Record<'_>) -> bool {
        self.has_passed(record.expires())
    }

    /// Whether what is stored with this expiry word has expired.
    #[inline]
    pub(crate) fn has_passed(&self, expires: u64) -> bool {
        expires != 0 && expires <= self.clock.wall_ms()
    }

    /// Notes that the store holds expiring records. Called *after* one was published: a sweep
    /// clears this note first, so it has then either seen the record or finds the note set again.
    pub(crate) fn expect_expiries(&self) {
        let expiring = &self.tables.header().expiring;
        if expiring.load(Acquire) == 0 {
            // SYNC: pairs with the exchange in `sweep_expired`.
            expiring.store(1, Release);
        }
    }

    /// When `key` expires. `None`: it is absent.
    pub(crate) fn expiry(&self, database: u8, key: &[u8]) -> Result<Option<Expiry>, ReadError> {
        let found = self.find_copying(database, key)?;
        Ok(found.map(|outline| Expiry::of_word(outline.expires)))
    }

    /// Sets the expiry of `key` to what `decide` returns for the present one, atomically.
    pub(crate) fn update_expiry(
        &self,
        database: u8,
        key: &[u8],
        mut decide: impl FnMut(Expiry) -> Option<Expiry>,
    ) -> Result<Updated, WriteError> {
        self.may_write()?;
        Self::check_lengths(key, &[])?;
        if let Some(updated) = self.update_expiry_word(database, key, &mut decide)? {
            return Ok(updated);
        }
        self.update(database, key, |stored| {
            match stored.and_then(|s| Some((s, decide(s.expiry)?))) {
                Some((stored, expiry)) if expiry != stored.expiry => {
                    Decision::ReplaceUntil(stored.value.to_vec(), expiry)
                }
                _ => Decision::Keep,
            }
        })
    }

    /// Sets the expiry where it lies. `None`: the record has no word for it.
    fn update_expiry_word(
        &self,
        database: u8,
        key: &[u8],
        decide: &mut impl FnMut(Expiry) -> Option<Expiry>,
    ) -> Result<Option<Updated>, WriteError> {
        let slot = self.participants.slot()?;
        let (_pin, space) = self.enter(&slot, database)?;
        let Some(root) = self.root(space)? else {
            return Ok(Some(Updated::Absent));
        };
        let place = self.place(key);
        let (mut wait, before) = (Wait::new(), Before::default());
        loop {
            let segment = self.mem.index_segment(root, place)?;
            let seen = self.find_seen(root, place, segment, key)?;
            let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
            // Read once: the expiry may change where it lies.
            let Some((found, expires)) = found.map(|found| (found, found.record.expires())) else {
                return Ok(Some(Updated::Absent));
            };
            match self.life(expires, &before) {
                Life::Live => {}
                Life::Expired => return Ok(Some(Updated::Absent)),
                Life::Unsure => continue,
            }
            self.note_access(root, place);
            // Called before the bucket is locked, so that `decide` may do anything, even panic.
            let now = Expiry::of_word(expires);
            let to = match decide(now) {
                Some(to) if to != now => to,
                _ => return Ok(Some(Updated::Kept)),
            };
            if !found.record.header().has_expiry() {
                return Ok(None);
            }
            let seen = (found.entry.loc(), expires);
            if self.set_expiry_if(&slot, (root, place), key, seen, to, &mut wait)? {
                self.expect_expiries();
                return Ok(Some(Updated::Replaced));
            }
        }
    }

    /// Sets the expiry of a record that has a word for it, if it still is the record that was seen,
    /// and expires as it did; whether it was and did.
    fn set_expiry_if(
        &self,
        slot: &Slot<'_>,
        (root, place): (Root, Place),
        key: &[u8],
        (loc, expires): (Loc, u64),
        to: Expiry,
        wait: &mut Wait,
    ) -> Result<bool, WriteError> {
        let id = self.root_id(root)?;
        let Some(segment) = self.mem.index_segment(root, place)? else {
            return Ok(false);
        };
        let Some(held) = self.lock_home(slot, segment, place, wait)? else {
            return Ok(false);
        };
        let found = self.mem.find_in(segment, place.tag, key);
        let expect = Expect::Expiring(loc, expires);
        let as_seen = match &found {
            Ok(Some(found)) if self.is_expected(&held, expect, Some(found)) => Some(&found.record),
            _ => None,
        };
        let as_seen = as_seen.filter(|record| record.header().has_expiry());
        if let Some(record) = as_seen {
            self.note_change(root, place);
            let counted = Counted {
                space: root.space(),
                root: id,
                delta: Counts::change(Some(expires != 0), Some(to != Expiry::Never)),
            };
            self.change_word(slot, (loc, record), (EXPIRY_AT, to.word()), counted);
            self.notify(slot, root.space(), Kind::Retimed, key);
            held.unlock();
        } else {
            held.unlock_unchanged();
        }
        let set = as_seen.is_some();
        slot.intent(OPERATION_LANE).clear();
        found?;
        Ok(set)
    }

    /// Removes a record that has expired, if it is still there. Returns whether it was. `place` is
    /// its key's.
    pub(crate) fn remove_expired(
        &self,
        slot: &Slot<'_>,
        change: Change<'_>,
        loc: Loc,
    ) -> Result<bool, WriteError> {
        let pin = slot.pin();
        let change = Change {
            expect: Expect::ExpiredAt(loc),
            new: None,
            ..change
        };
        let removed = self.publish(slot, &pin, &change)? == Published::Absent;
        if removed {
            // SYNC: pairs with nothing; a statistic.
            self.tables.header().expired.fetch_add(1, Relaxed);
        }
        Ok(removed)
    }

    /// One round of the sweep. Returns how many records it removed. If it finds damage it continues
    /// behind it and returns the error at the end. The next round continues behind it too.
    pub(crate) fn sweep_expired(
        &self,
        slot: &Slot<'_>,
        sweep: &mut ExpirySweep,
    ) -> Result<usize, WriteError> {
        let expiring = &self.tables.header().expiring;
        // SYNC: pairs with the Release store in `expect_expiries`.
        if expiring.load(Acquire) == 0 && sweep.is_at_start() {
            return Ok(0);
        }
        let began = self.clock.now_ns();
        let (mut removed_in_all, mut damage) = (0, None);
        for step in 1.. {
            if sweep.is_at_start() {
                // Set again by any thread that finds or stores an expiring record from here on.
                // SYNC: pairs with the Release store in `expect_expiries`.
                expiring.swap(0, AcqRel);
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
                    self.expect_expiries();
                    return Err(error);
                }
            };
            removed_in_all += removed;
            let plenty =
                removed * 10 > seen && self.clock.now_ns().saturating_sub(began) < LIMIT_NS;
            if sweep.is_at_start() || (step >= STEPS && !plenty) {
                break;
            }
        }
        damage.map_or(Ok(removed_in_all), |corrupt| Err(corrupt.into()))
    }

    /// Abandons a sweep: another one finds the records that this one has not come to.
    pub(crate) fn leave_sweep(&self, sweep: &ExpirySweep) {
        if !sweep.is_at_start() {
            self.expect_expiries();
        }
    }

    /// Removes every record that has expired. Returns how many there were. Damage is skipped, and
    /// reported afterwards.
    pub(crate) fn remove_all_expired(&self) -> Result<usize, WriteError> {
        let slot = self.writer()?;
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

    /// Looks at the next few buckets. Returns how many records there were, and how many of them it
    /// removed.
    ///
    /// After any error, the sweep's position is behind it. The step continues behind damage, and
    /// returns the first damage at the end.
    fn sweep_step(
        &self,
        slot: &Slot<'_>,
        sweep: &mut ExpirySweep,
    ) -> Result<(usize, usize), WriteError> {
        let _pin = slot.pin();
        let root = match self.root(sweep.space) {
            Ok(Some(root)) => root,
            none => {
                sweep.next_space();
                return none.map(|_| (0, 0)).map_err(Into::into);
            }
        };
        let mut damage = None;
        let mut entries: Vec<(u32, Entry)> = Vec::new();
        for _ in 0..STEP {
            if sweep.at.is_over(self.partitions()) {
                break;
            }
            let partition = sweep.at.place().partition;
            let handed_out = self.entries_here(root, &mut sweep.at, |entry| {
                self.mem.prefetch(entry.loc());
                entries.push((partition, entry));
            });
            if let Err(error) = handed_out {
                self.pass_by(root, &mut sweep.at);
                note(&mut damage, error.into())?;
            }
        }
        let (mut removed, mut expiries) = (0, Expiries::default());
        for &(partition, entry) in &entries {
            let record = match self.mem.record(entry.loc()) {
                Ok(record) if record.expires() != 0 => record,
                Ok(_) => continue,
                Err(corrupt) => {
                    damage.get_or_insert(corrupt);
                    continue;
                }
            };
            self.expect_expiries();
            if self.is_expired(&record) {
                let mut place = self.place(record.key());
                place.partition = partition;
                let change = Change::removal(root, place, record.key());
                match self.remove_expired(slot, change, entry.loc()) {
                    Ok(gone) => removed += usize::from(gone),
                    Err(error) => note(&mut damage, error)?,
                }
            } else {
                expiries.add(record.expires());
            }
        }
        if let Err(corrupt) = self.note_expiries(root, expiries) {
            damage.get_or_insert(corrupt);
        }
        if sweep.at.is_over(self.partitions()) {
            sweep.next_space();
        }
        damage.map_or(Ok((entries.len(), removed)), |corrupt| Err(corrupt.into()))
    }
}

/// Keeps the first damage that is met; any other error ends the work.
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
            space: Space::new(0),
            at: HashOrder::default(),
        }
    }
}

impl ExpirySweep {
    pub fn is_at_start(&self) -> bool {
        self.space == Space::new(0) && self.at == HashOrder::default()
    }

    pub fn next_space(&mut self) {
        self.at = HashOrder::default();
        self.space = Space::new(self.space.number() + 1);
    }
}
