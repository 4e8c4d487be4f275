//! Typed values, packed or large, as commands read and change them.

use std::cell::RefCell;

use mneme_collections::listpack::Element;
use mneme_collections::{
    CollectionError, CollectionType, Form, HashEdit, HashType, LARGE_HASH, LargeHash, Leaves,
    Limits, Packed, PackedHash, SortedSetChange, SortedSetEdit, SortedSetType, SortedSetView,
    StoreRecords,
};
use mneme_log::{Expiry, Stored, Updated, collection_of, main_of};

use super::Keyspace;
use crate::command::Failure;
use crate::notify::EventClass;

impl Keyspace<'_> {
    /// Calls `visit` with at least those of `fields` that the hash or the set under `key` has, and
    /// counts a hit or a miss. `None`: with all.
    pub fn read_elements<T, R, const ENTRIES: usize>(
        &mut self,
        key: &[u8],
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<Packed<'_, ENTRIES>>) -> Result<R, Failure>,
    ) -> Result<R, Failure>
    where
        T: for<'r> CollectionType<
                Packed<'r> = Packed<'r, ENTRIES>,
                Large<'r> = Leaves<'r, ENTRIES>,
            >,
    {
        let of_large = |mut large: Leaves<'_, ENTRIES>| large.view(fields);
        self.read_collection::<T, _, _>(key, of_large, |value| match value {
            Some(Form::Packed(packed)) => visit(Some(packed)),
            Some(Form::Large(image)) => visit(Some(Packed::read(&image)?)),
            None => visit(None),
        })
    }

    /// As [`read_elements`](Self::read_elements), of a hash.
    pub fn read_hash<R>(
        &mut self,
        key: &[u8],
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<PackedHash<'_>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.read_elements::<HashType, _, _>(key, fields, visit)
    }

    /// Calls `visit` with the value of a field of the hash under `key`, and counts a hit or a miss.
    pub fn read_field<R>(
        &mut self,
        key: &[u8],
        field: &[u8],
        visit: impl FnOnce(Option<Element<'_>>) -> R,
    ) -> Result<R, Failure> {
        let of_large = |mut hash: LargeHash<'_>| hash.get(field);
        self.read_collection::<HashType, _, _>(key, of_large, |hash| {
            Ok(match hash {
                Some(Form::Packed(hash)) => visit(hash.get(field)?),
                Some(Form::Large(value)) => visit(value.as_deref().map(Element::Bytes)),
                None => visit(None),
            })
        })
    }

    /// Calls `visit` with the value under `key`: all of a packed one, or the result of `of_large`
    /// for a large one. Counts a hit or a miss. `of_large` may be called again: only the last call
    /// counts.
    pub fn read_collection<T: CollectionType, L, R>(
        &mut self,
        key: &[u8],
        mut of_large: impl FnMut(T::Large<'_>) -> Result<L, CollectionError>,
        visit: impl FnOnce(Option<Form<T::Packed<'_>, L>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (mut visit, mut result) = (Some(visit), None);
        loop {
            let packed = self.read_uncounted(key, T::KIND, |image| {
                let packed = image.map(T::read).transpose();
                let found = packed.as_ref().is_ok_and(Option::is_some);
                if let Some(visit) = visit.take() {
                    let packed = packed.map_err(Failure::from);
                    result = Some(packed.and_then(|packed| visit(packed.map(Form::Packed))));
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
            let said = self.with_large::<T, _>(key, &mut of_large)?;
            if let Some(said) = said {
                self.count(true);
                return match visit.take() {
                    Some(visit) => visit(Some(Form::Large(said))),
                    None => break,
                };
            }
            if self.kind(key)?.is_some_and(|kind| kind.packed() != T::KIND) {
                self.count(true);
                return Err(Failure::WrongType);
            }
        }
        let nothing = || Err(Failure::Store("a transaction has read no record".into()));
        result.unwrap_or_else(nothing)
    }

    /// Calls `work` with the large value under `key`; `None`: there is none of this type. `work`
    /// may be called again: only the last call counts. Counts neither a hit nor a miss.
    pub fn with_large<T: CollectionType, R>(
        &mut self,
        key: &[u8],
        mut work: impl FnMut(T::Large<'_>) -> Result<R, CollectionError>,
    ) -> Result<Option<R>, Failure> {
        if self.transaction.is_none() {
            let database = self.store.database(self.database)?;
            let looked = mneme_collections::look_at_large::<T, _>(&database, key, &mut work)?;
            if looked.is_some() {
                return Ok(looked);
            }
        }
        self.with_records(&[], |records, database| {
            let work = |large: T::Large<'_>| Ok(work(large)?);
            mneme_collections::with_large::<T, _, Failure>(records, (database, key), work)
        })
    }

    /// Stores a value of this image under `key`, replacing any value there and its expiry.
    fn put_collection<T: CollectionType>(
        &mut self,
        key: &[u8],
        image: &[u8],
        expiry: Expiry,
    ) -> Result<(), Failure> {
        let is_new = self.is_worth_noting(key)?;
        self.with_records(&[(self.database, key)], |records, database| {
            let at = (database, key);
            Ok(mneme_collections::put::<T>(records, at, image, expiry)?)
        })?;
        self.counters.changes.add(1);
        if is_new {
            self.notify(EventClass::New, "new", key);
        }
        Ok(())
    }

    /// Calls `change` to change the hash under `key`, as
    /// [`update_collection`](Self::update_collection) does.
    pub fn update_hash<R>(
        &mut self,
        key: &[u8],
        fields: &[&[u8]],
        change: impl FnMut(&mut HashEdit) -> Result<(R, bool), Failure>,
    ) -> Result<(R, Updated), Failure> {
        self.update_collection::<HashType, _>(key, Some(fields), change)
    }

    /// Calls `change` to change the value under `key`, which is empty if there is none; `change`
    /// returns whether it did. It gets at least the `wanted` elements that the value has, and must
    /// change no others. If the value is empty afterwards, its key is removed. `change` may be
    /// called again, like `decide` of [`update`](Self::update). Returns the result of the last
    /// call, and what became of the key.
    pub fn update_collection<T: CollectionType, R>(
        &mut self,
        key: &[u8],
        wanted: T::Wanted<'_>,
        mut change: impl FnMut(&mut T::Edit<'_>) -> Result<(R, bool), Failure>,
    ) -> Result<(R, Updated), Failure> {
        if self.transaction.is_none() {
            let database = self.store.database(self.database)?;
            let locking = self.locking;
            if let Some((result, updated)) =
                mneme_collections::edit_packed::<T, _, _>(&database, key, locking, &mut change)?
            {
                return Ok((result, self.changed(key, updated)));
            }
        }
        self.edit_collection::<T, _>(key, wanted, change)
    }

    /// As [`update_collection`](Self::update_collection), but by a transaction, which can also
    /// change large values.
    fn edit_collection<T: CollectionType, R>(
        &mut self,
        key: &[u8],
        wanted: T::Wanted<'_>,
        mut change: impl FnMut(&mut T::Edit<'_>) -> Result<(R, bool), Failure>,
    ) -> Result<(R, Updated), Failure> {
        // The records of a large value are not known before its key is read, so nothing can be
        // locked in advance.
        let (result, updated) = self.with_records(&[], |records, database| {
            mneme_collections::edit::<T, _, _>(records, (database, key), wanted, &mut change)
        })?;
        Ok((result, self.changed(key, updated)))
    }

    /// Calls `visit` with the sorted set under `key`, and counts a hit or a miss. `None`: there is
    /// none, although `visit` may have been called before that was known. `visit` may be called
    /// again: only the last call counts.
    pub fn read_sorted_set<R>(
        &mut self,
        key: &[u8],
        visit: impl FnMut(&mut SortedSetView<'_>) -> Result<R, CollectionError>,
    ) -> Result<Option<R>, Failure> {
        let visit = RefCell::new(visit);
        self.read_collection::<SortedSetType, _, _>(
            key,
            |large| (visit.borrow_mut())(&mut large.into()),
            |set| match set {
                Some(Form::Packed(set)) => Ok(Some((visit.borrow_mut())(&mut set.into())?)),
                Some(Form::Large(result)) => Ok(Some(result)),
                None => Ok(None),
            },
        )
    }

    /// Calls `change` to change the sorted set under `key`, as
    /// [`update_collection`](Self::update_collection) does.
    pub fn update_sorted_set<R>(
        &mut self,
        key: &[u8],
        change: impl FnMut(&mut SortedSetChange<'_>) -> Result<(R, bool), Failure>,
    ) -> Result<(R, Updated), Failure> {
        self.update_collection::<SortedSetType, _>(key, (), change)
    }

    /// Stores a sorted set under `key`, replacing any value there, and records the event; removes
    /// the key if the set is empty. Returns its number of members.
    pub fn store_sorted_set(
        &mut self,
        key: &[u8],
        set: SortedSetEdit,
        event: &'static str,
    ) -> Result<u64, Failure> {
        let len = set.read()?.len()?;
        let image = (len > 0).then(|| set.into_image());
        let event = (EventClass::SortedSet, event);
        self.store_result::<SortedSetType>(key, image.as_deref(), event)?;
        Ok(len)
    }

    /// Stores a value of this image under `key`, replacing any value there, and records the event;
    /// `None`, for an empty value: removes the key.
    pub fn store_result<T: CollectionType>(
        &mut self,
        key: &[u8],
        image: Option<&[u8]>,
        (class, event): (EventClass, &'static str),
    ) -> Result<(), Failure> {
        if let Some(image) = image {
            self.put_collection::<T>(key, image, Expiry::Never)?;
            self.notify(class, event, key);
        } else if self.remove(key)? {
            self.notify(EventClass::Generic, "del", key);
        }
        Ok(())
    }

    /// Sets `field` of the hash under `key` to `value` in place, or in its leaf. Returns whether
    /// the field is new; `None`: that is not possible, and [`update_hash`](Self::update_hash) must
    /// do it.
    pub fn set_field(
        &mut self,
        key: &[u8],
        (field, value): (&[u8], &[u8]),
        limits: Limits,
    ) -> Result<Option<bool>, Failure> {
        if self.transaction.is_some() {
            return Ok(None);
        }
        let database = self.store.database(self.database)?;
        match mneme_collections::set_in_place(&database, key, (field, value), limits, true) {
            Err(CollectionError::WrongKind(wrong)) if wrong.found == LARGE_HASH => {
                let (is_new, _) =
                    self.edit_collection::<HashType, _>(key, Some(&[field]), |hash| {
                        let is_new = hash.set(field, value)?;
                        hash.convert(limits)?;
                        Ok((is_new, true))
                    })?;
                Ok(Some(is_new))
            }
            set => {
                let set = set?;
                if set.is_some() {
                    self.changed(key, Updated::Replaced);
                }
                Ok(set)
            }
        }
    }

    /// Makes `to`, a database and a key there, a copy of the large value under `key`, whose main
    /// record is `main`.
    pub fn copy_large(&mut self, main: Stored<'_>, to: (usize, &[u8])) -> Result<(), Failure> {
        let id = collection_of(main.value).ok_or_else(|| Failure::Store("no collection".into()))?;
        let copy = self.with_records(&[], |records, _| {
            Ok(mneme_collections::copy_collection(records, id)?)
        })?;
        let mut other = self.other(to.0);
        other.put_kind(to.1, &main_of(copy), main.kind, main.expiry)
    }

    /// The bytes of the collection under `key`, without the key's own record.
    pub fn bytes_led_to(&mut self, key: &[u8]) -> Result<u64, Failure> {
        self.with_records(&[], |records, database| {
            let anchor = mneme_collections::anchor_of(records, (database, key))?;
            Ok(anchor.map_or(0, |anchor| anchor.bytes.saturating_add(anchor.tree.bytes)))
        })
    }

    /// Runs `body`, with the number of this database, as
    /// [`atomically_on`](Self::atomically_on) does.
    fn with_records<R>(
        &mut self,
        keys: &[(usize, &[u8])],
        mut body: impl FnMut(&mut dyn StoreRecords, usize) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.atomically_on(keys, |keyspace| {
            let database = keyspace.database;
            match &mut keyspace.transaction {
                Some(transaction) => body(&mut **transaction, database),
                None => Err(Failure::Store("no transaction".into())),
            }
        })
    }
}
