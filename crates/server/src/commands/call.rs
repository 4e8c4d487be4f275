//! One call of a command: its arguments, its reply, the client that sent it and the server it runs on.

use std::borrow::Cow;

use crate::client::Client;
use crate::counters::Counters;
use crate::resp::{Arguments, Reply, parse_i64};
use crate::shared::Shared;
use mneme_log::{BatchError, Database, ReadError, Value, WriteError};

/// What a command's `run` gets.
pub(crate) struct Call<'a> {
    /// The command's name and arguments. Their number suits the command's arity.
    pub args: Arguments<'a>,
    /// Where the answer goes: exactly one reply. On `Err` whatever has been written is taken back.
    pub reply: Reply<'a>,
    /// Who asks.
    pub client: &'a mut Client,
    /// Whom.
    pub server: &'a Shared,
    /// What this thread counts.
    pub counters: &'a Counters,
}

/// What a command's `run` comes to: its reply has been written, or an error is to be sent instead.
pub(crate) type Outcome = Result<(), Failure>;

impl<'a> Call<'a> {
    /// The database the client has selected.
    pub fn database(&self) -> Result<Database<'a>, Failure> {
        Ok(self.server.store.database(self.client.database)?)
    }

    /// The value of the key that is argument `index`.
    pub fn read(&self, index: usize) -> Result<Option<Value<'a>>, Failure> {
        let value = self.database()?.get(self.args.at(index))?;
        self.count_read(value.is_some());
        Ok(value)
    }

    /// Counts a key that was looked up.
    pub fn count_read(&self, found: bool) {
        let count = if found {
            &self.counters.hits
        } else {
            &self.counters.misses
        };
        count.add(1);
    }

    /// Argument `index` as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        parse_i64(self.args.at(index)).ok_or(Failure::NotAnInteger)
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
    #[error("ERR DB index is out of range")]
    NoSuchDatabase,
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    /// Any other; its code comes first.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl Failure {
    /// An error that only one command knows.
    pub fn other(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::Other(text.into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            error => Failure::Other(format!("ERR {error}").into()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::OutOfMemory { .. } => Failure::OutOfMemory,
            WriteError::ValueTooLong(_) => Failure::TooLong,
            WriteError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            error => Failure::Other(format!("ERR {error}").into()),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        error.source.into()
    }
}
