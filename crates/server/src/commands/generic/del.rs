//! `DEL key [key ...]`: removes keys and returns how many existed.

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

/// The common fields of commands that reply with a number of keys.
pub(super) const COUNTED: Command = Command {
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::key("key").multiple()],
    ..Command::KEYSPACE
};

/// Also used by `UNLINK`: removing a key never takes longer for a larger value.
pub(super) fn remove(call: &mut Call<'_>) -> Outcome {
    call.count_keys(|keyspace, key| {
        let removed = keyspace.remove(key)?;
        if removed {
            keyspace.notify(EventClass::Generic, "del", key);
        }
        Ok(removed)
    })
}
