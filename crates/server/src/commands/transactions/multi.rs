//! `MULTI`: begins a transaction.

use crate::command::*;
use crate::transaction_queue::Queue;

use super::PLAIN;

pub(super) static MULTI: Command = Command {
    name: "multi",
    summary: "Begins a transaction: the commands that follow are queued until EXEC",
    since: "1.2.0",
    is_immediate: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.is_some() {
        return Err(Failure::other("ERR MULTI calls can not be nested"));
    }
    call.client.queue = Some(Queue::default());
    call.reply.ok();
    Ok(())
}
