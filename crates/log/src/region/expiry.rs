//! When a record expires, as a record's word holds it.

/// When a record expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Expiry {
    /// It does not.
    #[default]
    Never,
    /// From this time on it is gone: wall-clock milliseconds since 1970.
    At(u64),
}

impl Expiry {
    /// As a record's word holds it, where zero stands for never.
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
