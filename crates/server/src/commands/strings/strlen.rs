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
    let value = call.read(1)?;
    call.reply
        .integer(value.map_or(0, |value| value.len() as i64));
    Ok(())
}
