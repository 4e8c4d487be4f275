//! `DEL key [key ...]`: removes keys and says how many there were.

use crate::commands::prelude::*;

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
    let keys = call.args.from(1);
    let removed = call.keyspace.atomically_if(keys.len() > 1, |keyspace| {
        keys.iter().try_fold(0, |removed, key| {
            Ok(removed + i64::from(keyspace.remove(key)?))
        })
    })?;
    call.reply.integer(removed);
    Ok(())
}
