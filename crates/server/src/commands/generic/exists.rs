//! `EXISTS key [key ...]`: the number of keys that exist; a key named twice counts twice.

use crate::command::*;

pub(super) static EXISTS: Command = Command {
    name: "exists",
    summary: "Counts which of the keys are there",
    since: "1.0.0",
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly])],
    run,
    ..super::del::COUNTED
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.count_keys(|keyspace, key| keyspace.contains(key))
}
