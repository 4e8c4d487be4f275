//! `BZPOPMIN`, `BZPOPMAX key [key ...] timeout`, `BZMPOP timeout numkeys key [key ...] MIN|MAX
//! [COUNT count]`: as `ZPOPMIN`, `ZPOPMAX` and `ZMPOP`, but they wait until a sorted set exists.

use super::zpop::{COUNT, KEYS, NUMBER, POPPED, Several, WHERE, popped_of};
use crate::command::*;
use mneme_collections::ScoredMembers;

pub(super) static BZPOPMIN: Command = Command {
    name: "bzpopmin",
    summary: "Removes the member with the lowest score of the first sorted set that is there, or waits for one",
    run: |call| pop_one(call, false),
    ..POP
};

pub(super) static BZPOPMAX: Command = Command {
    name: "bzpopmax",
    summary: "Removes the member with the highest score of the first sorted set that is there, or waits for one",
    run: |call| pop_one(call, true),
    ..POP
};

const POP: Command = Command {
    since: "5.0.0",
    complexity: "O(log N) where N is the number of members; a small set is looked through",
    arity: -3,
    flags: &[Flag::Write, Flag::NoScript, Flag::Blocking, Flag::Fast],
    keys: &[KeySpec::all_but_last(POPPED)],
    arguments: &[KEYS, TIMEOUT],
    ..Command::SORTED_SET
};

pub(super) static BZMPOP: Command = Command {
    name: "bzmpop",
    summary: "Removes members from an end of the first of several sorted sets that is there, or waits for one",
    since: "7.0.0",
    complexity: "O(log N + M) where N is the number of members and M of those that are returned; a small set is looked through",
    arity: -5,
    flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
    keys: &[KeySpec::counted(2, POPPED)],
    arguments: &[TIMEOUT, NUMBER, KEYS, WHERE, COUNT],
    run: pop_of_several,
    ..Command::SORTED_SET
};

const TIMEOUT: Argument = Argument::new("timeout", Kind::Double);

fn pop_one(call: &mut Call<'_>, is_max: bool) -> Outcome {
    let last = call.args.len() - 1;
    let timeout_ms = call.timeout_ms(last)?;
    let several = Several {
        keys: (1..last).map(|key| call.args.at(key)).collect(),
        is_max,
        count: 1,
    };
    let Some((key, members)) = pop_now(call, &several)? else {
        return wait(call, &several, timeout_ms);
    };
    if let Some((member, score)) = members.iter().next() {
        call.reply.array(3);
        call.reply.bulk(key);
        call.reply.bulk(member);
        call.reply.double(score);
    }
    Ok(())
}

fn pop_of_several(call: &mut Call<'_>) -> Outcome {
    let several = Several::of(call, 2)?;
    let timeout_ms = call.timeout_ms(1)?;
    match pop_now(call, &several)? {
        Some((key, members)) => popped_of(&mut call.reply, key, &members),
        None => return wait(call, &several, timeout_ms),
    }
    Ok(())
}

/// Pops from the first sorted set that exists and for which no other client has waited longer.
fn pop_now<'a>(
    call: &mut Call<'_>,
    several: &Several<'a>,
) -> Result<Option<(&'a [u8], ScoredMembers)>, Failure> {
    let keys = several.keys.iter().copied();
    let keys: Vec<_> = keys.filter(|key| !call.is_preceded(key)).collect();
    several.pop(call, &keys)
}

fn wait(call: &mut Call<'_>, several: &Several<'_>, timeout_ms: u64) -> Outcome {
    call.wait_for(several.keys.iter().copied(), timeout_ms)
}
