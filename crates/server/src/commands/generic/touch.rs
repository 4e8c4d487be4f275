//! `TOUCH key [key ...]`: reads the keys, so that they count as used, and tells how many are there.

use crate::commands::prelude::*;

pub(super) static TOUCH: Command = Command {
    name: "touch",
    summary: "Has keys count as used just now; counts those that are there",
    since: "3.2.1",
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
    let keys = call.args.from(1);
    let there = call.keyspace.atomically_if(keys.len() > 1, |keyspace| {
        keys.iter().try_fold(0, |there, key| {
            // Reading, not asking whether it is there, is what the store counts as use.
            Ok(there + i64::from(keyspace.read(key, |value| value.is_some())?))
        })
    })?;
    call.reply.integer(there);
    Ok(())
}
