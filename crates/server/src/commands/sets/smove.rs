//! `SMOVE source destination member`: moves a member from one set to another.

use super::sismember::MEMBER;
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::settings::Key;
use mneme_collections::{SET, SetChange, SetType};
use mneme_log::Updated;

pub(super) static SMOVE: Command = Command {
    name: "smove",
    summary: "Takes a member from one set to another",
    complexity: "O(1); small sets are looked through",
    arity: 4,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete]),
        KeySpec::second(&[KeyFlag::ReadWrite, KeyFlag::Insert]),
    ],
    arguments: &[
        Argument::key("source"),
        Argument::key_of("destination", 1),
        MEMBER,
    ],
    run,
    ..Command::SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    let [source, target, member] = [1, 2, 3].map(|index| call.args.at(index));
    let most = call.server.settings.count(Key::SetIntegers);
    let database = call.keyspace.number();
    let keys = [(database, source), (database, target)];
    let moved = call.keyspace.atomically_on(&keys, |keyspace| {
        if !is_set(keyspace, source)? {
            return Ok(false);
        }
        is_set(keyspace, target)?;
        if source == target {
            let contains = |set: &mut SetChange<'_>| Ok((set.contains(member)?, false));
            let (found, _) = keyspace.update_collection::<SetType, _>(source, (), contains)?;
            return Ok(found);
        }
        let contains = |set: &mut SetChange<'_>| Ok((set.contains(member)?, false));
        let (found, _) = keyspace.update_collection::<SetType, _>(source, (), contains)?;
        if !found {
            return Ok(false);
        }
        // First, because only this can fail: a transaction continues after an error, and would keep
        // the removal.
        let noted = keyspace.noted_events();
        let (added, _) = keyspace.update_collection::<SetType, _>(target, (), |set| {
            let added = set.add(member)?;
            if added {
                set.convert(most)?;
            }
            Ok((added, added))
        })?;
        let (_, updated) = keyspace.update_collection::<SetType, _>(source, (), |set| {
            let removed = set.remove(member)?;
            Ok((removed, removed))
        })?;
        // As in Redis, which removes the member first.
        if updated == Updated::Removed {
            keyspace.notify_at(noted, EventClass::Generic, "del", source);
        }
        keyspace.notify_at(noted, EventClass::Set, "srem", source);
        if added {
            keyspace.notify(EventClass::Set, "sadd", target);
        }
        Ok(true)
    })?;
    call.reply.integer(i64::from(moved));
    Ok(())
}

/// Whether there is a set under `key`. A value of another type is an error.
fn is_set(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<bool, Failure> {
    match keyspace.kind(key)? {
        Some(kind) if kind.packed() == SET => Ok(true),
        Some(_) => Err(Failure::WrongType),
        None => Ok(false),
    }
}
