//! `HINCRBY`, `HINCRBYFLOAT key field increment`: add to the number in a field.

use super::hget::FIELD;
use crate::command::*;
use crate::long_double::{LongDouble, parse};

pub(super) static HINCRBY: Command = Command {
    name: "hincrby",
    summary: "Adds to the integer in a field, which is 0 if it is not there",
    since: "2.0.0",
    arguments: &[
        Argument::key("key"),
        FIELD,
        Argument::new("increment", Kind::Integer),
    ],
    run: increment,
    ..BOTH
};

pub(super) static HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    summary: "Adds to the floating-point number in a field, which is 0 if it is not there",
    since: "2.6.0",
    arguments: &[
        Argument::key("key"),
        FIELD,
        Argument::new("increment", Kind::Double),
    ],
    run: increment_float,
    ..BOTH
};

const BOTH: Command = Command {
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    ..Command::HASH
};

fn increment(call: &mut Call<'_>) -> Outcome {
    let (field, by) = (call.args.at(2), call.integer(3)?);
    let limits = call.server.settings.hash_limits();
    let (sum, _) = call
        .keyspace
        .update_hash(call.args.at(1), &[field], |hash| {
            let sum = hash.increment(field, by)?;
            hash.convert(limits)?;
            Ok((sum, true))
        })?;
    call.keyspace
        .notify(EventClass::Hash, "hincrby", call.args.at(1));
    call.reply.integer(sum);
    Ok(())
}

fn increment_float(call: &mut Call<'_>) -> Outcome {
    let (field, by) = (call.args.at(2), call.args.at(3));
    let by = parse(by).ok_or(Failure::NotAFloat)?;
    if by == LongDouble::Infinite {
        return Err(Failure::other("ERR value is NaN or Infinity"));
    }
    let limits = call.server.settings.hash_limits();
    let (sum, _) = call
        .keyspace
        .update_hash(call.args.at(1), &[field], |hash| {
            let old = match hash.read()?.get(field)? {
                None => Some(LongDouble::ZERO),
                Some(value) => value.with_bytes(parse),
            };
            let old = old.ok_or(Failure::other("ERR hash value is not a float"))?;
            let sum = old.plus(by).ok_or(Failure::other(
                "ERR increment would produce NaN or Infinity",
            ))?;
            let sum = sum.to_text();
            hash.set(field, sum.as_bytes())?;
            hash.convert(limits)?;
            Ok((sum, true))
        })?;
    call.keyspace
        .notify(EventClass::Hash, "hincrbyfloat", call.args.at(1));
    call.reply.bulk(sum.as_bytes());
    Ok(())
}
