//! `LLEN key`, `LINDEX key index`, `LRANGE key start stop`: read a list.

use std::cell::RefCell;

use super::list::KEY;
use crate::command::*;
use crate::commands::range::Ends;
use mneme_collections::listpack::Element;
use mneme_collections::{Form, LargeList, ListType, index_within};

pub(super) static LLEN: Command = Command {
    name: "llen",
    summary: "Returns the number of items of a list",
    since: "1.0.0",
    complexity: "O(1)",
    arity: 2,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    arguments: &[KEY],
    run: llen,
    ..Command::LIST
};

pub(super) static LINDEX: Command = Command {
    name: "lindex",
    summary: "Returns the item at an index of a list",
    since: "1.0.0",
    complexity: "O(log N) where N is the number of items; of a small list those to the nearer end are passed",
    arity: 3,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[KEY, Argument::new("index", Kind::Integer)],
    run: lindex,
    ..Command::LIST
};

pub(super) static LRANGE: Command = Command {
    name: "lrange",
    summary: "Returns the items at a range of indices of a list",
    since: "1.0.0",
    complexity: "O(log L + N) where L is the number of items and N of those returned; of a small list those before are passed",
    arity: 4,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        KEY,
        Argument::new("start", Kind::Integer),
        Argument::new("stop", Kind::Integer),
    ],
    run: lrange,
    ..Command::LIST
};

fn llen(call: &mut Call<'_>) -> Outcome {
    let len = call.keyspace.read_collection::<ListType, _, _>(
        call.args.at(1),
        |large| Ok(large.len() as usize),
        |list| match list {
            Some(Form::Packed(list)) => Ok(list.len()?),
            Some(Form::Large(len)) => Ok(len),
            None => Ok(0),
        },
    )?;
    call.reply.integer(len as i64);
    Ok(())
}

fn lindex(call: &mut Call<'_>) -> Outcome {
    // As in Redis, the key is looked up first.
    let index = call.integer(2);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let of_large = |mut list: LargeList<'_>| {
        let index = index.as_ref().ok();
        let index = index.and_then(|index| index_within(*index, list.len() as usize));
        index.map_or(Ok(None), |index| list.get(index))
    };
    call.keyspace
        .read_collection::<ListType, _, _>(key, of_large, |list| {
            match list {
                Some(Form::Packed(list)) => {
                    let index = index_within(
                        *index.as_ref().map_err(|_| Failure::NotAnInteger)?,
                        list.len()?,
                    );
                    let item = index.map_or(Ok(None), |index| list.get(index))?;
                    match item {
                        Some(item) => item.with_bytes(|item| reply.bulk(item)),
                        None => reply.null(),
                    }
                }
                Some(Form::Large(_)) if index.is_err() => return Err(Failure::NotAnInteger),
                Some(Form::Large(item)) => reply.value(item.as_deref()),
                None => reply.null(),
            }
            Ok(())
        })
}

fn lrange(call: &mut Call<'_>) -> Outcome {
    let ends = Ends {
        start: call.integer(2)?,
        end: call.integer(3)?,
    };
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let begin = reply.position();
    let reply = RefCell::new(reply);
    let head = |len: usize| {
        let mut reply = reply.borrow_mut();
        // The value may have been removed while it was read.
        reply.truncate(begin);
        reply.array(len);
    };
    // Whether to continue; if the reply is too long, the rest would not be sent.
    let write = |item: &Element<'_>| {
        let mut reply = reply.borrow_mut();
        item.with_bytes(|item| reply.bulk(item));
        !reply.is_over()
    };
    call.keyspace.read_collection::<ListType, _, _>(
        key,
        |mut large| {
            let range = range_within(ends, large.len() as usize);
            head(range.len());
            large.visit_range(range, write)
        },
        |list| {
            match list {
                Some(Form::Packed(list)) => {
                    let len = list.len()?;
                    let range = range_within(ends, len);
                    head(range.len());
                    for item in list.range(range)? {
                        if !write(&item?) {
                            break;
                        }
                    }
                }
                Some(Form::Large(())) => {}
                None => head(0),
            }
            Ok(())
        },
    )
}

/// The indices of a range in a list of `len` items.
pub(super) fn range_within(ends: Ends, len: usize) -> std::ops::Range<usize> {
    let is_before = |end: i64| end < 0 && end.unsigned_abs() > len as u64;
    match ends.within(len) {
        Some(range) if !is_before(ends.end) => range,
        _ => 0..0,
    }
}
