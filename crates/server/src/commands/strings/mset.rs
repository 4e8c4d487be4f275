//! `MSET key value [key value ...]`: stores several values at one instant.

use crate::commands::prelude::*;
use mneme_log::Expiry;

pub(super) static MSET: Command = Command {
    name: "mset",
    summary: "Sets several keys to several values",
    since: "1.0.1",
    group: Group::String,
    complexity: "O(N) where N is the number of keys",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    categories: &[Category::String],
    tips: &[
        "request_policy:multi_shard",
        "response_policy:all_succeeded",
    ],
    keys: &[KeySpec::pairs(&[KeyFlag::Overwrite, KeyFlag::Update])],
    arguments: &[Argument::block(
        "key_value",
        &[Argument::key("key"), Argument::new("value", Kind::String)],
    )
    .multiple()],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Failure::WrongArity("mset"));
    }
    let args = call.args;
    call.keyspace.atomically(|keyspace| {
        (1..args.len())
            .step_by(2)
            .try_for_each(|key| keyspace.put(args.at(key), args.at(key + 1), Expiry::Never))
    })?;
    call.reply.ok();
    Ok(())
}
