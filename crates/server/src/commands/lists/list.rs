//! The common fields of commands on lists.

use crate::command::*;
use crate::keyspace::Keyspace;
use mneme_collections::{End, ListChange, ListType};
use mneme_log::Updated;

pub(super) const KEY: Argument = Argument::key("key");
pub(super) const ELEMENT: Argument = Argument::new("element", Kind::String);

/// The ends of a list, as words.
pub(super) const LEFT_OR_RIGHT: &[Argument] = &[
    Argument::word("left", "LEFT"),
    Argument::word("right", "RIGHT"),
];

/// The end that argument `index` names.
pub(super) fn end(call: &Call<'_>, index: usize) -> Result<End, Failure> {
    match (call.is(index, "LEFT"), call.is(index, "RIGHT")) {
        (true, _) => Ok(End::Front),
        (_, true) => Ok(End::Back),
        _ => Err(Failure::Syntax),
    }
}

/// Calls `change` to change the list under `key`, as [`Keyspace::update_collection`] does.
pub(super) fn update<R>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    change: impl FnMut(&mut ListChange<'_>) -> Result<(R, bool), Failure>,
) -> Result<(R, Updated), Failure> {
    keyspace.update_collection::<ListType, _>(key, (), change)
}
