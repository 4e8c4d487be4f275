//! `SELECT index`: works on another database from here on.

use crate::commands::prelude::*;

pub(super) static SELECT: Command = Command {
    name: "select",
    summary: "Selects the connection's database",
    since: "1.0.0",
    group: Group::Connection,
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Connection],
    arguments: &[Argument::new("index", Kind::Integer)],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let index = i32::try_from(call.integer(1)?).map_err(|_| Failure::NotAnInteger)?;
    match usize::try_from(index) {
        Ok(index) if index < call.server.settings.databases => call.client.database = index,
        _ => return Err(Failure::NoSuchDatabase),
    }
    call.reply.ok();
    Ok(())
}
