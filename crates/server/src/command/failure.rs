//! The error replies of commands.

use std::borrow::Cow;

use mneme_collections::{CollectionError, Damage, EditError};
use mneme_log::{BatchError, MAX_KEY, ReadError, WriteError};

/// Why a change is refused if the change feed has no space: its content does not become durable.
pub(crate) const FEED_IS_FULL: &str =
    "the change feed is full, and what it holds does not become durable";

/// The lack of memory for a change, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shortage {
    /// The contiguous space needed.
    wanted: u64,
    /// The space taken by existing records.
    live: u64,
    capacity: u64,
}

/// Why a command was not executed. The texts, including codes, are Redis's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("ERR syntax error")]
    Syntax,
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
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
    OutOfMemory(Shortage),
    #[error("LOADING Redis is loading the dataset in memory")]
    Loading,
    /// Writes cannot become durable, for this reason.
    #[error("MISCONF Errors writing to the AOF file: {0}")]
    NotDurable(&'static str),
    #[error("NOAUTH Authentication required.")]
    NotAuthenticated,
    /// The user may not call this command.
    #[error("NOPERM this user has no permissions to run the '{0}' command")]
    DeniedCommand(&'static str),
    #[error("NOPERM this user has no permissions to access one of the keys used as arguments")]
    DeniedKey,
    #[error("NOPERM this user has no permissions to access one of the channels used as arguments")]
    DeniedChannel,
    /// A command that a subscriber may not send that speaks RESP2.
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )]
    Subscribed(&'static str),
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
    #[error(
        "ERR too many keys: all of them at one instant take more memory than maxmemory-clients"
    )]
    TooManyKeys,
    /// An error of the store itself: damage, or a stalled process. Within a transaction it ends the
    /// whole transaction.
    #[error("ERR {0}")]
    Store(String),
    /// Another process holds something that may be free in a moment. The command is retried for a
    /// while, unless it is part of a transaction.
    #[error("ERR {0}")]
    NotYet(String),
    /// Its time slice ended before its work was done; it is called again after other clients have
    /// been served, and continues with the client's [`Unfinished`](crate::client::Unfinished). Or
    /// it has not begun, because another thread's exclusive section has changed the conditions
    /// under which it was admitted.
    #[error("ERR the command is not finished")]
    Unfinished,
    /// It needs an exclusive section, and a command of another thread takes long. It is retried
    /// soon.
    #[error("ERR another command is in the way")]
    NotAlone,
    /// It waits for a key, and is called again when the key may be ready.
    #[error("ERR the key is not ready")]
    Waits,
    /// An error that quotes a client's bytes, which may not be text.
    #[error("{}", String::from_utf8_lossy(.0))]
    Bytes(Vec<u8>),
    /// Any other error, beginning with its code.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl Failure {
    /// An error specific to one command.
    pub fn other(text: impl Into<Cow<'static, str>>) -> Self {
        Failure::Other(text.into())
    }

    /// An error that quotes `sent`, up to its first NUL as in Redis, between two texts.
    pub fn quoting(before: &str, sent: &[u8], behind: &str) -> Self {
        let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
        Failure::Bytes([before.as_bytes(), sent, behind.as_bytes()].concat())
    }

    /// The text as it is sent.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Failure::Bytes(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string().into_bytes()),
        }
    }

    /// The error of an `EXEC` that fails as a whole for this reason.
    pub fn aborted_because(failure: &Failure) -> Self {
        let reason = failure.to_string();
        let mut reason = reason.strip_prefix("ERR ").unwrap_or(&reason).to_owned();
        if let Failure::OutOfMemory(shortage) = failure {
            // A client that reads it can decide whether to remove something or to send less at
            // once.
            let Shortage {
                wanted,
                live,
                capacity,
            } = shortage;
            let state = match live + wanted > *capacity {
                true => "has no space for that",
                false => "is not full, but has no space for that now",
            };
            reason += &format!(
                " The transaction takes {wanted} bytes at once; the store {state}: {live} of {capacity} bytes are in use."
            );
        }
        Failure::AbortedBecause(reason)
    }

    /// Whether the store caused it, so that a transaction cannot continue with the next command.
    pub fn is_of_the_store(&self) -> bool {
        matches!(
            self,
            Failure::OutOfMemory(_) | Failure::NotDurable(_) | Failure::Store(_)
        )
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            ReadError::WrongKind(_) => Failure::WrongType,
            error => Failure::Store(error.to_string()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::OutOfMemory {
                wanted,
                live,
                capacity,
            } => Failure::OutOfMemory(Shortage {
                wanted,
                live,
                capacity,
            }),
            WriteError::ValueTooLong(_) => Failure::TooLong,
            WriteError::KeyTooLong(len) => Failure::KeyTooLong(len),
            WriteError::NoSuchDatabase(_) => Failure::NoSuchDatabase,
            WriteError::WrongKind(_) => Failure::WrongType,
            WriteError::FeedFull => Failure::NotDurable(FEED_IS_FULL),
            error => Failure::Store(error.to_string()),
        }
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Self {
        Failure::Store(damage.to_string())
    }
}

impl From<CollectionError> for Failure {
    fn from(error: CollectionError) -> Self {
        match error {
            CollectionError::WrongKind(_) => Failure::WrongType,
            CollectionError::Store(error) => error.into(),
            CollectionError::Edit(error) => error.into(),
            error => Failure::Store(error.to_string()),
        }
    }
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Damaged(damage) => damage.into(),
            EditError::TooLong(_) => Failure::TooLong,
            EditError::NotAnInteger => Failure::other("ERR hash value is not an integer"),
            EditError::Overflow => Failure::Overflow,
            error => Failure::other(format!("ERR {error}")),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        error.source.into()
    }
}
