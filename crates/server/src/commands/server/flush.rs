//! `FLUSHALL` and `FLUSHDB`: remove all keys. `ASYNC` and `SYNC` make no difference: the index is
//! dropped at once, and the memory is freed in the background.

use crate::command::*;
use crate::settings::Key;
use mneme_log::{DATABASES, Database};

pub(super) static FLUSHALL: Command = Command {
    name: "flushall",
    summary: "Removes all keys from all databases",
    // All databases are cleared at one instant.
    reach: Reach::Exclusive,
    run: all,
    ..BOTH
};

pub(super) static FLUSHDB: Command = Command {
    name: "flushdb",
    summary: "Removes all keys from the selected database",
    run: selected,
    ..BOTH
};

const BOTH: Command = Command {
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -1,
    flags: &[Flag::Write],
    categories: &[Category::Keyspace, Category::Dangerous],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "async",
        &[
            Argument::word("async", "ASYNC").since("4.0.0"),
            Argument::word("sync", "SYNC").since("6.2.0"),
        ],
    )
    .optional()],
    reach: Reach::Databases,
    ..Command::BLANK
};

fn all(call: &mut Call<'_>) -> Outcome {
    check_mode(call)?;
    let selectable = call.server.settings.count(Key::Databases);
    for index in 0..DATABASES {
        let database = call.server.store.database(index)?;
        // A database that cannot be selected may have been filled by a server with more of them.
        if index < selectable || database.try_len()? > 0 {
            clear(call, database)?;
        }
    }
    let client = &mut *call.client;
    (call.server).invalidate_all(|thread| client.wake_later(thread));
    call.reply.ok();
    Ok(())
}

fn selected(call: &mut Call<'_>) -> Outcome {
    check_mode(call)?;
    let database = call.keyspace.whole()?;
    clear(call, database)?;
    let client = &mut *call.client;
    (call.server).invalidate_all(|thread| client.wake_later(thread));
    call.reply.ok();
    Ok(())
}

/// Clears a database, which counts as a change of each of its keys, or of one key if it has none.
fn clear(call: &Call<'_>, database: Database<'_>) -> Outcome {
    let keys = database.try_len()?;
    database.clear()?;
    let counters = &call.server.threads[call.client.thread].counters;
    counters.changes.add(keys.max(1));
    Ok(())
}

fn check_mode(call: &Call<'_>) -> Outcome {
    match call.args.len() {
        1 => Ok(()),
        2 if call.is(1, "ASYNC") || call.is(1, "SYNC") => Ok(()),
        _ => Err(Failure::Syntax),
    }
}
