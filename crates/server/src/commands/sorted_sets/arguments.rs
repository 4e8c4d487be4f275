//! Ranges and scores among the arguments, and replies with members and scores.

use std::ops::Bound;

use crate::command::*;
use crate::resp::{Protocol, Reply, parse_bound, parse_f64, parse_i64};
use mneme_collections::SortedRange;

/// Whether the reply includes the scores.
pub(super) const WITHSCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();

/// What the ends of a range are compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeOrder {
    Rank,
    Score,
    Member,
}

/// The range from `low` to `high`.
pub(crate) fn range<'a>(
    order: RangeOrder,
    low: &'a [u8],
    high: &'a [u8],
) -> Result<SortedRange<'a>, Failure> {
    match order {
        RangeOrder::Rank => {
            let end = |text| parse_i64(text).ok_or(Failure::NotAnInteger);
            Ok(SortedRange::Ranks(end(low)?, end(high)?))
        }
        RangeOrder::Score => {
            let ends = score_bound(low).zip(score_bound(high));
            let (low, high) = ends.ok_or(Failure::other("ERR min or max is not a float"))?;
            Ok(SortedRange::Scores(low, high))
        }
        RangeOrder::Member => {
            let ends = member_bound(low).zip(member_bound(high));
            let wrong = "ERR min or max not valid string range item";
            match ends.ok_or(Failure::other(wrong))? {
                // The range begins at the end of everything or ends at its beginning, so it is
                // empty.
                (End::Last, _) | (_, End::First) => Ok(SortedRange::Ranks(1, 0)),
                (low, high) => Ok(SortedRange::Members(low.bound(), high.bound())),
            }
        }
    }
}

fn score_bound(text: &[u8]) -> Option<Bound<f64>> {
    match text {
        [b'(', text @ ..] => parse_bound(text).map(Bound::Excluded),
        text => parse_bound(text).map(Bound::Included),
    }
}

enum End<'a> {
    First,
    Last,
    At(Bound<&'a [u8]>),
}

impl<'a> End<'a> {
    fn bound(self) -> Bound<&'a [u8]> {
        match self {
            End::First | End::Last => Bound::Unbounded,
            End::At(bound) => bound,
        }
    }
}

fn member_bound(text: &[u8]) -> Option<End<'_>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Some(End::First),
        [b'+'] | [b'+', 0, ..] => Some(End::Last),
        [b'(', member @ ..] => Some(End::At(Bound::Excluded(member))),
        [b'[', member @ ..] => Some(End::At(Bound::Included(member))),
        _ => None,
    }
}

/// A number that is a score, a weight or a distance.
pub(crate) fn double(text: &[u8]) -> Result<f64, Failure> {
    parse_f64(text).ok_or(Failure::NotAFloat)
}

/// Writes the header of an array of `len` members, with or without their scores.
pub(crate) fn header(reply: &mut Reply<'_>, protocol: Protocol, len: usize, with_scores: bool) {
    match with_scores && protocol == Protocol::Resp2 {
        true => reply.array(2 * len),
        false => reply.array(len),
    }
}

/// Writes a member of such an array.
pub(crate) fn member(reply: &mut Reply<'_>, protocol: Protocol, member: &[u8], score: Option<f64>) {
    if score.is_some() && protocol == Protocol::Resp3 {
        reply.array(2);
    }
    reply.bulk(member);
    if let Some(score) = score {
        reply.double(score);
    }
}
