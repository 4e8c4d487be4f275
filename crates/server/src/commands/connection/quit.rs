//! `QUIT`: closes the connection once the replies before it are sent.

use crate::command::*;

pub(super) static QUIT: Command = Command {
    name: "quit",
    summary: "Closes the connection",
    since: "1.0.0",
    group: Group::Connection,
    arity: -1,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::Fast,
        Flag::NoAuth,
        Flag::AllowBusy,
    ],
    categories: &[Category::Connection],
    is_immediate: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.closing = true;
    call.reply.ok();
    Ok(())
}
