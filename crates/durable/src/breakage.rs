//! The steps that a test leaves out, to see that the crash tests notice; see
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order.
pub const STEPS: [&str; 11] = [
    // What was appended is called durable before the journal is synced.
    "pump.sync",
    // What lies within a group that has not ended is called durable.
    "pump.groups",
    // After a failed sync the feed goes on behind what was lost.
    "pump.rewind",
    // A base file is published before the journal is durable up to what was read.
    "checkpoint.durable",
    // A base file does not say which database has which index.
    "checkpoint.bind",
    // A base file counts although a later run has cut what it has read.
    "base.cut",
    // The clock goes on while a store is rebuilt.
    "recover.clock",
    // The clock of a rebuilt store may be behind what its files name.
    "recover.floor",
    // A commit does not say which database has which index.
    "tree.bind",
    // The records of a dead index are dropped before a commit says that it is dead.
    "tree.dead",
    // A tree gets its name before all of it is durable.
    "tree.publish",
];

/// Those of a tree that the tests of its replica leave out.
pub const REPLICA_STEPS: [&str; 2] = [
    // Entries of a group take place before it is closed.
    "tree.group",
    // A commit does not keep entries that do not take place yet.
    "tree.pending",
];
