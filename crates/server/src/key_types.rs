//! The types of values, and how many keys have each, **for a random sample of keys**: counting all
//! keys would mean reading the whole store.

use std::collections::BTreeMap;

use mneme_collections::{HASH, LIST, SET, SORTED_SET};
use mneme_log::{Draw, Drawn, LogStore, ReadError, ValueKind};

/// The size of the sample: a type that every twentieth key has is missed once in half a million
/// times.
const DRAWN: usize = 256;
/// The maximum number of steps: if many keys were removed, finding a key may take several.
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

/// Keys sampled from a database, by type.
pub(crate) fn drawn_types(
    store: &LogStore,
    database: usize,
) -> Result<BTreeMap<&'static str, usize>, ReadError> {
    let database = store.database(database)?;
    Ok(types_of(
        |draw| database.draw(draw),
        |key| database.kind(key),
    ))
}

/// Keys sampled by `draw_step`, by type. Keys whose `kind` cannot be read are left out.
fn types_of(
    draw_step: impl Fn(&mut Draw) -> Result<Drawn, ReadError>,
    kind: impl Fn(&[u8]) -> Result<Option<ValueKind>, ReadError>,
) -> BTreeMap<&'static str, usize> {
    let (mut types, mut draw, mut left) = (BTreeMap::new(), Draw::default(), DRAWN);
    for _ in 0..STEPS {
        match draw_step(&mut draw) {
            Ok(Drawn::Key(key)) => {
                draw = Draw::default();
                match kind(&key) {
                    Ok(Some(kind)) => *types.entry(type_name(kind)).or_default() += 1,
                    // This took a second.
                    Err(ReadError::Stalled(_)) => break,
                    // The key may have been removed meanwhile.
                    Ok(None) | Err(_) => {}
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            Ok(Drawn::Unfinished) => {}
            Ok(Drawn::Nothing) | Err(_) => break,
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_read_is_left_out() {
        let drawn = std::cell::Cell::new(0);
        let draw_step = |_: &mut Draw| {
            drawn.set(drawn.get() + 1);
            Ok(Drawn::Key(vec![drawn.get() as u8]))
        };
        let kind = |key: &[u8]| match key[0] % 2 {
            0 => Err(ReadError::NoMemory(1)),
            _ => Ok(Some(ValueKind::STRING)),
        };
        let types = types_of(draw_step, kind);
        assert_eq!(types, BTreeMap::from([("string", DRAWN / 2)]));
    }
}
