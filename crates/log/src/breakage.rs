//! For tests: the steps that a test leaves out, to see that the tests of collections notice. See
//! [`mneme_sys::fault::without`].

/// Every step that can be left out.
pub const STEPS: [&str; 10] = [
    // Whatever removes a main does not note that a collection may have lost it.
    "main.noted",
    // Nor does the repair of a thread that died behind such a removal.
    "reap.mains",
    // A sweep frees what is dead while a store is loaded.
    "load.spares",
    // A look is valid although others have replaced what it has read.
    "look.valid",
    // A sweep frees what it has found dead although the anchor says another place by now.
    "sweep.anchor",
    // A transaction commits although others have replaced what it has read.
    "txn.checked",
    // A transaction goes on with what has expired.
    "txn.expired",
    // A writer that finds no space frees no collections whose mains are gone.
    "space.sweep",
    // What such collections have does not count as space.
    "space.noted",
    // A main that is evicted counts as the bytes of its own record.
    "evict.bytes",
];
