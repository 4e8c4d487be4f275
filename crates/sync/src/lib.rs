//! Who may touch what, when.
