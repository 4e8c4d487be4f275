//! `RESET`: returns the connection to its initial state.

use crate::command::*;

use super::ALWAYS;

pub(super) static RESET: Command = Command {
    name: "reset",
    summary: "Puts the connection into the state of a new one",
    since: "6.2.0",
    arity: 1,
    is_immediate: true,
    suits_subscribers: true,
    run,
    ..ALWAYS
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.unsubscribe_all(&call.server.pubsub);
    call.server.end_tracking(call.client);
    // Messages that were already sent to it precede the reply.
    call.drain_pushes();
    call.client.settle_pushes();
    call.client.reset();
    (call.client).become_default(&call.server.users, &call.server.clients);
    call.reply.set_protocol(call.client.protocol);
    call.reply.simple("RESET");
    Ok(())
}
