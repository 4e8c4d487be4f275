//! `BITPOS key bit [start [end [BYTE | BIT]]]`: the position of the first 0 or 1.

use super::span::{UNIT, Unit, bytes_of, find};
use crate::command::*;
use crate::commands::range::Ends;

pub(super) static BITPOS: Command = Command {
    name: "bitpos",
    summary: "Finds the first bit that is 0, or 1, in the value of a key",
    since: "2.8.7",
    complexity: "O(N) where N is the length of the range",
    arity: -3,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("bit", Kind::Integer),
        Argument::block(
            "index",
            &[
                Argument::new("start", Kind::Integer),
                Argument::block("end_index", &[Argument::new("end", Kind::Integer), UNIT])
                    .optional(),
            ],
        )
        .optional(),
    ],
    run,
    ..Command::BITMAP
};

fn run(call: &mut Call<'_>) -> Outcome {
    let bit = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Failure::other("ERR The bit argument must be 1 or 0.")),
    };
    let range = range(call);
    // Zeros follow a value, unless the end of the range is given.
    let is_open = call.args.len() < 5;
    let bits = |len| {
        let (ends, unit) = range.as_ref().ok()?;
        unit.bits(*ends, len)
    };
    let bytes = |len| bytes_of(&bits(len).unwrap_or_default());
    let position = call.keyspace.read_part(call.args.at(1), bytes, |part| {
        part.map(|part| {
            let (bits, first) = (bits(part.len)?, bytes(part.len).start * 8);
            let found = find(part.bytes, bits.start - first..bits.end - first, bit);
            found
                .map(|found| found + first)
                .or((is_open && !bit).then_some(bits.end))
        })
    })?;
    // If there is no key, the range does not matter.
    let position = match position {
        Some(position) => range.map(|_| position)?,
        None => (!bit).then_some(0),
    };
    call.reply
        .integer(position.map_or(-1, |position| position as i64));
    Ok(())
}

fn range(call: &Call<'_>) -> Result<(Ends, Unit), Failure> {
    let arguments = call.args.len();
    if arguments > 6 {
        return Err(Failure::Syntax);
    }
    let (mut ends, mut unit) = (Ends::ALL, Unit::Byte);
    if arguments > 3 {
        ends.start = call.integer(3)?;
    }
    if arguments > 5 {
        unit = Unit::parse(call, 5)?;
    }
    if arguments > 4 {
        ends.end = call.integer(4)?;
    }
    Ok((ends, unit))
}
