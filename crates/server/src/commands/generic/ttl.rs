//! `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME key`: return when a key expires; -1: never, -2: there
//! is no such key.

use crate::command::*;
use mneme_log::Expiry;

pub(super) static TTL: Command = Command {
    name: "ttl",
    summary: "Returns in how many seconds a key expires",
    since: "1.0.0",
    tips: &["nondeterministic_output"],
    run: |call| time(call, |ms, now_ms| (ms.saturating_sub(now_ms) + 500) / 1000),
    ..ALL
};

pub(super) static PTTL: Command = Command {
    name: "pttl",
    summary: "Returns in how many milliseconds a key expires",
    since: "2.6.0",
    tips: &["nondeterministic_output"],
    run: |call| time(call, u64::saturating_sub),
    ..ALL
};

pub(super) static EXPIRETIME: Command = Command {
    name: "expiretime",
    summary: "Returns when a key expires, in seconds since 1970",
    since: "7.0.0",
    run: |call| time(call, |ms, _| (ms + 500) / 1000),
    ..ALL
};

pub(super) static PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    summary: "Returns when a key expires, in milliseconds since 1970",
    since: "7.0.0",
    run: |call| time(call, |ms, _| ms),
    ..ALL
};

const ALL: Command = Command {
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key")],
    ..Command::KEYSPACE
};

/// Replies with the result of `say` for the expiry and the current time, both in milliseconds since
/// 1970.
fn time(call: &mut Call<'_>, say: fn(u64, u64) -> u64) -> Outcome {
    let expiry = call.keyspace.expiry(call.args.at(1))?;
    call.keyspace.count_of(call.args.at(1), expiry.is_some());
    call.reply.integer(match expiry {
        None => -2,
        Some(Expiry::Never) => -1,
        Some(Expiry::At(ms)) => say(ms, call.wall_ms()).min(i64::MAX as u64) as i64,
    });
    Ok(())
}
