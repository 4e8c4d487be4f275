//! `CLIENT PAUSE` and `UNPAUSE`: makes commands wait, either all or those that may change data. See
//! [`crate::pause`].
//!
//! As in Redis 7.0, a pause of all commands also holds `CLIENT UNPAUSE`, so that only the timeout
//! ends it.

use super::ADMIN;
use crate::command::*;
use crate::pause::Pause;
use crate::resp::parse_i64;

pub(super) static PAUSE: Command = Command {
    name: "client|pause",
    summary: "Makes the commands of all clients wait for some time",
    since: "2.9.50",
    arity: -3,
    arguments: &[
        Argument::new("timeout", Kind::Integer),
        Argument::one_of(
            "mode",
            &[
                Argument::word("write", "WRITE"),
                Argument::word("all", "ALL"),
            ],
        )
        .since("6.2.0")
        .optional(),
    ],
    reach: Reach::Nothing,
    run: pause,
    ..ADMIN
};

pub(super) static UNPAUSE: Command = Command {
    name: "client|unpause",
    summary: "Ends a pause of clients",
    since: "6.2.0",
    complexity: "O(N) where N is the number of clients that wait",
    arity: 2,
    run: |call| {
        call.server.pauses.end();
        call.server.wake_all();
        call.reply.ok();
        Ok(())
    },
    ..ADMIN
};

fn pause(call: &mut Call<'_>) -> Outcome {
    let kind = match call.args.len() {
        3 => Pause::All,
        4 if call.is(3, "WRITE") => Pause::Writes,
        4 if call.is(3, "ALL") => Pause::All,
        4 => {
            return Err(Failure::other("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => {
            return Err(call.no_such_subcommand("CLIENT"));
        }
    };
    let not_an_integer = Failure::other("ERR timeout is not an integer or out of range");
    let timeout_ms = parse_i64(call.args.at(2)).ok_or(not_an_integer)?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| Failure::other("ERR timeout is negative"))?;
    // As in Redis, a pause must end within the range of a 63-bit wall clock.
    if timeout_ms > i64::MAX.unsigned_abs() - call.server.wall_ms() {
        return Err(Failure::other("ERR timeout is out of range"));
    }
    let now_ms = call.server.now_ms();
    let end_ms = now_ms.saturating_add(timeout_ms);
    call.server.pauses.begin(kind, end_ms, now_ms);
    call.reply.ok();
    // No thread may be executing a command that the pause affects.
    call.await_sections(0..call.server.threads.len());
    Ok(())
}
