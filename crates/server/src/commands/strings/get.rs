//! `GET key`: the value of a key, or null.

use crate::command::*;

pub(super) static GET: Command = Command {
    name: "get",
    summary: "Returns the value of a key",
    since: "1.0.0",
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key")],
    batching: Some(Batching::Value),
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read(key, |value| reply.value(value))
}
