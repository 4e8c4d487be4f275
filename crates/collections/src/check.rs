//! Whether values are what their kinds say.

use mneme_log::{Cursor, DATABASES, Database, LogStore, ReadError};

use crate::HASH;
use crate::error::CollectionError;
use crate::hash_type::HashType;
use crate::keyed::with_large;
use crate::packed_hash::PackedHash;

/// Keys that are looked at between two questions whether to go on.
const STEP: usize = 64;
/// Problems that are reported.
const MOST: usize = 100;

/// Reads every hash of the store, while `goes_on`, and says what is wrong, in words; at most 100
/// things. Others may use the store meanwhile. It is what
/// [`LogStore::check`](mneme_log::LogStore::check) does not know: that walks records whatever they
/// are.
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
                if kind.packed() == HASH {
                    keys.push(key.to_vec());
                }
            })?;
            for key in keys {
                // It may have become another value, or none.
                let checked = match database.get_kind(&key, HASH) {
                    Ok(Some(value)) => PackedHash::read(&value)
                        .and_then(|hash| hash.check())
                        .map_err(CollectionError::from),
                    Ok(None) => continue,
                    Err(ReadError::WrongKind(_)) => check_large(&database, &key),
                    Err(error) => return Err(error),
                };
                if let Err(damage) = checked {
                    let key = key.escape_ascii();
                    problems.push(format!("database {number}, hash \"{key}\": {damage}"));
                }
            }
        }
    }
    problems.truncate(MOST);
    Ok(problems)
}

/// What is wrong with the large hash that a key leads to, if it leads to one.
fn check_large(database: &Database<'_>, key: &[u8]) -> Result<(), CollectionError> {
    let keys: [(usize, &[u8]); 0] = [];
    let at = (database.number(), key);
    database
        .transaction_on(&keys, |t| {
            with_large::<HashType, _, _>(t, at, |mut hash| hash.check())
        })
        .map(drop)
}
