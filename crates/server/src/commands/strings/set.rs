//! `SET key value [NX | XX] [GET] [KEEPTTL | EX ...]`: stores a value.

use crate::commands::prelude::*;
use mneme_log::{Decision, Updated};

pub(super) static SET: Command = Command {
    name: "set",
    summary: "Sets a key to a value, whatever it held before",
    since: "1.0.0",
    group: Group::String,
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    categories: &[Category::String],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
        KeyFlag::VariableFlags,
    ])
    .with_notes("RW and ACCESS due to the optional `GET` argument")],
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
    ..Command::BLANK
};

/// When the value is to be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

struct Options {
    condition: Condition,
    return_old: bool,
}

fn run(call: &mut Call<'_>) -> Outcome {
    let options = options(call)?;
    let (database, key, value) = (call.database()?, call.args.at(1), call.args.at(2));
    if options.condition == Condition::Always && !options.return_old {
        database.put(key, value)?;
        call.reply.ok();
        return Ok(());
    }
    let mut old_value = None;
    let updated = database.update(key, |old| {
        if options.return_old {
            old_value = old.map(<[u8]>::to_vec);
        }
        match (options.condition, old) {
            (Condition::IfAbsent, Some(_)) | (Condition::IfPresent, None) => Decision::Keep,
            _ => Decision::Replace(value.to_vec()),
        }
    })?;
    match (options.return_old, updated) {
        (true, _) => call.reply.value(old_value.as_deref()),
        (false, Updated::Replaced | Updated::Inserted) => call.reply.ok(),
        (false, _) => call.reply.null(),
    }
    Ok(())
}

fn options(call: &Call<'_>) -> Result<Options, Failure> {
    let mut options = Options {
        condition: Condition::Always,
        return_old: false,
    };
    let (mut keep_ttl, mut expiry) = (false, None);
    let mut index = 3;
    while index < call.args.len() {
        let is = |word| call.is(index, word);
        let unit = ["EX", "PX", "EXAT", "PXAT"]
            .into_iter()
            .find(|unit| is(unit));
        // Redis allows an option twice, but not two that contradict each other.
        if is("NX") && options.condition != Condition::IfPresent {
            options.condition = Condition::IfAbsent;
        } else if is("XX") && options.condition != Condition::IfAbsent {
            options.condition = Condition::IfPresent;
        } else if is("GET") {
            options.return_old = true;
        } else if is("KEEPTTL") && expiry.is_none() {
            // No key has a time to live yet, so there is none to lose.
            keep_ttl = true;
        } else if let Some(unit) = unit
            && !keep_ttl
            && expiry.is_none_or(|(earlier, _)| earlier == unit)
            && index + 1 < call.args.len()
        {
            index += 1;
            expiry = Some((unit, index));
        } else {
            return Err(Failure::Syntax);
        }
        index += 1;
    }
    match expiry {
        None => Ok(options),
        Some((_, index)) if call.integer(index)? <= 0 => {
            Err(Failure::other("ERR invalid expire time in 'set' command"))
        }
        Some(_) => Err(Failure::other(
            "ERR SET with EX, PX, EXAT or PXAT is not supported yet: keys do not expire",
        )),
    }
}
