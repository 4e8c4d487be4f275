//! `GETBIT key offset`: one bit of a value.

use crate::command::*;

pub(super) static GETBIT: Command = Command {
    name: "getbit",
    summary: "Returns a bit of the value of a key; those behind its end are 0",
    since: "2.2.0",
    arity: 3,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key"), Argument::new("offset", Kind::Integer)],
    run,
    ..Command::BITMAP
};

fn run(call: &mut Call<'_>) -> Outcome {
    let offset = call.bit_offset(2)?;
    let index = offset / 8;
    let (key, byte) = (call.args.at(1), |_| index..index + 1);
    let bit = call.keyspace.read_part(key, byte, |part| {
        let byte = part.and_then(|part| part.bytes.first());
        byte.is_some_and(|byte| byte & mask(offset) != 0)
    })?;
    call.reply.integer(i64::from(bit));
    Ok(())
}

/// The bit at `offset` in its byte.
pub(super) fn mask(offset: usize) -> u8 {
    0x80 >> (offset % 8)
}
