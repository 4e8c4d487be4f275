//! `ZSCAN key cursor [MATCH pattern] [COUNT n]`: the members of a sorted set, a few at a time. If
//! Redis would keep the value as a listpack, all of it is returned at once, as by Redis.

use crate::command::*;
use crate::commands::generic::{SCAN_ELEMENTS, ScanOptions, cursor, reply_step};
use crate::glob::Steps;
use crate::resp::append_f64;
use mneme_collections::ScoreText;

pub(super) static ZSCAN: Command = Command {
    name: "zscan",
    summary: "Walks through the members of a sorted set, a few at a time",
    since: "2.8.0",
    complexity: "O(1) for every call; a small set is looked through",
    arity: -3,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: SCAN_ELEMENTS,
    run,
    ..Command::SORTED_SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    let from = cursor(call.args.at(2)).ok_or(Failure::other("ERR invalid cursor"))?;
    // As in Redis, options are not checked if the key does not exist.
    let options = ScanOptions::of(call, 3, false);
    let count = options.as_ref().map_or(0, |options| options.count);
    let step = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        let (members, next) = set.scan(from, count)?;
        Ok((members, next, set.is_skiplist()))
    })?;
    let (members, next, is_skiplist) = step.unwrap_or_default();
    let pattern = match members.is_empty() {
        false => options?.pattern,
        true => None,
    };
    let steps = Steps::default();
    let matches = |member: &[u8]| pattern.is_none_or(|pattern| steps.matches(pattern, member));
    let found: Vec<_> = members.iter().filter(|(name, _)| matches(name)).collect();
    steps.check()?;
    let reply = &mut call.reply;
    reply_step(reply, next, 2 * found.len());
    for (member, score) in found {
        reply.bulk(member);
        // A listpack stores whole numbers as integers.
        if !is_skiplist && score.trunc() == score && score.abs() < LONGEST_WHOLE {
            reply.bulk(ScoreText::of(score).bytes());
            continue;
        }
        let mut text = Vec::new();
        append_f64(&mut text, score);
        reply.bulk(&text);
    }
    Ok(())
}

/// From this number on, Redis does not store whole numbers as integers.
const LONGEST_WHOLE: f64 = (1u64 << 62) as f64;
