//! How far a sweep of collections has come, and how far it may go. The sweep itself is in
//! `sweep.rs`.

use crate::inner::{Anchor, InnerNumbers};

/// How many slices a search for space frees before it looks whether that was enough. They are a log
/// segment of inner records, more or less.
pub(crate) const SLICES_OF_A_SEARCH: u64 = 16;

/// What the sweeps of this process have to remember. One thread at a time sweeps: two would free
/// the same collections.
#[derive(Default)]
pub(crate) struct SweepState {
    /// When the pause after the last pass over all anchors ends.
    pub rests_until: u64,
    /// Collections of which a sweep has freed a part.
    pub unfinished: Vec<DeadCollection>,
}

/// A collection whose main is gone.
pub(crate) struct DeadCollection {
    pub id: u64,
    pub anchor: Anchor,
    /// What is still to be freed.
    pub numbers: InnerNumbers,
    pub is_begun: bool,
}

impl DeadCollection {
    pub fn new(id: u64, anchor: Anchor) -> Self {
        DeadCollection {
            id,
            numbers: InnerNumbers::of(&anchor),
            anchor,
            is_begun: false,
        }
    }
}

/// How much a sweep may do.
pub(crate) struct SweepLimit<'a> {
    /// Slices that it may free.
    pub slices: u64,
    /// Whether the thread is to end.
    pub stopped: &'a dyn Fn() -> bool,
}

impl SweepLimit<'_> {
    pub fn is_reached(&self) -> bool {
        self.slices == 0 || (self.stopped)()
    }
}
