//! `SINTERSTORE`, `SUNIONSTORE`, `SDIFFSTORE destination key [key ...]`: combine sets into one.

use super::combine::{SetOperation, combine};
use crate::command::*;
use crate::settings::Key;
use mneme_collections::{PackedSet, SetType};

pub(super) static SINTERSTORE: Command = Command {
    name: "sinterstore",
    summary: "Stores the members that all of several sets have",
    complexity: "O(N*M) where N is the size of the smallest set and M the number of sets",
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update]),
        KeySpec::all_from(2, &[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    run: |call| store(call, SetOperation::Intersection, "sinterstore"),
    ..STORE
};

pub(super) static SUNIONSTORE: Command = Command {
    name: "sunionstore",
    summary: "Stores the members that any of several sets has",
    run: |call| store(call, SetOperation::Union, "sunionstore"),
    ..STORE
};

pub(super) static SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    summary: "Stores the members of the first of several sets that no other has",
    run: |call| store(call, SetOperation::Difference, "sdiffstore"),
    ..STORE
};

const STORE: Command = Command {
    complexity: "O(N) where N is the number of members of all sets",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::first(&[KeyFlag::Overwrite, KeyFlag::Update]),
        KeySpec::all_from(2, &[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    arguments: &[
        Argument::key("destination"),
        Argument::key_of("key", 1).multiple(),
    ],
    ..Command::SET
};

fn store(call: &mut Call<'_>, operation: SetOperation, event: &'static str) -> Outcome {
    let (target, sources) = (call.args.at(1), call.args.from(2));
    let sources: Vec<&[u8]> = sources.iter().collect();
    let most = call.server.settings.count(Key::SetIntegers);
    let database = call.keyspace.number();
    let keys = sources.iter().copied().chain([target]);
    let keys: Vec<_> = keys.map(|key| (database, key)).collect();
    let count = call.keyspace.atomically_on(&keys, |keyspace| {
        let combined = combine(keyspace, operation, &sources, usize::MAX, most)?;
        let count = PackedSet::read(&combined)?.len()?;
        let image = (count > 0).then_some(&combined[..]);
        keyspace.store_result::<SetType>(target, image, (EventClass::Set, event))?;
        Ok(count)
    })?;
    call.reply.integer(count as i64);
    Ok(())
}
