//! `TYPE key`: the kind of value under a key.

use crate::command::*;
use crate::key_types::type_name;

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
    let kind = call.keyspace.kind(call.args.at(1))?;
    call.keyspace.count_of(call.args.at(1), kind.is_some());
    call.reply.simple(kind.map_or("none", type_name));
    Ok(())
}
