//! Steps that tests leave out, to verify that the crash tests notice; see
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order. The comments say what happens then.
pub const STEPS: [&str; 16] = [
    // Appended bytes are reported durable without a sync.
    "sync.file",
    // A new file is begun before the full one is synced.
    "rotate.sync",
    // A new file gets its name before its header is synced.
    "file.header",
    // Frames are written to a new file before the directory is synced.
    "file.directory",
    // A file that a failed sync may have deprived of pages is synced again and trusted.
    "failed.file",
    // Checksums do not depend on the run and the file.
    "frame.seed",
    // A frame names the appended position, not the durable one.
    "frame.durable",
    // Removed files are reused before their old names are known to be gone.
    "remove.directory",
    // Spare files are used before their old names are known to be gone.
    "open.directory",
    // A run has the number of the previous one.
    "open.run",
    // Files that a later run replaces are removed before that run's file is durable.
    "open.stale",
    // What is read may be only in the page cache.
    "read.sync",
    // Of two files that hold a position, the older one counts.
    "read.cut",
    // A base file gets its name before it is synced.
    "base.sync",
    // Publishing returns before the directory is synced.
    "base.directory",
    // A base file is published before the journal is durable up to the position that it has read.
    "base.durable",
];
