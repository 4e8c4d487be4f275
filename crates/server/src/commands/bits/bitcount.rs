//! `BITCOUNT key [start end [BYTE | BIT]]`: the number of set bits.

use super::span::{UNIT, Unit, bytes_of, count_ones};
use crate::command::*;
use crate::commands::range::Ends;

pub(super) static BITCOUNT: Command = Command {
    name: "bitcount",
    summary: "Counts the bits that are 1 in the value of a key",
    since: "2.6.0",
    complexity: "O(N) where N is the length of the range",
    arity: -2,
    flags: &[Flag::Readonly],
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
    ..Command::BITMAP
};

fn run(call: &mut Call<'_>) -> Outcome {
    let range = range(call);
    let bits = |len| match range {
        Ok(Some((ends, unit))) => unit.bits(ends, len).unwrap_or_default(),
        _ => 0..0,
    };
    let bytes = |len| bytes_of(&bits(len));
    let ones = call.keyspace.read_part(call.args.at(1), bytes, |part| {
        part.map(|part| {
            let (bits, first) = (bits(part.len), bytes(part.len).start * 8);
            match bits.is_empty() {
                true => 0,
                false => count_ones(part.bytes, bits.start - first..bits.end - first),
            }
        })
    })?;
    // If there is no key, the range does not matter.
    let ones = match ones {
        Some(ones) => range.map(|_| ones)?,
        None => 0,
    };
    call.reply.integer(ones as i64);
    Ok(())
}

/// The range given by the arguments; `None` if it is empty.
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
