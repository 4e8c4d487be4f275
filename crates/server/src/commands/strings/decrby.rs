//! `DECRBY key decrement`: so many less.

use crate::command::*;

use super::arithmetic::increment;

pub(super) static DECRBY: Command = Command {
    name: "decrby",
    summary: "Subtracts from the integer in a key, which is 0 if it is not there",
    since: "1.0.0",
    group: Group::String,
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    categories: &[Category::String],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[
        Argument::key("key"),
        Argument::new("decrement", Kind::Integer),
    ],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let delta = call
        .integer(2)?
        .checked_neg()
        .ok_or(Failure::other("ERR decrement would overflow"))?;
    increment(call, delta)
}
