//! Elements of collections: none here. `mneme-collections`, whose storm consists of these same
//! files, has others in place of this one.

use std::ops::Range;

use mneme_log::LogStore;
use mneme_testkit::Random;

use super::expected::State;
use super::lane::Lane;

/// The number of their names.
pub const NAMES: usize = 0;
/// Bytes of the index that remain when all of them are gone.
pub const INDEX: u64 = 0;
/// The prefixes of the points at which a participant has to die; none: at all except the spared
/// ones.
pub const POINTS: &[&str] = &[];

/// The names of the collection that the `nth` of them belongs to.
pub fn of_collection(nth: usize) -> Range<usize> {
    nth..nth + 1
}

/// Whether the next operation of a lane, or of a reader, is on a collection.
pub fn is_next(_: &mut Random) -> bool {
    false
}

/// Whether the state of a name has the number of a change.
pub fn is_numbered(_: usize) -> bool {
    true
}

/// The state of a name.
pub fn look(_: &LogStore, _: usize, _: usize) -> Result<Option<State>, String> {
    Ok(None)
}

/// Reads all collections of a lane, each as a whole.
pub fn read_all(_: &LogStore, _: usize) -> Result<(), String> {
    Ok(())
}

/// The store has this number of collections, and is sound beyond what the log checks.
pub fn check(_: &LogStore, collections: u64) -> Result<(), String> {
    match collections {
        0 => Ok(()),
        some => Err(format!("{some} collections")),
    }
}

impl Lane<'_> {
    /// One operation on a collection.
    pub fn step_collected(&mut self) {}
}
