//! How a store updates records.

/// How records are updated; fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum UpdatePolicy {
    /// Every change appends a record; records are immutable and are read in place.
    #[default]
    Append = 0,
    /// A value of up to 4 KiB is overwritten in place if the new one fits there. Other changes
    /// append. Reads copy. This suits stores that are nearly full of values that change often:
    /// overwriting leaves nothing to compact.
    InPlace = 1,
}
