//! `DECRBY key decrement`: subtracts a number.

use crate::command::*;

use super::arithmetic::{ARITHMETIC, increment};

pub(super) static DECRBY: Command = Command {
    name: "decrby",
    summary: "Subtracts from the integer in a key, which is 0 if it is not there",
    arity: 3,
    arguments: &[
        Argument::key("key"),
        Argument::new("decrement", Kind::Integer),
    ],
    run,
    ..ARITHMETIC
};

fn run(call: &mut Call<'_>) -> Outcome {
    let delta = call
        .integer(2)?
        .checked_neg()
        .ok_or(Failure::other("ERR decrement would overflow"))?;
    increment(call, delta)
}
