//! `ZCARD`, `ZSCORE`, `ZMSCORE`, `ZRANK`, `ZREVRANK`, `ZCOUNT`, `ZLEXCOUNT`: read a sorted set.

use super::arguments::{RangeOrder, range};
use crate::command::*;

pub(super) static ZCARD: Command = Command {
    name: "zcard",
    summary: "Returns the number of members of a sorted set",
    since: "1.2.0",
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key")],
    run: card,
    ..Command::SORTED_SET
};

/// The common fields of most of them.
const LOOK_UP: Command = Command {
    complexity: "O(log N) where N is the number of members; a small set is looked through",
    arity: 3,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key"), Argument::new("member", Kind::String)],
    ..Command::SORTED_SET
};

pub(super) static ZSCORE: Command = Command {
    name: "zscore",
    summary: "Returns the score of a member of a sorted set",
    since: "1.2.0",
    complexity: "O(1); a small set is looked through",
    run: score,
    ..LOOK_UP
};

pub(super) static ZMSCORE: Command = Command {
    name: "zmscore",
    summary: "Returns the scores of several members of a sorted set",
    since: "6.2.0",
    complexity: "O(N) where N is the number of members asked for; a small set is looked through",
    arity: -3,
    arguments: &[
        Argument::key("key"),
        Argument::new("member", Kind::String).multiple(),
    ],
    run: scores,
    ..LOOK_UP
};

pub(super) static ZRANK: Command = Command {
    name: "zrank",
    summary: "Returns how many members of a sorted set lie before one",
    since: "2.0.0",
    run: |call| rank(call, false),
    ..LOOK_UP
};

pub(super) static ZREVRANK: Command = Command {
    name: "zrevrank",
    summary: "Returns how many members of a sorted set lie behind one",
    since: "2.0.0",
    run: |call| rank(call, true),
    ..LOOK_UP
};

pub(super) static ZCOUNT: Command = Command {
    name: "zcount",
    summary: "Returns the number of members of a sorted set between two scores",
    since: "2.0.0",
    arity: 4,
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::Double),
        Argument::new("max", Kind::Double),
    ],
    run: |call| count(call, RangeOrder::Score),
    ..LOOK_UP
};

pub(super) static ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    summary: "Returns the number of members of a sorted set between two texts, if all have the same score",
    since: "2.8.9",
    arity: 4,
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::String),
        Argument::new("max", Kind::String),
    ],
    run: |call| count(call, RangeOrder::Member),
    ..LOOK_UP
};

fn card(call: &mut Call<'_>) -> Outcome {
    let len = call
        .keyspace
        .read_sorted_set(call.args.at(1), |set| set.len())?;
    call.reply.integer(len.unwrap_or_default() as i64);
    Ok(())
}

fn score(call: &mut Call<'_>) -> Outcome {
    let (key, member) = (call.args.at(1), call.args.at(2));
    let score = (call.keyspace).read_sorted_set(key, |set| set.score(member))?;
    match score.flatten() {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
    Ok(())
}

fn scores(call: &mut Call<'_>) -> Outcome {
    let members = call.args.from(2);
    let scores = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        members.iter().map(|member| set.score(member)).collect()
    })?;
    let scores: Vec<Option<f64>> = scores.unwrap_or_else(|| vec![None; members.len()]);
    call.reply.array(scores.len());
    for score in scores {
        match score {
            Some(score) => call.reply.double(score),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn rank(call: &mut Call<'_>, is_reverse: bool) -> Outcome {
    let (key, member) = (call.args.at(1), call.args.at(2));
    let rank = call.keyspace.read_sorted_set(key, |set| {
        let Some((rank, _)) = set.rank(member)? else {
            return Ok(None);
        };
        Ok(Some(match is_reverse {
            true => set.len()? - 1 - rank,
            false => rank,
        }))
    })?;
    match rank.flatten() {
        Some(rank) => call.reply.integer(rank as i64),
        None => call.reply.null(),
    }
    Ok(())
}

fn count(call: &mut Call<'_>, order: RangeOrder) -> Outcome {
    let range = range(order, call.args.at(2), call.args.at(3))?;
    let positions = call
        .keyspace
        .read_sorted_set(call.args.at(1), |set| set.positions(&range))?;
    let count = positions.map_or(0, |positions| positions.end - positions.start);
    call.reply.integer(count as i64);
    Ok(())
}
