//! `GETEX key [PERSIST | EX ...]`: returns a value and sets when it expires.

use crate::command::*;
use crate::commands::expiration::Notation;
use mneme_log::{Decision, Expiry, Stored, ValueKind};

pub(super) static GETEX: Command = Command {
    name: "getex",
    summary: "Returns the value of a key and sets when it expires",
    since: "6.2.0",
    complexity: "O(1); O(N) where N is the length of the value, which is stored anew, where that is at most 64 KiB and never had an expiry, for the first change within a transaction, and in a store that overwrites",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Update])
            .with_notes("RW and UPDATE because it changes the TTL"),
    ],
    arguments: &[
        Argument::key("key"),
        Argument::one_of(
            "expiration",
            &[
                Argument::new("seconds", Kind::Integer).after("EX"),
                Argument::new("milliseconds", Kind::Integer).after("PX"),
                Argument::new("unix-time-seconds", Kind::UnixTime).after("EXAT"),
                Argument::new("unix-time-milliseconds", Kind::UnixTime).after("PXAT"),
                Argument::word("persist", "PERSIST"),
            ],
        )
        .optional(),
    ],
    run,
    ..Command::STRING
};

/// What to do with the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    Kept,
    Persistent,
    /// Set it to the time in this argument.
    Until(Notation, usize),
}

fn run(call: &mut Call<'_>) -> Outcome {
    let expiry = match lifetime(call)? {
        Lifetime::Kept => {
            let (key, reply) = (call.args.at(1), &mut call.reply);
            return call.keyspace.read(key, |value| reply.value(value));
        }
        Lifetime::Persistent => Ok(Expiry::Never),
        Lifetime::Until(notation, index) => call.expiry(index, notation, "getex"),
    };
    let now_ms = call.wall_ms();
    let expiry = match expiry {
        Err(failure) => {
            // If there is no key, an invalid time does not matter.
            let kind = call.keyspace.kind(call.args.at(1))?;
            let found = kind.is_some();
            call.keyspace.count_of(call.args.at(1), found);
            if kind.is_some_and(|kind| kind != ValueKind::STRING) {
                return Err(Failure::WrongType);
            }
            call.reply.null();
            return if found { Err(failure) } else { Ok(()) };
        }
        Ok(Expiry::At(ms)) if ms <= now_ms => {
            let removes =
                |old: Option<Stored<'_>>| old.map_or(Decision::Keep, |_| Decision::Remove);
            if call.update_returning(removes)? {
                call.keyspace
                    .notify(EventClass::Generic, "del", call.args.at(1));
            }
            return Ok(());
        }
        Ok(expiry) => expiry,
    };
    let had_expiry = match expiry {
        Expiry::Never => matches!(call.keyspace.expiry(call.args.at(1))?, Some(Expiry::At(_))),
        Expiry::At(_) => true,
    };
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let position = reply.position();
    let found = call.keyspace.read_and_expire(key, expiry, |value| {
        reply.truncate(position);
        reply.value(value);
    })?;
    call.keyspace.count_of(key, found);
    if found && had_expiry {
        let name = match expiry {
            Expiry::Never => "persist",
            Expiry::At(_) => "expire",
        };
        call.keyspace.notify(EventClass::Generic, name, key);
    }
    Ok(())
}

fn lifetime(call: &Call<'_>) -> Result<Lifetime, Failure> {
    let mut lifetime = Lifetime::Kept;
    let mut index = 2;
    while index < call.args.len() {
        // Redis allows an option twice, but not two that contradict each other.
        if call.is(index, "PERSIST") && !matches!(lifetime, Lifetime::Until(..)) {
            lifetime = Lifetime::Persistent;
        } else if let Some(notation) = Notation::from_word(call.args.at(index))
            && (lifetime == Lifetime::Kept
                || matches!(lifetime, Lifetime::Until(earlier, _) if earlier == notation))
            && index + 1 < call.args.len()
        {
            index += 1;
            lifetime = Lifetime::Until(notation, index);
        } else {
            return Err(Failure::Syntax);
        }
        index += 1;
    }
    Ok(lifetime)
}
