//! What can go wrong, with the file and the place in it.

use mneme_sys::medium::MediumError;

use crate::Position;

/// Why a journal, or a base file, cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The medium failed in a way that changes nothing of what is durable.
    #[error("cannot {what} {file}")]
    Medium {
        /// What was tried.
        what: &'static str,
        /// The file, or the directory.
        file: String,
        /// The medium's answer.
        #[source]
        source: MediumError,
    },
    /// A file is damaged, or one is missing.
    #[error(transparent)]
    Damaged(#[from] FileDamage),
    /// The disk is full. Nothing changed; it may be tried again.
    #[error("the disk is full: no space for {}", wanted(*bytes))]
    NoSpace {
        /// The bytes that are needed; 0: another file is, which takes an inode.
        bytes: u64,
    },
    /// Bytes were appended that do not continue the journal.
    #[error("the journal goes on at position {expected}, not at {given}")]
    OutOfPlace {
        /// Where it goes on.
        expected: Position,
        /// Where the bytes begin.
        given: Position,
    },
    /// A write or a sync failed. The journal has a new file that begins at the durable position,
    /// and everything from there on must be appended again.
    #[error("{file} did not take what was written to it: append again from position {from}")]
    Restarted {
        /// The file that is not trusted any more.
        file: String,
        /// Where to begin again.
        from: Position,
        /// The medium's answer.
        #[source]
        source: MediumError,
    },
    /// Writing failed in two files one after the other, or no new file could be begun. The journal
    /// takes nothing any more. What is durable stays so.
    #[error("the disk fails: nothing is durable behind position {durable}")]
    Failed {
        /// Everything before it is durable.
        durable: Position,
        /// The medium's answer, the first time.
        #[source]
        source: Option<MediumError>,
    },
    /// The files belong to another store.
    #[error("{file} belongs to another store")]
    Foreign {
        /// The newest file.
        file: String,
    },
    /// A position is asked for that no file holds: it lies before them all.
    #[error("the journal begins at position {first}: what lies before, from {wanted}, is missing")]
    Missing {
        /// The position that was asked for.
        wanted: Position,
        /// The first one that there is.
        first: Position,
    },
    /// A position is asked for that the journal has not reached.
    #[error("the journal ends at position {end}, before {wanted}")]
    Ended {
        /// The position that was asked for.
        wanted: Position,
        /// Where it ends.
        end: Position,
    },
    /// A base file may not be published before the journal is durable up to what it has read.
    #[error("the base file has read up to {read}, but only {durable} is durable")]
    NotDurable {
        /// What was read last.
        read: Position,
        /// What is durable.
        durable: Position,
    },
    /// A setting or a name is impossible.
    #[error("{what}")]
    Invalid {
        /// The rule.
        what: &'static str,
    },
}

/// Where a file is damaged.
#[derive(Debug, thiserror::Error)]
#[error("{file} is damaged at offset {offset}: {flaw}")]
pub struct FileDamage {
    /// The file.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// The stream is whole up to here.
    pub position: Position,
    /// What is wrong there.
    #[source]
    pub flaw: Flaw,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// It does not begin as such a file does.
    #[error("the header's checksum does not match")]
    Header,
    /// Another version of the format.
    #[error("it is of format version {found}, and this program knows {known}")]
    Version {
        /// The file's.
        found: u32,
        /// The program's.
        known: u32,
    },
    /// Its header names another first position than its name.
    #[error("the header says that it begins at position {header}")]
    Name {
        /// The header's.
        header: Position,
    },
    /// Its end is missing.
    #[error("it has {found} bytes of {wanted}")]
    Short {
        /// What it has.
        found: u64,
        /// What it had.
        wanted: u64,
    },
    /// It belongs to another store than the newest file.
    #[error("it belongs to another store than {newest}")]
    Store {
        /// The newest file.
        newest: String,
    },
    /// Its run is none of those that the newest file lists.
    #[error("its run is unknown to {newest}: files of two histories are mixed")]
    Run {
        /// The newest file.
        newest: String,
    },
    /// A frame is bad whose bytes are known to have been durable.
    #[error("a frame is damaged that was durable: position {durable} was reported")]
    Frame {
        /// The durable position that something later names.
        durable: Position,
    },
    /// A whole frame lies where another belongs.
    #[error("the frame there begins at position {found}")]
    Order {
        /// The frame's position.
        found: Position,
    },
    /// Positions up to this one are missing: a file, or the end of one.
    #[error("what follows up to position {to} is missing")]
    Gap {
        /// The next position that there is.
        to: Position,
    },
    /// It has no end frame, or something follows it.
    #[error("it is incomplete")]
    Incomplete,
    /// The medium cannot be read there.
    #[error("it cannot be read")]
    Read(#[source] MediumError),
}

/// What there is no space for.
fn wanted(bytes: u64) -> String {
    match bytes {
        0 => "another file, or no inode".to_owned(),
        bytes => format!("{bytes} more bytes"),
    }
}

/// Names what was tried, for errors of the medium.
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
