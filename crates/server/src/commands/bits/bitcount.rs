//! `BITCOUNT key [start end [BYTE | BIT]]`: how many bits are 1.

use super::span::{UNIT, Unit, count_ones};
use crate::commands::prelude::*;
use crate::commands::range::Ends;

pub(super) static BITCOUNT: Command = Command {
    name: "bitcount",
    summary: "Counts the bits that are 1 in the value of a key",
    since: "2.6.0",
    group: Group::Bitmap,
    complexity: "O(N) where N is the length of the range",
    arity: -2,
    flags: &[Flag::Readonly],
    categories: &[Category::Bitmap],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::block(
            "index",
            &[
                Argument::new("start", Kind::Integer),
                Argument::new("end", Kind::Integer),
                UNIT,
            ],
        )
        .optional(),
    ],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let range = range(call);
    let ones = call.keyspace.read(call.args.at(1), |value| {
        // Where there is no key, it does not matter what the range is.
        let Some(value) = value else { return Ok(0) };
        let bits = range?.and_then(|(ends, unit)| unit.bits(ends, value.len()));
        Ok::<_, Failure>(bits.map_or(0, |bits| count_ones(value, bits)))
    })??;
    call.reply.integer(ones as i64);
    Ok(())
}

/// The range that the arguments say; `None` if it is empty.
fn range(call: &Call<'_>) -> Result<Option<(Ends, Unit)>, Failure> {
    match call.args.len() {
        2 => Ok(Some((Ends::ALL, Unit::Byte))),
        4 | 5 => {
            let ends = Ends {
                start: call.integer(2)?,
                end: call.integer(3)?,
            };
            if ends.are_reversed() {
                return Ok(None);
            }
            let unit = if call.args.len() == 5 {
                Unit::parse(call, 4)?
            } else {
                Unit::Byte
            };
            Ok(Some((ends, unit)))
        }
        _ => Err(Failure::Syntax),
    }
}
