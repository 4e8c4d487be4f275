//! `DEL key [key ...]`: removes keys and says how many there were.

use crate::command::*;

pub(super) static DEL: Command = Command {
    name: "del",
    summary: "Removes keys",
    since: "1.0.0",
    group: Group::Generic,
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Write],
    categories: &[Category::Keyspace],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    keys: &[KeySpec::all(&[KeyFlag::Remove, KeyFlag::Delete])],
    arguments: &[Argument::key("key").multiple()],
    run: remove,
    ..Command::BLANK
};

/// `UNLINK` is the same: removing a key never takes longer for a larger value.
pub(super) fn remove(call: &mut Call<'_>) -> Outcome {
    call.count_keys(|keyspace, key| keyspace.remove(key))
}
