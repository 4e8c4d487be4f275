//! [`SlotId`]: the number by which lock words, claims and errors name a thread.

/// The number of a thread slot, from 1 to the region's `max_threads`; 0 stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SlotId(pub u16);

impl SlotId {
    /// No slot.
    pub const NONE: SlotId = SlotId(0);

    /// Whether it names a slot.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

impl std::fmt::Display for SlotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
