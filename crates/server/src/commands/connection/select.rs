//! `SELECT index`: switches to another database.

use crate::command::*;

pub(super) static SELECT: Command = Command {
    name: "select",
    summary: "Selects the connection's database",
    since: "1.0.0",
    group: Group::Connection,
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Connection],
    arguments: &[Argument::new("index", Kind::Integer)],
    is_repeatable: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.database = call.database(1)?;
    call.reply.ok();
    Ok(())
}
