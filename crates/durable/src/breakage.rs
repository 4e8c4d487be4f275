//! For tests: the steps that a test leaves out, to see that the crash tests notice. See
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order.
pub const STEPS: [&str; 11] = [
    // What was appended is called durable before the journal is synced.
    "pump.sync",
    // What lies within an open group is called durable.
    "pump.groups",
    // After a failed sync the feed does not go back to what was lost.
    "pump.rewind",
    // A base file is published before the journal is durable up to what was read.
    "checkpoint.durable",
    // A base file does not record the index of each database.
    "checkpoint.bind",
    // A base file still counts although a later run has cut off the part of the journal that it
    // read.
    "base.cut",
    // The clock keeps running while a store is rebuilt.
    "recover.clock",
    // The clock of a rebuilt store may be behind the times that its files record.
    "recover.floor",
    // A commit does not record the index of each database.
    "tree.bind",
    // The records of a dead index are dropped before a commit records its death.
    "tree.dead",
    // A tree gets its name before all of it is durable.
    "tree.publish",
];

/// The steps that the tests of a tree's replica leave out.
pub const REPLICA_STEPS: [&str; 2] = [
    // Entries of a group take effect before the group is closed.
    "tree.group",
    // A commit does not keep the entries that have not taken effect yet.
    "tree.pending",
];
