//! One call of a command: its arguments, its reply, the client that sent it and the server it runs
//! on.

use std::borrow::Cow;

use crate::client::Client;
use crate::counters::Counters;
use crate::keyspace::{Keyspace, Records};
use crate::resp::{Arguments, Reply, parse_i64};
use crate::settings::Key;
use crate::shared::Shared;
use mneme_log::{BatchError, Decision, MAX_KEY, ReadError, Stored, WriteError};

/// What a command's `run` gets.
pub(crate) struct Call<'a> {
    /// The command's name and arguments. Their number suits the command's arity.
    pub args: Arguments<'a>,
    /// Where the answer goes: exactly one reply. On `Err` whatever has been written is taken back.
    pub reply: Reply<'a>,
    /// The database that the client has selected.
    pub keyspace: Keyspace<'a>,
    /// The client that sent the command.
    pub client: &'a mut Client,
    /// The server that executes it.
    pub server: &'a Shared,
}

/// What a command's `run` comes to: its reply has been written, or an error is to be sent instead.
pub(crate) type Outcome = Result<(), Failure>;

impl<'a> Call<'a> {
    /// A call of `args` by `client`, with its reply at the end of `reply`.
    pub fn new(
        args: Arguments<'a>,
        reply: Reply<'a>,
        client: &'a mut Client,
        server: &'a Shared,
    ) -> Self {
        // What the client's thread counts.
        let counters = &server.threads[client.thread].counters;
        Self::within(args, reply, client, server, counters, None)
    }

    /// A call whose keys are counted by `counters`, within `transaction` if there is one.
    pub fn within(
        args: Arguments<'a>,
        reply: Reply<'a>,
        client: &'a mut Client,
        server: &'a Shared,
        counters: &'a Counters,
        transaction: Option<&'a mut (dyn Records + 'a)>,
    ) -> Self {
        Self {
            keyspace: Keyspace::new(&server.store, counters, client.database, transaction),
            args,
            reply,
            client,
            server,
        }
    }

    /// Milliseconds since the Unix epoch, by which keys expire: for all commands of an `EXEC` that
    /// is a transaction of the store the same.
    pub fn wall_ms(&self) -> u64 {
        let transaction = self.keyspace.time_of_transaction();
        transaction.unwrap_or_else(|| self.server.wall_ms())
    }

    /// Argument `index` as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        parse_i64(self.args.at(index)).ok_or(Failure::NotAnInteger)
    }

    /// Argument `index` as the number of a database.
    pub fn database(&self, index: usize) -> Result<usize, Failure> {
        let number = i32::try_from(self.integer(index)?).map_err(|_| Failure::NotAnInt)?;
        usize::try_from(number)
            .ok()
            .filter(|number| *number < self.server.settings.count(Key::Databases))
            .ok_or(Failure::NoSuchDatabase)
    }

    /// Changes the key that is argument 1 by what is stored there, and replies with the value it
    /// had, or null. `decide` may be called again, as in [`Keyspace::update`]. Counts a hit or a
    /// miss; whether it was a hit.
    pub fn update_returning(
        &mut self,
        mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<bool, Failure> {
        let (key, reply) = (self.args.at(1), &mut self.reply);
        let position = reply.position();
        let mut found = false;
        self.keyspace.update(key, |old| {
            found = old.is_some();
            reply.truncate(position);
            reply.value(old.map(|old| old.value));
            decide(old)
        })?;
        self.keyspace.count(found);
        Ok(found)
    }

    /// Replies with for how many of the arguments, all of them keys, `holds` is so: at one instant,
    /// so that it may be called again.
    pub fn count_keys(
        &mut self,
        mut holds: impl FnMut(&mut Keyspace<'_>, &[u8]) -> Result<bool, Failure>,
    ) -> Outcome {
        let keys = self.args.from(1);
        let count = self.keyspace.atomically_if(keys.len() > 1, |keyspace| {
            keys.iter()
                .try_fold(0, |count, key| Ok(count + i64::from(holds(keyspace, key)?)))
        })?;
        self.reply.integer(count);
        Ok(())
    }

    /// Whether argument `index` is `word`, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.args.at(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Why a command was not executed. The texts, codes included, are Redis'.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error(
        "ERR value is out of range, value must between {min} and {max}",
        min = i32::MIN,
        max = i32::MAX
    )]
    NotAnInt,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("NOAUTH Authentication required.")]
    NotAuthenticated,
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    #[error("ERR source and destination objects are the same")]
    SameObject,
    #[error("ERR DB index is out of range")]
    NoSuchDatabase,
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    Aborted,
    #[error("EXECABORT Transaction discarded because of: {0}")]
    AbortedBecause(String),
    #[error("ERR Command not allowed inside a transaction")]
    NotInTransaction,
    #[error("ERR the key has {0} bytes; at most {MAX_KEY} are allowed")]
    KeyTooLong(usize),
    /// An error of the store itself: damage, or a stalled process. Within a transaction it ends the
    /// whole transaction.
    #[error("ERR {0}")]
    Store(String),
    /// Another process is in the way, and may not be a moment later. The command is retried for a
    /// while, unless it is part of a transaction.
    #[error("ERR {0}")]
    NotYet(String),
    /// One that quotes what a client has sent, which may not be text.
    #[error("{}", String::from_utf8_lossy(.0))]
    Bytes(Vec<u8>),
    /// Any other; its code comes first.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl Failure {
    /// An error that only one command knows.
    pub fn other(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::Other(text.into())
    }

    /// An error that quotes `sent`, up to its first NUL as Redis does, between two texts.
    pub fn quoting(before: &str, sent: &[u8], behind: &str) -> Self {
        let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
        Failure::Bytes([before.as_bytes(), sent, behind.as_bytes()].concat())
    }

    /// Its text as it is sent.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Failure::Bytes(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string().into_bytes()),
        }
    }

    /// What `EXEC` says that fails as a whole for this reason.
    pub fn aborted_because(failure: &Failure) -> Self {
        let reason = failure.to_string();
        Failure::AbortedBecause(reason.strip_prefix("ERR ").unwrap_or(&reason).into())
    }

    /// Whether it is not the command's doing, so that a transaction cannot go on with the next one.
    pub fn is_of_the_store(&self) -> bool {
        matches!(self, Failure::OutOfMemory | Failure::Store(_))
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            error => Failure::Store(error.to_string()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::OutOfMemory { .. } => Failure::OutOfMemory,
            WriteError::ValueTooLong(_) => Failure::TooLong,
            WriteError::KeyTooLong(len) => Failure::KeyTooLong(len),
            WriteError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            error => Failure::Store(error.to_string()),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        error.source.into()
    }
}
