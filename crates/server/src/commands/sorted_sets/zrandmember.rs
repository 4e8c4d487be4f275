//! `ZRANDMEMBER key [count [WITHSCORES]]`: random members, each at most once, or with a negative
//! count possibly several times.

use std::collections::HashSet;

use super::arguments::{header, member};
use crate::command::*;
use mneme_collections::Lot;

pub(super) static ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    summary: "Returns members of a sorted set drawn by lot, each as likely as any other",
    since: "6.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::block(
            "options",
            &[
                Argument::new("count", Kind::Integer),
                Argument::word("withscores", "WITHSCORES").optional(),
            ],
        )
        .optional(),
    ],
    run,
    ..Command::SORTED_SET
};

/// Up to this number of members, all are read in order to choose some.
const FEW: u64 = 1024;

fn run(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        return several(call);
    }
    let one = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        let at = Lot::new().below(set.len()? as usize) as u64;
        set.members(at..at + 1, false)
    })?;
    match one.as_ref().and_then(|members| members.get(0)) {
        Some((member, _)) => call.reply.bulk(member),
        None => call.reply.null(),
    }
    Ok(())
}

fn several(call: &mut Call<'_>) -> Outcome {
    let (count, with_scores) = call.count_to_draw(Some("WITHSCORES"))?;
    let (protocol, reply) = (call.client.protocol, &mut call.reply);
    let (begin, wanted) = (reply.position(), count.unsigned_abs());
    let found = call.keyspace.read_sorted_set(call.args.at(1), |set| {
        reply.truncate(begin);
        let len = set.len()?;
        let number = if count < 0 { wanted } else { wanted.min(len) };
        header(reply, protocol, number as usize, with_scores);
        let mut lot = Lot::new();
        let all = match len <= FEW || number > len / 4 {
            true => Some(set.members(0..len, false)?),
            false => None,
        };
        // Each at most once: by a shuffle if all were read; otherwise chosen ones are remembered.
        let mut places: Vec<u64> = match (&all, count > 0) {
            (Some(_), true) => (0..len).collect(),
            _ => Vec::new(),
        };
        let mut drawn = HashSet::new();
        for i in 0..number {
            // The reply is too long: the rest would not be sent.
            if reply.is_over() || len == 0 {
                break;
            }
            let at = match (&all, count > 0) {
                (Some(_), true) => {
                    if number < len {
                        let other = i as usize + lot.below((len - i) as usize);
                        places.swap(i as usize, other);
                    }
                    places[i as usize]
                }
                (_, is_once) => loop {
                    let at = lot.below(len as usize) as u64;
                    if !is_once || drawn.insert(at) {
                        break at;
                    }
                },
            };
            let one = match &all {
                Some(_) => None,
                None => Some(set.members(at..at + 1, false)?),
            };
            let found = match (&all, &one) {
                (Some(all), _) => all.get(at as usize),
                (None, Some(one)) => one.get(0),
                (None, None) => None,
            };
            let (name, score) = found.unwrap_or_default();
            member(reply, protocol, name, with_scores.then_some(score));
        }
        Ok(())
    })?;
    if found.is_none() {
        // The value may have been removed while it was read.
        reply.truncate(begin);
        reply.array(0);
    }
    Ok(())
}
