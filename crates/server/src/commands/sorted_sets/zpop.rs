//! `ZPOPMIN`, `ZPOPMAX key [count]`, `ZMPOP numkeys key [key ...] MIN|MAX [COUNT count]`: remove
//! members from an end and return them.

use super::arguments::{header, member};
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::resp::{Protocol, Reply, parse_i64};
use mneme_collections::ScoredMembers;
use mneme_log::Updated;

pub(super) static ZPOPMIN: Command = Command {
    name: "zpopmin",
    summary: "Removes the members of a sorted set with the lowest scores and returns them",
    run: |call| pop_one(call, false),
    ..POP
};

pub(super) static ZPOPMAX: Command = Command {
    name: "zpopmax",
    summary: "Removes the members of a sorted set with the highest scores and returns them",
    run: |call| pop_one(call, true),
    ..POP
};

const POP: Command = Command {
    since: "5.0.0",
    complexity: "O(log N + M) where N is the number of members and M of those that are returned; a small set is looked through",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(POPPED)],
    arguments: &[
        Argument::key("key"),
        Argument::new("count", Kind::Integer).optional(),
    ],
    ..Command::SORTED_SET
};

pub(super) static ZMPOP: Command = Command {
    name: "zmpop",
    summary: "Removes members from an end of the first of several sorted sets that is there",
    since: "7.0.0",
    complexity: "O(log N + M) where N is the number of members and M of those that are returned; a small set is looked through",
    arity: -4,
    flags: &[Flag::Write, Flag::MovableKeys],
    keys: &[KeySpec::counted(1, POPPED)],
    arguments: &[NUMBER, KEYS, WHERE, COUNT],
    run: pop_of_several,
    ..Command::SORTED_SET
};

pub(super) const POPPED: &[KeyFlag] = &[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete];
pub(super) const NUMBER: Argument = Argument::new("numkeys", Kind::Integer);
pub(super) const KEYS: Argument = Argument::key("key").multiple();
pub(super) const WHERE: Argument = Argument::one_of(
    "where",
    &[Argument::word("min", "MIN"), Argument::word("max", "MAX")],
);
pub(super) const COUNT: Argument = Argument::new("count", Kind::Integer)
    .after("COUNT")
    .optional();

/// Removes and returns up to `count` members, beginning at an end of the sorted set under `key`.
/// `None`: there is no such set.
pub(crate) fn pop(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    count: u64,
    is_max: bool,
) -> Result<Option<ScoredMembers>, Failure> {
    let (members, updated) = keyspace.update_sorted_set(key, |set| {
        let members = set.pop(count, is_max)?;
        let is_changed = !members.is_empty();
        Ok((members, is_changed))
    })?;
    if !members.is_empty() {
        let event = if is_max { "zpopmax" } else { "zpopmin" };
        keyspace.notify_taken(EventClass::SortedSet, event, key, updated);
    }
    Ok((updated != Updated::Absent).then_some(members))
}

fn pop_one(call: &mut Call<'_>, is_max: bool) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(positive(
            call.args.at(2),
            "ERR value is out of range, must be positive",
        )?),
        _ => return Err(Failure::Syntax),
    };
    let members = pop(
        &mut call.keyspace,
        call.args.at(1),
        count.unwrap_or(1),
        is_max,
    )?;
    // A single member that was requested without a count is not in an array of its own.
    let protocol = match count {
        Some(_) => call.client.protocol,
        None => Protocol::Resp2,
    };
    let members = members.unwrap_or_default();
    header(&mut call.reply, protocol, members.len(), true);
    for (name, score) in members.iter() {
        member(&mut call.reply, protocol, name, Some(score));
    }
    Ok(())
}

fn pop_of_several(call: &mut Call<'_>) -> Outcome {
    let several = Several::of(call, 1)?;
    match several.pop(call, &several.keys)? {
        Some((key, members)) => popped_of(&mut call.reply, key, &members),
        None => call.reply.null_array(),
    }
    Ok(())
}

/// What `ZMPOP` removes.
pub(crate) struct Several<'a> {
    pub keys: Vec<&'a [u8]>,
    pub is_max: bool,
    pub count: u64,
}

impl<'a> Several<'a> {
    /// Parses the arguments from `at` on, which is the number of keys.
    pub fn of(call: &Call<'a>, at: usize) -> Result<Several<'a>, Failure> {
        let wrong = Failure::other("ERR numkeys should be greater than 0");
        let number = parse_i64(call.args.at(at)).filter(|number| *number > 0);
        let number = number.ok_or(wrong)? as usize;
        let end = at.saturating_add(1).saturating_add(number);
        if end >= call.args.len() {
            return Err(Failure::Syntax);
        }
        let is_max = match (call.is(end, "MIN"), call.is(end, "MAX")) {
            (true, _) => false,
            (_, true) => true,
            _ => return Err(Failure::Syntax),
        };
        let count = match call.args.len() - end {
            1 => 1,
            3 if call.is(end + 1, "COUNT") => {
                let wrong = "ERR count should be greater than 0";
                match positive(call.args.at(end + 2), wrong)? {
                    0 => return Err(Failure::other(wrong)),
                    count => count,
                }
            }
            // An invalid count is reported before other errors.
            4.. if call.is(end + 1, "COUNT") => {
                let wrong = "ERR count should be greater than 0";
                match positive(call.args.at(end + 2), wrong)? {
                    0 => return Err(Failure::other(wrong)),
                    _ => return Err(Failure::Syntax),
                }
            }
            _ => return Err(Failure::Syntax),
        };
        Ok(Several {
            keys: (at + 1..end).map(|at| call.args.at(at)).collect(),
            is_max,
            count,
        })
    }

    /// Pops from the first of `keys` that exists: the key, and the removed members.
    pub fn pop(
        &self,
        call: &mut Call<'_>,
        keys: &[&'a [u8]],
    ) -> Result<Option<(&'a [u8], ScoredMembers)>, Failure> {
        let (database, has_waited) = (call.keyspace.number(), call.has_waited());
        let named: Vec<_> = keys.iter().map(|key| (database, *key)).collect();
        call.keyspace.atomically_on(&named, |keyspace| {
            for key in keys {
                match pop(keyspace, key, self.count, self.is_max) {
                    Ok(None) => {}
                    // A client that has waited ignores values of other types.
                    Err(Failure::WrongType) if has_waited => {}
                    members => return Ok(members?.map(|members| (*key, members))),
                }
            }
            Ok(None)
        })
    }
}

/// The reply with a key and the members removed from it.
pub(crate) fn popped_of(reply: &mut Reply<'_>, key: &[u8], members: &ScoredMembers) {
    reply.array(2);
    reply.bulk(key);
    reply.array(members.len());
    for (name, score) in members.iter() {
        reply.array(2);
        reply.bulk(name);
        reply.double(score);
    }
}

fn positive(text: &[u8], wrong: &'static str) -> Result<u64, Failure> {
    let number = parse_i64(text).and_then(|number| u64::try_from(number).ok());
    number.ok_or(Failure::other(wrong))
}
