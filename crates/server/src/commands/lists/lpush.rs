//! `LPUSH`, `RPUSH`, `LPUSHX`, `RPUSHX key element [element ...]`: add items at an end.

use super::list::{ELEMENT, KEY, update};
use crate::command::*;
use mneme_collections::End;

pub(super) static LPUSH: Command = Command {
    name: "lpush",
    summary: "Adds items at the front of a list",
    since: "1.0.0",
    run: |call| push(call, End::Front, Absent::Made),
    ..PUSH
};

pub(super) static RPUSH: Command = Command {
    name: "rpush",
    summary: "Adds items at the back of a list",
    since: "1.0.0",
    run: |call| push(call, End::Back, Absent::Made),
    ..PUSH
};

pub(super) static LPUSHX: Command = Command {
    name: "lpushx",
    summary: "Adds items at the front of a list that is there",
    since: "2.2.0",
    run: |call| push(call, End::Front, Absent::Left),
    ..PUSH
};

pub(super) static RPUSHX: Command = Command {
    name: "rpushx",
    summary: "Adds items at the back of a list that is there",
    since: "2.2.0",
    run: |call| push(call, End::Back, Absent::Left),
    ..PUSH
};

const PUSH: Command = Command {
    complexity: "O(log L + N) where L is the number of items and N of those to add; of a small list all bytes are copied",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[KEY, ELEMENT.multiple()],
    ..Command::LIST
};

/// What to do if the list does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Made,
    Left,
}

/// The event of a push.
pub(super) fn pushed(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

fn push(call: &mut Call<'_>, end: End, absent: Absent) -> Outcome {
    let key = call.args.at(1);
    let items: Vec<&[u8]> = call.args.from(2).iter().collect();
    let (len, _) = update(&mut call.keyspace, key, |list| {
        if absent == Absent::Left && list.is_empty()? {
            return Ok((0, false));
        }
        list.push_many(end, &items)?;
        Ok((list.len()?, true))
    })?;
    if len > 0 {
        call.keyspace.notify(EventClass::List, pushed(end), key);
    }
    call.reply.integer(len as i64);
    Ok(())
}
