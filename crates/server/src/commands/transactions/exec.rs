//! `EXEC`: executes the commands queued since `MULTI`, at one instant for all observers, or none of
//! them.
//!
//! Commands on keys run within a transaction of the store, which may take several attempts.
//! Observers, including local programs, see all of it or nothing, even after a kill. A transaction
//! that also reads or changes whole databases (`SCAN`, `FLUSHDB`, ...) or the server (`CONFIG SET`,
//! ...) runs once, in an exclusive section: other clients see all of it or nothing, but local
//! programs, and processes that attach after a kill, may see a part. A store that is rebuilt from
//! its files has all of it or nothing. In that case, a change by a local program between the check
//! of the watched keys and the first command is not noticed.

use crate::command::*;
use crate::keyspace::RecordOperations;
use crate::together::Together;

pub(super) static EXEC: Command = Command {
    name: "exec",
    summary: "Carries out the transaction's commands",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "What its commands cost together, or twice as much where others change their keys meanwhile",
    arity: 1,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::SkipSlowlog,
    ],
    categories: &[Category::Transaction],
    reach: Reach::Queue,
    is_immediate: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let Some(queue) = call.client.queue.take() else {
        return Err(Failure::other("ERR EXEC without MULTI"));
    };
    let watch = call.client.unwatch();
    if queue.refused {
        return Err(Failure::Aborted);
    }
    let (position, database, store) = (
        call.reply.position(),
        call.client.database,
        &*call.server.store,
    );
    let commands = queue.commands().iter();
    let commands: Vec<_> = commands
        .map(|queued| (queued.command, queued.args()))
        .collect();
    let mut together = Together::new(&commands);
    let mut attempt = |transaction: Option<&mut dyn RecordOperations>| {
        call.reply.truncate(position);
        call.client.database = database;
        call.keyspace.forget_events();
        carry_out(call, &mut together, commands.len(), transaction)
    };
    let carried_out = if !queue.may_run_again() || queue.commands().is_empty() {
        match watch {
            Some(watch) if !watch.is_unchanged() => Ok(None),
            _ => {
                // Not a transaction of the store, but one change for readers of its feed. A
                // transaction that only reads must not wait for space there.
                let done = match queue.may_write() {
                    true => store.feed_together(|| attempt(None))?,
                    false => attempt(None),
                };
                done.map(Some)
            }
        }
    } else {
        let keys = queue.keys(database);
        match watch {
            Some(watch) => watch.transaction_on(&keys, |transaction| attempt(Some(transaction))),
            None => store
                .transaction_on(&keys, |transaction| attempt(Some(transaction)))
                .map(Some),
        }
    };
    match carried_out {
        Ok(Some(())) => {
            together.finish(call);
            Ok(())
        }
        Ok(None) => {
            call.client.database = database;
            call.reply.truncate(position);
            call.reply.null_array();
            Ok(())
        }
        Err(failure) => {
            call.client.database = database;
            Err(Failure::aborted_because(&failure))
        }
    }
}

/// Executes the commands, and replies with their replies.
fn carry_out(
    call: &mut Call<'_>,
    commands: &mut Together<'_>,
    len: usize,
    transaction: Option<&mut dyn RecordOperations>,
) -> Outcome {
    // Messages published by others precede the array, and never come within it. While a transaction
    // that may publish messages runs, it has the server to itself, so no other client publishes.
    if transaction.is_none() {
        call.drain_pushes();
    }
    // As in Redis, a client that disabled replies and enables them again within the transaction
    // gets those that follow, without the array's header.
    if !call.client.replies.is_silent() {
        call.reply.array(len);
    }
    commands.attempt(call, transaction, None)
}
