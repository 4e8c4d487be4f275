//! The kind of every error: what a program can decide by without knowing each crate's errors, and
//! the source of the C library's codes.

use std::io;

use crate::{HeaderError, LivenessError, RegionError, WindowError};

/// The kind of an error, by what the program that gets it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is impossible. The call must be changed.
    Invalid,
    /// The name is not allowed. Another one is needed.
    Name,
    /// It does not exist. It can be created, or the name or the registry is another.
    NotFound,
    /// It already exists. It can be opened, or another name used.
    Exists,
    /// The address is not available. Another one, or none, must be asked for.
    Address,
    /// Two segments claim the same addresses. They can be attached one after the other.
    Overlap,
    /// There is no memory, or no free space in a file system, a segment or the registry's window.
    /// Once there is, the call can be made again.
    NoMemory,
    /// Permissions forbid it. The owner can change them, or do it.
    Permission,
    /// It was opened for reading only. It must be opened for writing.
    ReadOnly,
    /// In use by a living process or thread. When that has left, the call can be made again.
    Busy,
    /// The holder of a lock is alive and does not release it, or died and has not been cleaned up
    /// after yet. Trying again may succeed.
    Stalled,
    /// A process died while it changed the data, or the machine went down. The data must be
    /// recovered first, from a copy or by emptying it.
    Poisoned,
    /// The thread is not inside the segment. The call belongs into a section of it.
    Outside,
    /// The thread is already inside a section. The call belongs outside of it.
    Inside,
    /// The root has another type. The program that created it can read it.
    Root,
    /// It was removed, or created again under its name. It must be opened again.
    Stale,
    /// A forked child may not use what its parent attached. It must `exec`, and attach for itself.
    Forked,
    /// Damaged, or of another version. The program of that version can open it; damage needs a
    /// backup.
    Damaged,
    /// The registry cannot be opened or used. The text says which file is in the way.
    Registry,
    /// This machine does not have that kind of memory. Another backing can be asked for.
    Backing,
    /// Another failure of the operating system. The text says which.
    Io,
    /// A bug in Mneme, which should be reported.
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
