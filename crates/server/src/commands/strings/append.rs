//! `APPEND key value`: appends to a value.

use crate::command::*;
use crate::settings::Key;
use mneme_log::Patch;

pub(super) static APPEND: Command = Command {
    name: "append",
    summary: "Appends to a key's value, creating the key if it is not there",
    since: "2.0.0",
    complexity: PART,
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[Argument::key("key"), Argument::new("value", Kind::String)],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let suffix = call.args.at(2);
    let longest = call.server.settings.count(Key::BulkLength);
    let mut len = 0;
    call.keyspace.update_part(
        call.args.at(1),
        |_| 0..0,
        |part| {
            let at = part.map_or(0, |part| part.len);
            len = at + suffix.len();
            if len > longest {
                return Patch::Keep;
            }
            Patch::Write {
                at,
                bytes: suffix.into(),
            }
        },
    )?;
    if len > longest {
        return Err(Failure::TooLong);
    }
    call.keyspace
        .notify(EventClass::String, "append", call.args.at(1));
    call.reply.integer(len as i64);
    Ok(())
}
