//! `INCR key`: one more.

use crate::command::*;

use super::arithmetic::increment;

pub(super) static INCR: Command = Command {
    name: "incr",
    summary: "Adds one to the integer in a key, which is 0 if it is not there",
    since: "1.0.0",
    group: Group::String,
    arity: 2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    categories: &[Category::String],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    increment(call, 1)
}
