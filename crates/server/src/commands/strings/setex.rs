//! `SETEX`, `PSETEX key time value`: store a value that expires.

use crate::command::*;
use crate::commands::expiration::Notation;

pub(super) static SETEX: Command = Command {
    name: "setex",
    summary: "Sets a key to a value that expires, in seconds from now",
    since: "2.0.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("seconds", Kind::Integer),
        Argument::new("value", Kind::String),
    ],
    run: |call| set(call, "setex", Notation::Seconds),
    ..BOTH
};

pub(super) static PSETEX: Command = Command {
    name: "psetex",
    summary: "Sets a key to a value that expires, in milliseconds from now",
    since: "2.6.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("milliseconds", Kind::Integer),
        Argument::new("value", Kind::String),
    ],
    run: |call| set(call, "psetex", Notation::Milliseconds),
    ..BOTH
};

const BOTH: Command = Command {
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[KeyFlag::Overwrite, KeyFlag::Update])],
    ..Command::STRING
};

fn set(call: &mut Call<'_>, name: &str, notation: Notation) -> Outcome {
    let expiry = call.expiry(2, notation, name)?;
    call.keyspace
        .put(call.args.at(1), call.args.at(3), expiry)?;
    call.keyspace
        .notify(EventClass::String, "set", call.args.at(1));
    call.keyspace
        .notify(EventClass::Generic, "expire", call.args.at(1));
    call.reply.ok();
    Ok(())
}
