//! Hashes by their keys, within a transaction: packed where they are small, else large.

use mneme_log::{Decision, Stored, Transaction, Updated, WriteError, collection_of, main_of};

use crate::HASH;
use crate::error::{Damage, HashError};
use crate::hash_edit::HashEdit;
use crate::large_hash::{CollectionRecords, LARGE_HASH, LargeEdit, LargeHash, MAX_FIELD};
use crate::packed_hash::PackedHash;

/// The longest image of a hash, in bytes, that is packed although Redis would keep it as a table:
/// one that would be longer becomes a large hash. One that Redis would keep as a listpack stays
/// packed, for its fields come in the order in which they were set.
pub const MAX_PACKED: usize = 2048;

/// Whether a hash of this image is to become a large one. O(1) for most.
///
/// # Errors
/// The image is damaged.
pub fn outgrows(image: &[u8]) -> Result<bool, Damage> {
    if image.len() <= MAX_PACKED {
        return Ok(false);
    }
    let hash = PackedHash::read(image)?;
    if !hash.is_table() {
        return Ok(false);
    }
    // A field that is too long for a large hash keeps it packed.
    let mut pairs = hash.pairs();
    let is_long = |field: usize| field > MAX_FIELD;
    pairs.try_fold(true, |fits, pair| {
        Ok(fits && !is_long(pair?.field.string_len()))
    })
}

/// Calls `work` with the large hash that `key` leads to. `None`: it leads to none.
///
/// # Errors
/// The store cannot be read; those of `work`.
pub fn with_large_hash<R, E: From<HashError>>(
    transaction: &mut Transaction<'_>,
    (database, key): (usize, &[u8]),
    work: impl FnOnce(LargeHash<'_>) -> Result<R, E>,
) -> Result<Option<R>, E> {
    let mut read = || -> Result<Option<u64>, HashError> {
        let main = |stored: Stored<'_>| (stored.kind == LARGE_HASH).then(|| id_of(stored.value));
        let mut records = transaction.database(database)?;
        let found = records.read(key, |stored| stored.and_then(main))?;
        Ok(found.transpose()?)
    };
    match read()? {
        Some(id) => Ok(Some(work(LargeHash::open(transaction, id)?)?)),
        None => Ok(None),
    }
}

/// Lets `change` change the hash under `key`, which is empty where there is none, and say whether
/// it did. `change` gets those of `fields` that the hash has, or more, and changes no other;
/// `None`: all. A hash that is empty afterwards is removed with its key. Returns the result of
/// `change`, and what became of the key.
///
/// # Errors
/// The key holds a value of another kind; the store cannot be read, or has no space; those of
/// `change`.
pub fn edit_hash<R, E: From<HashError>>(
    transaction: &mut Transaction<'_>,
    (database, key): (usize, &[u8]),
    fields: Option<&[&[u8]]>,
    change: impl FnOnce(&mut HashEdit) -> Result<(R, bool), E>,
) -> Result<(R, Updated), E> {
    let store = |error: WriteError| E::from(HashError::from(error));
    let read = |stored: Stored<'_>| (stored.kind, stored.value.to_vec(), stored.expiry);
    let mut records = transaction.database(database).map_err(store)?;
    let found = records
        .read(key, |stored| stored.map(read))
        .map_err(store)?;
    let (old, expiry) = match found {
        Some((LARGE_HASH, main, _)) => {
            let id = id_of(&main).map_err(HashError::from)?;
            let (result, edit) = LargeHash::open(transaction, id)?.edit(fields, change)?;
            let mut records = transaction.database(database).map_err(store)?;
            let updated = match edit {
                LargeEdit::Kept => Updated::Kept,
                LargeEdit::Changed => {
                    records.touch(key).map_err(store)?;
                    Updated::Replaced
                }
                LargeEdit::Emptied => {
                    records.remove(key).map_err(store)?;
                    Updated::Removed
                }
            };
            return Ok((result, updated));
        }
        Some((HASH, image, expiry)) => (Some(image), expiry),
        Some((kind, ..)) => return Err(HashError::WrongKind(mneme_log::WrongKind::of(kind)).into()),
        None => (None, mneme_log::Expiry::Never),
    };
    let (result, decision) =
        HashEdit::decide(old.as_deref(), None, |hash| change(hash).map_err(Both::Of)).map_err(
            |error| match error {
                Both::Of(error) => error,
                Both::Damage(damage) => HashError::from(damage).into(),
            },
        )?;
    let image = match decision {
        Decision::Keep if old.is_some() => return Ok((result, Updated::Kept)),
        Decision::Keep => return Ok((result, Updated::Absent)),
        Decision::Remove => {
            let mut records = transaction.database(database).map_err(store)?;
            let updated = match records.remove(key).map_err(store)? {
                true => Updated::Removed,
                false => Updated::Absent,
            };
            return Ok((result, updated));
        }
        Decision::Replace(image) | Decision::ReplaceUntil(image, _) => image,
    };
    let (value, kind) = match outgrows(&image).map_err(HashError::from)? {
        false => (image, HASH),
        true => {
            let id = CollectionRecords::new_collection(transaction);
            LargeHash::build(transaction, id, &image)?.finish()?;
            (main_of(id).to_vec(), LARGE_HASH)
        }
    };
    let mut records = transaction.database(database).map_err(store)?;
    records.put_kind(key, &value, kind, expiry).map_err(store)?;
    let updated = match old {
        Some(_) => Updated::Replaced,
        None => Updated::Inserted,
    };
    Ok((result, updated))
}

/// Damage, or an error of a caller's closure.
enum Both<E> {
    Of(E),
    Damage(Damage),
}

impl<E> From<Damage> for Both<E> {
    fn from(damage: Damage) -> Self {
        Both::Damage(damage)
    }
}

/// The id that the value of a main is.
fn id_of(main: &[u8]) -> Result<u64, Damage> {
    let what = "a large hash that is no id";
    collection_of(main).ok_or(Damage { at: 0, what })
}
