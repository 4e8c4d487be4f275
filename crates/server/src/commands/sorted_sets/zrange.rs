//! `ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]` and its
//! predecessors, and `ZRANGESTORE`: the members in a range.

use std::ops::Range;

use super::arguments::{RangeOrder, WITHSCORES, header, member, range as range_of};
use crate::command::*;
use mneme_collections::{CollectionError, SortedRange, SortedSetEdit, SortedSetView};

pub(super) static ZRANGE: Command = Command {
    name: "zrange",
    summary: "Returns the members of a sorted set in a range of positions, scores or texts",
    since: "1.2.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("start", Kind::String),
        Argument::new("stop", Kind::String),
        SORTBY.since("6.2.0").optional(),
        Argument::word("rev", "REV").since("6.2.0").optional(),
        LIMIT.since("6.2.0").optional(),
        WITHSCORES,
    ],
    run: |call| range(call, None, None),
    ..READ
};

pub(super) static ZRANGESTORE: Command = Command {
    name: "zrangestore",
    summary: "Stores the members of a sorted set in a range as another one",
    since: "6.2.0",
    complexity: "O(log N + M) where N is the number of members and M of those that are stored; a small set is looked through",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::first(&[KeyFlag::Overwrite, KeyFlag::Update]),
        KeySpec::second(&[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    arguments: &[
        Argument::key("dst"),
        Argument::key_of("src", 1),
        Argument::new("min", Kind::String),
        Argument::new("max", Kind::String),
        SORTBY.optional(),
        Argument::word("rev", "REV").optional(),
        LIMIT.optional(),
    ],
    run: store,
    ..Command::SORTED_SET
};

pub(super) static ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    summary: "Returns the members of a sorted set between two scores",
    since: "1.0.5",
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::Double),
        Argument::new("max", Kind::Double),
        Argument::word("withscores", "WITHSCORES")
            .since("2.0.0")
            .optional(),
        LIMIT.optional(),
    ],
    run: |call| range(call, Some(RangeOrder::Score), Some(false)),
    ..READ
};

pub(super) static ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    summary: "Returns the members of a sorted set between two scores, the last one first",
    since: "2.2.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("max", Kind::Double),
        Argument::new("min", Kind::Double),
        WITHSCORES,
        LIMIT.optional(),
    ],
    run: |call| range(call, Some(RangeOrder::Score), Some(true)),
    ..READ
};

pub(super) static ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    summary: "Returns the members of a sorted set between two texts, if all have the same score",
    since: "2.8.9",
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::String),
        Argument::new("max", Kind::String),
        LIMIT.optional(),
    ],
    run: |call| range(call, Some(RangeOrder::Member), Some(false)),
    ..READ
};

pub(super) static ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    summary: "Returns the members of a sorted set between two texts, the last one first, if all have the same score",
    since: "2.8.9",
    arguments: &[
        Argument::key("key"),
        Argument::new("max", Kind::String),
        Argument::new("min", Kind::String),
        LIMIT.optional(),
    ],
    run: |call| range(call, Some(RangeOrder::Member), Some(true)),
    ..READ
};

pub(super) static ZREVRANGE: Command = Command {
    name: "zrevrange",
    summary: "Returns the members of a sorted set between two positions, counted from the last one",
    since: "1.2.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("start", Kind::Integer),
        Argument::new("stop", Kind::Integer),
        WITHSCORES,
    ],
    run: |call| range(call, Some(RangeOrder::Rank), Some(true)),
    ..READ
};

/// The common fields of the commands that return members.
const READ: Command = Command {
    complexity: "O(log N + M) where N is the number of members and M of those that are returned; a small set is looked through",
    arity: -4,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    ..Command::SORTED_SET
};

const SORTBY: Argument = Argument::one_of(
    "sortby",
    &[
        Argument::word("byscore", "BYSCORE"),
        Argument::word("bylex", "BYLEX"),
    ],
);
const LIMIT: Argument = Argument::block(
    "offset_count",
    &[
        Argument::new("offset", Kind::Integer),
        Argument::new("count", Kind::Integer),
    ],
)
.after("LIMIT");

/// The members that a call selects.
struct Query<'a> {
    range: SortedRange<'a>,
    is_reverse: bool,
    with_scores: bool,
    offset: i64,
    /// The maximum number; negative: all.
    limit: i64,
}

impl<'a> Query<'a> {
    /// Parses the arguments from `key` on, which is the key.
    fn of(
        call: &Call<'a>,
        key: usize,
        (order, direction): (Option<RangeOrder>, Option<bool>),
        takes_scores: bool,
    ) -> Result<Query<'a>, Failure> {
        let (mut of, mut reverse, mut with_scores) = (order, direction, false);
        let (mut offset, mut limit) = (0, -1);
        let mut at = key + 3;
        while at < call.args.len() {
            if takes_scores && call.is(at, "WITHSCORES") {
                with_scores = true;
            } else if call.is(at, "LIMIT") && at + 2 < call.args.len() {
                (offset, limit) = (call.integer(at + 1)?, call.integer(at + 2)?);
                at += 2;
            } else if reverse.is_none() && call.is(at, "REV") {
                reverse = Some(true);
            } else if of.is_none() && call.is(at, "BYLEX") {
                of = Some(RangeOrder::Member);
            } else if of.is_none() && call.is(at, "BYSCORE") {
                of = Some(RangeOrder::Score);
            } else {
                return Err(Failure::Syntax);
            }
            at += 1;
        }
        let (order, is_reverse) = (of.unwrap_or(RangeOrder::Rank), reverse.unwrap_or(false));
        if limit != -1 && order == RangeOrder::Rank {
            return Err(Failure::other(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && order == RangeOrder::Member {
            return Err(Failure::other(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (low, high) = match is_reverse && order != RangeOrder::Rank {
            true => (call.args.at(key + 2), call.args.at(key + 1)),
            false => (call.args.at(key + 1), call.args.at(key + 2)),
        };
        Ok(Query {
            range: range_of(order, low, high)?,
            is_reverse,
            with_scores,
            offset,
            limit,
        })
    }

    /// The positions of the members, counted from the first member.
    fn positions(&self, set: &mut SortedSetView<'_>) -> Result<Range<u64>, CollectionError> {
        let Range { start, end } = set.positions(&self.range)?;
        if let SortedRange::Ranks(..) = self.range {
            // As in Redis, the offset of `LIMIT offset -1` has no effect.
            return Ok(match self.is_reverse {
                true => set.len()? - end..set.len()? - start,
                false => start..end,
            });
        }
        let Ok(offset) = u64::try_from(self.offset) else {
            return Ok(0..0);
        };
        let offset = offset.min(end - start);
        let count = u64::try_from(self.limit).unwrap_or(u64::MAX);
        let count = count.min(end - start - offset);
        Ok(match self.is_reverse {
            true => end - offset - count..end - offset,
            false => start + offset..start + offset + count,
        })
    }
}

fn range(call: &mut Call<'_>, order: Option<RangeOrder>, direction: Option<bool>) -> Outcome {
    let query = Query::of(call, 1, (order, direction), true)?;
    let (protocol, reply) = (call.client.protocol, &mut call.reply);
    let begin = reply.position();
    let found = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        reply.truncate(begin);
        let positions = query.positions(set)?;
        let len = (positions.end - positions.start) as usize;
        header(reply, protocol, len, query.with_scores);
        set.walk(positions, query.is_reverse, &mut |scored| {
            let score = query.with_scores.then(|| scored.score()).transpose()?;
            (scored.member).with_bytes(|bytes| member(reply, protocol, bytes, score));
            // The reply is too long: the rest would not be sent.
            Ok(!reply.is_over())
        })
    })?;
    if found.is_none() {
        // The value may have been removed while it was read.
        reply.truncate(begin);
        reply.array(0);
    }
    Ok(())
}

fn store(call: &mut Call<'_>) -> Outcome {
    let query = Query::of(call, 2, (None, None), false)?;
    let (to, from) = (call.args.at(1), call.args.at(2));
    let limits = call.server.settings.sorted_set_limits();
    let database = call.keyspace.number();
    let keys = [(database, to), (database, from)];
    let stored = call.keyspace.atomically_on(&keys, |keyspace| {
        let members = keyspace.read_sorted_set(from, |set| {
            let positions = query.positions(set)?;
            set.members(positions, false)
        })?;
        let members = members.unwrap_or_default();
        let set = SortedSetEdit::of_all(members.iter(), limits)?;
        keyspace.store_sorted_set(to, set, "zrangestore")
    })?;
    call.reply.integer(stored as i64);
    Ok(())
}
