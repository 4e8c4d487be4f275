//! `TOUCH key [key ...]`: reads the keys, so that they count as used, and returns how many exist.

use crate::command::*;

pub(super) static TOUCH: Command = Command {
    name: "touch",
    summary: "Has keys count as used just now; counts those that are there",
    since: "3.2.1",
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly])],
    run,
    ..super::del::COUNTED
};

fn run(call: &mut Call<'_>) -> Outcome {
    // The store counts reads as use, but not checks for existence. No bytes are read: that would
    // prevent changing a long value in place.
    call.count_keys(|keyspace, key| keyspace.contains(key))
}
