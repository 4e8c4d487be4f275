//! `CLIENT REPLY` and `NO-EVICT`: options of the client's connection.

use super::{ADMIN, PLAIN};
use crate::client::Replies;
use crate::command::*;

pub(super) static REPLY: Command = Command {
    name: "client|reply",
    summary: "Selects the replies to be sent: all, none, or all but the next",
    since: "3.2.0",
    arity: 3,
    arguments: &[Argument::one_of(
        "on_off_skip",
        &[
            Argument::word("on", "ON"),
            Argument::word("off", "OFF"),
            Argument::word("skip", "SKIP"),
        ],
    )],
    run: reply,
    ..PLAIN
};

pub(super) static NO_EVICT: Command = Command {
    name: "client|no-evict",
    summary: "Exempts the connection from client eviction, or no longer",
    since: "7.0.0",
    arity: 3,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::word("on", "ON"), Argument::word("off", "OFF")],
    )],
    run: no_evict,
    ..ADMIN
};

fn reply(call: &mut Call<'_>) -> Outcome {
    if call.is(2, "ON") {
        call.client.replies = Replies::On;
        call.reply.ok();
    } else if call.is(2, "OFF") {
        call.client.replies = Replies::Off;
    } else if !call.is(2, "SKIP") {
        return Err(Failure::Syntax);
    } else if call.client.replies != Replies::Off {
        call.client.replies = Replies::SkipNext;
    }
    Ok(())
}

fn no_evict(call: &mut Call<'_>) -> Outcome {
    call.client.no_evict_on = match (call.is(2, "ON"), call.is(2, "OFF")) {
        (true, _) => true,
        (_, true) => false,
        _ => return Err(Failure::Syntax),
    };
    call.reply.ok();
    Ok(())
}
