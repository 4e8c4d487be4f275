//! `STRLEN key`: the length of a value.

use crate::commands::prelude::*;

pub(super) static STRLEN: Command = Command {
    name: "strlen",
    summary: "Returns the length of a key's value in bytes",
    since: "2.2.0",
    group: Group::String,
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    categories: &[Category::String],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let len = call
        .keyspace
        .read(call.args.at(1), |value| value.map_or(0, <[u8]>::len))?;
    call.reply.integer(len as i64);
    Ok(())
}
