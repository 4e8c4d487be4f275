//! `SET key value [NX | XX] [GET] [KEEPTTL | EX ...]`: stores a value.

use crate::command::*;
use crate::commands::expiration::Notation;
use crate::resp::Arguments;
use mneme_log::{Decision, Expiry, Stored, Updated};

pub(super) static SET: Command = Command {
    name: "set",
    summary: "Sets a key to a value, whatever it held before",
    since: "1.0.0",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
        KeyFlag::VariableFlags,
    ])
    .with_notes("RW and ACCESS due to the optional `GET` argument")],
    key_flags: Some(key_flags),
    arguments: &[
        Argument::key("key"),
        Argument::new("value", Kind::String),
        Argument::one_of(
            "condition",
            &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
        )
        .since("2.6.12")
        .optional(),
        Argument::word("get", "GET").since("6.2.0").optional(),
        Argument::one_of(
            "expiration",
            &[
                Argument::new("seconds", Kind::Integer)
                    .after("EX")
                    .since("2.6.12"),
                Argument::new("milliseconds", Kind::Integer)
                    .after("PX")
                    .since("2.6.12"),
                Argument::new("unix-time-seconds", Kind::UnixTime)
                    .after("EXAT")
                    .since("6.2.0"),
                Argument::new("unix-time-milliseconds", Kind::UnixTime)
                    .after("PXAT")
                    .since("6.2.0"),
                Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ],
    batching: Some(Batching::Pair),
    run,
    ..Command::STRING
};

/// The condition for storing the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

struct Options {
    condition: Condition,
    return_old: bool,
    expiry: Lifetime,
}

/// What to do with the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    New(Expiry),
    Kept,
}

fn key_flags(args: &Arguments<'_>) -> &'static [KeyFlag] {
    let mut options = args.from(3).iter();
    match options.any(|option| option.eq_ignore_ascii_case(b"get")) {
        true => &[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Update],
        false => &[KeyFlag::Overwrite, KeyFlag::Update],
    }
}

fn run(call: &mut Call<'_>) -> Outcome {
    let Options {
        condition,
        return_old,
        expiry,
    } = options(call)?;
    let (key, value) = (call.args.at(1), call.args.at(2));
    if let (Condition::Always, false, Lifetime::New(expiry)) = (condition, return_old, expiry) {
        call.keyspace.put(key, value, expiry)?;
        note(call, key, Lifetime::New(expiry));
        call.reply.ok();
        return Ok(());
    }
    let mut is_set = false;
    let decide = |old: Option<Stored<'_>>| {
        is_set = match condition {
            Condition::Always => true,
            Condition::IfAbsent => old.is_none(),
            Condition::IfPresent => old.is_some(),
        };
        match expiry {
            _ if !is_set => Decision::Keep,
            Lifetime::Kept => Decision::Replace(value.to_vec()),
            Lifetime::New(expiry) => Decision::ReplaceUntil(value.to_vec(), expiry),
        }
    };
    if return_old {
        call.update_returning(decide)?;
    } else {
        match call.keyspace.update_any(key, decide)? {
            Updated::Kept | Updated::Absent if condition != Condition::Always => call.reply.null(),
            _ => call.reply.ok(),
        }
    }
    if is_set {
        note(call, key, expiry);
    }
    Ok(())
}

/// Reports that a key was set.
fn note(call: &Call<'_>, key: &[u8], expiry: Lifetime) {
    call.keyspace.notify(EventClass::String, "set", key);
    if matches!(expiry, Lifetime::New(Expiry::At(_))) {
        call.keyspace.notify(EventClass::Generic, "expire", key);
    }
}

fn options(call: &Call<'_>) -> Result<Options, Failure> {
    let mut condition = Condition::Always;
    let (mut return_old, mut keep) = (false, false);
    let mut expiry: Option<(Notation, usize)> = None;
    let mut index = 3;
    while index < call.args.len() {
        let is = |word| call.is(index, word);
        // Redis allows an option twice, but not two that contradict each other.
        if is("NX") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if is("XX") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if is("GET") {
            return_old = true;
        } else if is("KEEPTTL") && expiry.is_none() {
            keep = true;
        } else if let Some(notation) = Notation::from_word(call.args.at(index))
            && !keep
            && expiry.is_none_or(|(earlier, _)| earlier == notation)
            && index + 1 < call.args.len()
        {
            index += 1;
            expiry = Some((notation, index));
        } else {
            return Err(Failure::Syntax);
        }
        index += 1;
    }
    let expiry = match expiry {
        Some((notation, index)) => Lifetime::New(call.expiry(index, notation, "set")?),
        None if keep => Lifetime::Kept,
        None => Lifetime::New(Expiry::Never),
    };
    Ok(Options {
        condition,
        return_old,
        expiry,
    })
}
