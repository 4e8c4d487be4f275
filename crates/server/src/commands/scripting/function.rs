//! `FUNCTION FLUSH`: succeeds, because there are no functions to remove.

use crate::command::*;
use crate::commands::help;

pub(super) static FUNCTION: Command = Command {
    name: "function",
    summary: "A container for commands about functions",
    since: "7.0.0",
    group: Group::Scripting,
    subcommands: &[&FLUSH, &HELP],
    ..help::CONTAINER
};

static FLUSH: Command = Command {
    name: "function|flush",
    summary: "Removes all functions, of which there are none",
    since: "7.0.0",
    group: Group::Scripting,
    arity: -2,
    flags: &[Flag::Write, Flag::NoScript],
    categories: &[Category::Scripting],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "async",
        &[
            Argument::word("async", "ASYNC"),
            Argument::word("sync", "SYNC"),
        ],
    )
    .optional()],
    is_repeatable: true,
    run: flush,
    ..Command::BLANK
};

static HELP: Command = Command {
    name: "function|help",
    since: "7.0.0",
    group: Group::Scripting,
    categories: &[Category::Scripting],
    run: |call| help::of(call, &FUNCTION),
    ..help::HELP
};

fn flush(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 => {}
        3 if call.is(2, "ASYNC") || call.is(2, "SYNC") => {}
        4.. => {
            return Err(call.no_such_subcommand("FUNCTION"));
        }
        _ => {
            return Err(Failure::other(
                "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
            ));
        }
    }
    call.reply.ok();
    Ok(())
}
