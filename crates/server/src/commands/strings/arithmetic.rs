//! Common parts of `INCR`, `DECR`, `INCRBY`, `DECRBY` and `INCRBYFLOAT`.

use crate::command::*;
use crate::resp::parse_i64;
use mneme_log::Decision;

/// The common fields of their definitions.
pub(super) const ARITHMETIC: Command = Command {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    ..Command::STRING
};

/// Adds `delta` to the integer in the key of the first argument (0 if there is none) and replies
/// with the sum.
pub(super) fn increment(call: &mut Call<'_>, delta: i64) -> Outcome {
    let mut sum = Err(Failure::NotAnInteger);
    call.keyspace.update(call.args.at(1), |old| {
        sum = match old.map_or(Some(0), |old| parse_i64(old.value)) {
            None => Err(Failure::NotAnInteger),
            Some(value) => value.checked_add(delta).ok_or(Failure::Overflow),
        };
        match sum {
            Ok(sum) => Decision::Replace(itoa::Buffer::new().format(sum).as_bytes().to_vec()),
            Err(_) => Decision::Keep,
        }
    })?;
    let sum = sum?;
    call.keyspace
        .notify(EventClass::String, "incrby", call.args.at(1));
    call.reply.integer(sum);
    Ok(())
}
