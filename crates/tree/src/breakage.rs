//! The steps that a test leaves out, to see that the crash tests notice; see
//! [`mneme_sys::fault::without`].

/// Every step that can be left out or done in the wrong order.
pub const STEPS: [&str; 27] = [
    // An opening after an unclean end does not remember the number that may have left traces.
    "open.remember_dead",
    // It does not make that durable before it lets anybody store.
    "open.record",
    // It believes in the newest record though what that lists is not there.
    "open.listed",
    // Traces are forgotten before their removal is durable.
    "sweep.barrier",
    // No zero word follows what is stored into a leaf that holds something else behind it.
    "leaf.end",
    // A leaf that was replaced does not die.
    "rewrite.death",
    // A leaf's place is used again before what replaced it is durable.
    "reuse.late",
    // A fresh leaf's header is stored over the death word of the former user.
    "reuse.keep_death",
    // An extent that no entry names any more does not die.
    "extent.death",
    // A fresh extent's header is stored over the death word of an earlier one.
    "extent.keep_death",
    // A long key that is replaced or removed leaves its entry in the leaf.
    "key.replaced",
    // The catalogue does not say that a dropped tree still has leaves.
    "tree.dropped",
    // An extent is used again while a snapshot shows it.
    "held.look",
    // Bytes of a value go where a table was before that is known to be none.
    "run.barrier",
    // Frames of a run become frames of their own before the value's bytes have gone.
    "recycle.runs",
    // A table is zeroed that is still read as one.
    "recycle.headers",
    // A frame is used again before its table is known to be zero.
    "recycle.tables",
    // Frames that hold nothing keep what a crash left in their tables.
    "open.clean",
    // What is dead is taken for free though processes may read it.
    "open.others",
    // A name that is dropped stays in its slot.
    "name.death",
    // A name is stored over the death word of an earlier one in its slot.
    "name.keep_death",
    // An opening takes the extents of named versions for free.
    "names.extents",
    // Openings share the copies of records.
    "cache.opening",
    // A copy is taken for one of another leaf's entry.
    "cache.leaf",
    // A copy is taken though the reader's version has not its entry.
    "cache.version",
    // A copy is taken though the leaf may have a newer entry of the key.
    "cache.examined",
    // A copy made by a reader of an older version hides the entry of a newer one.
    "cache.later",
];
