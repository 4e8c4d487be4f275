//! `INCR key`: adds one.

use crate::command::*;

use super::arithmetic::{ARITHMETIC, increment};

pub(super) static INCR: Command = Command {
    name: "incr",
    summary: "Adds one to the integer in a key, which is 0 if it is not there",
    arity: 2,
    arguments: &[Argument::key("key")],
    run,
    ..ARITHMETIC
};

fn run(call: &mut Call<'_>) -> Outcome {
    increment(call, 1)
}
