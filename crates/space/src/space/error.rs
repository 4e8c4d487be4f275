//! The error of spaces.

use std::path::PathBuf;

use crate::{
    CreateError, DescriptionError, FileError, MapError, NameError, OpenError, RegistryError, Uuid,
};

/// Why a space could not be created, opened, changed or removed. It is unchanged, unless stated
/// otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is taken. If two processes create a space at once, the second gets this error.
    #[error("there is a space {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no space of that name.
    #[error("there is no space {name:?} in {}", registry.display())]
    NotFound {
        /// The name.
        name: String,
        /// The registry's directory.
        registry: PathBuf,
    },
    /// The space was removed, and another one was created under its name.
    #[error("space {name:?} is another one now ({found}, not {expected})")]
    Replaced {
        /// The name.
        name: String,
        /// The identity of the space that was opened.
        expected: Uuid,
        /// The identity of the space that has the name now.
        found: Uuid,
    },
    /// A process is attached to the space that was to be removed.
    #[error("space {name:?} is attached by a living process")]
    InUse {
        /// The name.
        name: String,
    },
    /// The space's description cannot be used.
    #[error("the space's description is not usable")]
    Description(#[from] DescriptionError),
    /// The registry cannot be used, or the space's lock could not be taken.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused an operation. Some permissions may be changed and others not;
    /// setting them again completes the change. If the name is gone, cleaning removes the rest.
    #[error(transparent)]
    File(#[from] FileError),
    /// The space's control file cannot be used.
    #[error("the space's control file is not usable")]
    Control(#[source] MapError),
    /// The control file of a new space could not be created.
    #[error("the space's control file could not be created")]
    MakeControl(#[source] Box<CreateError>),
    /// The control file of a new space could not be mapped.
    #[error("the space's control file could not be written")]
    Region(#[from] mneme_sys::RegionError),
    /// A member's segment was removed, and another one was created under its name.
    #[error(
        "the member {name:?} was added as segment {expected}, and segment {found} has that name now; \
         remove the member and add the new segment"
    )]
    Stale {
        /// The member's name.
        name: String,
        /// The identity of the segment that was added.
        expected: Uuid,
        /// The identity of the segment that has the name now.
        found: Uuid,
    },
    /// A member's segment cannot be opened, or is gone.
    #[error("the member {name:?} cannot be opened")]
    Member {
        /// The member's name.
        name: String,
        /// The reason.
        #[source]
        source: Box<OpenError>,
    },
    /// The segment, or one of the same name, is already a member.
    #[error("segment {name:?} is a member already")]
    Twice {
        /// The segment's name.
        name: String,
    },
    /// The space has no such member.
    #[error("{name:?} is not a member")]
    NotMember {
        /// The name.
        name: String,
    },
    /// The segment has no address of its own. It cannot contain pointers, and is used through its
    /// mapping.
    #[error("segment {name:?} has no address of its own; map it instead")]
    Floating {
        /// The segment's name.
        name: String,
    },
    /// Another crate lays out the segment's contents, so no section can enter it.
    #[error("segment {name:?} holds a {kind}, which only its own operations open")]
    Contents {
        /// The segment's name.
        name: String,
        /// The kind of contents, for people.
        kind: String,
    },
    /// The two segments overlap: one is the other's clone, or was given its address.
    #[error("segment {name:?} overlaps the member {with:?}")]
    Overlap {
        /// The segment to be added.
        name: String,
        /// The member's name.
        with: String,
    },
    /// The segment belongs to another registry, which has its own window of addresses.
    #[error("segment {name:?} is not of the space's registry")]
    OtherRegistry {
        /// The segment's name.
        name: String,
    },
    /// The space has the maximum number of members.
    #[error("a space has at most {max} members")]
    Full {
        /// The maximum.
        max: usize,
    },
}
