//! `GETDEL key`: returns a value and removes it.

use crate::command::*;
use mneme_log::Decision;

pub(super) static GETDEL: Command = Command {
    name: "getdel",
    summary: "Returns the value of a key and removes the key",
    since: "6.2.0",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Delete,
    ])],
    arguments: &[Argument::key("key")],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.update_returning(|_| Decision::Remove)? {
        call.keyspace
            .notify(EventClass::Generic, "del", call.args.at(1));
    }
    Ok(())
}
