//! `SAVE`, `BGSAVE`, `BGREWRITEAOF`, `LASTSAVE`: checkpoints of a store that is kept on disk. There
//! is only one kind: it holds all records, and the journal continues from it. For a store that is
//! kept as a tree each commit is a checkpoint, which exists as soon as the writes are durable.

use mneme_durable::{Durability, DurabilityMode, DurableError};

use super::info::last_save_s;
use crate::command::*;

/// The common fields of these commands.
const PLAIN: Command = Command {
    group: Group::Server,
    complexity: "O(N) where N is the number of records; clients are served meanwhile",
    arity: 1,
    flags: &[Flag::Admin, Flag::NoScript, Flag::NoAsyncLoading],
    ..Command::BLANK
};

pub(super) static SAVE: Command = Command {
    name: "save",
    summary: "Writes a checkpoint of all records, and replies when it is on disk",
    complexity: "O(N) where N is the number of records; the clients of its I/O thread wait",
    flags: &[
        Flag::Admin,
        Flag::NoScript,
        Flag::NoAsyncLoading,
        Flag::NoMulti,
    ],
    reach: Reach::Nothing,
    run: save,
    ..PLAIN
};

pub(super) static BGSAVE: Command = Command {
    name: "bgsave",
    summary: "Has a checkpoint of all records written in the background",
    arity: -1,
    arguments: &[Argument::word("schedule", "SCHEDULE")
        .since("3.2.2")
        .optional()],
    run: bgsave,
    ..PLAIN
};

pub(super) static BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    summary: "Has a checkpoint written in the background, after which older files of the journal go",
    run: bgrewriteaof,
    ..PLAIN
};

pub(super) static LASTSAVE: Command = Command {
    name: "lastsave",
    summary: "Returns when the last checkpoint was on disk, or the server started: seconds since 1970",
    group: Group::Server,
    arity: 1,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &[Category::Admin, Category::Dangerous],
    tips: &["nondeterministic_output"],
    run: lastsave,
    ..Command::BLANK
};

pub(super) fn durability<'a>(call: &Call<'a>) -> Result<&'a Durability, Failure> {
    let store = &call.server.store;
    store.durability().ok_or_else(|| match store.is_loading() {
        true => Failure::Loading,
        false => Failure::other("ERR nothing is kept on disk: start the server with --data DIR"),
    })
}

fn save(call: &mut Call<'_>) -> Outcome {
    let durability = durability(call)?;
    if durability.stats().checkpoints.running.is_some() {
        return Err(Failure::other("ERR Background save already in progress"));
    }
    match durability.checkpoint_and_wait() {
        Ok(_) => {
            call.reply.ok();
            Ok(())
        }
        Err(error) => Err(Failure::other(format!("ERR {error}"))),
    }
}

fn bgsave(call: &mut Call<'_>) -> Outcome {
    let schedules = match call.args.len() {
        1 => false,
        2 if call.is(1, "SCHEDULE") => true,
        _ => return Err(Failure::Syntax),
    };
    let durability = durability(call)?;
    match durability.checkpoint() {
        Ok(()) => call.reply.simple("Background saving started"),
        Err(DurableError::Busy) if schedules => {
            call.server.saver.schedule();
            call.reply.simple("Background saving scheduled");
        }
        Err(DurableError::Busy) => {
            return Err(Failure::other("ERR Background save already in progress"));
        }
        Err(error) => return Err(Failure::other(format!("ERR {error}"))),
    }
    Ok(())
}

fn bgrewriteaof(call: &mut Call<'_>) -> Outcome {
    let durability = durability(call)?;
    if durability.stats().mode == DurabilityMode::Tree {
        return Err(Failure::other(
            "ERR there is no journal to rewrite: the data is kept with durability tree",
        ));
    }
    match durability.checkpoint() {
        Ok(()) => {
            call.reply
                .simple("Background append only file rewriting started");
            Ok(())
        }
        Err(DurableError::Busy) => Err(Failure::other(
            "ERR Background append only file rewriting already in progress",
        )),
        Err(error) => Err(Failure::other(format!("ERR {error}"))),
    }
}

fn lastsave(call: &mut Call<'_>) -> Outcome {
    let stats = durability(call)?.stats();
    let seconds = last_save_s(call.server, &stats);
    call.reply.integer(seconds as i64);
    Ok(())
}
