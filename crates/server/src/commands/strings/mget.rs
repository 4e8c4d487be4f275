//! `MGET key [key ...]`: the values of several keys.

use crate::commands::prelude::*;

pub(super) static MGET: Command = Command {
    name: "mget",
    summary: "Returns the values of several keys",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Readonly, Flag::Fast],
    categories: &[Category::String],
    tips: &["request_policy:multi_shard"],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key").multiple()],
    batching: Some(Batching::Values),
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for index in 1..call.args.len() {
        let value = call.read(index)?;
        call.reply.value(value.as_deref());
    }
    Ok(())
}
