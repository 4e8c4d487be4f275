//! The kind of every error of the engine: what a program decides by that does not know each crate's
//! errors, and what the C library's codes are made of.

use std::io;

use crate::{HeaderError, LivenessError, RegionError, WindowError};

/// What an error comes to for the program that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is impossible.
    Invalid,
    /// A name that is not allowed.
    Name,
    /// What was asked for is not there.
    NotFound,
    /// It is there already.
    Exists,
    /// The address cannot be had.
    Address,
    /// Two segments claim the same addresses.
    Overlap,
    /// No memory, or no free space in a file system, a segment or the registry's window.
    NoMemory,
    /// Permissions forbid it.
    Permission,
    /// It was opened for reading only.
    ReadOnly,
    /// In use by a living process or thread.
    Busy,
    /// The holder of a lock lives and does not leave, or died and is not cleaned up after yet. It
    /// may succeed when tried again.
    Stalled,
    /// A process died while it changed this, or the machine went down.
    Poisoned,
    /// The thread is not inside of the segment.
    Outside,
    /// The thread is inside of a section already.
    Inside,
    /// The root has another type.
    Root,
    /// It was removed, or made anew under its name.
    Stale,
    /// A forked child may not use what its parent attached.
    Forked,
    /// Damaged, or of another version.
    Damaged,
    /// The registry cannot be opened or worked on.
    Registry,
    /// This machine does not have that kind of memory.
    Backing,
    /// The operating system failed otherwise.
    Io,
    /// A defect of Mneme.
    Internal,
}

/// An error that has a kind. Each implementation stands in the crate of its error, and matches
/// exhaustively: a new variant gets its kind there or does not compile.
pub trait Classified: std::error::Error {
    /// What it comes to.
    fn kind(&self) -> ErrorKind;
}

/// The text of an error and of its causes, outermost first. What an error repeats of its cause
/// stands once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

/// Implements [`Classified`]: the variants behind `as` have the kind of the error that they wrap,
/// those behind `for` that of their `source`, and the others the kind that is named.
#[doc(hidden)]
#[macro_export]
macro_rules! kinds {
    ($($error:ident $(as ($($inner:ident),+))? $(for ($($caused:ident),+))? {
        $($($variant:ident)|+ => $kind:ident,)*
    })+) => {$(
        impl $crate::Classified for $error {
            fn kind(&self) -> $crate::ErrorKind {
                #[allow(unused_imports, reason = "where none has the kind of another")]
                use $crate::Classified as _;
                match self {
                    $($(Self::$inner(error) => error.kind(),)+)?
                    $($(Self::$caused { source, .. } => source.kind(),)+)?
                    $($(Self::$variant { .. })|+ => $crate::ErrorKind::$kind,)*
                }
            }
        }
    )+};
}

impl ErrorKind {
    /// What an error of the operating system comes to.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind as Io;
        match error.kind() {
            Io::NotFound => Self::NotFound,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => Self::Permission,
            Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory => Self::NoMemory,
            _ => Self::Io,
        }
    }
}

impl Classified for RegionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Size { .. } => ErrorKind::Invalid,
            Self::Reserve { .. }
            | Self::NoMemory { .. }
            | Self::NoSpace { .. }
            | Self::BeyondMax { .. } => ErrorKind::NoMemory,
            Self::OutOfBounds { .. } | Self::Misaligned { .. } | Self::Shrunk { .. } => {
                ErrorKind::Damaged
            }
            Self::Place { .. } => ErrorKind::Address,
            Self::Parked => ErrorKind::Busy,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::Unsupported { .. } => ErrorKind::Backing,
            Self::Os { source, .. } => ErrorKind::of_io(source),
        }
    }
}

kinds! {
    HeaderError as (Region) {
        Magic | Format | Layout | Damaged => Damaged,
    }
    WindowError {
        Bounds | Conflict => Address,
        Reserve => NoMemory,
        Unsupported => Backing,
    }
}

impl Classified for LivenessError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Held { .. } => ErrorKind::Busy,
            Self::Forked | Self::Dead => ErrorKind::Forked,
            Self::NotWritable(source) | Self::Os { source, .. } => ErrorKind::of_io(source),
        }
    }
}
