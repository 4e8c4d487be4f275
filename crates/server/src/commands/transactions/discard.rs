//! `DISCARD`: forgets a transaction.

use crate::command::*;

pub(super) static DISCARD: Command = Command {
    name: "discard",
    summary: "Forgets the transaction, and which keys were watched",
    since: "2.0.0",
    group: Group::Transactions,
    complexity: "O(N) where N is the number of commands that waited",
    arity: 1,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::Fast,
        Flag::AllowBusy,
    ],
    categories: &[Category::Transaction],
    is_immediate: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.take().is_none() {
        return Err(Failure::other("ERR DISCARD without MULTI"));
    }
    call.client.unwatch();
    call.reply.ok();
    Ok(())
}
