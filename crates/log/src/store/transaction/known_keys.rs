//! **A transaction with a short body whose keys are known runs once, and any other with a short
//! body commits in the end**: the homes of the keys that the caller names are locked before the
//! body runs, so that no other thread can change them meanwhile. After some conflicts the homes of
//! the keys that earlier attempts have used are locked too.
//!
//! The locks are plain ones, taken in the order of their locations like those of every commit. All
//! readers read past them, the body included. If earlier attempts have read keys that expire, the
//! bit that makes other readers wait is set at once: then no thread finds a record absent that
//! expires before the transaction is over, and so there is no conflict. Otherwise committing sets
//! that bit, and continues as usual. The intent stands as long as they are held, in the phase in
//! which nothing is published. So if the thread dies meanwhile, its homes are unlocked.
//!
//! A thread that holds locks must not wait for a thread that may wait for it. So the locks are
//! released as soon as the body reads a key whose home is not among them (it is among them next
//! time). Nothing else that a body does waits for a bucket.
//!
//! **A body that takes long does not block others**: threads that wait for a lock fail after a
//! second. So the locks are released when a body that has run for 200 ms reads or writes, and
//! before it copies so many bytes that the copying may take as long. The attempt continues as one
//! without locks, and is checked when it commits. A body whose last run took as long, and whose
//! keys the caller has not named, does not lock ahead at all.

use mneme_arena::Class;
use mneme_sync::Slot;

use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::records::watched::Watched;
use crate::region::mem::Loc;
use crate::region::space::DATABASES;
use crate::region::space::KeyspaceId;
use crate::session::Wait;
use crate::store::components::Store;

use super::Transaction;
use super::commit::CommitOutcome;
use super::home_buckets::{Home, Homes};
use super::undo::{Counts, LANE, NoteMemory, Phase};
use crate::index::intent::IndexIntent;

/// The number of conflicts after which a transaction locks ahead.
const CONFLICTS: u32 = 16;
/// How long a body may run under locks: waiting threads fail with `Stalled` after a second.
const SHORT_NS: u64 = 200_000_000;
/// An upper bound of the time to copy a byte to or from fresh memory, on a busy machine.
const COPY_NS: u64 = 4;

/// The keys that a transaction knows: those that the caller has named, and those that earlier
/// attempts have used.
pub(super) struct KnownKeys<'k> {
    pub conflicts: u32,
    /// Named by the caller: database and place.
    named: &'k [(u8, Place)],
    /// The keys that they read and wrote, each once.
    keys: Vec<(KeyspaceId, Place)>,
    writes: usize,
    /// Whether they read a record that expires.
    expiring: bool,
    /// How long the last body took.
    took_ns: u64,
}

impl<'k> KnownKeys<'k> {
    /// The state before the first attempt.
    pub fn of(named: &'k [(u8, Place)]) -> Self {
        KnownKeys {
            conflicts: 0,
            named,
            keys: Vec::new(),
            writes: 0,
            expiring: false,
            took_ns: 0,
        }
    }

    /// Whether the next attempt is to lock ahead.
    pub fn locks_ahead(&self) -> bool {
        !self.named.is_empty() || (self.conflicts >= CONFLICTS && self.took_ns < SHORT_NS)
    }

    /// Whether readers have to wait, too, while the body runs.
    fn excludes_readers(&self) -> bool {
        self.expiring && self.conflicts >= CONFLICTS && self.took_ns < SHORT_NS
    }

    /// Whether the keys of attempts are recorded.
    pub fn is_close(&self) -> bool {
        self.conflicts + 1 >= CONFLICTS
    }

    /// The databases of the known keys. One that both the caller and an attempt have named may
    /// count twice.
    fn databases(&self) -> usize {
        let bits = |all: u64, number: u8| all | 1 << (usize::from(number) % DATABASES);
        let named = self.named.iter().map(|(database, _)| *database);
        let used = self.keys.iter().map(|(space, _)| space.number());
        let distinct = named.fold(0, bits).count_ones() + used.fold(0, bits).count_ones();
        distinct as usize
    }

    /// Records the keys that an attempt has used.
    pub fn learn(&mut self, attempt: &Transaction<'_>, took_ns: u64) {
        let reads = attempt.reads.iter().map(|read| (read.space, read.place));
        let writes = attempt.writes.iter().map(|w| (w.root.space(), w.place));
        // If the body uses other keys each time, locking the old ones does not help it, and blocks
        // other threads.
        if self.keys.len() > 4 * (attempt.reads.len() + attempt.writes.len()) {
            self.keys.clear();
        }
        self.keys.extend(reads.chain(writes));
        let order =
            |(space, place): &(KeyspaceId, Place)| (space.number(), place.partition, place.tag);
        self.keys.sort_unstable_by_key(order);
        self.keys.dedup();
        self.expiring |= attempt.reads.iter().any(|read| read.expires != 0);
        self.writes = self.writes.max(attempt.writes.len());
        self.took_ns = took_ns;
    }
}

/// Locks that are held before the body runs, and the space for the notes.
pub(super) struct Ahead<'c> {
    pub homes: Homes<'c>,
    pub memory: NoteMemory<'c>,
    /// When the first lock was requested, in nanoseconds.
    since: u64,
}

impl Ahead<'_> {
    pub fn holds(&self, loc: Loc) -> bool {
        self.homes.locs.binary_search(&loc).is_ok()
    }

    /// The counts for which the notes have space, if all of `homes` are held and the space is
    /// enough for `counts`.
    pub fn covers(&self, homes: &[Loc], mut counts: Counts) -> Option<Counts> {
        counts.homes = self.homes.locs.len();
        let suffices = counts.words() <= self.memory.words();
        (suffices && homes.iter().all(|loc| self.holds(*loc))).then_some(counts)
    }
}

impl Store {
    /// The places of keys that a caller names, each with its database.
    pub(crate) fn places_of<K: AsRef<[u8]>>(
        &self,
        keys: &[(usize, K)],
    ) -> Result<Vec<(u8, Place)>, WriteError> {
        let places = keys.iter().map(|(database, key)| match *database {
            ..DATABASES => Ok((*database as u8, self.index().place(key.as_ref()))),
            beyond => Err(WriteError::NoSuchDatabase(beyond)),
        });
        places.collect()
    }

    /// Calls `work` with the index of a database while the home of a key is locked: meanwhile no
    /// other thread changes the key, or a collection that it leads to. Readers read past the lock.
    /// `None`: it cannot be locked, because there is no space for the notes or the thread is in the
    /// body of a transaction; or the database was cleared meanwhile.
    pub(crate) fn with_home_locked<R>(
        &self,
        slot: &Slot<'_>,
        (database, place): (u8, Place),
        work: impl FnOnce(Root) -> Result<R, ReadError>,
    ) -> Result<Option<R>, WriteError> {
        let named = [(database, place)];
        let mut locked = Transaction::new(self, slot, None)?;
        locked.lock_ahead(&KnownKeys::of(&named))?;
        let Some(root) = locked.root(database)? else {
            return Ok(None);
        };
        let home = self.session().mem.index_segment(root, place)?;
        let home = home.map(|segment| Home::of(segment, place).loc);
        if !matches!((&locked.ahead, home), (Some(ahead), Some(home)) if ahead.holds(home)) {
            return Ok(None);
        }
        let result = work(root);
        let is_current = locked.roots_are_current()?;
        locked.give_up_locks()?;
        Ok(is_current.then_some(result?))
    }
}

impl<'a> Transaction<'a> {
    /// Locks the homes of the keys that the caller has named and earlier attempts have used. It
    /// does not do so if there is no space to write that down, or in the body of another
    /// transaction that has locked ahead, because a thread has one intent.
    pub(super) fn lock_ahead(&mut self, known: &KnownKeys<'_>) -> Result<(), WriteError> {
        let store = self.store;
        if self.slot.intent(LANE).read().is_some() {
            return Ok(());
        }
        let mut wait = Wait::new();
        loop {
            let mut homes = Homes::of(self.known_homes(known, &mut wait)?.into_iter());
            // A body may write more. The locks are enough for it as long as the memory for notes
            // is.
            let foreseen = Counts {
                homes: homes.locs.len(),
                writes: known.writes.max(known.named.len()),
                databases: known.databases(),
            };
            let Some(memory) = store.note_memory(self.slot, foreseen, Class::Ordinary)? else {
                return Ok(());
            };
            let (notes, at) = store.notes(&memory, foreseen)?;
            for (i, loc) in homes.locs.iter().enumerate() {
                notes.set_home(i, *loc);
            }
            let announced = IndexIntent::Transaction {
                phase: Phase::Locking,
                notes: at,
                counts: Counts {
                    writes: 0,
                    databases: 0,
                    ..foreseen
                },
            };
            announced.announce(self.slot);
            mneme_sys::fault!("txn.ahead.intent");
            let since = store.session().clock.now_ns();
            let locked = self.lock(&mut homes, &mut wait);
            if matches!(locked, Ok(true)) && known.excludes_readers() {
                homes.begin();
            }
            self.keep_ahead(Ahead {
                homes,
                memory,
                since,
            });
            if matches!(locked, Ok(true)) {
                mneme_sys::fault!("txn.ahead.locked");
                return Ok(());
            }
            self.give_up_locks()?;
            locked?;
        }
    }

    /// The present homes of the named keys, of those of earlier attempts, and of the watched keys.
    fn known_homes(
        &mut self,
        known: &KnownKeys<'_>,
        wait: &mut Wait,
    ) -> Result<Vec<Loc>, WriteError> {
        let mut locs = Vec::with_capacity(known.named.len() + known.keys.len());
        for &(database, place) in known.named {
            // The index is created, because the key may be written and needs a bucket to lock. If
            // there is no free space for one, the body runs without the lock.
            if let Some(root) = self.root(database)?
                && let Some(home) = self.home_of(root, place, wait)?
            {
                locs.push(home.loc);
            }
        }
        for &(space, place) in &known.keys {
            if let Some(root) = self.store.index().root(space)?
                && let Some(segment) = self.store.session().mem.index_segment(root, place)?
            {
                locs.push(Home::of(segment, place).loc);
            }
        }
        for noted in self.watched() {
            if let Some(home) = self.home_of_watched(noted)? {
                locs.push(home.loc);
            }
        }
        Ok(locs)
    }

    pub(super) fn home_of_watched(&self, noted: &Watched) -> Result<Option<Home>, Corrupt> {
        let segment = self.store.records().watched_segment(noted)?;
        Ok(segment.map(|segment| Home::of(segment, noted.place)))
    }

    /// Called before the body reads a key whose home may be held by a thread that waits for this
    /// transaction.
    pub(super) fn before_reading(&mut self, home: Option<Loc>) -> Result<(), WriteError> {
        match (&self.ahead, home) {
            (Some(ahead), Some(loc)) if !ahead.holds(loc) => self.give_up_locks(),
            _ => Ok(()),
        }
    }

    /// Called before the body copies `bytes` bytes, and in each of its calls: unlocks the homes
    /// that were locked ahead if they have been locked for long, or would be by the end of the
    /// copying.
    pub(super) fn before_copying(&mut self, bytes: u64) -> Result<(), WriteError> {
        let Some(ahead) = &self.ahead else {
            return Ok(());
        };
        let held = self
            .store
            .session()
            .clock
            .now_ns()
            .saturating_sub(ahead.since);
        match held.saturating_add(bytes.saturating_mul(COPY_NS)) < SHORT_NS {
            true => Ok(()),
            false => self.give_up_locks(),
        }
    }

    /// Keeps locks. If the body panics, `Drop` releases them and withdraws the intent.
    pub(super) fn keep_ahead(&mut self, ahead: Ahead<'a>) {
        self.ahead = Some(ahead);
        self.slot.withdraws_on_drop(LANE, true);
    }

    /// Takes the locks that are kept. From now on a panic leaves them to the repair.
    pub(super) fn take_ahead(&mut self) -> Option<Ahead<'a>> {
        let ahead = self.ahead.take()?;
        self.slot.withdraws_on_drop(LANE, false);
        Some(ahead)
    }

    /// Unlocks the homes that were locked ahead, if any. Nothing was published.
    pub(super) fn give_up_locks(&mut self) -> Result<(), WriteError> {
        let Some(mut ahead) = self.take_ahead() else {
            return Ok(());
        };
        // No other thread could change what was read under these locks, so there is no wait for a
        // holder that may have been changing it.
        for seen in self.reads.iter_mut().filter_map(|read| read.seen.as_mut()) {
            if ahead.holds(seen.at) {
                seen.word = seen.word.let_go();
            }
        }
        ahead.homes.unlock_unchanged(self.slot);
        self.slot.intent(LANE).clear();
        mneme_sys::fault!("txn.ahead.cleared");
        self.store.drop_notes(self.slot, ahead.memory)
    }

    /// The outcome of a transaction that only read: whether all is as it was read. `None`: not all
    /// homes are held.
    pub(super) fn settle_held(&mut self) -> Result<Option<CommitOutcome>, WriteError> {
        let Some(mut ahead) = self.take_ahead() else {
            return Ok(None);
        };
        let settled = self.are_as_read(&mut ahead);
        self.keep_ahead(ahead);
        let settled = settled?;
        self.give_up_locks()?;
        Ok(settled)
    }

    fn are_as_read(&self, ahead: &mut Ahead<'_>) -> Result<Option<CommitOutcome>, WriteError> {
        let expired = !ahead.homes.have_begun() && self.has_outlived_what_it_saw();
        if expired || !self.roots_are_current()? {
            return Ok(Some(CommitOutcome::Conflict));
        }
        for read in &self.reads {
            let home = self.home_of_read(read)?;
            if home.is_some_and(|home| !ahead.holds(home.loc)) {
                return Ok(None);
            }
            if !self.is_as_read(read, home, &mut ahead.homes)? {
                return Ok(Some(CommitOutcome::Conflict));
            }
        }
        Ok(Some(CommitOutcome::Committed))
    }
}
