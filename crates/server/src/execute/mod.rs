//! Executes the commands of a batch in the order sent, each answered by exactly one reply.
//!
//! Neighbours that read keys, and neighbours that store plain values, go to the store together
//! ([`batched`]): it hashes and prefetches all of them before it touches the first, which is several times faster
//! than one by one. The order of replies and the effect of the commands are those of one by one.

mod batched;

use crate::client::Client;
use crate::commands::{Batching, Call, Command, Failure, Flag, TABLE};
use crate::counters::Counters;
use crate::resp::{Arguments, Batch, Reply};
use crate::shared::Shared;

/// Where and for whom commands are executed.
pub(crate) struct Executor<'a> {
    pub server: &'a Shared,
    pub client: &'a mut Client,
    pub counters: &'a Counters,
    /// The client's unsent replies; new ones are appended.
    pub out: &'a mut Vec<u8>,
    /// Once `out` is as long as this, no further command is begun.
    pub full: usize,
}

impl Executor<'_> {
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
            && match command.batching {
                Some(Batching::Value) => args.len() == 2,
                Some(Batching::Values) => args.len() >= 2,
                Some(Batching::Pair) => args.len() == 3,
                Some(Batching::Pairs) => args.len() >= 3 && args.len() % 2 == 1,
                None => false,
            }
    }

    /// Executes one call by itself.
    fn one(&mut self, command: &'static Command, args: Arguments<'_>) -> usize {
        let position = self.out.len();
        if let Err(failure) = self.call(command, args) {
            self.out.truncate(position);
            self.fail(&failure);
        }
        1
    }

    fn call(&mut self, command: &'static Command, args: Arguments<'_>) -> Result<(), Failure> {
        let command = self.resolve(command, args)?;
        if !command.accepts(args.len()) {
            return Err(Failure::WrongArity(command.name));
        }
        if !self.client.authenticated && !command.has(Flag::NoAuth) {
            return Err(Failure::NotAuthenticated);
        }
        self.client.last_command = command.name;
        (command.run)(&mut Call {
            args,
            reply: Reply::new(self.out, self.client.protocol),
            client: self.client,
            server: self.server,
            counters: self.counters,
        })
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
