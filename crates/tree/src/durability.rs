//! What a commit guarantees, and how it is numbered.

/// Which failures a commit survives once it has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process, by a signal or a panic. After a power loss on a disk the store
    /// cannot be opened ([`StoreError::NotClean`](crate::StoreError::NotClean)).
    Process,
    /// Power loss too, on an ordinary file: one `fdatasync` a commit, or two.
    File,
    /// Power loss on persistent memory, on a file system mounted with `dax`: cache lines are
    /// written back by the CPU's best instruction, and fenced once or twice a commit. No system
    /// call. On tmpfs, which is a stand-in for such memory, it costs what it costs there and
    /// survives what [`Process`](Self::Process) does. A file on another medium is refused
    /// ([`StoreError::Unsupported`](crate::StoreError::Unsupported)): a flushed line does not reach
    /// a disk.
    Flush,
}

impl Durability {
    /// The bits 8..16 of a record's state.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Process => 1 << 8,
            Self::File => 2 << 8,
            Self::Flush => 3 << 8,
        }
    }
}

/// The number of a commit. Versions ascend; some numbers are skipped after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub(crate) u64);

impl Version {
    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}
