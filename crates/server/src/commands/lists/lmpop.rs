//! `LMPOP numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`: removes items from an end of the
//! first list that is not empty.

use super::list::{LEFT_OR_RIGHT, end};
use super::lpop::take;
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::resp::parse_i64;
use mneme_collections::End;

pub(super) static LMPOP: Command = Command {
    name: "lmpop",
    summary: "Removes items from an end of the first list that has some, and returns them",
    since: "7.0.0",
    complexity: "O(N+M) where N is the number of keys and M the number of items returned",
    arity: -4,
    flags: &[Flag::Write, Flag::MovableKeys],
    keys: &[KeySpec::counted(1, POPPED)],
    arguments: &[NUMBER, KEYS, WHERE, COUNT],
    run,
    ..Command::LIST
};

pub(super) const POPPED: &[KeyFlag] = &[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete];
pub(super) const NUMBER: Argument = Argument::new("numkeys", Kind::Integer);
pub(super) const KEYS: Argument = Argument::key("key").multiple();
pub(super) const WHERE: Argument = Argument::one_of("where", LEFT_OR_RIGHT);
pub(super) const COUNT: Argument = Argument::new("count", Kind::Integer)
    .after("COUNT")
    .optional();

/// The items to be popped.
pub(super) struct Popped<'a> {
    pub keys: Vec<&'a [u8]>,
    pub end: End,
    /// The maximum number; `None`: one, which is not replied as an array.
    pub count: Option<usize>,
}

/// Parses the arguments from `at` on, which is the number of keys.
pub(super) fn parse<'a>(call: &Call<'a>, at: usize) -> Result<Popped<'a>, Failure> {
    let positive = |index: usize, error: &'static str| {
        let number = parse_i64(call.args.at(index));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number
            .filter(|number| *number > 0)
            .ok_or(Failure::other(error))
    };
    let keys = positive(at, "ERR numkeys should be greater than 0")?;
    let place = at.saturating_add(keys).saturating_add(1);
    if place >= call.args.len() {
        return Err(Failure::Syntax);
    }
    let end = end(call, place)?;
    let count = match call.args.len() - place - 1 {
        0 => 1,
        2 if call.is(place + 1, "COUNT") => {
            positive(place + 2, "ERR count should be greater than 0")?
        }
        more if more > 2 && call.is(place + 1, "COUNT") => {
            positive(place + 2, "ERR count should be greater than 0")?;
            return Err(Failure::Syntax);
        }
        _ => return Err(Failure::Syntax),
    };
    Ok(Popped {
        keys: (at + 1..place).map(|key| call.args.at(key)).collect(),
        end,
        count: Some(count),
    })
}

fn run(call: &mut Call<'_>) -> Outcome {
    let popped = parse(call, 1)?;
    // As in Redis, a command that does not wait takes items even if other clients wait for them.
    if !pop(call, &popped, &popped.keys)? {
        call.reply.null_array();
    }
    Ok(())
}

/// Pops from the first of `keys` whose list is not empty, and replies with the key and the items.
/// Returns whether there was one.
pub(super) fn pop(
    call: &mut Call<'_>,
    popped: &Popped<'_>,
    keys: &[&[u8]],
) -> Result<bool, Failure> {
    let (database, has_waited) = (call.keyspace.number(), call.has_waited());
    let count = popped.count.unwrap_or(1);
    let keys: Vec<_> = keys.iter().map(|key| (database, *key)).collect();
    let first = |keyspace: &mut Keyspace<'_>| {
        for (_, key) in &keys {
            match take(keyspace, key, popped.end, count) {
                Ok(None) => {}
                // A client that has waited ignores values of other types.
                Err(Failure::WrongType) if has_waited => {}
                items => return Ok(Some((*key, items?.unwrap_or_default()))),
            }
        }
        Ok(None)
    };
    let found = match keys.len() {
        0 | 1 => first(&mut call.keyspace.other(database)),
        _ => call.keyspace.atomically_on(&keys, first),
    };
    let Some((key, items)) = found? else {
        return Ok(false);
    };
    call.reply.array(2);
    call.reply.bulk(key);
    if popped.count.is_some() {
        call.reply.array(items.len());
    }
    items.iter().for_each(|item| call.reply.bulk(item));
    Ok(true)
}
