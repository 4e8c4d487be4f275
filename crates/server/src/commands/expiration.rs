//! Expiry times as commands receive them.

use mneme_log::Expiry;

use crate::command::{Call, Failure};

/// How an option expresses a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `EX`: seconds from now.
    Seconds,
    /// `PX`: milliseconds from now.
    Milliseconds,
    /// `EXAT`: seconds since 1970.
    UnixSeconds,
    /// `PXAT`: milliseconds since 1970.
    UnixMilliseconds,
}

impl Notation {
    /// The notation with this name, in any case.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        [
            ("EX", Self::Seconds),
            ("PX", Self::Milliseconds),
            ("EXAT", Self::UnixSeconds),
            ("PXAT", Self::UnixMilliseconds),
        ]
        .into_iter()
        .find_map(|(name, notation)| {
            word.eq_ignore_ascii_case(name.as_bytes())
                .then_some(notation)
        })
    }

    /// The time for `number` in milliseconds since 1970; negative before 1970. `None` if it exceeds
    /// 64 bits.
    pub fn to_unix_ms(self, number: i64, now_ms: u64) -> Option<i64> {
        let (unit_ms, base_ms) = match self {
            Self::Seconds => (1000, now_ms as i64),
            Self::Milliseconds => (1, now_ms as i64),
            Self::UnixSeconds => (1000, 0),
            Self::UnixMilliseconds => (1, 0),
        };
        number.checked_mul(unit_ms)?.checked_add(base_ms)
    }
}

impl Call<'_> {
    /// The time in argument `index`, which must be positive, for the options of `command`.
    pub fn expiry(
        &self,
        index: usize,
        notation: Notation,
        command: &str,
    ) -> Result<Expiry, Failure> {
        let number = self.integer(index)?;
        let unix_ms = notation.to_unix_ms(number, self.wall_ms());
        match unix_ms {
            Some(unix_ms) if number > 0 => Ok(Expiry::At(unix_ms.unsigned_abs())),
            _ => Err(Failure::other(format!(
                "ERR invalid expire time in '{command}' command"
            ))),
        }
    }
}
