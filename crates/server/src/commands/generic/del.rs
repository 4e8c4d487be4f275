//! `DEL key [key ...]`: removes keys and says how many there were.

use crate::command::*;

pub(super) static DEL: Command = Command {
    name: "del",
    summary: "Removes keys",
    since: "1.0.0",
    flags: &[Flag::Write],
    keys: &[KeySpec::all(&[KeyFlag::Remove, KeyFlag::Delete])],
    run: remove,
    ..COUNTED
};

/// What the commands have in common that reply with a number of keys.
pub(super) const COUNTED: Command = Command {
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::key("key").multiple()],
    ..Command::KEYSPACE
};

/// `UNLINK` is the same: removing a key never takes longer for a larger value.
pub(super) fn remove(call: &mut Call<'_>) -> Outcome {
    call.count_keys(|keyspace, key| keyspace.remove(key))
}
