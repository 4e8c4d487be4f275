//! Values of a type by their keys: packed while small, and large beyond that.

use std::marker::PhantomData;

use mneme_log::{
    Anchor, Database, Decision, Elements, Expiry, ReadError, Stored, Transaction, Updated,
    WriteError, collection_of, main_of,
};

use crate::collection_type::{CollectionType, LargeEdit};
use crate::error::{CollectionError, Damage};
use crate::large_list::LargeList;
use crate::leaves::Leaves;
use crate::open_value;
use crate::packed::{Packed, Pair, Step};
use crate::records::StoreRecords;

/// The longest image, in bytes, that stays packed even though Redis would no longer keep the value
/// as a listpack or an intset; a longer one becomes large. A list has another limit.
pub const MAX_PACKED: usize = 4096;

/// Calls `work` with the large value under `key`. `None`: there is none of this type.
///
/// # Errors
/// The store cannot be read; those of `work`.
pub fn with_large<T: CollectionType, R, E: From<CollectionError>>(
    records: &mut dyn StoreRecords,
    (database, key): (usize, &[u8]),
    work: impl FnOnce(T::Large<'_>) -> Result<R, E>,
) -> Result<Option<R>, E> {
    let store = |error: WriteError| E::from(error.into());
    let mut id = None;
    let mut visit = |stored: Option<Stored<'_>>| {
        id = stored.and_then(|of| (of.kind == T::KIND.large()).then(|| id_of(of.value)));
    };
    records.read(database, key, &mut visit).map_err(store)?;
    match id.transpose().map_err(CollectionError::from)? {
        Some(id) => Ok(Some(work(T::open(records, id)?)?)),
        None => Ok(None),
    }
}

/// Calls `work` with the large value under `key`, as of one instant, without a transaction. `work`
/// only reads, and may be called again: its last result counts. `None`: there is no large value of
/// this type, or it must be read by a transaction.
///
/// # Errors
/// The store cannot be read; those of `work`.
pub fn look_at_large<T: CollectionType, R>(
    database: &Database<'_>,
    key: &[u8],
    mut work: impl FnMut(T::Large<'_>) -> Result<R, CollectionError>,
) -> Result<Option<R>, CollectionError> {
    let looked = database.look(key, T::KIND.large(), |look| {
        let id = look.id();
        work(T::open(look, id)?)
    });
    looked.map_err(CollectionError::from)?.transpose()
}

/// The anchor of the collection under `key`, of whatever type. `None`: there is none.
///
/// # Errors
/// The store cannot be read, or the value is damaged.
pub fn anchor_of(
    records: &mut dyn StoreRecords,
    (database, key): (usize, &[u8]),
) -> Result<Option<Anchor>, CollectionError> {
    let mut id = None;
    records.read(database, key, &mut |stored| {
        id = stored.and_then(|of| of.kind.is_large().then(|| id_of(of.value)));
    })?;
    match id.transpose()? {
        Some(id) => Ok(records.anchor(id)?),
        None => Ok(None),
    }
}

/// Calls `change` to change the value under `key`, which is empty if there is none; `change`
/// returns whether it did. It may change only the `wanted` elements. If the value is empty
/// afterwards, its key is removed. Returns the result of `change`, and what became of the key. If
/// `change` fails and the transaction continues all the same, changes made so far to a large set,
/// sorted set or list remain.
///
/// # Errors
/// The key holds a value of another kind; the store cannot be read, or has no space; those of
/// `change`.
pub fn edit<T: CollectionType, R, E: From<CollectionError>>(
    records: &mut dyn StoreRecords,
    (database, key): (usize, &[u8]),
    wanted: T::Wanted<'_>,
    change: impl FnOnce(&mut T::Edit<'_>) -> Result<(R, bool), E>,
) -> Result<(R, Updated), E> {
    let store = |error: WriteError| E::from(error.into());
    let mut found = None;
    let mut visit = |stored: Option<Stored<'_>>| {
        found = stored.map(|of| (of.kind, of.value.to_vec(), of.expiry));
    };
    records.read(database, key, &mut visit).map_err(store)?;
    let (old, expiry) = match found {
        Some((kind, main, _)) if kind == T::KIND.large() => {
            let id = id_of(&main).map_err(CollectionError::from)?;
            let (result, edit) = T::edit(T::open(records, id)?, wanted, change)?;
            let updated = match edit {
                LargeEdit::Kept => Updated::Kept,
                LargeEdit::Changed => {
                    records.touch(database, key).map_err(store)?;
                    Updated::Replaced
                }
                LargeEdit::Emptied => {
                    records.remove(database, key).map_err(store)?;
                    Updated::Removed
                }
            };
            return Ok((result, updated));
        }
        Some((kind, image, expiry)) if kind == T::KIND => (Some(image), expiry),
        Some((kind, ..)) => {
            return Err(CollectionError::WrongKind(mneme_log::WrongKind::of(kind)).into());
        }
        None => (None, Expiry::Never),
    };
    let (result, decision) = T::decide(old.as_deref(), None, change)?;
    let (image, expiry) = match decision {
        Decision::Keep if old.is_some() => return Ok((result, Updated::Kept)),
        Decision::Keep => return Ok((result, Updated::Absent)),
        Decision::Remove => {
            let updated = match records.remove(database, key).map_err(store)? {
                true => Updated::Removed,
                false => Updated::Absent,
            };
            return Ok((result, updated));
        }
        Decision::Replace(image) => (image, expiry),
        Decision::ReplaceUntil(image, expiry) => (image, expiry),
    };
    put::<T>(records, (database, key), &image, expiry)?;
    let updated = match old {
        Some(_) => Updated::Replaced,
        None => Updated::Inserted,
    };
    Ok((result, updated))
}

/// Keeps the first large value open that `transaction` reads. It has to be
/// [closed](close_value) before the transaction ends, and only [`edit`] may change it
/// until then.
pub fn keep_open(transaction: &mut Transaction<'_>) {
    open_value::begin(transaction);
}

/// Stores what `transaction` has in memory of a large value.
///
/// # Errors
/// The value is damaged, or there is no space: the transaction is to be given up.
pub fn close_value(transaction: &mut Transaction<'_>) -> Result<(), CollectionError> {
    if let Some(id) = open_value::waiting_list(transaction) {
        let mut list = LargeList::open(transaction, id)?;
        list.store_ends()?;
        list.finish()?;
    }
    Ok(open_value::close(transaction)?)
}

/// Stores a value of this image under `key`, replacing whatever is there: packed, or large if it is
/// too long for that.
///
/// # Errors
/// The image is damaged; there is no space.
pub fn put<T: CollectionType>(
    records: &mut dyn StoreRecords,
    (database, key): (usize, &[u8]),
    image: &[u8],
    expiry: Expiry,
) -> Result<(), CollectionError> {
    if !T::outgrows(image)? {
        return Ok(records.put(database, key, image, (T::KIND, expiry))?);
    }
    let id = records.new_collection();
    T::build(records, id, image)?;
    let kind = (T::KIND.large(), expiry);
    Ok(records.put(database, key, &main_of(id), kind)?)
}

/// The id in a main record's value.
fn id_of(main: &[u8]) -> Result<u64, Damage> {
    let what = "a large value that is no id";
    collection_of(main).ok_or(Damage { at: 0, what })
}

/// A value as an operation gets it.
pub enum Form<P, L> {
    /// The whole value.
    Packed(P),
    /// What was read of a large value.
    Large(L),
}

impl<const ENTRIES: usize> Form<Packed<'_, ENTRIES>, (Vec<u8>, u64)> {
    /// A step of a scan, as [`Packed::scan`]; of a large value, this is what [`Leaves::view_from`]
    /// has read.
    ///
    /// # Errors
    /// The value is damaged.
    pub fn scan(&self, cursor: u64, count: usize) -> Result<Step<'_>, Damage> {
        match self {
            Form::Packed(packed) => packed.scan(cursor, count),
            Form::Large((image, next)) => Ok(Step {
                pairs: Packed::<ENTRIES>::read(image)?
                    .pairs()
                    .collect::<Result<_, _>>()?,
                next: *next,
            }),
        }
    }
}

/// A typed value under a key of a database, for local programs.
pub(crate) struct KeyedValue<'s, 'k, T> {
    pub database: Database<'s>,
    pub key: &'k [u8],
    of: PhantomData<T>,
}

impl<T> Clone for KeyedValue<'_, '_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for KeyedValue<'_, '_, T> {}

impl<'s, 'k, T: CollectionType> KeyedValue<'s, 'k, T> {
    pub fn new(database: Database<'s>, key: &'k [u8]) -> Self {
        let of = PhantomData;
        KeyedValue { database, key, of }
    }

    /// Calls `visit` with the value: all of a packed one, or the result of `of_large` for a large
    /// one; `None`: there is no key. `of_large` may be called again: only the last call counts.
    pub fn read<L, R>(
        &self,
        mut of_large: impl FnMut(T::Large<'_>) -> Result<L, CollectionError>,
        visit: impl FnOnce(Option<Form<T::Packed<'_>, L>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError> {
        let none: [(usize, &[u8]); 0] = [];
        let at = (self.database.number(), self.key);
        loop {
            match self.database.get_kind(self.key, T::KIND) {
                Err(ReadError::WrongKind(wrong)) if wrong.found == T::KIND.large() => {}
                value => {
                    let value = value?;
                    let packed = value.as_deref().map(T::read).transpose()?;
                    return visit(packed.map(Form::Packed));
                }
            }
            if let Some(said) = look_at_large::<T, _>(&self.database, self.key, &mut of_large)? {
                return visit(Some(Form::Large(said)));
            }
            // The value may have become something else meanwhile.
            let said = (self.database)
                .transaction_on(&none, |t| with_large::<T, _, _>(t, at, &mut of_large))?;
            if let Some(said) = said {
                return visit(Some(Form::Large(said)));
            }
        }
    }

    /// Calls `visit` with at least those of `fields` that a hash or a set has; `None`: with all.
    pub fn view<R, const ENTRIES: usize>(
        &self,
        fields: Option<&[&[u8]]>,
        visit: impl FnOnce(Option<Packed<'_, ENTRIES>>) -> Result<R, CollectionError>,
    ) -> Result<R, CollectionError>
    where
        T: for<'r> CollectionType<
                Packed<'r> = Packed<'r, ENTRIES>,
                Large<'r> = Leaves<'r, ENTRIES>,
            >,
    {
        self.read(
            |mut large| large.view(fields),
            |value| match value {
                Some(Form::Packed(packed)) => visit(Some(packed)),
                Some(Form::Large(image)) => visit(Some(Packed::read(&image)?)),
                None => visit(None),
            },
        )
    }

    /// A step of a scan of a hash or a set: the results of `of` for the elements, and the next
    /// cursor.
    pub fn scan<R, const ENTRIES: usize>(
        &self,
        cursor: u64,
        count: usize,
        of: impl FnMut(&Pair<'_>) -> R,
    ) -> Result<(Vec<R>, u64), CollectionError>
    where
        T: for<'r> CollectionType<
                Packed<'r> = Packed<'r, ENTRIES>,
                Large<'r> = Leaves<'r, ENTRIES>,
            >,
    {
        self.read(
            |mut large| large.view_from(cursor, count),
            |value| {
                let Some(value) = value else {
                    return Ok((Vec::new(), 0));
                };
                let step = value.scan(cursor, count)?;
                Ok((step.pairs.iter().map(of).collect(), step.next))
            },
        )
    }

    /// Calls `change` to change the value, atomically, as [`edit`] does. It may be called again:
    /// only the last call counts.
    pub fn edit<R>(
        &self,
        locking: Locking,
        wanted: T::Wanted<'_>,
        mut change: impl FnMut(&mut T::Edit<'_>) -> Result<(R, bool), CollectionError>,
    ) -> Result<R, CollectionError> {
        match edit_packed::<T, _, _>(&self.database, self.key, locking, &mut change)? {
            Some((result, _)) => Ok(result),
            None => self.edit_large(wanted, change),
        }
    }

    /// As [`edit`](Self::edit), but by a transaction, which can also change large values.
    pub fn edit_large<R>(
        &self,
        wanted: T::Wanted<'_>,
        mut change: impl FnMut(&mut T::Edit<'_>) -> Result<(R, bool), CollectionError>,
    ) -> Result<R, CollectionError> {
        // The records of a large value are not known before its key is read, so nothing can be
        // locked in advance.
        let none: [(usize, &[u8]); 0] = [];
        let at = (self.database.number(), self.key);
        let (result, _) = (self.database)
            .transaction_on(&none, |t| edit::<T, _, _>(t, at, wanted, &mut change))?;
        Ok(result)
    }
}

/// What a change locks while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locking {
    /// The value's key: others wait to change it. So the value is looked up once, and not copied to
    /// be compared. Such a change is short, does not use the store and does not panic.
    Key,
    /// Nothing. It runs again if another writer interferes.
    Nothing,
}

impl Locking {
    /// The most elements that a change may name which locks its key.
    const FEW: usize = 8;

    /// What a change of so many elements locks.
    #[must_use]
    pub fn of(elements: usize) -> Locking {
        match elements <= Locking::FEW {
            true => Locking::Key,
            false => Locking::Nothing,
        }
    }
}

/// Calls `change` to change the value under `key`, as [`edit`] does, without a transaction.
/// `change` may be called again: the last call counts. `None`: the value is large, or has to become
/// large: nothing was changed, and [`edit`] does it.
///
/// # Errors
/// As for [`edit`].
pub fn edit_packed<T: CollectionType, R, E: From<CollectionError>>(
    database: &Database<'_>,
    key: &[u8],
    locking: Locking,
    mut change: impl FnMut(&mut T::Edit<'_>) -> Result<(R, bool), E>,
) -> Result<Option<(R, Updated)>, E> {
    let (mut result, mut is_large) = (None, false);
    let mut decide = |old: Option<&[u8]>, elements: &mut Elements| {
        let (decided, decision);
        (decided, decision, is_large) = decide_packed::<T, _, _>(old, elements, &mut change);
        result = Some(decided);
        decision
    };
    let held = match locking {
        Locking::Key => database.edit_in_place(key, T::KIND, |old, edit| {
            match decide(Some(old), edit.elements()) {
                Decision::Keep => Some(false),
                Decision::Replace(new) => {
                    edit.replace(old, new);
                    Some(true)
                }
                Decision::Remove | Decision::ReplaceUntil(..) => None,
            }
        }),
        Locking::Nothing => Ok(None),
    };
    let updated = match held {
        Ok(None) => database.update_elements(key, T::KIND, |stored, elements| {
            decide(stored.map(|stored| stored.value), elements)
        }),
        Ok(Some(updated)) => Ok(updated),
        Err(error) => Err(error),
    };
    let updated = match updated {
        Err(WriteError::WrongKind(wrong)) if wrong.found == T::KIND.large() => return Ok(None),
        updated => updated.map_err(|error| E::from(error.into()))?,
    };
    if is_large {
        return Ok(None);
    }
    let undecided = || E::from(WriteError::Reap("an update has decided nothing".into()).into());
    let result = result.unwrap_or_else(|| Err(undecided()))?;
    Ok(Some((result, updated)))
}

/// Returns the result of `change` for a packed value, what to do with its key, and whether the
/// value must become large: then the key must be left alone for now.
fn decide_packed<T: CollectionType, R, E: From<CollectionError>>(
    old: Option<&[u8]>,
    elements: &mut Elements,
    change: impl FnOnce(&mut T::Edit<'_>) -> Result<(R, bool), E>,
) -> (Result<R, E>, Decision, bool) {
    let decided = T::decide(old, Some(elements), change).and_then(|(result, decision)| {
        let outgrows = match &decision {
            Decision::Replace(image) => T::outgrows(image).map_err(CollectionError::from)?,
            _ => false,
        };
        Ok((result, decision, outgrows))
    });
    match decided {
        Ok((result, _, true)) => (Ok(result), Decision::Keep, true),
        Ok((result, decision, false)) => (Ok(result), decision, false),
        Err(error) => (Err(error), Decision::Keep, false),
    }
}
