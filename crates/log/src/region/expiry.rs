//! When a record expires, in the form of a record's word.

/// When a record expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Expiry {
    /// It does not expire.
    #[default]
    Never,
    /// From this time on it counts as absent: wall-clock milliseconds since 1970.
    At(u64),
}

impl Expiry {
    /// The form in a record's word, where zero stands for never.
    pub(crate) fn word(self) -> u64 {
        match self {
            Expiry::Never => 0,
            Expiry::At(ms) => ms.max(1),
        }
    }

    pub(crate) fn of_word(word: u64) -> Expiry {
        match word {
            0 => Expiry::Never,
            ms => Expiry::At(ms),
        }
    }
}
