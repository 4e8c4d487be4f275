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

use std::sync::Arc;

use crate::acl::{Context, Denied, User};
use crate::command::*;
use crate::counters::Counters;
use crate::denial;
use crate::keyspace::RecordOperations;
use crate::monitor;
use crate::statistics::Finished;
use crate::transaction_queue::Queue;

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

/// How long a command of the last attempt took, and why it failed if it did.
struct Taken {
    nanoseconds: u64,
    /// The database that was selected when it was done.
    database: usize,
    failure: Option<Failure>,
    /// What the client's user was not permitted, and which user that was.
    denied: Option<(Denied, Arc<User>)>,
}

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
    let mut taken = Vec::with_capacity(queue.commands().len());
    // The counts of an attempt are used only if it is the last.
    let mut counted = Counters::default();
    let mut attempt = |transaction: Option<&mut dyn RecordOperations>| {
        call.reply.truncate(position);
        call.client.database = database;
        call.keyspace.forget_events();
        taken.clear();
        counted = Counters::default();
        carry_out(call, &queue, &counted, &mut taken, transaction)
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
            let thread = call.client.thread;
            call.server.threads[thread].counters.take_keys(&counted);
            let databases: Vec<usize> = taken.iter().map(|taken| taken.database).collect();
            let commands = queue.commands().iter().zip(databases);
            let client = &mut *call.client;
            (call.server).wake_for_all(commands, |thread| client.wake_later(thread));
            for (queued, taken) in queue.commands().iter().zip(taken) {
                if let Some(failure) = &taken.failure {
                    call.server.count_error(thread, failure);
                }
                if let Some((denied, user)) = taken.denied {
                    let (command, args) = (queued.command, queued.args());
                    denial::log(
                        call.server,
                        call.client,
                        &user,
                        denied,
                        Context::Multi,
                        command,
                        args,
                    );
                }
                if call.client.is_monitored {
                    let (command, args) = (queued.command, queued.args());
                    monitor::show(call.server, call.client, taken.database, command, args);
                }
                Finished {
                    command: queued.command,
                    args: queued.args(),
                    calls: 1,
                    begun: 1,
                    failed: u64::from(taken.failure.is_some()),
                    nanoseconds: taken.nanoseconds,
                }
                .note(call.server, call.client);
            }
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

/// Executes the commands one after the other. If one fails by its own fault, that is its reply, and
/// the next one is executed.
fn carry_out(
    call: &mut Call<'_>,
    queue: &Queue,
    counted: &Counters,
    taken: &mut Vec<Taken>,
    mut transaction: Option<&mut dyn RecordOperations>,
) -> Outcome {
    // What others have published comes before the array, and not amid it. Nobody publishes while a
    // transaction runs that may send messages itself: it has the server to itself.
    if transaction.is_none() {
        call.drain_pushes();
    }
    // As in Redis, a client that disabled replies and enables them again within the transaction
    // gets those that follow, without the array's header.
    if !call.client.replies.is_silent() {
        call.reply.array(queue.commands().len());
    }
    let mut marked_ns = call.server.now_ns();
    let mut refused = None;
    for queued in queue.commands() {
        // Nobody will see what is read, because the connection is being closed. Changes are kept.
        if call.reply.is_over() && queued.command.has(Flag::Readonly) {
            taken.push(Taken {
                nanoseconds: 0,
                database: call.client.database,
                failure: None,
                denied: None,
            });
            continue;
        }
        let (position, was_closing) = (call.reply.position(), call.client.closing);
        // Its user may have changed since the command was queued, even by an earlier command of the
        // transaction.
        if call.client.has_old_rules(&call.server.users) {
            call.client.renew_rules(&call.server.users);
        }
        let denied = denial::check(
            call.server,
            &call.client.user,
            queued.command,
            queued.args(),
        );
        let denied = denied
            .err()
            .map(|denied| (denied, Arc::clone(&call.client.user)));
        let outcome = match refused.filter(|_| queued.command.may_change_data()) {
            // It would wait as long as the previous one, and all other clients with it.
            Some(reason) => Err(Failure::NotDurable(reason)),
            None if let Some((denied, _)) = denied => Err(denial::of_queued(denied)),
            None => {
                if call.client.tracking.is_some() {
                    let args = queued.args();
                    (call.server).remember_keys_of(call.client, queued.command, &args);
                }
                let within: Option<&mut dyn RecordOperations> = match &mut transaction {
                    Some(transaction) => Some(&mut **transaction),
                    None => None,
                };
                let mut inner = Call::within(
                    queued.args(),
                    call.reply.reborrow(),
                    call.client,
                    call.server,
                    counted,
                    within,
                );
                (queued.command.run)(&mut inner)
            }
        };
        call.reply.set_protocol(call.client.protocol);
        if let Err(Failure::NotDurable(reason)) = &outcome {
            refused = Some(*reason);
        }
        let failure = match outcome {
            Err(failure) if transaction.is_some() && failure.is_of_the_store() => {
                return Err(failure);
            }
            Err(failure) => {
                call.reply.truncate(position);
                call.reply.error(&failure.text());
                Some(failure)
            }
            Ok(()) => None,
        };
        // As in Redis, a client that has ended its own connection gets no further replies.
        if call.client.replies.is_silent() || was_closing {
            call.reply.truncate(position);
        }
        let now_ns = call.server.now_ns();
        taken.push(Taken {
            nanoseconds: now_ns.saturating_sub(marked_ns),
            database: call.client.database,
            failure,
            denied,
        });
        marked_ns = now_ns;
    }
    Ok(())
}
