//! `SETBIT key offset value`: changes one bit of a value.

use super::getbit::mask;
use crate::command::*;
use crate::resp::parse_i64;
use mneme_log::{Patch, Updated};

pub(super) static SETBIT: Command = Command {
    name: "setbit",
    summary: "Changes a bit of the value of a key and returns what it was, creating the key if it is not there",
    since: "2.2.0",
    complexity: PART,
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[
        Argument::key("key"),
        Argument::new("offset", Kind::Integer),
        Argument::new("value", Kind::Integer),
    ],
    run,
    ..Command::BITMAP
};

fn run(call: &mut Call<'_>) -> Outcome {
    let offset = call.bit_offset(2)?;
    let bit = match parse_i64(call.args.at(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Failure::other("ERR bit is not an integer or out of range")),
    };
    let (index, mask) = (offset / 8, mask(offset));
    let mut was = false;
    let (key, byte) = (call.args.at(1), |_| index..index + 1);
    let updated = call.keyspace.update_part(key, byte, |part| {
        let byte = part.and_then(|part| part.bytes.first().copied());
        was = byte.is_some_and(|byte| byte & mask != 0);
        if byte.is_some() && was == bit {
            return Patch::Keep;
        }
        let flipped = if was == bit { 0 } else { mask };
        Patch::Write {
            at: index,
            bytes: vec![byte.unwrap_or(0) ^ flipped].into(),
        }
    })?;
    if !matches!(updated, Updated::Kept | Updated::Absent) {
        call.keyspace.notify(EventClass::String, "setbit", key);
    }
    call.reply.integer(i64::from(was));
    Ok(())
}
