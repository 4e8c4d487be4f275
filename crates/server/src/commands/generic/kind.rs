//! `TYPE key`: what kind of value a key holds.

use crate::command::*;

pub(super) static TYPE: Command = Command {
    name: "type",
    summary: "Returns the type of the value of a key",
    since: "1.0.0",
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::KEYSPACE
};

fn run(call: &mut Call<'_>) -> Outcome {
    let there = call.keyspace.contains(call.args.at(1))?;
    call.reply.simple(if there { "string" } else { "none" });
    Ok(())
}
