//! `MONITOR`: sends the client every command that the server executes, without secrets and commands
//! of administrators. See [`crate::monitor`].

use crate::command::*;

pub(super) static MONITOR: Command = Command {
    name: "monitor",
    summary: "Has every command that the server carries out sent to the client",
    group: Group::Server,
    arity: 1,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    reach: Reach::Databases,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.is_within_exec() {
        return Err(Failure::other(
            "ERR MONITOR isn't allowed for DENY BLOCKING client",
        ));
    }
    // As in Redis, a second `MONITOR` gets no reply.
    if !call.client.is_monitor {
        call.client.begin_monitoring(&call.server.pubsub);
        call.reply.ok();
    }
    Ok(())
}
