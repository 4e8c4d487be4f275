//! `INCRBYFLOAT key increment`: adds a number that need not be an integer.

use super::arithmetic::ARITHMETIC;
use crate::command::*;
use crate::long_double::{LongDouble, parse};
use mneme_log::Decision;

pub(super) static INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    summary: "Adds to the floating-point number in a key, which is 0 if it is not there",
    since: "2.6.0",
    arity: 3,
    arguments: &[
        Argument::key("key"),
        Argument::new("increment", Kind::Double),
    ],
    run,
    ..ARITHMETIC
};

fn run(call: &mut Call<'_>) -> Outcome {
    // As in Redis, a value that is not a number, or has another type, is refused first.
    let increment = parse(call.args.at(2));
    let mut sum = Err(Failure::NotAFloat);
    call.keyspace.update(call.args.at(1), |old| {
        let value = old.map_or(Some(LongDouble::ZERO), |old| parse(old.value));
        sum = match value.and_then(|value| Some(value.plus(increment?))) {
            None => Err(Failure::NotAFloat),
            Some(None) => Err(Failure::other(
                "ERR increment would produce NaN or Infinity",
            )),
            Some(Some(sum)) => Ok(sum.to_text()),
        };
        match &sum {
            Ok(sum) => Decision::Replace(sum.as_bytes().to_vec()),
            Err(_) => Decision::Keep,
        }
    })?;
    let sum = sum?;
    call.keyspace
        .notify(EventClass::String, "incrbyfloat", call.args.at(1));
    call.reply.bulk(sum.as_bytes());
    Ok(())
}
