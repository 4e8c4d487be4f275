//! `SETNX key value`: stores a value unless the key exists.

use crate::command::*;
use mneme_log::{Decision, Updated};

pub(super) static SETNX: Command = Command {
    name: "setnx",
    summary: "Sets a key to a value unless it has one",
    since: "1.0.0",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::Overwrite, KeyFlag::Insert])],
    arguments: &[Argument::key("key"), Argument::new("value", Kind::String)],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let value = call.args.at(2);
    let updated = call.keyspace.update_any(call.args.at(1), |old| match old {
        Some(_) => Decision::Keep,
        None => Decision::Replace(value.to_vec()),
    })?;
    if updated == Updated::Inserted {
        call.keyspace
            .notify(EventClass::String, "set", call.args.at(1));
    }
    call.reply.integer(i64::from(updated == Updated::Inserted));
    Ok(())
}
