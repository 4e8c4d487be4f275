//! Which lane owns which keys.
//!
//! A *lane* is a sequence of threads: when one is killed, the next one continues with what was
//! under way. Each lane has names of its own, in a database that all use and in two of its own; and
//! an element of each shared record.

use std::ops::Range;

use mneme_log::ValueKind;

use super::collected;

/// Lanes.
pub const LANES: usize = 4;

/// Names of records of all sizes up to some KiB.
pub const MAIN: Range<usize> = 0..6000;
/// Names that only transactions change, [`TIED_TOGETHER`] of them at a time.
pub const TIED: Range<usize> = 6000..6032;
/// How many are always changed together.
pub const TIED_TOGETHER: usize = 4;
/// Names of records of up to some MiB.
pub const LARGE: Range<usize> = 6032..6044;
/// Names in the first of the lane's own two databases, and in the second.
pub const LEFT: Range<usize> = 6044..6204;
pub const RIGHT: Range<usize> = 6204..6364;
/// The lane's elements of shared records.
pub const SHARED: Range<usize> = 6364..6372;
/// Names of elements of the lane's collections.
pub const COLLECTED: Range<usize> = 6372..6372 + collected::NAMES;
/// The number of names of a lane.
pub const NAMES: usize = COLLECTED.end;

/// The database of the shared records.
pub const OF_ALL: usize = 63;
/// The database in which a listener marks how far it has drained. No lane uses it.
pub const MARK: usize = 62;

/// The name in values and keys: databases are swapped, so that a key of one may be the other's.
pub fn canonical(name: usize) -> usize {
    match name {
        name if RIGHT.contains(&name) => name - RIGHT.start + LEFT.start,
        name => name,
    }
}

/// The database that a name is in.
pub fn database(lane: usize, name: usize) -> usize {
    match name {
        name if LEFT.contains(&name) => 1 + 2 * lane,
        name if RIGHT.contains(&name) => 2 + 2 * lane,
        name if SHARED.contains(&name) => OF_ALL,
        _ => 0,
    }
}

/// The kind of a name's values: those in a lane's own databases are not strings.
pub fn value_kind(name: usize) -> ValueKind {
    let is_typed = LEFT.contains(&name) || RIGHT.contains(&name);
    // The kind of streams, so that no check looks for a hash there.
    ValueKind::new(5 * u8::from(is_typed)).unwrap()
}

/// The names that share the key of `name`: only that one, or all of a collection's elements.
pub fn together(name: usize) -> Range<usize> {
    match name.checked_sub(COLLECTED.start) {
        Some(nth) => {
            let of = collected::of_collection(nth);
            COLLECTED.start + of.start..COLLECTED.start + of.end
        }
        None => name..name + 1,
    }
}

/// The key of a name. Keys are of several lengths.
pub fn key(lane: usize, name: usize) -> Vec<u8> {
    let name = canonical(together(name).start);
    let lane = if SHARED.contains(&name) { LANES } else { lane };
    let mut key = vec![lane as u8];
    key.extend_from_slice(&(name as u32).to_le_bytes());
    key.resize(5 + name % 23, b'.');
    key
}

/// The owner of a key: lane and name. For a shared record only the name counts; of a collection's
/// elements it is the first one's.
pub fn owner(database: usize, its: &[u8]) -> Option<(usize, usize)> {
    let lane = usize::from(*its.first()?);
    let mut name = u32::from_le_bytes(its.get(1..5)?.try_into().ok()?) as usize;
    if LEFT.contains(&name) && database == self::database(lane, RIGHT.start) {
        name = name - LEFT.start + RIGHT.start;
    }
    let own = if SHARED.contains(&name) { 0 } else { lane };
    let known = own < LANES && name < NAMES;
    (known && self::database(own, name) == database && key(own, name) == its).then_some((own, name))
}

/// All databases that are in use.
pub fn databases() -> impl Iterator<Item = usize> {
    (0..=2 * LANES).chain([OF_ALL])
}

#[test]
fn every_key_has_one_owner() {
    let mut seen = std::collections::HashSet::new();
    for lane in 0..LANES {
        for name in (0..NAMES).filter(|name| lane == 0 || !SHARED.contains(name)) {
            let (database, key) = (database(lane, name), key(lane, name));
            let first = together(name).start;
            assert_eq!(owner(database, &key), Some((lane, first)));
            assert!(seen.insert((database, key)) || name != first);
        }
    }
    assert_eq!(owner(0, &key(0, LEFT.start)), None);
    assert_eq!(owner(3, &key(0, LEFT.start)), None);
}
