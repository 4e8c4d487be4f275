//! Several commands of a client that are carried out together, in order: those of an `EXEC`, or
//! neighbours in a pipeline.

use std::sync::Arc;

use crate::acl::{Context, Denied, User};
use crate::command::{Call, Command, Failure, Flag, Outcome};
use crate::counters::Counters;
use crate::denial;
use crate::keyspace::RecordOperations;
use crate::monitor;
use crate::resp::Arguments;
use crate::statistics::Finished;

/// A command with its arguments.
pub(crate) type Given<'c> = (&'static Command, Arguments<'c>);

/// Commands that are carried out together, perhaps in several attempts: the last one counts.
pub(crate) struct Together<'c> {
    commands: &'c [Given<'c>],
    counted: Counters,
    taken: Vec<Taken>,
}

/// How long a command of the last attempt took, and why it failed if it did.
struct Taken {
    nanoseconds: u64,
    /// The database that was selected when it was done.
    database: usize,
    failure: Option<Failure>,
    /// What the client's user was not permitted, and which user that was.
    denied: Option<(Denied, Arc<User>)>,
}

impl<'c> Together<'c> {
    /// These commands, in order.
    pub fn new(commands: &'c [Given<'c>]) -> Together<'c> {
        Together {
            commands,
            counted: Counters::default(),
            taken: Vec::with_capacity(commands.len()),
        }
    }

    /// Executes the commands one after the other, within `transaction` if there is one, with a
    /// reply each. If one fails by its own fault, that is its reply, and the next one is executed.
    /// With `full` it ends early, as soon as the replies have so many bytes or the time slice is
    /// over.
    ///
    /// # Errors
    /// The store failed: the attempt has to end without effect.
    pub fn attempt(
        &mut self,
        call: &mut Call<'_>,
        mut transaction: Option<&mut dyn RecordOperations>,
        full: Option<usize>,
    ) -> Outcome {
        let Together {
            commands,
            counted,
            taken,
        } = self;
        taken.clear();
        *counted = Counters::default();
        let mut marked_ns = call.server.now_ns();
        let mut refused = None;
        for &(command, args) in *commands {
            let (position, was_closing) = (call.reply.position(), call.client.closing);
            if full.is_some_and(|full| position >= full)
                || full.is_some() && !taken.is_empty() && call.is_slice_over()
            {
                break;
            }
            // Nobody will see what is read, because the connection is being closed. Changes are
            // kept.
            if call.reply.is_over() && command.has(Flag::Readonly) {
                taken.push(Taken {
                    nanoseconds: 0,
                    database: call.client.database,
                    failure: None,
                    denied: None,
                });
                continue;
            }
            // Its user may have changed since the command was queued, even by an earlier command of
            // the transaction.
            if call.client.has_old_rules(&call.server.users) {
                (call.client).renew_rules(&call.server.users, &call.server.clients);
            }
            let denied = denial::check(call.server, &call.client.user, command, args);
            let denied = denied
                .err()
                .map(|denied| (denied, Arc::clone(&call.client.user)));
            let outcome = match refused.filter(|_| command.may_change_data()) {
                // It would wait as long as the previous one, and all other clients with it.
                Some(reason) => Err(Failure::NotDurable(reason)),
                None if let Some((denied, _)) = denied => Err(denial::of_queued(denied)),
                None => {
                    if call.client.tracking.is_some() {
                        call.server.remember_keys_of(call.client, command, &args);
                    }
                    let within: Option<&mut dyn RecordOperations> = match &mut transaction {
                        Some(transaction) => Some(&mut **transaction),
                        None => None,
                    };
                    let mut inner = Call::within(
                        args,
                        call.reply.reborrow(),
                        call.client,
                        call.server,
                        counted,
                        within,
                    );
                    (command.run)(&mut inner)
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

    /// The commands took so many nanoseconds in all: what is not their own is the last one's, the
    /// commit and earlier attempts.
    pub fn took(&mut self, nanoseconds: u64) {
        let own = self.taken.iter().map(|taken| taken.nanoseconds).sum();
        if let Some(last) = self.taken.last_mut() {
            last.nanoseconds += nanoseconds.saturating_sub(own);
        }
    }

    /// Counts and reports what the last attempt has done, and wakes clients that wait for what it
    /// has made. Returns the number of commands that it executed.
    pub fn finish(self, call: &mut Call<'_>) -> usize {
        let thread = call.client.thread;
        call.server.threads[thread]
            .counters
            .take_keys(&self.counted);
        let (done, client) = (self.taken.len(), &mut *call.client);
        let databases = self.taken.iter().map(|taken| taken.database);
        (call.server).wake_for_all(self.commands.iter().copied().zip(databases), |thread| {
            client.wake_later(thread)
        });
        for (&(command, args), taken) in self.commands.iter().zip(self.taken) {
            if let Some(failure) = &taken.failure {
                call.server.count_error(thread, failure);
            }
            if let Some((denied, user)) = taken.denied {
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
                monitor::show(call.server, call.client, taken.database, command, args);
            }
            Finished {
                command,
                args,
                calls: 1,
                begun: 1,
                failed: u64::from(taken.failure.is_some()),
                nanoseconds: taken.nanoseconds,
            }
            .note(call.server, call.client);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_command_takes_what_is_no_commands_own() {
        let taken = |nanoseconds| Taken {
            nanoseconds,
            database: 0,
            failure: None,
            denied: None,
        };
        for (all, last) in [(100, 65), (42, 7), (10, 7)] {
            let mut together = Together::new(&[]);
            together.taken = [30, 5, 7].map(taken).into();
            together.took(all);
            let took: Vec<u64> = together.taken.iter().map(|it| it.nanoseconds).collect();
            assert_eq!(took, [30, 5, last], "{all}");
        }
    }
}
