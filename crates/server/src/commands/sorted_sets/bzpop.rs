//! `BZPOPMIN`, `BZPOPMAX key [key ...] timeout`, `BZMPOP timeout numkeys key [key ...] MIN|MAX
//! [COUNT count]`: as `ZPOPMIN`, `ZPOPMAX` and `ZMPOP`, but they wait until a sorted set is there.

use super::zpop::{COUNT, KEYS, NUMBER, POPPED, Several, WHERE, pop, popped_of};
use crate::command::*;
use crate::keyspace::Keyspace;
use mneme_collections::{SORTED_SET, ScoredMembers};

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
    keys: &[KeySpec {
        find: Find::Range {
            last: -2,
            step: 1,
            limit: 0,
        },
        ..KeySpec::first(POPPED)
    }],
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
    let Some((key, members)) = pop_first(call, &several)? else {
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
    match pop_first(call, &several)? {
        Some((key, members)) => popped_of(&mut call.reply, key, &members),
        None => return wait(call, &several, timeout_ms),
    }
    Ok(())
}

/// Pops from the first sorted set that is there: its key, and what was popped.
fn pop_first<'a>(
    call: &mut Call<'_>,
    several: &Several<'a>,
) -> Result<Option<(&'a [u8], ScoredMembers)>, Failure> {
    let (database, has_waited) = (call.keyspace.number(), call.has_waited());
    let keys = several.keys.iter().filter(|key| !call.is_preceded(key));
    let keys: Vec<_> = keys.map(|key| (database, *key)).collect();
    call.keyspace
        .atomically_on(&keys, |keyspace: &mut Keyspace<'_>| {
            for (_, key) in &keys {
                match pop(keyspace, key, several.count, several.is_max) {
                    Ok(None) => {}
                    // A client that waits for a sorted set does not mind what else becomes of
                    // the key.
                    Err(Failure::WrongType) if has_waited => {}
                    members => return Ok(members?.map(|members| (*key, members))),
                }
            }
            Ok(None)
        })
}

fn wait(call: &mut Call<'_>, several: &Several<'_>, timeout_ms: u64) -> Outcome {
    if call.is_within_exec() {
        call.reply.null_array();
        return Ok(());
    }
    call.wait_for(SORTED_SET, several.keys.iter().copied(), timeout_ms)
}
