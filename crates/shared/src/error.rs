//! The errors of shared stores: one enum for each family of operations.

use std::io::ErrorKind;
use std::path::PathBuf;

use mneme_log::{GrowError, LocalPrograms, OpenError, RoleError, UpdatePolicy, WriteError};
use mneme_space::{
    DescriptionError, MapError, OpenError as SegmentError, RegistryError, RemoveError,
};

/// Why a store could not be attached. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The registry cannot be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// There is no such segment, or its description or its data's header is damaged.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The segment holds something else, has another version, may not be opened with this access,
    /// or cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The segment's regions hold no store that this library can open.
    #[error("the segment's store cannot be opened: {0}")]
    Store(#[from] OpenError),
    /// The process that serves the store does not let local programs attach it, or not for writing.
    #[error(
        "segment `{name}` is served by process {pid}, whose setting `local-programs` is `{may}`: {}",
        advice(*may)
    )]
    LocalPrograms {
        /// The segment's name.
        name: String,
        /// The process that serves it; 0 if it is not known.
        pid: u32,
        /// What it lets local programs do.
        may: LocalPrograms,
    },
}

/// What a program can do that the server's `local-programs` keeps from attaching.
fn advice(may: LocalPrograms) -> &'static str {
    match may {
        LocalPrograms::Read => "attach it for reading, or be a client of that server",
        _ => "be a client of that server",
    }
}

impl AttachError {
    /// Whether there is simply no segment of that name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Segment(SegmentError::NotFound { .. }))
    }

    /// Whether the store's content contradicts itself, or a part of it is lost.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_damage(),
            Self::Segment(SegmentError::Header { source, .. }) => source.is_damage(),
            Self::Segment(error) => matches!(
                error,
                SegmentError::Truncated { .. }
                    | SegmentError::Description(DescriptionError::Damaged { .. })
            ),
            // Missing data have an error of their own, so the missing file is the control file.
            Self::Map(MapError::File(error)) => error.source.kind() == ErrorKind::NotFound,
            Self::Map(_) | Self::Registry(_) | Self::LocalPrograms { .. } => false,
        }
    }
}

/// Why a store could not be created. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The segment could not be created, or the name is taken.
    #[error(transparent)]
    Segment(mneme_space::CreateError),
    /// A store of that name is being upgraded, or its upgrade was interrupted between its two
    /// renames.
    #[error(
        "the store `{name}` is being upgraded, and exists as `{name}~old` and, newly laid out, as `{name}~upgrade`; if its upgrade \
         was interrupted, `mneme segment upgrade {name}` completes it"
    )]
    Halfway {
        /// The name.
        name: String,
    },
    /// The store in the segment could not be created.
    #[error("the store cannot be laid out: {0}")]
    Store(OpenError),
    /// The store was created, but could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl CreateError {
    /// Whether another segment has the name.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Segment(mneme_space::CreateError::Exists { .. }))
    }
}

impl From<mneme_space::CreateError> for CreateError {
    fn from(error: mneme_space::CreateError) -> Self {
        match error {
            mneme_space::CreateError::LaidOut(error) => Self::Attach(error.into()),
            other => Self::Segment(other),
        }
    }
}

/// Why a store is not served. Nothing stored was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The store could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The store exists, but could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Another process serves the store.
    #[error(
        "segment `{name}` is not free: {source}; serve another segment, or memory of this process only"
    )]
    Role {
        /// The segment's name.
        name: String,
        /// The process that serves it.
        #[source]
        source: RoleError,
    },
    /// The store is larger than requested.
    #[error(
        "segment `{name}` has {present} bytes, and {asked} were requested: a store does not shrink; serve it as it is, or \
         serve another segment"
    )]
    Larger {
        /// The segment's name.
        name: String,
        /// Its capacity in bytes.
        present: u64,
        /// The requested capacity.
        asked: u64,
    },
    /// The store is smaller than requested, and cannot grow that far.
    #[error("segment `{name}` cannot grow to the requested size: {source}")]
    Grow {
        /// The segment's name.
        name: String,
        /// The reason.
        #[source]
        source: GrowError,
    },
    /// The store was not created to grow to the requested size.
    #[error(
        "segment `{name}` can grow to {max} bytes, and {asked} were requested: `mneme segment upgrade {name} --memory {asked}` \
         lays it out again"
    )]
    BeyondMax {
        /// The segment's name.
        name: String,
        /// The maximum capacity in bytes.
        max: u64,
        /// The requested capacity.
        asked: u64,
    },
    /// The store updates records in the other way.
    #[error(
        "segment `{name}` was created with update policy {present:?}, and {asked:?} was requested: a store's policy never changes"
    )]
    Policy {
        /// The segment's name.
        name: String,
        /// Its policy.
        present: UpdatePolicy,
        /// The requested policy.
        asked: UpdatePolicy,
    },
    /// The store has a change feed, and one without was requested.
    #[error(
        "segment `{name}` has a change feed, which belongs to a durable store: serve it with its journal, because nobody else \
         makes its changes durable, and the feed fills up"
    )]
    Fed {
        /// The segment's name.
        name: String,
    },
    /// The store has no change feed, and one with a feed was requested.
    #[error(
        "segment `{name}` has no change feed, which a durable store needs: an upgrade adds one"
    )]
    NotFed {
        /// The segment's name.
        name: String,
    },
    /// The store belongs to another user, and only that user can serve it: a server counts its
    /// starts in a file beside it, and admits its successor there.
    #[error(
        "segment `{name}` belongs to user {owner}, who alone can serve it: start the server as that user, attach the segment \
         as a local program, which its permissions may allow, or serve another segment"
    )]
    NotOwner {
        /// The segment's name.
        name: String,
        /// Its owner.
        owner: u32,
    },
    /// The count of failed starts cannot be recorded.
    #[error("the count of failed starts cannot be recorded: {0}")]
    Note(#[source] RegistryError),
    /// The store opens and counts no records, and is damaged rather than empty.
    #[error(
        "segment `{name}` counts no records, and is damaged: {problem}; `mneme segment check {name}` says more. After three \
         such starts it is set aside under another name, and an empty one served"
    )]
    Damaged {
        /// The segment's name.
        name: String,
        /// The first problem found.
        problem: String,
    },
    /// The damaged store could not be set aside.
    #[error("the damaged segment `{name}` cannot be set aside: {source}")]
    Quarantine {
        /// The segment's name.
        name: String,
        /// The reason.
        #[source]
        source: RemoveError,
    },
    /// The damaged store could not be renamed, because the name that it would get is too long.
    #[error(
        "the damaged segment `{name}` cannot be set aside: `{aside}` would be its name, and a name has at most {max} bytes; \
         `mneme segment check` says what is wrong with it, `mneme segment rm` removes it"
    )]
    QuarantineName {
        /// The segment's name.
        name: String,
        /// The name that it would get.
        aside: String,
        /// The maximum length of a name in bytes.
        max: usize,
    },
    /// The store's data in memory were deleted, or lie where this process does not see them,
    /// although the machine has not been rebooted since the store was created.
    #[error(
        "the data of segment `{name}` are gone, or cannot be seen from here ({}), and the machine was not rebooted since; \
         if they were deleted, `mneme segment rm {name}` removes what is left of it: then serve again",
        path.display()
    )]
    DataGone {
        /// The segment's name.
        name: String,
        /// The data file.
        path: PathBuf,
    },
    /// Leftovers of an earlier boot could not be removed from the registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The store failed to start several times and could not be checked.
    #[error("segment `{name}` was to be checked after failed starts, and cannot be: {source}")]
    Check {
        /// The segment's name.
        name: String,
        /// The reason.
        #[source]
        source: WriteError,
    },
}
