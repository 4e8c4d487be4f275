//! Checks that values are valid for their kinds.

use mneme_log::{Cursor, DATABASES, Database, LogStore, ReadError};

use crate::collection_type::CollectionType;
use crate::error::{CollectionError, Damage};
use crate::hash_type::HashType;
use crate::keyed::{look_at_large, with_large};
use crate::list_type::ListType;
use crate::set_type::SetType;
use crate::sorted_set_type::SortedSetType;
use crate::{HASH, LIST, SET, SORTED_SET};

/// Keys that are checked between two calls of `goes_on`.
const STEP: usize = 64;
/// The maximum number of problems that are reported.
const MOST: usize = 100;

/// Reads every hash, set, list and sorted set of the store, while `goes_on`, and describes what is
/// wrong; at most 100 problems. Others may use the store meanwhile. It complements
/// [`LogStore::check`](mneme_log::LogStore::check), which checks records without interpreting their
/// values.
///
/// # Errors
/// Those of [`LogStore::get`](mneme_log::LogStore::get).
pub fn check_while(store: &LogStore, goes_on: &dyn Fn() -> bool) -> Result<Vec<String>, ReadError> {
    let mut problems = Vec::new();
    for number in 0..DATABASES {
        let database = store.database(number)?;
        let mut cursor = Cursor::START;
        while cursor != Cursor::END && problems.len() < MOST && goes_on() {
            let mut keys = Vec::new();
            cursor = database.scan_kinds(cursor, STEP, |key, kind| {
                if [HASH, SET, LIST, SORTED_SET].contains(&kind.packed()) {
                    keys.push((key.to_vec(), kind.packed()));
                }
            })?;
            for (key, kind) in keys {
                let at = (&database, &key[..]);
                let (name, checked) = match kind {
                    HASH => (
                        "hash",
                        check::<HashType>(at, |hash| hash.check(), |mut hash| hash.check())?,
                    ),
                    LIST => (
                        "list",
                        check::<ListType>(at, |list| list.check(), |mut list| list.check())?,
                    ),
                    SET => (
                        "set",
                        check::<SetType>(at, |set| set.check(), |mut set| set.check())?,
                    ),
                    _ => (
                        "sorted set",
                        check::<SortedSetType>(at, |set| set.check(), |mut set| set.check())?,
                    ),
                };
                if let Err(damage) = checked {
                    let key = key.escape_ascii();
                    problems.push(format!("database {number}, {name} \"{key}\": {damage}"));
                }
            }
        }
    }
    problems.truncate(MOST);
    Ok(problems)
}

/// Describes what is wrong with the value of a key, if it is of this type: the key may hold another
/// type by now, or be gone.
fn check<T: CollectionType>(
    (database, key): (&Database<'_>, &[u8]),
    of_packed: impl FnOnce(T::Packed<'_>) -> Result<(), Damage>,
    mut of_large: impl FnMut(T::Large<'_>) -> Result<(), CollectionError>,
) -> Result<Result<(), CollectionError>, ReadError> {
    match database.get_kind(key, T::KIND) {
        Ok(Some(value)) => Ok(T::read(&value)
            .and_then(of_packed)
            .map_err(CollectionError::from)),
        Ok(None) => Ok(Ok(())),
        Err(ReadError::WrongKind(_)) => Ok(check_large::<T>(database, key, &mut of_large)),
        Err(error) => Err(error),
    }
}

/// Describes what is wrong with the large value of a key, if it is still of this type.
fn check_large<T: CollectionType>(
    database: &Database<'_>,
    key: &[u8],
    mut check: impl FnMut(T::Large<'_>) -> Result<(), CollectionError>,
) -> Result<(), CollectionError> {
    if look_at_large::<T, _>(database, key, &mut check)?.is_some() {
        return Ok(());
    }
    let (none, at): ([(usize, &[u8]); 0], _) = ([], (database.number(), key));
    let checked = database.transaction_on(&none, |t| with_large::<T, _, _>(t, at, &mut check));
    checked.map(drop)
}
