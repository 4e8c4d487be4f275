//! `ECHO message`: returns the message.

use crate::command::*;

pub(super) static ECHO: Command = Command {
    name: "echo",
    summary: "Returns its argument",
    since: "1.0.0",
    group: Group::Connection,
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Connection],
    arguments: &[Argument::new("message", Kind::String)],
    is_repeatable: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.reply.bulk(call.args.at(1));
    Ok(())
}
