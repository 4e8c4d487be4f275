//! `LMOVE`, `RPOPLPUSH`: move an item from an end of a list to an end of another list, or of the
//! same one. `BLMOVE` and `BRPOPLPUSH` wait until the list has an item.

use super::blpop::TIMEOUT;
use super::list::{LEFT_OR_RIGHT, end, update};
use super::lpop::popped;
use super::lpush::pushed;
use crate::command::*;
use crate::keyspace::Keyspace;
use mneme_collections::{End, LIST};

pub(super) static LMOVE: Command = Command {
    name: "lmove",
    summary: "Moves an item from an end of a list to an end of another one",
    since: "6.2.0",
    arity: 5,
    arguments: &[SOURCE, DESTINATION, FROM, TO],
    run: |call| {
        let ends = (end(call, 3)?, end(call, 4)?);
        if !pass(call, ends)? {
            call.reply.null();
        }
        Ok(())
    },
    ..MOVE
};

pub(super) static RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    summary: "Moves the last item of a list to the front of another one",
    since: "1.2.0",
    arity: 3,
    arguments: &[SOURCE, DESTINATION],
    run: |call| {
        if !pass(call, (End::Back, End::Front))? {
            call.reply.null();
        }
        Ok(())
    },
    ..MOVE
};

pub(super) static BLMOVE: Command = Command {
    name: "blmove",
    summary: "Moves an item from an end of a list to an end of another one, or waits for one",
    since: "6.2.0",
    arity: 6,
    flags: WAITS,
    arguments: &[SOURCE, DESTINATION, FROM, TO, TIMEOUT],
    run: |call| {
        let ends = (end(call, 3)?, end(call, 4)?);
        wait(call, ends, 5)
    },
    ..MOVE
};

pub(super) static BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    summary: "Moves the last item of a list to the front of another one, or waits for one",
    since: "2.2.0",
    arity: 4,
    flags: WAITS,
    arguments: &[SOURCE, DESTINATION, TIMEOUT],
    run: |call| wait(call, (End::Back, End::Front), 3),
    ..MOVE
};

const MOVE: Command = Command {
    complexity: "O(log N) where N is the number of items; of a small list all bytes are copied",
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete]),
        KeySpec::second(&[KeyFlag::ReadWrite, KeyFlag::Insert]),
    ],
    ..Command::LIST
};

const WAITS: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::NoScript, Flag::Blocking];
const SOURCE: Argument = Argument::key("source");
const DESTINATION: Argument = Argument::key_of("destination", 1);
const FROM: Argument = Argument::one_of("wherefrom", LEFT_OR_RIGHT);
const TO: Argument = Argument::one_of("whereto", LEFT_OR_RIGHT);

/// As [`pass`], but waits for an item if there is none, for at most the time in argument `timeout`.
fn wait(call: &mut Call<'_>, ends: (End, End), timeout: usize) -> Outcome {
    let timeout_ms = call.timeout_ms(timeout)?;
    let source = call.args.at(1);
    let has_passed = match call.is_preceded(source) {
        true => Ok(false),
        false => pass(call, ends),
    };
    let has_passed = match has_passed {
        // A client that has waited ignores values of other types.
        Err(Failure::WrongType) if call.has_waited() && !is_list(call)? => false,
        has_passed => has_passed?,
    };
    if has_passed {
        return Ok(());
    }
    if call.is_within_exec() {
        call.reply.null();
        return Ok(());
    }
    call.wait_for(std::iter::once(source), timeout_ms)
}

/// Whether the source is a list.
fn is_list(call: &mut Call<'_>) -> Result<bool, Failure> {
    let kind = call.keyspace.kind(call.args.at(1))?;
    Ok(kind.is_some_and(|kind| kind.packed() == LIST))
}

/// Moves an item from an end of the source to an end of the destination, and replies with it.
/// Returns whether the source had one.
fn pass(call: &mut Call<'_>, (from, to): (End, End)) -> Result<bool, Failure> {
    let (source, destination) = (call.args.at(1), call.args.at(2));
    let item = match source == destination {
        true => turn(&mut call.keyspace, source, (from, to))?,
        false => {
            let database = call.keyspace.number();
            let keys = [(database, source), (database, destination)];
            call.keyspace.atomically_on(&keys, |keyspace| {
                hand_over(keyspace, (source, from), (destination, to))
            })?
        }
    };
    if let Some(item) = &item {
        call.reply.bulk(item);
    }
    Ok(item.is_some())
}

/// Moves an item from an end of a list to an end of the same list.
fn turn(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    (from, to): (End, End),
) -> Result<Option<Vec<u8>>, Failure> {
    let (item, updated) = update(keyspace, key, |list| {
        let mut turned = None;
        list.pop(from, 1, |item| turned = Some(item.to_vec()))?;
        if let Some(item) = &turned {
            list.push(to, item)?;
        }
        let is_changed = turned.is_some();
        Ok((turned, is_changed))
    })?;
    if item.is_some() {
        keyspace.notify(EventClass::List, pushed(to), key);
        popped(keyspace, key, from, updated);
    }
    Ok(item)
}

/// Moves an item from an end of a list to an end of another one.
fn hand_over(
    keyspace: &mut Keyspace<'_>,
    (source, from): (&[u8], End),
    (destination, to): (&[u8], End),
) -> Result<Option<Vec<u8>>, Failure> {
    let (item, _) = update(keyspace, source, |list| {
        let last = list.len()?.saturating_sub(1);
        let index = if from == End::Front { 0 } else { last };
        Ok((list.get(index)?, false))
    })?;
    let Some(item) = item else {
        return Ok(None);
    };
    // Before anything is changed, because the destination may have another type.
    update(keyspace, destination, |list| {
        list.push(to, &item)?;
        Ok(((), true))
    })?;
    keyspace.notify(EventClass::List, pushed(to), destination);
    let ((), updated) = update(keyspace, source, |list| {
        list.pop(from, 1, |_| ())?;
        Ok(((), true))
    })?;
    popped(keyspace, source, from, updated);
    Ok(Some(item))
}
