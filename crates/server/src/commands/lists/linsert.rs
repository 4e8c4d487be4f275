//! `LSET`, `LINSERT`, `LREM`, `LTRIM`: change items within a list.

use super::lindex::range_within;
use super::list::{ELEMENT, KEY, update};
use crate::command::*;
use crate::commands::range::Ends;
use mneme_collections::{End, index_within};

pub(super) static LSET: Command = Command {
    name: "lset",
    summary: "Replaces the item at an index of a list",
    since: "1.0.0",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[KEY, Argument::new("index", Kind::Integer), ELEMENT],
    run: lset,
    ..Command::LIST
};

pub(super) static LINSERT: Command = Command {
    name: "linsert",
    summary: "Adds an item before or behind another one of a list",
    since: "2.2.0",
    arity: 5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[
        KEY,
        Argument::one_of(
            "where",
            &[
                Argument::word("before", "BEFORE"),
                Argument::word("after", "AFTER"),
            ],
        ),
        Argument::new("pivot", Kind::String),
        ELEMENT,
    ],
    run: linsert,
    ..Command::LIST
};

pub(super) static LREM: Command = Command {
    name: "lrem",
    summary: "Removes items of a list that equal a value",
    since: "1.0.0",
    arity: 4,
    flags: &[Flag::Write],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    arguments: &[KEY, Argument::new("count", Kind::Integer), ELEMENT],
    run: lrem,
    ..Command::LIST
};

pub(super) static LTRIM: Command = Command {
    name: "ltrim",
    summary: "Removes all items of a list but those at a range of indices",
    since: "1.0.0",
    arity: 4,
    flags: &[Flag::Write],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    arguments: &[
        KEY,
        Argument::new("start", Kind::Integer),
        Argument::new("stop", Kind::Integer),
    ],
    run: ltrim,
    ..Command::LIST
};

fn lset(call: &mut Call<'_>) -> Outcome {
    let (key, index, item) = (call.args.at(1), call.integer(2), call.args.at(3));
    update(&mut call.keyspace, key, |list| {
        if list.is_empty()? {
            return Err(Failure::other("ERR no such key"));
        }
        // As in Redis, the key is looked up first.
        let index = index.as_ref().map_err(|_| Failure::NotAnInteger)?;
        match index_within(*index, list.len()?) {
            Some(index) => list.set(index, item)?,
            None => return Err(Failure::other("ERR index out of range")),
        };
        Ok(((), true))
    })?;
    call.keyspace.notify(EventClass::List, "lset", key);
    call.reply.ok();
    Ok(())
}

fn linsert(call: &mut Call<'_>) -> Outcome {
    let is_before = match (call.is(2, "BEFORE"), call.is(2, "AFTER")) {
        (true, _) => true,
        (_, true) => false,
        _ => return Err(Failure::Syntax),
    };
    let (key, pivot, item) = (call.args.at(1), call.args.at(3), call.args.at(4));
    let (len, _) = update(&mut call.keyspace, key, |list| {
        if list.is_empty()? {
            return Ok((0, false));
        }
        match list.insert(pivot, is_before, item)? {
            Some(_) => Ok((list.len()? as i64, true)),
            None => Ok((-1, false)),
        }
    })?;
    if len > 0 {
        call.keyspace.notify(EventClass::List, "linsert", key);
    }
    call.reply.integer(len);
    Ok(())
}

fn lrem(call: &mut Call<'_>) -> Outcome {
    let (key, count, item) = (call.args.at(1), call.integer(2)?, call.args.at(3));
    let from = if count < 0 { End::Back } else { End::Front };
    let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let (removed, updated) = update(&mut call.keyspace, key, |list| {
        let removed = list.remove(from, count, item)?;
        Ok((removed, removed > 0))
    })?;
    call.reply_taken(EventClass::List, "lrem", removed as u64, updated);
    Ok(())
}

fn ltrim(call: &mut Call<'_>) -> Outcome {
    let key = call.args.at(1);
    let ends = Ends {
        start: call.integer(2)?,
        end: call.integer(3)?,
    };
    let (is_there, updated) = update(&mut call.keyspace, key, |list| {
        let len = list.len()?;
        if len == 0 {
            return Ok((false, false));
        }
        list.trim(range_within(ends, len))?;
        Ok((true, true))
    })?;
    if is_there {
        (call.keyspace).notify_taken(EventClass::List, "ltrim", key, updated);
    }
    call.reply.ok();
    Ok(())
}
