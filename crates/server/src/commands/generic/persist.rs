//! `PERSIST key`: removes a key's expiry.

use crate::command::*;
use mneme_log::Expiry;

pub(super) static PERSIST: Command = Command {
    name: "persist",
    summary: "Keeps a key from expiring",
    since: "2.2.0",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::KEYSPACE
};

fn run(call: &mut Call<'_>) -> Outcome {
    let mut persisted = false;
    call.keyspace.update_expiry(call.args.at(1), |old| {
        persisted = old != Expiry::Never;
        persisted.then_some(Expiry::Never)
    })?;
    if persisted {
        call.keyspace
            .notify(EventClass::Generic, "persist", call.args.at(1));
    }
    call.reply.integer(i64::from(persisted));
    Ok(())
}
