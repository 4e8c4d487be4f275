//! `UNWATCH`: ends the watch on all keys.

use crate::command::*;

use super::PLAIN;

pub(super) static UNWATCH: Command = Command {
    name: "unwatch",
    summary: "Forgets which keys were watched",
    since: "2.2.0",
    complexity: "O(N) where N is the number of watched keys",
    is_repeatable: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.client.unwatch();
    call.reply.ok();
    Ok(())
}
