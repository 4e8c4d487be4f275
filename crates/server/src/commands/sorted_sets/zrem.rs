//! `ZREM key member [member ...]`, `ZREMRANGEBYRANK`, `ZREMRANGEBYSCORE`, `ZREMRANGEBYLEX key min
//! max`: remove members; removing the last one removes the key.

use super::arguments::{RangeOrder, range};
use crate::command::*;

pub(super) static ZREM: Command = Command {
    name: "zrem",
    summary: "Removes members of a sorted set, and the set with the last of them",
    since: "1.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    arguments: &[
        Argument::key("key"),
        Argument::new("member", Kind::String).multiple(),
    ],
    run,
    ..Command::SORTED_SET
};

pub(super) static ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    summary: "Removes the members of a sorted set between two positions",
    since: "2.0.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("start", Kind::Integer),
        Argument::new("stop", Kind::Integer),
    ],
    run: |call| remove_range(call, RangeOrder::Rank, "zremrangebyrank"),
    ..RANGE
};

pub(super) static ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    summary: "Removes the members of a sorted set between two scores",
    since: "1.2.0",
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::Double),
        Argument::new("max", Kind::Double),
    ],
    run: |call| remove_range(call, RangeOrder::Score, "zremrangebyscore"),
    ..RANGE
};

pub(super) static ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    summary: "Removes the members of a sorted set between two texts, if all have the same score",
    since: "2.8.9",
    arguments: &[
        Argument::key("key"),
        Argument::new("min", Kind::String),
        Argument::new("max", Kind::String),
    ],
    run: |call| remove_range(call, RangeOrder::Member, "zremrangebylex"),
    ..RANGE
};

/// The common fields of the commands that remove a range.
const RANGE: Command = Command {
    complexity: "O(log N + M) where N is the number of members and M of those that are removed; a small set is looked through",
    arity: 4,
    flags: &[Flag::Write],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    ..Command::SORTED_SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (key, members) = (call.args.at(1), call.args.from(2));
    let (removed, updated) = call.keyspace.update_sorted_set(key, |set| {
        let mut removed = 0;
        for member in members.iter() {
            removed += u64::from(set.remove(member)?.is_some());
        }
        Ok((removed, removed > 0))
    })?;
    call.reply_taken(EventClass::SortedSet, "zrem", removed, updated);
    Ok(())
}

fn remove_range(call: &mut Call<'_>, order: RangeOrder, event: &'static str) -> Outcome {
    let range = range(order, call.args.at(2), call.args.at(3))?;
    let (removed, updated) = call.keyspace.update_sorted_set(call.args.at(1), |set| {
        let positions = set.view()?.positions(&range)?;
        let removed = set.remove_positions(positions)?;
        Ok((removed, removed > 0))
    })?;
    call.reply_taken(EventClass::SortedSet, event, removed, updated);
    Ok(())
}
