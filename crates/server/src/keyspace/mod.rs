//! A database as a command sees it: the store's database, or that database within the transaction
//! of an `EXEC`.
//!
//! A command is written once and does not know the difference. By itself each operation here is
//! atomic; those of a closure given to [`Keyspace::atomically`] are atomic together, and so are all
//! those within a transaction.

mod collections;
mod records;

use std::cell::Cell;
use std::ops::Range;

use mneme_collections::Locking;
use mneme_log::{Decision, Expiry, LogStore, Part, Patch, Stored, Updated, ValueKind};

use crate::command::Failure;
use crate::counters::{Count, Counters};
use crate::notify::{EventClass, EventNotes};
pub(crate) use records::RecordOperations;

thread_local! {
    /// A buffer for copies of values.
    static COPY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The maximum number of bytes that a thread keeps for that buffer.
const MOST_KEPT: usize = 64 << 10;

/// One database, for one call.
pub(crate) struct Keyspace<'a> {
    store: &'a LogStore,
    counters: &'a Counters,
    events: Option<EventNotes<'a>>,
    database: usize,
    transaction: Option<&'a mut (dyn RecordOperations + 'a)>,
    /// What a change of a value with elements locks.
    locking: Locking,
}

impl<'a> Keyspace<'a> {
    /// Database `database`, within `transaction` if there is one.
    pub fn new(
        store: &'a LogStore,
        counters: &'a Counters,
        events: Option<EventNotes<'a>>,
        database: usize,
        transaction: Option<&'a mut (dyn RecordOperations + 'a)>,
    ) -> Self {
        Self {
            store,
            counters,
            events,
            database,
            transaction,
            locking: Locking::Nothing,
        }
    }

    /// As this, for a command of so many arguments.
    pub fn for_arguments(self, count: usize) -> Self {
        Self {
            locking: Locking::of(count),
            ..self
        }
    }

    /// The database's number.
    pub fn number(&self) -> usize {
        self.database
    }

    /// The time within the transaction, if there is one, in milliseconds since the Unix epoch. It
    /// is constant within a transaction.
    pub fn time_of_transaction(&self) -> Option<u64> {
        self.transaction
            .as_ref()
            .map(|transaction| transaction.wall_ms())
    }

    /// Another database, which must be one that clients may select, within the same transaction.
    pub fn other(&mut self, database: usize) -> Keyspace<'_> {
        Keyspace {
            database,
            ..self.reborrow()
        }
    }

    fn reborrow(&mut self) -> Keyspace<'_> {
        Keyspace {
            store: self.store,
            counters: self.counters,
            events: self.events,
            database: self.database,
            transaction: match &mut self.transaction {
                Some(transaction) => Some(&mut **transaction),
                None => None,
            },
            locking: self.locking,
        }
    }

    /// The database itself, for commands on whole databases. Those never run within a transaction
    /// of the store: `EXEC` runs in an exclusive section instead (see
    /// [`Reach`](crate::command::Reach)).
    pub fn whole(&self) -> Result<mneme_log::Database<'a>, Failure> {
        debug_assert!(self.transaction.is_none(), "the command's reach is wrong");
        Ok(self.store.database(self.database)?)
    }

    /// Calls `visit` with the value of `key`, a string, and counts a hit or a miss. A value of
    /// another kind is a hit, and an error.
    #[inline]
    pub fn read<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Failure> {
        let mut found = false;
        let result = self.read_uncounted(key, ValueKind::STRING, |value| {
            found = value.is_some();
            visit(value)
        });
        if result.is_ok() || matches!(result, Err(Failure::WrongType)) {
            self.count_of(key, found || result.is_err());
        }
        result
    }

    /// Calls `visit` with the value of `key`, of whatever kind. It may be called again: only the
    /// last call counts. Counts neither a hit nor a miss.
    pub fn read_stored<R>(
        &mut self,
        key: &[u8],
        mut visit: impl FnMut(Option<Stored<'_>>) -> R,
    ) -> Result<R, Failure> {
        let mut result = None;
        self.visit_stored(key, &mut |stored| result = Some(visit(stored)))?;
        result.ok_or_else(|| Failure::Store("a transaction has read no record".into()))
    }

    fn visit_stored(
        &mut self,
        key: &[u8],
        visit: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), Failure> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction.read(self.database, key, visit)?),
            None => self.atomically(|keyspace| keyspace.visit_stored(key, &mut *visit)),
        }
    }

    /// Calls `visit` with the value of `key`, of this kind, for a command for which Redis counts
    /// neither a hit nor a miss, or which has already counted one.
    #[inline]
    pub fn read_uncounted<R>(
        &mut self,
        key: &[u8],
        kind: ValueKind,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Failure> {
        if let Some(transaction) = &mut self.transaction {
            let (mut visit, mut result) = (Some(visit), None);
            transaction.read(self.database, key, &mut |stored| {
                result = match stored {
                    Some(stored) if stored.kind != kind => Some(Err(Failure::WrongType)),
                    _ => visit.take().map(|visit| Ok(visit(stored.map(|s| s.value)))),
                };
            })?;
            let nothing = || Err(Failure::Store("a transaction has read no record".into()));
            return result.unwrap_or_else(nothing);
        }
        let database = self.store.database(self.database)?;
        if kind == ValueKind::STRING {
            let value = database.get(key)?;
            return Ok(visit(value.as_deref()));
        }
        // A value with elements is copied.
        let mut copy = COPY.take();
        let found = database.get_kind_into(key, kind, &mut copy);
        let visited = found.map(|found| visit(found.then_some(&copy[..])));
        if copy.capacity() <= MOST_KEPT {
            COPY.set(copy);
        }
        Ok(visited?)
    }

    /// Calls `visit` with a part of the value of `key`, which `range` chooses from its length, and
    /// counts a hit or a miss. The rest of a long value costs nothing.
    pub fn read_part<R>(
        &mut self,
        key: &[u8],
        range: impl Fn(usize) -> Range<usize>,
        visit: impl FnOnce(Option<Part<'_>>) -> R,
    ) -> Result<R, Failure> {
        if self.transaction.is_some() {
            return self.read(key, |value| {
                visit(value.map(|value| Part::of(value, range)))
            });
        }
        let mut found = false;
        let database = self.store.database(self.database)?;
        let result = database.read_part(key, range, |part| {
            found = part.is_some();
            visit(part)
        });
        let result = result.map_err(Failure::from);
        if result.is_ok() || matches!(result, Err(Failure::WrongType)) {
            self.count_of(key, found || result.is_err());
        }
        result
    }

    /// Whether `key` exists. Counts a hit or a miss.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let found = match &mut self.transaction {
            Some(_) => self.expiry(key)?.is_some(),
            None => self.store.database(self.database)?.contains(key)?,
        };
        self.count_of(key, found);
        Ok(found)
    }

    /// When `key` expires; `None` if it does not exist.
    pub fn expiry(&mut self, key: &[u8]) -> Result<Option<Expiry>, Failure> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction.expiry(self.database, key)?),
            None => Ok(self.store.database(self.database)?.expiry(key)?),
        }
    }

    /// The kind of the value of `key`; `None` if it does not exist.
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<ValueKind>, Failure> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction.kind(self.database, key)?),
            None => Ok(self.store.database(self.database)?.kind(key)?),
        }
    }

    /// The number of bytes that the record of `key` occupies, including the slack for its value to
    /// grow; `None` if it does not exist.
    pub fn record_bytes(&mut self, key: &[u8]) -> Result<Option<u64>, Failure> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction.record_bytes(self.database, key)?),
            None => Ok(self.store.database(self.database)?.record_bytes(key)?),
        }
    }

    /// Stores `value` under `key`, replacing an older one and its expiry. An expiry in the past
    /// removes the key.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), Failure> {
        let is_new = self.is_worth_noting(key)?;
        match &mut self.transaction {
            Some(transaction) => {
                transaction.put(self.database, key, value, (ValueKind::STRING, expiry))?;
            }
            None => self
                .store
                .database(self.database)?
                .put_until(key, value, expiry)?,
        }
        self.counters.changes.add(1);
        if is_new {
            self.notify(EventClass::New, "new", key);
        }
        Ok(())
    }

    /// As [`put`](Self::put), for a value of this kind.
    pub fn put_kind(
        &mut self,
        key: &[u8],
        value: &[u8],
        kind: ValueKind,
        expiry: Expiry,
    ) -> Result<(), Failure> {
        let is_new = self.is_worth_noting(key)?;
        match &mut self.transaction {
            Some(transaction) => transaction.put(self.database, key, value, (kind, expiry))?,
            None => {
                let database = self.store.database(self.database)?;
                database.put_kind(key, value, kind, expiry)?;
            }
        }
        self.counters.changes.add(1);
        if is_new {
            self.notify(EventClass::New, "new", key);
        }
        Ok(())
    }

    /// Whether storing `key` now is an event for a new key, because the key is absent.
    #[inline]
    fn is_worth_noting(&mut self, key: &[u8]) -> Result<bool, Failure> {
        match self.events {
            Some(events) if events.wants(EventClass::New) => Ok(self.expiry(key)?.is_none()),
            _ => Ok(false),
        }
    }

    /// Removes `key`; returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let removed = match &mut self.transaction {
            Some(transaction) => transaction.remove(self.database, key)?,
            None => self.store.database(self.database)?.remove(key)?,
        };
        self.counters.changes.add(u64::from(removed));
        Ok(removed)
    }

    /// Changes `key`, a string, depending on its value. `decide` is called again if another writer
    /// interferes: only the last call counts.
    pub fn update(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<Updated, Failure> {
        self.update_kind(key, Some(ValueKind::STRING), decide)
    }

    /// As [`update`](Self::update), for a value of any kind; the new value is a string.
    pub fn update_any(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<Updated, Failure> {
        self.update_kind(key, None, decide)
    }

    /// As [`update`](Self::update), for a value of this kind, which the new value has too. `None`
    /// accepts any kind.
    fn update_kind(
        &mut self,
        key: &[u8],
        kind: Option<ValueKind>,
        mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<Updated, Failure> {
        let Some(transaction) = &mut self.transaction else {
            let database = self.store.database(self.database)?;
            let updated = match kind {
                Some(kind) => database.update_kind(key, kind, decide),
                None => database.update_any(key, decide),
            };
            return Ok(self.changed(key, updated?));
        };
        let (mut old, mut decision, mut is_other) = (None, Decision::Keep, false);
        transaction.read(self.database, key, &mut |stored| {
            old = stored.map(|s| s.expiry);
            is_other = stored.is_some_and(|s| kind.is_some_and(|kind| s.kind != kind));
            if !is_other {
                decision = decide(stored);
            }
        })?;
        if is_other {
            return Err(Failure::WrongType);
        }
        let (value, expiry) = match decision {
            Decision::Keep if old.is_some() => return Ok(Updated::Kept),
            Decision::Keep => return Ok(Updated::Absent),
            Decision::Remove => {
                let removed = transaction.remove(self.database, key)?;
                return Ok(match removed {
                    true => self.changed(key, Updated::Removed),
                    false => Updated::Absent,
                });
            }
            Decision::Replace(value) => (value, old.unwrap_or_default()),
            Decision::ReplaceUntil(value, expiry) => (value, expiry),
        };
        let kind = kind.unwrap_or_default();
        transaction.put(self.database, key, &value, (kind, expiry))?;
        let updated = match old {
            Some(_) => Updated::Replaced,
            None => Updated::Inserted,
        };
        Ok(self.changed(key, updated))
    }

    /// Changes a part of the value of `key`, which `range` chooses from its length; its expiry is
    /// kept. `decide` may be called again, as in [`update`](Self::update). The rest of a long value
    /// costs nothing, except for the first change within a transaction.
    pub fn update_part<'b>(
        &mut self,
        key: &[u8],
        range: impl Fn(usize) -> Range<usize>,
        mut decide: impl FnMut(Option<Part<'_>>) -> Patch<'b>,
    ) -> Result<Updated, Failure> {
        if let Some(transaction) = &mut self.transaction {
            let updated = transaction.update_part(self.database, key, &range, &mut decide)?;
            return Ok(self.changed(key, updated));
        }
        let database = self.store.database(self.database)?;
        Ok(self.changed(key, database.update_part(key, range, decide)?))
    }

    /// Sets when `key` expires, depending on its current expiry; `None` leaves it. `decide` may be
    /// called again.
    pub fn update_expiry(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Expiry) -> Option<Expiry>,
    ) -> Result<Updated, Failure> {
        let updated = match &mut self.transaction {
            None => (self.store.database(self.database)?).update_expiry(key, decide)?,
            Some(transaction) => {
                let mut decide = |stored: Stored<'_>| decide(stored.expiry);
                transaction.update_expiry(self.database, key, &mut decide)?
            }
        };
        Ok(self.changed(key, updated))
    }

    /// Sets when `key` expires and calls `visit` with its value at that instant; returns whether it
    /// exists. `visit` may be called again, like `decide` of [`update`](Self::update). A value that
    /// has a word for its expiry is not copied, except by the first change within a transaction and
    /// in a store that overwrites.
    pub fn read_and_expire(
        &mut self,
        key: &[u8],
        expiry: Expiry,
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<bool, Failure> {
        let mut is_other = false;
        let mut decide = |stored: Stored<'_>| {
            is_other = stored.kind != ValueKind::STRING;
            if is_other {
                return None;
            }
            visit(Some(stored.value));
            Some(expiry)
        };
        let updated = match &mut self.transaction {
            Some(transaction) => transaction.update_expiry(self.database, key, &mut decide)?,
            None => (self.store.database(self.database)?).read_and_update_expiry(key, decide)?,
        };
        if is_other {
            return Err(Failure::WrongType);
        }
        if self.changed(key, updated) == Updated::Absent {
            visit(None);
        }
        Ok(updated != Updated::Absent)
    }

    /// Runs `body` so that everything that it reads and changes happens at one instant, or not at
    /// all. It may run again: only the last run counts.
    pub fn atomically<R>(
        &mut self,
        body: impl FnMut(&mut Keyspace<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.atomically_on(&[], body)
    }

    /// As [`atomically`](Self::atomically), for a command that writes. Its keys, each with its
    /// database, are locked before `body` runs, which then runs only once, however often others
    /// change the keys.
    pub fn atomically_on<R>(
        &mut self,
        keys: &[(usize, &[u8])],
        mut body: impl FnMut(&mut Keyspace<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if self.transaction.is_some() {
            return body(&mut self.reborrow());
        }
        let Self {
            store,
            counters,
            events,
            database,
            ..
        } = *self;
        let mut counted = Counters::default();
        let noted = events.map_or(0, |events| events.noted().len());
        let result = store.transaction_on(keys, |transaction| {
            // The counts of an attempt that failed because of others are discarded.
            counted = Counters::default();
            if let Some(events) = events {
                events.noted().truncate(noted);
            }
            body(&mut Keyspace::new(
                store,
                &counted,
                events,
                database,
                Some(transaction),
            ))
        });
        if result.is_err() {
            // The attempt's changes were undone.
            counted.changes = Count::default();
        }
        counters.take_keys(&counted);
        result
    }

    /// As [`atomically`](Self::atomically) or, if `several` is false, only once and directly: for a
    /// command that may have a single key, whose operation is atomic by itself.
    pub fn atomically_if<R>(
        &mut self,
        several: bool,
        mut body: impl FnMut(&mut Keyspace<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if several {
            self.atomically(body)
        } else {
            body(&mut self.reborrow())
        }
    }

    /// Counts a key that was changed.
    fn changed(&self, key: &[u8], updated: Updated) -> Updated {
        if updated == Updated::Inserted {
            self.notify(EventClass::New, "new", key);
        }
        let is_change = !matches!(updated, Updated::Kept | Updated::Absent);
        self.counters.changes.add(u64::from(is_change));
        updated
    }

    /// Records an event of a key, if such events are reported.
    #[inline]
    pub fn notify(&self, class: EventClass, name: &'static str, key: &[u8]) {
        if let Some(events) = self.events {
            events.note(class, name, self.database, key);
        }
    }

    /// Records that elements of the value of `key` were removed and, if none is left, that the key
    /// was.
    pub fn notify_taken(
        &self,
        class: EventClass,
        name: &'static str,
        key: &[u8],
        updated: Updated,
    ) {
        self.notify(class, name, key);
        if updated == Updated::Removed {
            self.notify(EventClass::Generic, "del", key);
        }
    }

    /// Discards the events of an attempt that has failed.
    pub fn forget_events(&self) {
        if let Some(events) = self.events {
            events.noted().truncate(0);
        }
    }

    /// The number of recorded events.
    pub fn noted_events(&self) -> usize {
        self.events.map_or(0, |events| events.noted().len())
    }

    /// As [`notify`](Self::notify), but inserts the event after the first `place` events.
    pub fn notify_at(&self, place: usize, class: EventClass, name: &'static str, key: &[u8]) {
        if let Some(events) = self.events {
            events.note_at(place, class, name, self.database, key);
        }
    }

    /// As [`count`](Self::count), and records a miss of `key` as an event.
    pub fn count_of(&self, key: &[u8], found: bool) {
        self.count(found);
        if !found {
            self.notify(EventClass::KeyMiss, "keymiss", key);
        }
    }

    /// Counts a hit or a miss, for a command that reads by [`update`](Self::update).
    pub fn count(&self, found: bool) {
        let count = if found {
            &self.counters.hits
        } else {
            &self.counters.misses
        };
        count.add(1);
    }
}
