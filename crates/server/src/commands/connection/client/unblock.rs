//! `CLIENT UNBLOCK`: ends the wait of a client whose command waits for a key.

use super::ADMIN;
use crate::blocking::WaitEnd;
use crate::command::*;

pub(super) static UNBLOCK: Command = Command {
    name: "client|unblock",
    summary: "Ends the wait of a client for a key, as if its time were up or with an error",
    since: "5.0.0",
    complexity: "O(log N) where N is the number of clients that wait",
    arity: -3,
    arguments: &[
        Argument::new("client-id", Kind::Integer),
        Argument::one_of(
            "timeout_error",
            &[
                Argument::word("timeout", "TIMEOUT"),
                Argument::word("error", "ERROR"),
            ],
        )
        .optional(),
    ],
    run,
    ..ADMIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    let ended = match call.args.len() {
        3 => WaitEnd::TimedOut,
        4 if call.is(3, "TIMEOUT") => WaitEnd::TimedOut,
        4 if call.is(3, "ERROR") => WaitEnd::Unblocked,
        4 => {
            return Err(Failure::other(
                "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ));
        }
        _ => return Err(call.no_such_subcommand("CLIENT")),
    };
    let id = u64::try_from(call.integer(2)?);
    let waits = id.is_ok_and(|id| call.server.end_wait(id, ended));
    call.reply.integer(i64::from(waits));
    Ok(())
}
