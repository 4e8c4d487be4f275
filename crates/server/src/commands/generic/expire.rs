//! `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT key time [NX | XX | GT | LT]`: set when a key
//! expires.

use crate::command::*;
use crate::commands::expiration::Notation;
use mneme_log::{Decision, Expiry};

pub(super) static EXPIRE: Command = Command {
    name: "expire",
    summary: "Sets when a key expires, in seconds from now",
    since: "1.0.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("seconds", Kind::Integer),
        CONDITION,
    ],
    run: |call| expire(call, "expire", Notation::Seconds),
    ..ALL
};

pub(super) static PEXPIRE: Command = Command {
    name: "pexpire",
    summary: "Sets when a key expires, in milliseconds from now",
    since: "2.6.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("milliseconds", Kind::Integer),
        CONDITION,
    ],
    run: |call| expire(call, "pexpire", Notation::Milliseconds),
    ..ALL
};

pub(super) static EXPIREAT: Command = Command {
    name: "expireat",
    summary: "Sets when a key expires, in seconds since 1970",
    since: "1.2.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("unix-time-seconds", Kind::UnixTime),
        CONDITION,
    ],
    run: |call| expire(call, "expireat", Notation::UnixSeconds),
    ..ALL
};

pub(super) static PEXPIREAT: Command = Command {
    name: "pexpireat",
    summary: "Sets when a key expires, in milliseconds since 1970",
    since: "2.6.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("unix-time-milliseconds", Kind::UnixTime),
        CONDITION,
    ],
    run: |call| expire(call, "pexpireat", Notation::UnixMilliseconds),
    ..ALL
};

const ALL: Command = Command {
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    ..Command::KEYSPACE
};

const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.since("7.0.0")
.optional();

/// The conditions for setting the expiry.
#[derive(Default)]
struct Conditions {
    if_never: bool,
    if_some: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let mut all = Self::default();
        for index in 3..call.args.len() {
            let condition = match call.args.at(index).to_ascii_uppercase().as_slice() {
                b"NX" => &mut all.if_never,
                b"XX" => &mut all.if_some,
                b"GT" => &mut all.if_later,
                b"LT" => &mut all.if_sooner,
                _ => {
                    let option = call.args.at(index);
                    return Err(Failure::quoting("ERR Unsupported option ", option, ""));
                }
            };
            *condition = true;
        }
        if all.if_never && (all.if_some || all.if_later || all.if_sooner) {
            return Err(Failure::other(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if all.if_later && all.if_sooner {
            return Err(Failure::other(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(all)
    }

    fn hold(&self, old: Expiry, new_ms: u64) -> bool {
        match old {
            // A key that does not expire lives longer than any other.
            Expiry::Never => !self.if_some && !self.if_later,
            Expiry::At(old_ms) => {
                !(self.if_never
                    || self.if_later && new_ms <= old_ms
                    || self.if_sooner && new_ms >= old_ms)
            }
        }
    }
}

fn expire(call: &mut Call<'_>, name: &str, notation: Notation) -> Outcome {
    let conditions = Conditions::parse(call)?;
    let Some(unix_ms) = notation.to_unix_ms(call.integer(2)?, call.wall_ms()) else {
        return Err(Failure::other(format!(
            "ERR invalid expire time in '{name}' command"
        )));
    };
    // Times before 1970 are past, like 1970 itself.
    let unix_ms = unix_ms.max(1).unsigned_abs();
    let (key, mut holds) = (call.args.at(1), false);
    let is_over = unix_ms <= call.wall_ms();
    if is_over {
        call.keyspace.update_any(key, |old| {
            holds = old.is_some_and(|old| conditions.hold(old.expiry, unix_ms));
            if holds {
                Decision::Remove
            } else {
                Decision::Keep
            }
        })?;
    } else {
        call.keyspace.update_expiry(key, |old| {
            holds = conditions.hold(old, unix_ms);
            holds.then_some(Expiry::At(unix_ms))
        })?;
    }
    if holds {
        let name = if is_over { "del" } else { "expire" };
        call.keyspace.notify(EventClass::Generic, name, key);
    }
    call.reply.integer(i64::from(holds));
    Ok(())
}
