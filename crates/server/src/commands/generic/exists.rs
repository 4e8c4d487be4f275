//! `EXISTS key [key ...]`: how many of the keys are there; one named twice counts twice.

use crate::command::*;

pub(super) static EXISTS: Command = Command {
    name: "exists",
    summary: "Counts which of the keys are there",
    since: "1.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Readonly, Flag::Fast],
    categories: &[Category::Keyspace],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key").multiple()],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.count_keys(|keyspace, key| keyspace.contains(key))
}
