//! The errors of opening a durable store and of keeping it durable.

use std::path::PathBuf;

use mneme_journal::JournalError;
use mneme_log::feed::FeedDamage;
use mneme_log::{FeedError, OpenError, ReadError, WriteError};
use mneme_shared::{AttachError, CreateError, ServeError, UpgradeError};
use mneme_space::{RegistryError, RemoveError};
use mneme_sys::medium::DirectoryError;

use mneme_tree::StoreError;

use crate::options::DurabilityMode;
use crate::pairing::Unpaired;

/// Why an operation of a durable store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// Another process has the directory open for writing.
    #[error(
        "{} is in use by process {pid} (0: not known): one process at a time writes a journal; end that one first",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(DirectoryError),
    /// Files of the journal, or a base file, cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The tree in the directory cannot be read or written.
    #[error("the tree in the directory: {0}")]
    Tree(#[from] StoreError),
    /// A value of the tree in the directory is damaged. The other values can be read.
    #[error(
        "in database {database} {source}; a SET of that key by a server that still has it mends this, and \
         `mneme tree remove --tree '{tree}' DIRECTORY/store.tree KEY` gives it up"
    )]
    DamagedValue {
        /// The database.
        database: usize,
        /// The tree that holds its records.
        tree: String,
        /// The key, and the place in the file.
        #[source]
        source: Box<StoreError>,
    },
    /// The file is a tree, but not one that holds a store.
    #[error(
        "`store.tree` in the directory holds no store that this program knows: another program made \
         it, or a newer one"
    )]
    ForeignTree,
    /// The directory holds a store of the other form.
    #[error(
        "the directory was begun with --durability {found}, and keeps it: open it so. To change it, \
         write a backup (`mneme backup`) and restore that to an empty directory (`mneme restore \
         --durability`)"
    )]
    OtherMode {
        /// The form that it has.
        found: DurabilityMode,
    },
    /// The end of the journal is missing.
    #[error(
        "the journal ends at position {end}, and the base file has read up to {read}: files of the \
         journal are missing"
    )]
    Short {
        /// Where the journal ends.
        end: u64,
        /// The least position at which it must end.
        read: u64,
    },
    /// A backup from another directory can be restored only to a directory that holds no store.
    #[error(
        "{} is not empty, it holds `{file}`: restore to a directory without a store; to go back to a \
         backup, give the directory that holds it", path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A file of the store that it holds.
        file: String,
    },
    /// The directory holds backups and no store. A new empty store there would replace the backups
    /// by its own.
    #[error(
        "{path} holds the backup `{backup}` and no store: `mneme restore {path}/{backup}.backup {path}` \
         goes back to it, with --durability tree as a tree; to begin with an empty store, which may \
         replace it with the next backup of that name, move all backups elsewhere first",
        path = path.display()
    )]
    BackupsAlone {
        /// The directory.
        path: PathBuf,
        /// The newest backup.
        backup: String,
    },
    /// The segment that a restore would set aside belongs to something else.
    #[error(
        "segment `{name}` is not this directory's, and all is as it was: {whose}. Restore without \
         --segment, and serve the directory as another segment; or remove this one (`mneme segment rm \
         {name}`), if what it holds may go"
    )]
    OtherSegment {
        /// The segment's name.
        name: String,
        /// What it belongs to.
        whose: Unpaired,
    },
    /// The segment that a restore would set aside cannot be examined.
    #[error(
        "it is not known whose segment `{name}` is, and all is as it was: {source}. Restore without \
         --segment: a server sets a damaged segment aside itself"
    )]
    UnknownSegment {
        /// The segment's name.
        name: String,
        /// The reason.
        #[source]
        source: Box<AttachError>,
    },
    /// The segment with which the restored directory was served could not be set aside.
    #[error(
        "the directory has gone back to the backup, and segment `{name}`, which holds what was there \
         before, cannot be set aside: {source}. Remove it (`mneme segment rm {name}`) before the \
         directory is served"
    )]
    SetAside {
        /// The segment's name.
        name: String,
        /// The reason.
        #[source]
        source: RemoveError,
    },
    /// There is no such backup.
    #[error("there is no backup `{name}` in the directory")]
    NoBackup {
        /// The name that was given.
        name: String,
    },
    /// The backup is of another store than the directory holds.
    #[error(
        "backup `{name}` is of another store than the one that its directory holds, which is as it was: \
         restore it to a directory of its own"
    )]
    OtherBackup {
        /// The backup's name.
        name: String,
    },
    /// The journal's content contradicts itself.
    #[error(transparent)]
    Content(#[from] FeedDamage),
    /// The change feed cannot be drained.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The store cannot be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The segment cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The segment cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A segment cannot be removed, or is in use and must not be.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// The rebuilt segment cannot be given its name.
    #[error("the segment that was rebuilt cannot get its name: {0}")]
    Rename(#[source] RemoveError),
    /// The registry cannot be cleaned of what an earlier boot left or cannot be listed, or the
    /// state of a segment that was set aside cannot be recorded.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The segment and the directory do not belong together.
    #[error(
        "{0}; to keep what the directory holds, remove the segment (`mneme segment rm`) and serve \
         again; to keep what the segment holds, serve it with an empty directory"
    )]
    Unpaired(#[from] Unpaired),
    /// The segment cannot be given a change feed.
    #[error("the segment has no change feed, and cannot be laid out anew with one: {0}")]
    Upgrade(#[from] UpgradeError),
    /// The segment is kept in a file. A durable store lies in memory and is rebuilt after a restart
    /// of the machine.
    #[error(
        "the segment is kept in a file, and a durable store lies in memory: serve another segment"
    )]
    NotMemory,
    /// Another program creates segments of that name.
    #[error("segment `{name}` was replaced while it was opened")]
    Replaced {
        /// The segment's name.
        name: String,
    },
    /// The journal's content does not fit into the store, or cannot be stored there.
    #[error("what the journal holds cannot be loaded into the store: {0}")]
    Load(#[from] WriteError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal holds something that this program does not know.
    #[error(
        "the journal holds {what} at position {position}, which this program does not know: open it with a newer one"
    )]
    Unknown {
        /// What it is.
        what: &'static str,
        /// Its position in the journal.
        position: u64,
    },
    /// Writes no longer become durable.
    #[error("nothing is durable behind position {durable}: {why}")]
    NotDurable {
        /// Everything before it is durable.
        durable: u64,
        /// A description of the failure.
        why: String,
    },
    /// The thread has an open group of changes (`feed_together`), none of which is durable before
    /// the group ends.
    #[error("changes that belong together are not durable before they end: end them first")]
    Together,
    /// The store is being closed.
    #[error("the store is being closed")]
    Closing,
    /// The files do not hold what the store holds.
    #[error("the files do not hold what the store holds: {what}")]
    Differs {
        /// The first difference.
        what: String,
    },
    /// The progress listener ended the load of the store or of a backup.
    #[error("the load was ended before it was complete")]
    Stopped,
    /// A checkpoint or a backup is being written.
    #[error("a checkpoint or a backup is being written")]
    Busy,
    /// The system refused a thread or random bytes.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl DurableError {
    /// Whether files of the directory are damaged or missing. A check of the journal or the tree
    /// gives the details.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Short { .. } | Self::Content(_) => true,
            Self::Journal(error) => matches!(
                error,
                JournalError::Damaged(_)
                    | JournalError::Missing { .. }
                    | JournalError::Ended { .. }
            ),
            Self::Tree(error) => error.is_damage(),
            Self::DamagedValue { .. } => true,
            _ => false,
        }
    }
}
