//! Executes the commands of a batch in the order sent, each answered by exactly one reply.
//!
//! Neighbours that read keys, and neighbours that store plain values, go to the store together
//! ([`batched`]): it hashes and prefetches all of them before it touches the first, which is several times faster
//! than one by one. The order of replies and the effect of the commands are those of one by one.

mod batched;

use crate::client::Client;
use crate::commands::{Batching, Call, Command, Failure, Flag, Reach, TABLE};
use crate::counters::Counters;
use crate::queue::Queue;
use crate::resp::{Arguments, Batch, Reply};
use crate::shared::Shared;
use crate::turns::Turn;

/// Where and for whom commands are executed.
pub(crate) struct Executor<'a> {
    server: &'a Shared,
    client: &'a mut Client,
    counters: &'a Counters,
    /// The client's unsent replies; new ones are appended.
    out: &'a mut Vec<u8>,
    /// The thread's turn, while this executes.
    turn: Option<Turn<'a>>,
    /// Once `out` is as long as this, no further command is begun.
    full: usize,
}

impl<'a> Executor<'a> {
    /// Executes for `client`, until `out`, to which the replies go, is as long as `full`. Takes its thread's turn.
    pub fn new(
        server: &'a Shared,
        client: &'a mut Client,
        counters: &'a Counters,
        out: &'a mut Vec<u8>,
        full: usize,
    ) -> Self {
        let turn = Some(server.turns.take(client.thread));
        Self {
            server,
            client,
            counters,
            out,
            turn,
            full,
        }
    }

    /// Executes the commands of `batch`, which was parsed from `input`, until all are done, `out` is full, or the
    /// client is to be closed. Returns how many have been executed; at least one, if there is one.
    pub fn run(&mut self, batch: &Batch, input: &[u8]) -> usize {
        let mut done = 0;
        while done < batch.len() {
            let args = batch.command(done, input);
            // A lone command with one key has no neighbours to go with.
            let alone = done + 1 == batch.len() && args.len() <= 3;
            done += match TABLE.find(args.at(0)) {
                Some(command) => match command.batching.filter(|_| !alone) {
                    Some(kind) if kind.is_read() && self.may_batch(command, args) => {
                        self.reads(batch, input, done)
                    }
                    Some(kind) if kind.is_write() && self.may_batch(command, args) => {
                        self.writes(batch, input, done)
                    }
                    _ => self.one(command, args),
                },
                None => self.unknown(args),
            };
            if self.client.closing || self.out.len() >= self.full {
                break;
            }
        }
        self.counters.commands.add(done as u64);
        done
    }

    /// Whether this call is of the plain form that can be executed with its neighbours.
    #[inline]
    fn may_batch(&self, command: &Command, args: Arguments<'_>) -> bool {
        self.client.authenticated
            && self.client.queue.is_none()
            && match command.batching {
                Some(Batching::Value) => args.len() == 2,
                Some(Batching::Pair) => args.len() == 3,
                None => false,
            }
    }

    /// Executes one call by itself.
    fn one(&mut self, command: &'static Command, args: Arguments<'_>) -> usize {
        let position = self.out.len();
        let outcome = self
            .admit(command, args)
            .and_then(|command| self.call(command, args));
        if let Err(failure) = outcome {
            self.out.truncate(position);
            self.fail(&failure);
        }
        1
    }

    /// The command, or subcommand, if the call is well formed and the client may make it.
    fn admit(
        &mut self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Result<&'static Command, Failure> {
        let admitted = self.resolve(command, args).and_then(|command| {
            if !command.accepts(args.len()) {
                return Err(Failure::WrongArity(command.name));
            }
            if !self.client.authenticated && !command.has(Flag::NoAuth) {
                return Err(Failure::NotAuthenticated);
            }
            if self.client.queue.is_some() && command.has(Flag::NoMulti) {
                return Err(Failure::NotInTransaction);
            }
            Ok(command)
        });
        admitted.map_err(|failure| {
            if command.reach == Reach::Queue {
                self.client.queue = None;
                self.client.watch = None;
                let reason = failure.to_string();
                Failure::AbortedBecause(reason.strip_prefix("ERR ").unwrap_or(&reason).into())
            } else {
                self.refuse_queue();
                failure
            }
        })
    }

    /// What cannot be taken makes a transaction that is being said fail as a whole.
    fn refuse_queue(&mut self) {
        if let Some(queue) = &mut self.client.queue {
            queue.refused = true;
        }
    }

    fn call(&mut self, command: &'static Command, args: Arguments<'_>) -> Result<(), Failure> {
        self.client.last_command = command.name;
        if let Some(queue) = &mut self.client.queue
            && !command.is_immediate
        {
            queue.push(command, args);
            if queue.bytes() > self.server.settings.query_buffer {
                tracing::warn!(
                    client = self.client.entry.id,
                    "a transaction exceeds the query buffer; cutting its client off"
                );
                self.client.closing = true;
            }
            Reply::new(self.out, self.client.protocol).simple("QUEUED");
            return Ok(());
        }
        let alone = match command.reach {
            Reach::Keys | Reach::Databases => false,
            Reach::Alone => true,
            Reach::Queue => self
                .client
                .queue
                .as_ref()
                .is_some_and(Queue::reaches_beyond_keys),
        };
        let server = self.server;
        let guard = alone.then(|| {
            self.turn = None;
            server.turns.alone()
        });
        let reply = Reply::new(self.out, self.client.protocol);
        let outcome = (command.run)(&mut Call::new(
            args,
            reply,
            self.client,
            server,
            self.counters,
            None,
        ));
        if let Some(guard) = guard {
            drop(guard);
            self.turn = Some(server.turns.take(self.client.thread));
        }
        outcome
    }

    /// The subcommand, where the command is a container.
    fn resolve(
        &self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Result<&'static Command, Failure> {
        if command.subcommands.is_empty() || args.len() < 2 {
            return Ok(command);
        }
        command.subcommand(args.at(1)).ok_or_else(|| {
            let asked = String::from_utf8_lossy(first(args.at(1), 128));
            let container = command.name.to_ascii_uppercase();
            Failure::other(format!(
                "ERR unknown subcommand '{asked}'. Try {container} HELP."
            ))
        })
    }

    fn unknown(&mut self, args: Arguments<'_>) -> usize {
        // Redis quotes as much of the command as fits into about 128 bytes.
        let mut quoted = String::new();
        for arg in args.from(1).iter() {
            if quoted.len() >= 128 {
                break;
            }
            let room = 128 - quoted.len();
            quoted.push_str(&format!("'{}' ", String::from_utf8_lossy(first(arg, room))));
        }
        let name = String::from_utf8_lossy(first(args.at(0), 128));
        let failure = if self.client.authenticated {
            Failure::other(format!(
                "ERR unknown command '{name}', with args beginning with: {quoted}"
            ))
        } else {
            Failure::NotAuthenticated
        };
        self.refuse_queue();
        self.fail(&failure);
        1
    }

    fn fail(&mut self, failure: &Failure) {
        self.counters.errors.add(1);
        Reply::new(self.out, self.client.protocol).error(failure);
    }
}

/// At most the first `len` bytes.
fn first(bytes: &[u8], len: usize) -> &[u8] {
    &bytes[..bytes.len().min(len)]
}
