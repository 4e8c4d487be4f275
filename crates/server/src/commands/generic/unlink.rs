//! `UNLINK key [key ...]`: removes keys and says how many there were.

use crate::command::*;

pub(super) static UNLINK: Command = Command {
    name: "unlink",
    summary: "Removes keys; their memory is reclaimed in the background, as it always is",
    since: "4.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    categories: &[Category::Keyspace],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    keys: &[KeySpec::all(&[KeyFlag::Remove, KeyFlag::Delete])],
    arguments: &[Argument::key("key").multiple()],
    run: super::del::remove,
    ..Command::BLANK
};
