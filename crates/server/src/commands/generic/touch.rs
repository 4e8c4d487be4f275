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
    // Reading, not asking whether it is there, is what the store counts as use. None of it is read:
    // that would keep a long value from being changed where it lies.
    call.count_keys(|keyspace, key| keyspace.contains(key))
}
