//! `MSET key value [key value ...]`: stores several values.
//!
//! Each key by itself is atomic. All of them together are not yet: another client may see some of the new values before
//! the others, and a store that is full keeps those stored before it was.

use crate::commands::prelude::*;

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
    batching: Some(Batching::Pairs),
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Failure::WrongArity("mset"));
    }
    let database = call.database()?;
    for key in (1..call.args.len()).step_by(2) {
        database.put(call.args.at(key), call.args.at(key + 1))?;
    }
    call.reply.ok();
    Ok(())
}
