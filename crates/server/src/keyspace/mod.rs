//! A database as a command sees it: the store's, or the same within the transaction of an `EXEC`.
//!
//! A command is written once and does not know the difference. By itself each operation here is
//! atomic; those of a closure given to [`Keyspace::atomically`] are atomic together, and so are all
//! those within a transaction.

mod records;

use std::ops::Range;

use mneme_collections::{HASH, HashEdit, HashError, LARGE_HASH, LargeHash, PackedHash, outgrows};
use mneme_log::{
    Decision, Elements, Expiry, LogStore, Part, Patch, Stored, Updated, ValueKind, WriteError,
};

use crate::command::Failure;
use crate::counters::Counters;
use crate::notify::{EventClass, EventNotes};
pub(crate) use records::RecordOperations;

/// One database, for one call.
pub(crate) struct Keyspace<'a> {
    store: &'a LogStore,
    counters: &'a Counters,
    events: Option<EventNotes<'a>>,
    database: usize,
    transaction: Option<&'a mut (dyn RecordOperations + 'a)>,
}

/// A hash as a command meets it.
pub(crate) enum HashForm<'b, L> {
    /// All of it.
    Packed(PackedHash<'b>),
    /// What was asked of a large one.
    Large(L),
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
        }
    }

    /// The database's number.
    pub fn number(&self) -> usize {
        self.database
    }

    /// The time within the transaction, if there is one, in milliseconds since the Unix epoch: it
    /// stands still.
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
        }
    }

    /// The database itself, for commands on whole databases. Those never run within a transaction
    /// of the store: `EXEC` runs in an exclusive section instead (see
    /// [`Reach`](crate::command::Reach)).
    pub fn whole(&self) -> Result<mneme_log::Database<'a>, Failure> {
        debug_assert!(self.transaction.is_none(), "the command's reach is wrong");
        Ok(self.store.database(self.database)?)
    }

    /// Calls `visit` with the value of `key`, a string, and counts a hit or a miss.
    #[inline]
    pub fn read<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Failure> {
        self.read_kind(key, ValueKind::STRING, visit)
    }

    /// As [`read`](Self::read), for a value of this kind. One of another kind is a hit, and an
    /// error.
    #[inline]
    fn read_kind<R>(
        &mut self,
        key: &[u8],
        kind: ValueKind,
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Failure> {
        let mut found = false;
        let result = self.read_kind_uncounted(key, kind, |value| {
            found = value.is_some();
            visit(value)
        });
        if result.is_ok() || matches!(result, Err(Failure::WrongType)) {
            self.count_of(key, found || result.is_err());
        }
        result
    }

    /// Calls `visit` with those of `fields` that the hash under `key` has, or more, and counts a
    /// hit or a miss. `None`: with all.
    pub fn read_hash<R>(
        &mut self,
        key: &[u8],
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<PackedHash<'_>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.read_small_or_large(
            key,
            |hash| hash.view(fields),
            |hash| {
                visit(match hash {
                    Some(HashForm::Packed(hash)) => Some(hash),
                    Some(HashForm::Large(ref view)) => Some(PackedHash::read(view)?),
                    None => None,
                })
            },
        )
    }

    /// Calls `visit` with the hash under `key`, if it is packed, or with what `of_large` says of a
    /// large one, and counts a hit or a miss. `of_large` may run again: the last run counts.
    pub fn read_small_or_large<L, R>(
        &mut self,
        key: &[u8],
        mut of_large: impl FnMut(&mut LargeHash<'_>) -> Result<L, HashError>,
        visit: impl FnOnce(Option<HashForm<'_, L>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (mut visit, mut result) = (Some(visit), None);
        loop {
            let packed = self.read_kind_uncounted(key, HASH, |image| {
                let packed = image.map(PackedHash::read).transpose();
                let found = packed.is_ok_and(|packed| packed.is_some());
                if let Some(visit) = visit.take() {
                    let hash = packed.map_err(Failure::from);
                    result = Some(hash.and_then(|hash| visit(hash.map(HashForm::Packed))));
                }
                found
            });
            match packed {
                Ok(found) => {
                    self.count_of(key, found);
                    break;
                }
                Err(Failure::WrongType) => {}
                Err(failure) => return Err(failure),
            }
            let said = self.with_large_hash(key, &mut of_large)?;
            if let Some(said) = said {
                self.count(true);
                return match visit.take() {
                    Some(visit) => visit(Some(HashForm::Large(said))),
                    None => break,
                };
            }
            if self
                .kind(key)?
                .is_some_and(|kind| kind != HASH && kind != LARGE_HASH)
            {
                self.count(true);
                return Err(Failure::WrongType);
            }
        }
        let nothing = || Err(Failure::Store("a transaction has read no record".into()));
        result.unwrap_or_else(nothing)
    }

    /// Calls `work` with the large hash that `key` leads to. `None`: it leads to none. `work` may
    /// run again: the last run counts.
    pub fn with_large_hash<R>(
        &mut self,
        key: &[u8],
        mut work: impl FnMut(&mut LargeHash<'_>) -> Result<R, HashError>,
    ) -> Result<Option<R>, Failure> {
        self.atomically(|keyspace| {
            let (database, mut result) = (keyspace.database, None);
            let Some(transaction) = &mut keyspace.transaction else {
                return Ok(None);
            };
            transaction.with_large_hash(database, key, &mut |mut hash| {
                result = Some(work(&mut hash)?);
                Ok(())
            })?;
            Ok(result)
        })
    }

    /// Makes `to`, a database and a key there, a large hash with what the one under `key` has.
    pub fn copy_large_hash(
        &mut self,
        key: &[u8],
        to: (usize, &[u8]),
        expiry: Expiry,
    ) -> Result<(), Failure> {
        self.atomically(|keyspace| {
            let database = keyspace.database;
            let Some(transaction) = &mut keyspace.transaction else {
                return Ok(());
            };
            let id = transaction.new_collection();
            transaction.with_large_hash(database, key, &mut |mut hash| Ok(hash.copy_to(id)?))?;
            let main = mneme_log::main_of(id);
            keyspace
                .other(to.0)
                .put_kind(to.1, &main, LARGE_HASH, expiry)
        })
    }

    /// Calls `visit` with the value of `key`, of whatever kind. It may run again: the last run
    /// counts. Counts neither a hit nor a miss.
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
            Some(transaction) => transaction.read(self.database, key, visit),
            None => self.atomically(|keyspace| keyspace.visit_stored(key, &mut *visit)),
        }
    }

    /// Calls `visit` with the value of `key`, for a command for which Redis counts neither a hit
    /// nor a miss, or which has already counted one.
    #[inline]
    pub fn read_uncounted<R>(
        &mut self,
        key: &[u8],
        visit: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Failure> {
        self.read_kind_uncounted(key, ValueKind::STRING, visit)
    }

    #[inline]
    fn read_kind_uncounted<R>(
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
        let value = self.store.database(self.database)?.get_kind(key, kind)?;
        Ok(visit(value.as_deref()))
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
            Some(transaction) => transaction.expiry(self.database, key),
            None => Ok(self.store.database(self.database)?.expiry(key)?),
        }
    }

    /// The kind of the value of `key`; `None` if it does not exist.
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<ValueKind>, Failure> {
        match &mut self.transaction {
            Some(transaction) => transaction.kind(self.database, key),
            None => Ok(self.store.database(self.database)?.kind(key)?),
        }
    }

    /// The number of bytes that the record of `key` occupies, including the slack for its value to
    /// grow; `None` if it does not exist.
    pub fn record_bytes(&mut self, key: &[u8]) -> Result<Option<u64>, Failure> {
        match &mut self.transaction {
            Some(transaction) => transaction.record_bytes(self.database, key),
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

    /// Whether an event reports that `key` is new if it is stored now: it is absent.
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
    /// was faster: the last call counts.
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

    /// Lets `change` change those of `fields` that the hash under `key` has, and say whether it
    /// did. `change` gets these fields, or more, and changes no others; none where there is no
    /// hash. A hash that is empty afterwards is removed with its key. `change` may be called again,
    /// as `decide` of [`update`](Self::update). Returns the result of the last call, and what
    /// became of the key.
    pub fn update_hash<R>(
        &mut self,
        key: &[u8],
        fields: &[&[u8]],
        mut change: impl FnMut(&mut HashEdit) -> Result<(R, bool), Failure>,
    ) -> Result<(R, Updated), Failure> {
        let undecided = || Failure::Store("an update has asked for nothing".into());
        if self.transaction.is_none() {
            let (mut result, mut is_large) = (Err(undecided()), false);
            let decide = |stored: Option<Stored<'_>>, elements: &mut Elements| {
                let old = stored.map(|stored| stored.value);
                let decided = HashEdit::decide(old, Some(elements), &mut change);
                let decided = decided.and_then(|(value, decision)| {
                    is_large = matches!(&decision, Decision::Replace(image) if outgrows(image)?);
                    Ok((value, decision))
                });
                let (last, decision) = match decided {
                    Ok((value, _)) if is_large => (Ok(value), Decision::Keep),
                    Ok((value, decision)) => (Ok(value), decision),
                    Err(failure) => (Err(failure), Decision::Keep),
                };
                result = last;
                decision
            };
            let database = self.store.database(self.database)?;
            match database.update_elements(key, HASH, decide) {
                Err(WriteError::WrongKind(wrong)) if wrong.found == LARGE_HASH => {}
                updated => {
                    let updated = updated?;
                    if !is_large {
                        return Ok((result?, self.changed(key, updated)));
                    }
                }
            }
        }
        let (number, mut result) = (self.database, None);
        let updated = self.atomically_on(&[(number, key)], |keyspace| {
            let Some(transaction) = &mut keyspace.transaction else {
                return Err(undecided());
            };
            transaction.edit_hash(number, key, fields, &mut |hash| {
                let (value, is_changed) = change(hash)?;
                result = Some(value);
                Ok(is_changed)
            })
        })?;
        let result = result.ok_or_else(undecided)?;
        Ok((result, self.changed(key, updated)))
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
    /// all. It may run again: the last run counts.
    pub fn atomically<R>(
        &mut self,
        body: impl FnMut(&mut Keyspace<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.atomically_on(&[], body)
    }

    /// As [`atomically`](Self::atomically), for a command that writes. Its keys, each with its
    /// database, are locked before `body` runs, which then runs once however often others change
    /// them.
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
            // The counts of an attempt that others have undone are discarded.
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
        })?;
        counters.take_keys(&counted);
        Ok(result)
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

    /// Notes that something has happened to a key, if that is reported.
    #[inline]
    pub fn notify(&self, class: EventClass, name: &'static str, key: &[u8]) {
        if let Some(events) = self.events {
            events.note(class, name, self.database, key);
        }
    }

    /// Forgets what was noted by an attempt that has failed.
    pub fn forget_events(&self) {
        if let Some(events) = self.events {
            events.noted().truncate(0);
        }
    }

    /// How many events are noted.
    pub fn noted_events(&self) -> usize {
        self.events.map_or(0, |events| events.noted().len())
    }

    /// Notes that `key` was looked up and is absent, before all but the first `place` events.
    pub fn notify_miss(&self, key: &[u8], place: usize) {
        if let Some(events) = self.events {
            events.note_at(place, EventClass::KeyMiss, "keymiss", self.database, key);
        }
    }

    /// As [`count`](Self::count), and notes a miss of `key`.
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
