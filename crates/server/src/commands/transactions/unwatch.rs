//! `UNWATCH`: forgets which keys were watched.

use crate::command::*;

pub(super) static UNWATCH: Command = Command {
    name: "unwatch",
    summary: "Forgets which keys were watched",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(N) where N is the number of watched keys",
    arity: 1,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::Fast,
        Flag::AllowBusy,
    ],
    categories: &[Category::Transaction],
    is_repeatable: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.unwatch();
    call.reply.ok();
    Ok(())
}
