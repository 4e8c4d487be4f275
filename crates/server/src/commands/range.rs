//! Ranges of positions as commands receive them: both ends are included, and negative positions
//! count from the end.

use std::ops::Range;

/// A range of a value's bytes or bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub start: i64,
    pub end: i64,
}

impl Ends {
    /// The whole value.
    pub const ALL: Self = Self { start: 0, end: -1 };

    /// Whether both ends count from the end of the value and the first comes after the last, so
    /// that the range is empty for any length. [`within`](Self::within) clamps ends to the value's
    /// first position, and would find that position there if the value is short.
    pub fn are_reversed(self) -> bool {
        self.start < 0 && self.end < 0 && self.start > self.end
    }

    /// The positions of a value of length `len` in the range; `None` if there are none.
    pub fn within(self, len: usize) -> Option<Range<usize>> {
        let len = len as i64;
        let from_start = |end: i64| if end < 0 { (len + end).max(0) } else { end };
        let (start, end) = (from_start(self.start), from_start(self.end).min(len - 1));
        // The casts are safe: the start is never negative, and the end is at least the start here.
        (start <= end).then(|| start as usize..end as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_clamped_to_the_value() {
        let within = |start, end, len| Ends { start, end }.within(len);
        assert_eq!(within(0, -1, 3), Some(0..3));
        assert_eq!(within(1, 1, 3), Some(1..2));
        assert_eq!(within(i64::MIN, i64::MAX, 3), Some(0..3));
        assert_eq!(within(-2, i64::MAX, 3), Some(1..3));
        assert_eq!(within(3, 5, 3), None);
        assert_eq!(within(2, 1, 3), None);
        assert_eq!(within(0, -1, 0), None);
        // As in Redis, if it has not checked the order of the ends before.
        assert_eq!(within(-5, -9, 3), Some(0..1));
    }
}
