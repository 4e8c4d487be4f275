//! What can go wrong with spaces, one enum for each family of operations.

use std::path::PathBuf;

use crate::{
    CreateError, DescriptionError, FileError, MapError, NameError, OpenError, RegistryError, Uuid,
};

/// Why a space could not be made. Nothing of it exists then.
#[derive(Debug, thiserror::Error)]
pub enum SpaceCreateError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is a space of that name; of two processes that create it at once, the second gets
    /// this.
    #[error("there is a space {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The space to be cloned could not be read.
    #[error(transparent)]
    Original(#[from] SpaceOpenError),
    /// The registry cannot be worked on.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
    /// The control region could not be made.
    #[error("the space's control file could not be made")]
    Control(#[source] Box<CreateError>),
    /// The control region could not be mapped.
    #[error("the space's control file could not be written")]
    Region(#[from] mneme_sys::RegionError),
}

/// Why a space, or its members, could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SpaceOpenError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no space of that name.
    #[error("there is no space {name:?} in {}", registry.display())]
    NotFound {
        /// The name.
        name: String,
        /// The registry's directory.
        registry: PathBuf,
    },
    /// The space was removed, and another one was made under its name.
    #[error("space {name:?} is another one now ({found}, not {expected})")]
    Replaced {
        /// The name.
        name: String,
        /// The identity of the one that was opened.
        expected: Uuid,
        /// The identity of the one that is there.
        found: Uuid,
    },
    /// Its description is not usable.
    #[error("the space's description is not usable")]
    Description(#[from] DescriptionError),
    /// The file system refused something.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its control file is not usable.
    #[error("the space's control file is not usable")]
    Control(#[source] MapError),
    /// A member's segment was removed, and another one made under its name.
    #[error(
        "the member {name:?} was added as segment {expected}, and segment {found} has that name now; \
         remove the member and add the new segment"
    )]
    Stale {
        /// The member.
        name: String,
        /// The identity of the segment that was added.
        expected: Uuid,
        /// The identity of the one that is there.
        found: Uuid,
    },
    /// A member's segment cannot be opened, or is gone.
    #[error("the member {name:?} cannot be opened")]
    Member {
        /// The member.
        name: String,
        /// Why not.
        #[source]
        source: Box<OpenError>,
    },
}

/// Why a space could not be changed. It is as it was, unless said otherwise.
#[derive(Debug, thiserror::Error)]
pub enum SpaceChangeError {
    /// The space, or the segment to be added, cannot be opened.
    #[error(transparent)]
    Open(#[from] SpaceOpenError),
    /// It has that segment, or one of that name, already.
    #[error("segment {name:?} is a member already")]
    Twice {
        /// It.
        name: String,
    },
    /// It has no such member.
    #[error("{name:?} is no member")]
    NotMember {
        /// The name.
        name: String,
    },
    /// A segment without an address: what lies in it points nowhere, and is used by its mapping.
    #[error("segment {name:?} has no address of its own; map it instead")]
    Floating {
        /// It.
        name: String,
    },
    /// Another crate lays out what the segment holds: no section enters it.
    #[error("segment {name:?} holds a {kind}, which only its own operations open")]
    Contents {
        /// It.
        name: String,
        /// What it holds, in words.
        kind: String,
    },
    /// The two cannot be mapped at a time: one is the other's clone, or was given its address.
    #[error("segment {name:?} lies where the member {with:?} lies")]
    Overlap {
        /// The segment to be added.
        name: String,
        /// The member.
        with: String,
    },
    /// The segment is of another registry, with a window of addresses of its own.
    #[error("segment {name:?} is not of the space's registry")]
    OtherRegistry {
        /// It.
        name: String,
    },
    /// It has as many members as a space can have.
    #[error("a space has at most {max} members")]
    Full {
        /// As many.
        max: usize,
    },
    /// The space's lock could not be had.
    #[error(transparent)]
    Lock(#[from] RegistryError),
    /// The file system refused something. Some permissions may be changed and others not;
    /// changing them again completes it.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a space could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum SpaceRemoveError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no space of that name.
    #[error("there is no space {name:?}")]
    NotFound {
        /// The name.
        name: String,
    },
    /// A process is attached to it.
    #[error("space {name:?} is attached by a living process")]
    InUse {
        /// The name.
        name: String,
    },
    /// Its lock could not be had.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The file system refused something. If the name is gone, cleaning removes the rest.
    #[error(transparent)]
    File(#[from] FileError),
}
