//! The kind of every error: what a program can decide by without knowing each crate's errors, and
//! the source of the C library's codes.

use std::io;

use crate::{HeaderError, LivenessError, RegionError, WindowError};

/// The kind of an error, by what the program that gets it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is impossible.
    Invalid,
    /// The name is not allowed.
    Name,
    /// It does not exist.
    NotFound,
    /// It already exists.
    Exists,
    /// The address is not available.
    Address,
    /// Two segments claim the same addresses.
    Overlap,
    /// There is no memory, or no free space in a file system, a segment or the registry's window.
    NoMemory,
    /// Permissions forbid it.
    Permission,
    /// It was opened for reading only.
    ReadOnly,
    /// In use by a living process or thread.
    Busy,
    /// The holder of a lock is alive and does not release it, or died and has not been cleaned up
    /// after yet. Trying again may succeed.
    Stalled,
    /// A process died while it changed the data, or the machine went down.
    Poisoned,
    /// The thread is not inside the segment.
    Outside,
    /// The thread is already inside a section.
    Inside,
    /// The root has another type.
    Root,
    /// It was removed, or created again under its name.
    Stale,
    /// A forked child may not use what its parent attached.
    Forked,
    /// Damaged, or of another version.
    Damaged,
    /// The registry cannot be opened or used.
    Registry,
    /// This machine does not have that kind of memory.
    Backing,
    /// Another failure of the operating system.
    Io,
    /// A bug in Mneme.
    Internal,
}

/// An error that has a kind. Each error's crate implements this with an exhaustive match, so a new
/// variant does not compile before it has a kind.
pub trait Classified: std::error::Error {
    /// The error's kind.
    fn kind(&self) -> ErrorKind;
}

/// The text of an error and of its causes, outermost first. Text that an error repeats from its
/// cause appears once.
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

/// Implements [`Classified`]: variants after `as` have the kind of the error that they wrap, those
/// after `for` the kind of their `source`, and the others the given kind.
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
    /// The kind of an error of the operating system.
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
