//! `SETRANGE key offset value`: overwrites a part of a value; if the value is too short, it is
//! first extended by zeros.

use crate::command::*;
use crate::settings::Key;
use mneme_log::Patch;

pub(super) static SETRANGE: Command = Command {
    name: "setrange",
    summary: "Overwrites a part of the value of a key, creating the key if it is not there",
    since: "2.2.0",
    complexity: PART,
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[
        Argument::key("key"),
        Argument::new("offset", Kind::Integer),
        Argument::new("value", Kind::String),
    ],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let offset = usize::try_from(call.integer(2)?)
        .map_err(|_| Failure::other("ERR offset is out of range"))?;
    let part = call.args.at(3);
    let end = offset.saturating_add(part.len());
    let too_long = !part.is_empty() && end > call.server.settings.count(Key::BulkLength);
    let mut len = 0;
    call.keyspace.update_part(
        call.args.at(1),
        |_| 0..0,
        |old| {
            len = old.map_or(0, |old| old.len);
            if part.is_empty() || too_long {
                return Patch::Keep;
            }
            len = len.max(end);
            Patch::Write {
                at: offset,
                bytes: part.into(),
            }
        },
    )?;
    if too_long {
        return Err(Failure::TooLong);
    }
    if !part.is_empty() {
        call.keyspace
            .notify(EventClass::String, "setrange", call.args.at(1));
    }
    call.reply.integer(len as i64);
    Ok(())
}
