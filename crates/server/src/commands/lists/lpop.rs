//! `LPOP`, `RPOP key [count]`: remove items from an end.

use super::list::{KEY, update};
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::resp::parse_i64;
use mneme_collections::End;
use mneme_log::Updated;

pub(super) static LPOP: Command = Command {
    name: "lpop",
    summary: "Removes items from the front of a list, and returns them",
    run: |call| pop(call, End::Front, "lpop"),
    ..POP
};

pub(super) static RPOP: Command = Command {
    name: "rpop",
    summary: "Removes items from the back of a list, and returns them",
    run: |call| pop(call, End::Back, "rpop"),
    ..POP
};

const POP: Command = Command {
    since: "1.0.0",
    complexity: "O(log L + N) where L is the number of items and N of those returned; of a small list all bytes are copied",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Delete,
    ])],
    arguments: &[
        KEY,
        Argument::new("count", Kind::Integer)
            .since("6.2.0")
            .optional(),
    ],
    ..Command::LIST
};

fn pop(call: &mut Call<'_>, end: End, name: &'static str) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(count(call.args.at(2))?),
        _ => return Err(Failure::WrongArity(name)),
    };
    let (key, keyspace) = (call.args.at(1), &mut call.keyspace);
    match (take(keyspace, key, end, count.unwrap_or(1))?, count) {
        (Some(items), None) => call.reply.value(items.first().map(|item| &item[..])),
        (Some(items), Some(_)) => {
            call.reply.array(items.len());
            items.iter().for_each(|item| call.reply.bulk(item));
        }
        (None, None) => call.reply.null(),
        (None, Some(_)) => call.reply.null_array(),
    }
    Ok(())
}

/// A number of items that may be 0.
fn count(argument: &[u8]) -> Result<usize, Failure> {
    let count = parse_i64(argument).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Failure::other(
        "ERR value is out of range, must be positive",
    ))
}

/// Removes up to `count` items from an end, and returns them in the order of removal. `None`: there
/// is no list.
pub(super) fn take(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    end: End,
    count: usize,
) -> Result<Option<Vec<Vec<u8>>>, Failure> {
    let (items, updated) = update(keyspace, key, |list| {
        if list.is_empty()? {
            return Ok((None, false));
        }
        let mut items = Vec::new();
        list.pop(end, count, |item| items.push(item.to_vec()))?;
        let is_changed = !items.is_empty();
        Ok((Some(items), is_changed))
    })?;
    if items.as_ref().is_some_and(|items| !items.is_empty()) {
        popped(keyspace, key, end, updated);
    }
    Ok(items)
}

/// Reports that items were popped, and what became of the list.
pub(super) fn popped(keyspace: &Keyspace<'_>, key: &[u8], end: End, updated: Updated) {
    let name = match end {
        End::Front => "lpop",
        End::Back => "rpop",
    };
    keyspace.notify_taken(EventClass::List, name, key, updated);
}
