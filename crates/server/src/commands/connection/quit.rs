//! `QUIT`: closes the connection after all earlier replies were sent.

use crate::command::*;

use super::ALWAYS;

pub(super) static QUIT: Command = Command {
    name: "quit",
    summary: "Closes the connection",
    since: "1.0.0",
    is_immediate: true,
    suits_subscribers: true,
    run,
    ..ALWAYS
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.closing = true;
    call.reply.ok();
    Ok(())
}
