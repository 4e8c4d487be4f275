//! `DISCARD`: abandons a transaction.

use crate::command::*;

use super::PLAIN;

pub(super) static DISCARD: Command = Command {
    name: "discard",
    summary: "Forgets the transaction, and which keys were watched",
    since: "2.0.0",
    complexity: "O(N) where N is the number of commands that waited",
    is_immediate: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.take().is_none() {
        return Err(Failure::other("ERR DISCARD without MULTI"));
    }
    call.client.unwatch();
    call.reply.ok();
    Ok(())
}
