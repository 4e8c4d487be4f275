//! Ranges of a sorted set: the members that an operation selects.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use crate::error::Damage;
use crate::packed_sorted_set::Scored;

/// Consecutive members of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SortedRange<'r> {
    /// By their positions, counted from 0. Negative ones count from the end: -1 is the last. Both
    /// ends belong to the range.
    Ranks(i64, i64),
    /// By their scores.
    Scores(Bound<f64>, Bound<f64>),
    /// By their bytes, if all members have the same score.
    Members(Bound<&'r [u8]>, Bound<&'r [u8]>),
}

impl SortedRange<'_> {
    /// The positions that a range of ranks selects in a set of `len` members; `None`: the range is
    /// of another kind.
    pub(crate) fn ranks(&self, len: u64) -> Option<Range<u64>> {
        let &SortedRange::Ranks(first, last) = self else {
            return None;
        };
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let at = |index: i64| {
            if index < 0 {
                len.saturating_add(index)
            } else {
                index
            }
        };
        let (first, last) = (at(first).max(0), at(last).min(len - 1));
        Some(match first <= last {
            true => first as u64..last as u64 + 1,
            false => 0..0,
        })
    }

    /// Whether the range is empty for any set.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            SortedRange::Ranks(..) => false,
            SortedRange::Scores(low, high) => match (low, high) {
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (
                    Bound::Included(low) | Bound::Excluded(low),
                    Bound::Included(high) | Bound::Excluded(high),
                ) => low >= high,
                _ => false,
            },
            SortedRange::Members(low, high) => match (low, high) {
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (
                    Bound::Included(low) | Bound::Excluded(low),
                    Bound::Included(high) | Bound::Excluded(high),
                ) => low >= high,
                _ => false,
            },
        }
    }

    /// Whether a member lies before the range.
    ///
    /// # Errors
    /// Its score is not a number.
    pub(crate) fn begins_behind(&self, scored: &Scored<'_>) -> Result<bool, Damage> {
        Ok(match self {
            SortedRange::Ranks(..) => false,
            SortedRange::Scores(Bound::Included(low), _) => scored.score()? < *low,
            SortedRange::Scores(Bound::Excluded(low), _) => scored.score()? <= *low,
            SortedRange::Members(Bound::Included(low), _) => {
                scored.member_order(low) == Ordering::Less
            }
            SortedRange::Members(Bound::Excluded(low), _) => {
                scored.member_order(low) != Ordering::Greater
            }
            SortedRange::Scores(Bound::Unbounded, _)
            | SortedRange::Members(Bound::Unbounded, _) => false,
        })
    }

    /// Whether a member lies after the range.
    ///
    /// # Errors
    /// Its score is not a number.
    pub(crate) fn ends_before(&self, scored: &Scored<'_>) -> Result<bool, Damage> {
        Ok(match self {
            SortedRange::Ranks(..) => false,
            SortedRange::Scores(_, Bound::Included(high)) => scored.score()? > *high,
            SortedRange::Scores(_, Bound::Excluded(high)) => scored.score()? >= *high,
            SortedRange::Members(_, Bound::Included(high)) => {
                scored.member_order(high) == Ordering::Greater
            }
            SortedRange::Members(_, Bound::Excluded(high)) => {
                scored.member_order(high) != Ordering::Less
            }
            SortedRange::Scores(_, Bound::Unbounded)
            | SortedRange::Members(_, Bound::Unbounded) => false,
        })
    }
}
