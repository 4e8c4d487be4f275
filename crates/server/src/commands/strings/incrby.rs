//! `INCRBY key increment`: adds a number.

use crate::command::*;

use super::arithmetic::{ARITHMETIC, increment};

pub(super) static INCRBY: Command = Command {
    name: "incrby",
    summary: "Adds to the integer in a key, which is 0 if it is not there",
    arity: 3,
    arguments: &[
        Argument::key("key"),
        Argument::new("increment", Kind::Integer),
    ],
    run,
    ..ARITHMETIC
};

fn run(call: &mut Call<'_>) -> Outcome {
    let delta = call.integer(2)?;
    increment(call, delta)
}
