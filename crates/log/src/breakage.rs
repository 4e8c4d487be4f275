//! For tests: steps that a test leaves out, to show that the tests of collections notice. See
//! [`mneme_sys::fault::without`].

/// Every step that can be left out.
pub const STEPS: [&str; 10] = [
    // The removal of a main does not note that a collection may have lost it.
    "main.noted",
    // The repair of a thread that died after such a removal does not note it either.
    "reap.mains",
    // A sweep frees dead collections while a store is loaded.
    "load.spares",
    // A validated read counts as valid although others have replaced what it has read.
    "look.valid",
    // A sweep frees a collection that it has found dead although its anchor names another place by
    // then.
    "sweep.anchor",
    // A transaction commits although others have replaced what it has read.
    "txn.checked",
    // A transaction continues with records that have expired.
    "txn.expired",
    // A writer that finds no space frees no collections whose mains are gone.
    "space.sweep",
    // The records of such collections do not count as space that can be gained.
    "space.noted",
    // Evicting a main counts only the bytes of its own record.
    "evict.bytes",
];
