//! `SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]`: the server finishes the commands that it has
//! begun and exits.

use mneme_durable::GateState;

use crate::command::*;

pub(super) static SHUTDOWN: Command = Command {
    name: "shutdown",
    summary: "Stops the server; with `data` all changes are on disk then, otherwise nothing is saved",
    since: "1.0.0",
    group: Group::Server,
    arity: -1,
    flags: &[
        Flag::Admin,
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::NoMulti,
        Flag::AllowBusy,
    ],
    arguments: &[
        Argument::one_of(
            "nosave_save",
            &[
                Argument::word("nosave", "NOSAVE"),
                Argument::word("save", "SAVE"),
            ],
        )
        .optional(),
        Argument::word("now", "NOW").since("7.0.0").optional(),
        Argument::word("force", "FORCE").since("7.0.0").optional(),
        Argument::word("abort", "ABORT").since("7.0.0").optional(),
    ],
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let indices = 1..call.args.len();
    let has = |word| indices.clone().any(|index| call.is(index, word));
    let words = ["NOSAVE", "SAVE", "NOW", "FORCE", "ABORT"];
    let is_known = |index| words.into_iter().any(|word| call.is(index, word));
    let (saves, aborts) = (has("SAVE"), has("ABORT"));
    let others = ["NOSAVE", "SAVE", "NOW", "FORCE"].into_iter().any(has);
    if !indices.clone().all(is_known) || saves && has("NOSAVE") || aborts && others {
        return Err(Failure::Syntax);
    }
    if aborts {
        return Err(Failure::other("ERR No shutdown in progress."));
    }
    let may_lose = has("NOSAVE") || has("FORCE");
    match call.server.store.durability() {
        // Data that are still being loaded are on disk.
        None if saves && !call.server.store.is_loading() => {
            return Err(Failure::other(
                "ERR SHUTDOWN SAVE is not possible: nothing is kept on disk without --data",
            ));
        }
        // Shutting down needs a last sync, which would fail.
        Some(durability) if durability.gate().state() == GateState::Failed && !may_lose => {
            return Err(Failure::other("ERR Errors trying to SHUTDOWN. Check logs."));
        }
        _ => {}
    }
    if may_lose {
        call.server.accept_loss();
    }
    // As in Redis, success has no reply: the connection is closed.
    call.client.closing = true;
    call.server.stop();
    Ok(())
}
