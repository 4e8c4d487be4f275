//! Whether values are what their kinds say.

use mneme_log::{Cursor, DATABASES, LogStore, ReadError};

use crate::HASH;
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
                if kind == HASH {
                    keys.push(key.to_vec());
                }
            })?;
            for key in keys {
                // It may have become another value, or none.
                let value = match database.get_kind(&key, HASH) {
                    Ok(Some(value)) => value,
                    Ok(None) | Err(ReadError::WrongKind(_)) => continue,
                    Err(error) => return Err(error),
                };
                let checked = PackedHash::read(&value).and_then(|hash| hash.check());
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
