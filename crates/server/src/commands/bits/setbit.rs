//! `SETBIT key offset value`: changes one bit of a value.

use super::getbit::mask;
use crate::commands::extend::extended;
use crate::commands::prelude::*;
use crate::resp::parse_i64;
use mneme_log::Decision;

pub(super) static SETBIT: Command = Command {
    name: "setbit",
    summary: "Changes a bit of the value of a key and returns what it was, creating the key if it is not there",
    since: "2.2.0",
    group: Group::Bitmap,
    complexity: "O(1) where nothing changes; else O(N) where N is the length of the value: it is stored in one piece",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    categories: &[Category::Bitmap],
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
    ..Command::BLANK
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
    call.keyspace.update(call.args.at(1), |old| {
        let old = old.map_or(&b""[..], |old| old.value);
        let byte = old.get(index);
        was = byte.is_some_and(|byte| byte & mask != 0);
        if byte.is_some() && was == bit {
            return Decision::Keep;
        }
        let mut value = extended(old, index + 1);
        if was != bit {
            value[index] ^= mask;
        }
        Decision::Replace(value)
    })?;
    call.reply.integer(i64::from(was));
    Ok(())
}
