//! The types of values, and how many keys have which, **of some keys that are drawn by lot**, each
//! as likely as any other: to count all of them would be to go through the whole store.

use std::collections::BTreeMap;

use mneme_collections::{HASH, LIST, SET, SORTED_SET};
use mneme_log::{Draw, Drawn, LogStore, ReadError, ValueKind};

/// Keys that are drawn: a type that every twentieth key has is missed once in half a million times.
const DRAWN: usize = 256;
/// Steps of drawing: where many keys were removed, a key may take several.
const STEPS: usize = 2 * DRAWN;

/// Redis's name for a kind of values.
pub(crate) fn type_name(kind: ValueKind) -> &'static str {
    match kind.packed() {
        HASH => "hash",
        SET => "set",
        LIST => "list",
        SORTED_SET => "zset",
        _ => "string",
    }
}

/// By type, keys that were drawn from a database.
pub(crate) fn drawn_types(
    store: &LogStore,
    database: usize,
) -> Result<BTreeMap<&'static str, usize>, ReadError> {
    let database = store.database(database)?;
    let (mut types, mut draw, mut left) = (BTreeMap::new(), Draw::default(), DRAWN);
    for _ in 0..STEPS {
        match database.draw(&mut draw)? {
            Drawn::Key(key) => {
                draw = Draw::default();
                // It may have gone meanwhile.
                if let Some(kind) = database.kind(&key)? {
                    *types.entry(type_name(kind)).or_default() += 1;
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            Drawn::Unfinished => {}
            Drawn::Nothing => break,
        }
    }
    Ok(types)
}
