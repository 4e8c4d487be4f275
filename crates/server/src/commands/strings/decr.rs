//! `DECR key`: subtracts one.

use crate::command::*;

use super::arithmetic::{ARITHMETIC, increment};

pub(super) static DECR: Command = Command {
    name: "decr",
    summary: "Subtracts one from the integer in a key, which is 0 if it is not there",
    arity: 2,
    arguments: &[Argument::key("key")],
    run,
    ..ARITHMETIC
};

fn run(call: &mut Call<'_>) -> Outcome {
    increment(call, -1)
}
