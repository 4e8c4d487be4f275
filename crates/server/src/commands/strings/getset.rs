//! `GETSET key value`: stores a value and returns the previous one.

use crate::command::*;
use mneme_log::{Decision, Expiry};

pub(super) static GETSET: Command = Command {
    name: "getset",
    summary: "Sets a key to a value and returns what it held before",
    since: "1.0.0",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[Argument::key("key"), Argument::new("value", Kind::String)],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let value = call.args.at(2);
    call.update_returning(|_| Decision::ReplaceUntil(value.to_vec(), Expiry::Never))?;
    call.keyspace
        .notify(EventClass::String, "set", call.args.at(1));
    Ok(())
}
