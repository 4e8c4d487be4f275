//! `GETRANGE`, formerly `SUBSTR`, `key start end`: a part of a value.

use crate::command::*;
use crate::commands::range::Ends;

pub(super) static GETRANGE: Command = Command {
    name: "getrange",
    since: "2.4.0",
    ..BOTH
};

pub(super) static SUBSTR: Command = Command {
    name: "substr",
    since: "1.0.0",
    ..BOTH
};

const BOTH: Command = Command {
    summary: "Returns a part of the value of a key",
    complexity: "O(N) where N is the length of the part",
    arity: 4,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("start", Kind::Integer),
        Argument::new("end", Kind::Integer),
    ],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let ends = Ends {
        start: call.integer(2)?,
        end: call.integer(3)?,
    };
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let range = |len| match ends.within(len) {
        Some(range) if !ends.are_reversed() => range,
        _ => 0..0,
    };
    call.keyspace.read_part(key, range, |part| {
        reply.bulk(part.map_or(&[], |part| part.bytes))
    })
}
