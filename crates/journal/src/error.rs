//! The errors of journals and base files, with the file and the offset.

use mneme_sys::medium::MediumError;

use crate::Position;

/// Why a journal, or a base file, cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The medium failed; nothing durable is affected.
    #[error("cannot {what} {file}")]
    Medium {
        /// The operation.
        what: &'static str,
        /// The file or the directory.
        file: String,
        /// The medium's error.
        #[source]
        source: MediumError,
    },
    /// A file is damaged or missing.
    #[error(transparent)]
    Damaged(#[from] FileDamage),
    /// The disk is full. Nothing changed; the operation may be tried again.
    #[error("the disk is full: no space for {}", wanted(*bytes))]
    NoSpace {
        /// The number of bytes needed; 0 if another file is needed, which takes an inode.
        bytes: u64,
    },
    /// The appended bytes do not continue the journal.
    #[error("the journal continues at position {expected}, not at {given}")]
    OutOfPlace {
        /// The position at which the journal continues.
        expected: Position,
        /// The position of the given bytes.
        given: Position,
    },
    /// A write or a sync failed. The journal has begun a new file at the durable position, and
    /// everything from there on must be appended again.
    #[error("writing to {file} failed: append again from position {from}")]
    Restarted {
        /// The file, which is no longer trusted.
        file: String,
        /// The position from which to append again.
        from: Position,
        /// The medium's error.
        #[source]
        source: MediumError,
    },
    /// Writing failed in two files in succession, or no new file could be begun. The journal
    /// accepts nothing more. What is durable remains so.
    #[error("the disk fails: nothing is durable after position {durable}")]
    Failed {
        /// The position before which everything is durable.
        durable: Position,
        /// The medium's error, the first time.
        #[source]
        source: Option<MediumError>,
    },
    /// The files belong to another store.
    #[error("{file} belongs to another store")]
    Foreign {
        /// The newest file.
        file: String,
    },
    /// The requested position lies before all files.
    #[error(
        "the journal begins at position {first}: the part before it, from {wanted}, is missing"
    )]
    Missing {
        /// The requested position.
        wanted: Position,
        /// The first position that exists.
        first: Position,
    },
    /// The journal has not reached the requested position.
    #[error("the journal ends at position {end}, before {wanted}")]
    Ended {
        /// The requested position.
        wanted: Position,
        /// The position at which the journal ends.
        end: Position,
    },
    /// A base file may not be published before the journal is durable up to the position that the
    /// base file has read.
    #[error("the base file has read up to {read}, but only {durable} is durable")]
    NotDurable {
        /// The position that the base file has read.
        read: Position,
        /// The durable position.
        durable: Position,
    },
    /// An invalid setting or name.
    #[error("{what}")]
    Invalid {
        /// The rule.
        what: &'static str,
    },
}

/// Where and how a file is damaged.
#[derive(Debug, thiserror::Error)]
#[error("{file} is damaged at offset {offset}: {flaw}")]
pub struct FileDamage {
    /// The file.
    pub file: String,
    /// The offset in the file.
    pub offset: u64,
    /// The position up to which the stream is complete.
    pub position: Position,
    /// What is wrong there.
    #[source]
    pub flaw: Flaw,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The header is invalid.
    #[error("the header's checksum does not match")]
    Header,
    /// The file has another version of the format.
    #[error("it has format version {found}, and this program reads {known}")]
    Version {
        /// The file's version.
        found: u32,
        /// The program's version.
        known: u32,
    },
    /// The first position in its header differs from the one in its name.
    #[error("the header says that it begins at position {header}")]
    Name {
        /// The position in the header.
        header: Position,
    },
    /// The end of the file is missing.
    #[error("it has {found} bytes of {wanted}")]
    Short {
        /// Its length in bytes.
        found: u64,
        /// The length that it had.
        wanted: u64,
    },
    /// It belongs to another store than the newest file.
    #[error("it belongs to another store than {newest}")]
    Store {
        /// The newest file.
        newest: String,
    },
    /// Its run is not among those that the newest file lists.
    #[error("its run is unknown to {newest}: files of two histories are mixed")]
    Run {
        /// The newest file.
        newest: String,
    },
    /// A frame is damaged although its bytes were durable.
    #[error("a durable frame is damaged: position {durable} was reported durable")]
    Frame {
        /// The durable position that something later names.
        durable: Position,
    },
    /// A valid frame is at the place of another one.
    #[error("the frame there begins at position {found}")]
    Order {
        /// The position in the frame found there.
        found: Position,
    },
    /// Positions up to this one are missing: a file, or the end of one.
    #[error("the part up to position {to} is missing")]
    Gap {
        /// The next position that exists.
        to: Position,
    },
    /// The file has no end frame, or something follows it.
    #[error("it is incomplete")]
    Incomplete,
    /// The medium cannot be read there.
    #[error("it cannot be read")]
    Read(#[source] MediumError),
}

/// What there is no space for, in words.
fn wanted(bytes: u64) -> String {
    match bytes {
        0 => "another file, or no inode".to_owned(),
        bytes => format!("{bytes} more bytes"),
    }
}

/// Adds the operation and the file to an error of the medium; for `map_err`.
pub(crate) fn on<'a>(
    what: &'static str,
    file: &'a str,
) -> impl FnOnce(MediumError) -> JournalError + 'a {
    move |source| match source {
        MediumError::NoSpace { wanted } => JournalError::NoSpace { bytes: wanted },
        source => JournalError::Medium {
            what,
            file: file.to_owned(),
            source,
        },
    }
}
