//! The steps that a test leaves out, to see that the crash tests notice; see
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order.
pub const STEPS: [&str; 16] = [
    // What was appended is reported durable without a sync.
    "sync.file",
    // A new file is begun before the full one is synced.
    "rotate.sync",
    // A new file gets its name before its header is synced.
    "file.header",
    // Frames go into a new file before the directory is synced.
    "file.directory",
    // A file that a failed sync may have robbed of pages is synced again and believed.
    "failed.file",
    // Checksums do not depend on the run and the file.
    "frame.seed",
    // A frame names what was appended, not what is durable.
    "frame.durable",
    // Removed files are used again before their old names are known to be gone.
    "remove.directory",
    // Spare files are used before their old names are known to be gone.
    "open.directory",
    // A run has the number of the one before.
    "open.run",
    // Files that a later run replaces go before that run's file is durable.
    "open.stale",
    // What is read may be in the page cache alone.
    "read.sync",
    // Of two files that hold a position the older one counts.
    "read.cut",
    // A base file gets its name before it is synced.
    "base.sync",
    // Publishing returns before the directory is synced.
    "base.directory",
    // A base file is published before the journal is durable up to what it has read.
    "base.durable",
];
