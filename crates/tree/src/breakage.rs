//! For tests: the steps that a test leaves out, to see that the crash tests notice. See
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order.
pub const STEPS: [&str; 31] = [
    // An opening after an unclean end does not remember the number that may have left traces.
    "open.remember_dead",
    // It does not make that durable before it allows stores.
    "open.record",
    // It accepts the newest record although the entries that it lists are missing.
    "open.listed",
    // An opening does not look for commits behind the last record that had none.
    "open.alone",
    // It uses a number again that such a commit may have had.
    "open.numbers",
    // An entry without a record counts though the word behind it did not arrive.
    "alone.followed",
    // One of an interrupted commit is taken for damage instead of for nothing.
    "alone.whole",
    // Traces are forgotten before their removal is durable.
    "sweep.barrier",
    // No zero word follows the last entry of a leaf that holds older bytes after it.
    "leaf.end",
    // A leaf that was replaced does not die.
    "rewrite.death",
    // A leaf's place is reused before its replacement is durable.
    "reuse.late",
    // A new leaf's header overwrites the death word of the place's previous user.
    "reuse.keep_death",
    // An extent that no entry names any more is not marked dead.
    "extent.death",
    // A new extent's header overwrites the death word of an earlier one.
    "extent.keep_death",
    // A long key that is replaced or removed leaves its entry in the leaf.
    "key.replaced",
    // The catalogue does not record that a dropped tree still has leaves.
    "tree.dropped",
    // An extent is reused while a snapshot shows it.
    "held.look",
    // Bytes of a value are written where a table was before the table is durably gone.
    "run.barrier",
    // Frames of a run become separate frames before the value's bytes are gone.
    "recycle.runs",
    // A table is zeroed while it is still read as a table.
    "recycle.headers",
    // A frame is reused before its zeroed table is durable.
    "recycle.tables",
    // Frames without content keep what a crash left in their tables.
    "open.clean",
    // Dead space is reused although other processes may read it.
    "open.others",
    // A name that is dropped stays in its slot.
    "name.death",
    // A name is stored over the death word of an earlier one in its slot.
    "name.keep_death",
    // An opening treats the extents of named versions as free.
    "names.extents",
    // Two openings share the copies of records.
    "cache.opening",
    // A copy of another leaf's entry is used.
    "cache.leaf",
    // A copy is used although the reader's version does not have that entry.
    "cache.version",
    // A copy is used although the leaf may have a newer entry for the key.
    "cache.examined",
    // A copy made by a reader of an older version hides the entry of a newer one.
    "cache.later",
];
