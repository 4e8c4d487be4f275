//! `APPEND key value`: makes a value longer.

use crate::commands::prelude::*;
use crate::settings::Key;
use mneme_log::Decision;

pub(super) static APPEND: Command = Command {
    name: "append",
    summary: "Appends to a key's value, creating the key if it is not there",
    since: "2.0.0",
    group: Group::String,
    complexity: "O(N) where N is the length of the new value: a value is stored in one piece",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    categories: &[Category::String],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[Argument::key("key"), Argument::new("value", Kind::String)],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let suffix = call.args.at(2);
    let longest = call.server.settings.count(Key::BulkLength);
    let mut len = 0;
    call.keyspace.update(call.args.at(1), |old| {
        let old = old.map_or(&b""[..], |old| old.value);
        len = old.len() + suffix.len();
        if len > longest {
            Decision::Keep
        } else {
            Decision::Replace([old, suffix].concat())
        }
    })?;
    if len > longest {
        return Err(Failure::TooLong);
    }
    call.reply.integer(len as i64);
    Ok(())
}
