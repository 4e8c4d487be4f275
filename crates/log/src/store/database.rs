//! The operations on a database's records: by [`Database`], and for database 0 by [`LogStore`]
//! itself.

use std::cell::RefCell;
use std::ops::Range;

use super::LogStore;
use crate::error::{BatchError, ReadError, WriteError};
use crate::records::elements::Elements;
use crate::records::expiry::{Expiry, Stored};
use crate::records::in_place::ValueEdit;
use crate::records::keyspace::KeyspaceInfo;
use crate::records::random::{Draw, Drawn};
use crate::records::scan::Cursor;
use crate::records::value::Value;
use crate::region::kind::ValueKind;
use crate::store::components::Store;
use crate::store::look::Look;
use crate::store::ops::{Decision, Takes, Updated};
use crate::store::part::{Part, Patch};
use crate::store::transaction::Transaction;

/// The operations of a database, written once for both types that offer them.
macro_rules! operations {
    ([$($life:lifetime)?] $name:ty, $value:lifetime, $self:ident => $db:expr) => {
        impl $(<$life>)? $name {
            /// The value of `key`: in place in a store that appends, a copy in one that overwrites
            /// or does not [lend](crate::Builder::lending). Waits for no writer, except, for a
            /// second at most, for a transaction that is committing the key or for an overwriting
            /// of its value.
            ///
            /// # Errors
            /// This thread cannot take part, the region is damaged, a transaction stalls, or the
            /// value is of another [kind](ValueKind).
            #[inline(always)]
            pub fn get(&$self, key: &[u8]) -> Result<Option<Value<$value>>, ReadError> {
                let db = $db;
                db.store.records().get(db.number, key)
            }

            /// The value of `key`, which is of this kind; otherwise as [`get`](Self::get).
            ///
            /// # Errors
            /// As for `get`.
            pub fn get_kind(
                &$self,
                key: &[u8],
                kind: ValueKind,
            ) -> Result<Option<Value<$value>>, ReadError> {
                let db = $db;
                match kind {
                    ValueKind::STRING => db.store.records().get(db.number, key),
                    _ => db.store.records().get_slowly(db.number, key, kind),
                }
            }

            /// The kind of the value of `key`; `None` if the key is absent. However long the value,
            /// only the record's header is read, and this does not count as a read of the record.
            ///
            /// # Errors
            /// This thread cannot take part, the region is damaged, or a transaction stalls.
            pub fn kind(&$self, key: &[u8]) -> Result<Option<ValueKind>, ReadError> {
                let db = $db;
                db.store.records().kind(db.number, key)
            }

            /// Calls `visit(i, value)` for each of `keys`, in order. Several times as fast as
            /// single calls, because the keys' cache misses overlap. If values are lent, `visit`
            /// runs pinned, as if it held a [`Value`]; if they are copied, this is `copy_many`.
            ///
            /// # Errors
            /// As for `get`; keys before the failing one have been visited.
            pub fn get_many<K: AsRef<[u8]>>(
                &$self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), ReadError> {
                let db = $db;
                db.store.get_many(db.number, keys, visit)
            }

            /// Starts to prefetch what an operation on each of `keys` will touch: its place in the
            /// index, and the beginning of its record. The operations that follow soon, whatever
            /// they are, then overlap their cache misses as those of [`get_many`](Self::get_many)
            /// do. 32 keys at once are best; more evict each other.
            ///
            /// This is only a hint: it returns nothing, waits for nothing, and skips what cannot be
            /// prefetched.
            pub fn prefetch_many<K: AsRef<[u8]>>(&$self, keys: &[K]) {
                let db = $db;
                db.store.prefetch_many(db.number, keys);
            }

            /// Starts to prefetch the leaves, of the collection that `key` leads to, that have
            /// elements with these [hashes](crate::leaf_of), as
            /// [`prefetch_many`](Self::prefetch_many) does for keys. Does nothing for a collection
            /// that is small enough to stay in the cache, and for a value that is not a collection.
            pub fn prefetch_leaves(&$self, key: &[u8], hashes: impl Iterator<Item = u64>) {
                let db = $db;
                db.store.prefetch_leaves(db.number, key, hashes);
            }

            /// Replaces the content of `value` by a copy of the value of `key`. Returns whether
            /// `key` is present. If it is not, `value` is empty afterwards.
            ///
            /// Like `get` and `to_vec`, but a thread that is stopped or swapped out in the middle
            /// blocks no other: after half a second the others revoke its pin, and it reads again.
            /// This suits clients that cannot be trusted to keep running.
            ///
            /// # Errors
            /// As for `get`; `value` may then hold anything.
            #[inline]
            pub fn get_into(&$self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, ReadError> {
                let db = $db;
                db.store.records().get_into(db.number, key, value)
            }

            /// As `get_into`, for a value of this kind.
            ///
            /// # Errors
            /// As for `get_into`.
            pub fn get_kind_into(
                &$self,
                key: &[u8],
                kind: ValueKind,
                value: &mut Vec<u8>,
            ) -> Result<bool, ReadError> {
                let db = $db;
                match kind {
                    ValueKind::STRING => db.store.records().get_into(db.number, key, value),
                    _ => db.store.records().get_into_slowly(db.number, key, Some(kind), value),
                }
            }

            /// Calls `visit` with the collection that `key` leads to, whose main is of this large
            /// kind, as it is at one instant. `visit` may be called again, and only its last result
            /// counts. It runs pinned. `None`: there is no such collection, this opening does not
            /// lend, or other threads changed it during too many attempts; use a
            /// [transaction](crate::Transaction).
            ///
            /// # Errors
            /// As for `get`.
            pub fn look<R>(
                &$self,
                key: &[u8],
                kind: ValueKind,
                visit: impl FnMut(&mut Look<'_>) -> R,
            ) -> Result<Option<R>, ReadError> {
                let db = $db;
                db.store.look_at_collection(db.number, key, kind, visit)
            }

            /// Calls `visit(i, value)` with a copy of the value of each of `keys`, in order. It
            /// corresponds to `get_into` as `get_many` to `get`. `visit` does not run pinned, so it
            /// may take long. About a MiB is copied at a time.
            ///
            /// # Errors
            /// As for `get`; keys before the failing one have been visited.
            pub fn copy_many<K: AsRef<[u8]>>(
                &$self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), ReadError> {
                let db = $db;
                db.store.records().copy_many(db.number, keys, visit)
            }

            /// Whether `key` is present.
            ///
            /// # Errors
            /// As for `get`.
            #[doc(alias("contains_key", "exists"))]
            pub fn contains(&$self, key: &[u8]) -> Result<bool, ReadError> {
                let db = $db;
                db.store.records().contains(db.number, key)
            }

            /// Stores `value` under `key`, replacing an older value and its expiry. Keys have up to
            /// [`MAX_KEY`](crate::MAX_KEY) bytes, values up to [`MAX_VALUE`](crate::MAX_VALUE). May
            /// compact, and waits for free space a bounded time (see [`WriteError`]).
            ///
            /// # Errors
            /// Nothing was stored: key or value is too long, the store is full, or another thread
            /// stalls.
            #[inline]
            #[doc(alias("insert", "set"))]
            pub fn put(&$self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
                let db = $db;
                db.store.session().with_feed(|| db.store.put(db.number, key, value, Expiry::Never))
            }

            /// Stores `value` under `key` until its expiry. An expiry in the past makes the key
            /// absent.
            ///
            /// # Errors
            /// As for `put`.
            #[doc(alias("put_expiring", "insert_with_ttl"))]
            pub fn put_until(&$self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), WriteError> {
                let db = $db;
                db.store.session().with_feed(|| db.store.put(db.number, key, value, expiry))
            }

            /// As `put_until`, for a value of this kind.
            ///
            /// # Errors
            /// As for `put`.
            pub fn put_kind(
                &$self,
                key: &[u8],
                value: &[u8],
                kind: ValueKind,
                expiry: Expiry,
            ) -> Result<(), WriteError> {
                let db = $db;
                db.store.session().with_feed(|| db.store.put_kind(db.number, key, value, (kind, expiry)))
            }

            /// When `key` expires; `None` if it is absent.
            ///
            /// # Errors
            /// As for `get`.
            pub fn expiry(&$self, key: &[u8]) -> Result<Option<Expiry>, ReadError> {
                let db = $db;
                db.store.expiry(db.number, key)
            }

            /// Bytes that the record of `key` occupies, as `stats().live_bytes` counts them:
            /// header, expiry, key, value, padding and the slack of a growing value, without its
            /// share of the index. `None` if `key` is absent. However long the value, only the
            /// record's header is read, and this does not count as a read of the record.
            ///
            /// # Errors
            /// As for `get`.
            pub fn record_bytes(&$self, key: &[u8]) -> Result<Option<u64>, ReadError> {
                let db = $db;
                db.store.records().record_bytes(db.number, key)
            }

            /// Sets when `key` expires. Returns whether `key` is present. Seldom copies the value:
            /// never if it is longer than 64 KiB or was stored with an expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn set_expiry(&$self, key: &[u8], expiry: Expiry) -> Result<bool, WriteError> {
                Ok($self.update_expiry(key, |_| Some(expiry))? != Updated::Absent)
            }

            /// Sets when `key` expires, depending on its present expiry, atomically. `None` leaves
            /// it unchanged. `decide` may be called more than once, so it must have no side
            /// effects.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_expiry(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Expiry) -> Option<Expiry>,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                let mut decide = |stored: Stored<'_>| decide(stored.expiry);
                (db.store).session().with_feed(|| db.store.update_expiry(db.number, key, false, &mut decide))
            }

            /// As [`update_expiry`](Self::update_expiry), but `decide` also sees the value whose
            /// expiry it sets or keeps. If the record has a word for its expiry, only a store that
            /// overwrites copies the value.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn read_and_update_expiry(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Stored<'_>) -> Option<Expiry>,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                (db.store).session().with_feed(|| db.store.update_expiry(db.number, key, true, &mut decide))
            }

            /// Stores each pair, in order; later pairs win. Not atomic as a whole.
            ///
            /// # Errors
            /// The first `done` pairs are stored, the others are not.
            pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&$self, pairs: &[(K, V)]) -> Result<(), BatchError> {
                let db = $db;
                db.store.put_many(db.number, pairs)
            }

            /// Removes `key`. Returns whether it was present.
            ///
            /// # Errors
            /// Nothing was removed: another thread stalls, or the region is damaged.
            pub fn remove(&$self, key: &[u8]) -> Result<bool, WriteError> {
                let db = $db;
                db.store.session().with_feed(|| db.store.remove(db.number, key))
            }

            /// Removes `key` if it has expired, so that listeners are notified
            /// ([`ChangeListener`](crate::ChangeListener)). For all others it is absent anyway.
            /// Returns whether it had expired.
            ///
            /// # Errors
            /// As for `remove`.
            pub fn remove_if_expired(&$self, key: &[u8]) -> Result<bool, WriteError> {
                let db = $db;
                db.store.remove_if_expired(db.number, key)
            }

            /// Removes each key. Returns how many were present.
            ///
            /// # Errors
            /// The first `done` keys are removed, the others are not.
            pub fn remove_many<K: AsRef<[u8]>>(&$self, keys: &[K]) -> Result<usize, BatchError> {
                let db = $db;
                db.store.remove_many(db.number, keys)
            }

            /// Changes `key` depending on its present value, atomically. `decide` is called again
            /// if another thread changed the key meanwhile, so it must have no side effects. It
            /// runs pinned, and nothing is locked. A value that is replaced keeps its expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            #[doc(alias("compare_exchange", "get_or_insert_with"))]
            pub fn update(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Option<&[u8]>) -> Decision,
            ) -> Result<Updated, WriteError> {
                $self.update_stored(key, |stored| decide(stored.map(|s| s.value)))
            }

            /// As `update`, but `decide` also gets the present expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_stored(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                let takes = Takes::Only(ValueKind::STRING);
                db.store.session().with_feed(|| db.store.update(db.number, key, takes, None, &mut decide))
            }

            /// As `update_stored`, for a value of this kind: the stored value has that kind, too.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_kind(
                &$self,
                key: &[u8],
                kind: ValueKind,
                mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                let takes = Takes::Only(kind);
                db.store.session().with_feed(|| db.store.update(db.number, key, takes, None, &mut decide))
            }

            /// As `update_kind`, for a change of some elements of the value. `decide` also notes
            /// them: if it replaces a present value (`Decision::Replace`), a change feed gets those
            /// [`Elements`] instead of the whole value if that is shorter, and listeners learn
            /// whether some were set or removed. If `decide` notes none, the feed gets the whole
            /// value.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_elements(
                &$self,
                key: &[u8],
                kind: ValueKind,
                mut decide: impl FnMut(Option<Stored<'_>>, &mut Elements) -> Decision,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                let elements = RefCell::new(Elements::new(kind, db.store.session().feed.is_followed()));
                let mut decide = |stored: Option<Stored<'_>>| {
                    let mut said = elements.borrow_mut();
                    said.clear();
                    decide(stored, &mut said)
                };
                let (takes, said) = (Takes::Only(kind), Some(&elements));
                (db.store).session().with_feed(|| db.store.update(db.number, key, takes, said, &mut decide))
            }

            /// Changes parts of the value of `key`, which has elements and is of this kind, in
            /// place: the cost does not depend on the length of the value. `decide` writes the
            /// changes into the edit, and returns whether there are any. If `decide` or this
            /// returns `None`, the value cannot be changed in place, and nothing was changed; use
            /// `update_elements`.
            ///
            /// While `decide` runs, others wait to change the key: it must neither use the store
            /// nor panic. It may be called again.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn edit_in_place(
                &$self,
                key: &[u8],
                kind: ValueKind,
                mut decide: impl FnMut(&[u8], &mut ValueEdit) -> Option<bool>,
            ) -> Result<Option<Updated>, WriteError> {
                let db = $db;
                let mut edit = ValueEdit::new(kind, db.store.session().feed.is_followed());
                (db.store).session().with_feed(|| {
                    db.store.edit_value(db.number, (key, kind), &mut edit, &mut decide)
                })
            }

            /// As `update_stored`, for a value of any kind: the stored value is a string.
            ///
            /// # Errors
            /// As for `put`, except for [`WriteError::WrongKind`]; nothing was changed.
            pub fn update_any(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                let takes = Takes::AnyFor(ValueKind::STRING);
                db.store.session().with_feed(|| db.store.update(db.number, key, takes, None, &mut decide))
            }

            /// Calls `visit` once, with a part of the value of `key`. `range` gets the value's
            /// length and returns the range of bytes; `visit` gets the existing part of that range.
            /// `None`: the key is absent. Nothing outside the range is copied. `range` may be
            /// called again, and with lengths that the value never had. If values are lent, `visit`
            /// may run pinned, as if it held a [`Value`].
            ///
            /// # Errors
            /// As for `get`; `visit` was not called.
            pub fn read_part<R>(
                &$self,
                key: &[u8],
                range: impl Fn(usize) -> Range<usize>,
                visit: impl FnOnce(Option<Part<'_>>) -> R,
            ) -> Result<R, ReadError> {
                let db = $db;
                db.store.read_part(db.number, key, range, visit)
            }

            /// Changes a part of the value of `key` depending on a part of it, chosen as for
            /// `read_part`, atomically. `decide` is called again if another thread changed the key
            /// meanwhile, so it must have no side effects. It runs pinned, and nothing is locked.
            /// The expiry stays as it is.
            ///
            /// The cost grows with what is read and written, not with the value. A value of more
            /// than 4 KiB is changed in place: at once up to 4 KiB within it and 1 MiB after its
            /// end. It gets slack for growth: its own length, or above 1 MiB an eighth of it. It is
            /// stored again when the slack is used up, and for the first change after it was read
            /// as a whole (by `get`, `update`, a scan or a transaction; not by `read_part`).
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_part<'b>(
                &$self,
                key: &[u8],
                range: impl Fn(usize) -> Range<usize>,
                mut decide: impl FnMut(Option<Part<'_>>) -> Patch<'b>,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                (db.store).session().with_feed(|| db.store.update_part(db.number, key, &range, &mut decide))
            }

            /// Visits about `count` strings (key, value) from `cursor` on, and returns where to
            /// continue; records of other kinds are left out. A `count` of 0 means 1. From
            /// [`Cursor::START`] to [`Cursor::END`] every string that is present throughout is
            /// visited at least once. The order is that of the keys' hashes. If values are lent,
            /// `visit` runs pinned, as if it held a [`Value`]; if they are copied, this is
            /// `scan_copied`.
            ///
            /// # Errors
            /// As for `get`.
            #[doc(alias("iter", "keys"))]
            pub fn scan(
                &$self,
                cursor: Cursor,
                count: usize,
                visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<Cursor, ReadError> {
                let db = $db;
                db.store.records().scan(db.number, cursor, count, visit)
            }

            /// As `scan`, with the keys of records of every kind: no value is read.
            ///
            /// # Errors
            /// As for `get`, except for [`ReadError::WrongKind`].
            pub fn scan_keys(
                &$self,
                cursor: Cursor,
                count: usize,
                mut visit: impl FnMut(&[u8]),
            ) -> Result<Cursor, ReadError> {
                $self.scan_kinds(cursor, count, |key, _| visit(key))
            }

            /// As `scan_keys`, with the kind of each value.
            ///
            /// # Errors
            /// As for `scan_keys`.
            pub fn scan_kinds(
                &$self,
                cursor: Cursor,
                count: usize,
                visit: impl FnMut(&[u8], ValueKind),
            ) -> Result<Cursor, ReadError> {
                let db = $db;
                db.store.records().scan_kinds(db.number, cursor, count, visit)
            }

            /// As `scan`, with copies of keys and values, as `copy_many` makes them. `visit` does
            /// not run pinned.
            ///
            /// # Errors
            /// As for `get`; the records before the error have been visited.
            pub fn scan_copied(
                &$self,
                cursor: Cursor,
                count: usize,
                visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<Cursor, ReadError> {
                let db = $db;
                db.store.records().scan_copied(db.number, cursor, count, visit)
            }

            /// A random key, each as likely as any other. `None`: the database holds no record.
            /// Reads a few dozen records, or all of them if hardly any of the counted ones are
            /// alive.
            ///
            /// # Errors
            /// As for `get`.
            pub fn random_key(&$self) -> Result<Option<Vec<u8>>, ReadError> {
                let db = $db;
                db.store.records().random_key(db.number)
            }

            /// One step of the drawing of a random key, each as likely as any other: examines at
            /// most about a thousand buckets of the index. A draw begins with `Draw::default()` and
            /// continues until it finds a key, or nothing. Over a database that is not changed
            /// meanwhile it is equivalent to [`random_key`](Self::random_key), and the caller can
            /// do other work in between.
            ///
            /// # Errors
            /// As for `get`.
            pub fn draw(&$self, draw: &mut Draw) -> Result<Drawn, ReadError> {
                let db = $db;
                db.store.records().draw(db.number, draw)
            }

            /// Records in the database, including those that have expired and are not yet removed.
            /// It is the sum of all threads' counters, or 0 on an error (see `try_len`).
            pub fn len(&$self) -> u64 {
                $self.try_len().unwrap_or(0)
            }

            /// As `len`, but returns the error.
            ///
            /// # Errors
            /// As for `get`.
            pub fn try_len(&$self) -> Result<u64, ReadError> {
                let db = $db;
                db.store.records().len(db.number)
            }

            /// The number of the database's records, how many of them have an expiry, and an
            /// estimate of when these expire. As cheap as `len`.
            ///
            /// # Errors
            /// As for `get`.
            pub fn keyspace(&$self) -> Result<KeyspaceInfo, ReadError> {
                let db = $db;
                db.store.records().keyspace(db.number)
            }

            /// Whether the database holds no record.
            pub fn is_empty(&$self) -> bool {
                $self.len() == 0
            }

            /// Empties the database at once, whatever its size. Its memory is freed in the
            /// background.
            ///
            /// # Errors
            /// Another thread stalls, or 64 earlier clearings still wait for readers to finish.
            pub fn clear(&$self) -> Result<(), WriteError> {
                let db = $db;
                db.store.session().with_feed(|| db.store.clear(db.number))
            }
        }
    };
}

/// One database of a store.
#[derive(Clone, Copy)]
pub struct Database<'s> {
    pub(super) store: &'s Store,
    pub(super) number: u8,
}

impl Database<'_> {
    /// As [`LogStore::transaction_on`], for the store to which this database belongs.
    ///
    /// # Errors
    /// As there.
    pub fn transaction_on<K: AsRef<[u8]>, T, E: From<WriteError>>(
        &self,
        keys: &[(usize, K)],
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let places = self.store.places_of(keys)?;
        loop {
            // The first attempt returns: only a watching transaction is cancelled with `None`.
            if let Some(value) = self.store.transaction(None, &places, &mut body)? {
                return Ok(value);
            }
        }
    }

    /// Its number, 0 to 63.
    pub fn number(&self) -> usize {
        usize::from(self.number)
    }
}

operations!([] LogStore, '_, self => self.zero());
operations!(['s] Database<'s>, 's, self => *self);
