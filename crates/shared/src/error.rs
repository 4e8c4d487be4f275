//! What can go wrong, one enum a family of operations.

use std::io::ErrorKind;
use std::path::PathBuf;

use mneme_log::{GrowError, OpenError, RoleError, UpdatePolicy, WriteError};
use mneme_space::{
    CreateWithError, DescriptionError, MapError, NoteError, OpenError as SegmentError,
    RegistryError, RenameError,
};

/// Why a store could not be attached. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The registry cannot be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// There is no such segment, or its description or its data's header is damaged.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The segment holds something else, is of another version, may not be opened so, or cannot be
    /// mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Its regions hold no store that this library can open.
    #[error("the segment's store cannot be opened: {0}")]
    Store(#[from] OpenError),
}

impl AttachError {
    /// Whether there is just no segment of that name.
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
            // Of the files that are opened to map a segment, data that are gone have their own
            // error: this is the control file.
            Self::Map(MapError::File(error)) => error.source.kind() == ErrorKind::NotFound,
            Self::Map(_) | Self::Registry(_) => false,
        }
    }
}

/// Why a store could not be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The segment could not be made, or the name is taken.
    #[error(transparent)]
    Segment(mneme_space::CreateError),
    /// A store of that name is being laid out anew, or its upgrade has been broken off, between two
    /// names.
    #[error(
        "the store `{name}` has two other names at the moment, `{name}~old` and, laid out anew, `{name}~upgrade`; if its upgrade \
         was broken off, `mneme segment upgrade {name}` completes it"
    )]
    Halfway {
        /// The name.
        name: String,
    },
    /// The store in it could not be.
    #[error("the store cannot be laid out: {0}")]
    Store(OpenError),
    /// It was made, and then could not be attached.
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

impl From<CreateWithError<OpenError>> for CreateError {
    fn from(error: CreateWithError<OpenError>) -> Self {
        match error {
            CreateWithError::Create(error) => Self::Segment(error),
            CreateWithError::LayOut(error) => Self::Store(error),
            CreateWithError::Header(error) => Self::Attach(error.into()),
        }
    }
}

/// Why a store is not served. Nothing stored was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// It is there and could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Another process serves it.
    #[error(
        "segment `{name}` is not free: {source}; or serve another segment, or memory of this process alone"
    )]
    Role {
        /// The segment's name.
        name: String,
        /// The process that does.
        #[source]
        source: RoleError,
    },
    /// It is larger than what was asked for.
    #[error(
        "segment `{name}` has {present} bytes, and {asked} were asked for: a store does not shrink; serve it as it is, or \
         serve another segment"
    )]
    Larger {
        /// The segment's name.
        name: String,
        /// Its capacity.
        present: u64,
        /// What was asked for.
        asked: u64,
    },
    /// It is smaller than what was asked for, and cannot grow so far.
    #[error("segment `{name}` cannot be made as large as was asked for: {source}")]
    Grow {
        /// The segment's name.
        name: String,
        /// Why not.
        #[source]
        source: GrowError,
    },
    /// It was not made to become as large as was asked for.
    #[error(
        "segment `{name}` can grow to {max} bytes, and {asked} were asked for: `mneme segment upgrade {name} --memory {asked}` \
         lays it out anew"
    )]
    BeyondMax {
        /// The segment's name.
        name: String,
        /// Bytes that it can grow to.
        max: u64,
        /// What was asked for.
        asked: u64,
    },
    /// It updates records in the other way.
    #[error(
        "segment `{name}` was made with update policy {present:?}, and {asked:?} was asked for: that is fixed when a store is made"
    )]
    Policy {
        /// The segment's name.
        name: String,
        /// Its policy.
        present: UpdatePolicy,
        /// What was asked for.
        asked: UpdatePolicy,
    },
    /// It has a change feed, and a store without one was asked for.
    #[error(
        "segment `{name}` has a change feed, which belongs to a durable store: serve it with its journal, for nobody else \
         makes what it holds durable, and the feed fills up"
    )]
    Fed {
        /// The segment's name.
        name: String,
    },
    /// It has no change feed, and a store with one was asked for.
    #[error(
        "segment `{name}` has no change feed, by which it could be made durable: laid out anew it gets one"
    )]
    NotFed {
        /// The segment's name.
        name: String,
    },
    /// It is another user's, and only that user can serve it: a server keeps account of its starts
    /// beside it, and lets its successor in there.
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
    /// The note of failed starts cannot be kept.
    #[error("the note of failed starts cannot be kept: {0}")]
    Note(#[from] NoteError),
    /// It opens and counts no records, and is not just empty.
    #[error(
        "segment `{name}` counts no records, and is damaged: {problem}; `mneme segment check {name}` says more. After three \
         such starts it is set aside under another name, and an empty one served"
    )]
    Damaged {
        /// The segment's name.
        name: String,
        /// What is wrong with it first.
        problem: String,
    },
    /// The damaged store could not be set aside.
    #[error("the damaged segment `{name}` cannot be set aside: {source}")]
    Quarantine {
        /// The segment's name.
        name: String,
        /// Why not.
        #[source]
        source: RenameError,
    },
    /// The damaged store could not be set aside, for the name that it would get is too long.
    #[error(
        "the damaged segment `{name}` cannot be set aside: `{aside}` would be its name, and a name has at most {max} bytes; \
         `mneme segment check` says what is wrong with it, `mneme segment rm` removes it"
    )]
    QuarantineName {
        /// The segment's name.
        name: String,
        /// The one it would get.
        aside: String,
        /// Bytes that a name may have.
        max: usize,
    },
    /// Its data in memory were deleted, or lie where this process does not see them, in the boot
    /// that they were made in.
    #[error(
        "the data of segment `{name}` are gone, or cannot be seen from here ({}), and the machine was not started anew since; \
         if they were deleted, `mneme segment rm {name}` removes what is left of it: then serve again",
        path.display()
    )]
    DataGone {
        /// The segment's name.
        name: String,
        /// The data file.
        path: PathBuf,
    },
    /// The registry could not be cleaned of what an earlier boot left.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// It failed to start several times and could not be checked.
    #[error("segment `{name}` was to be checked after failed starts, and cannot be: {source}")]
    Check {
        /// The segment's name.
        name: String,
        /// Why not.
        #[source]
        source: WriteError,
    },
}
