//! What can go wrong, one enum for each family of operations.

/// Why a text is no name of a segment or a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("a name has at least one byte")]
    Empty,
    /// It is longer than a name may be.
    #[error("a name has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// It begins with a dot, as the file system's own and hidden names do.
    #[error("a name may not begin with a dot: {name:?}")]
    Hidden {
        /// The name.
        name: String,
    },
    /// A character that a file's name cannot have, or that no terminal can show.
    #[error("a name may have neither slashes nor control characters: {name:?} has {found:?}")]
    Character {
        /// The name.
        name: String,
        /// The first such character.
        found: char,
    },
}
