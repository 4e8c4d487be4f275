//! `STRLEN key`: the length of a value.

use crate::command::*;

pub(super) static STRLEN: Command = Command {
    name: "strlen",
    summary: "Returns the length of a key's value in bytes",
    since: "2.2.0",
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let len = call.keyspace.read_part(
        call.args.at(1),
        |_| 0..0,
        |part| part.map_or(0, |part| part.len),
    )?;
    call.reply.integer(len as i64);
    Ok(())
}
