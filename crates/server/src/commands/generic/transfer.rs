//! `RENAME`, `RENAMENX`, `COPY`, `MOVE`: moves or copies a record to another key or database, with
//! its expiry.

use crate::command::*;
use crate::keyspace::Keyspace;
use mneme_log::Stored;

pub(super) static RENAME: Command = Command {
    name: "rename",
    summary: "Renames a key; what the new name held before is gone",
    since: "1.0.0",
    flags: &[Flag::Write],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete]),
        KeySpec::second(&[KeyFlag::Overwrite, KeyFlag::Update]),
    ],
    run: |call| {
        rename(call, true)?;
        call.reply.ok();
        Ok(())
    },
    ..RENAMING
};

pub(super) static RENAMENX: Command = Command {
    name: "renamenx",
    summary: "Renames a key unless the new name is taken",
    since: "1.0.0",
    flags: &[Flag::Write, Flag::Fast],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Delete]),
        KeySpec::second(&[KeyFlag::Overwrite, KeyFlag::Insert]),
    ],
    run: |call| {
        let renamed = rename(call, false)?;
        call.reply.integer(i64::from(renamed));
        Ok(())
    },
    ..RENAMING
};

const RENAMING: Command = Command {
    complexity: "O(N) where N is the length of the value",
    arity: 3,
    arguments: &[Argument::key("key"), Argument::key_of("newkey", 1)],
    ..Command::KEYSPACE
};

pub(super) static COPY: Command = Command {
    name: "copy",
    summary: "Copies a key's value to another key",
    since: "6.2.0",
    complexity: "O(N) where N is the length of the value",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access]),
        KeySpec::second(&[KeyFlag::Overwrite, KeyFlag::Update]),
    ],
    arguments: &[
        Argument::key("source"),
        Argument::key_of("destination", 1),
        Argument::new("destination-db", Kind::Integer)
            .after("DB")
            .optional(),
        Argument::word("replace", "REPLACE").optional(),
    ],
    run: copy,
    ..Command::KEYSPACE
};

pub(super) static MOVE: Command = Command {
    name: "move",
    summary: "Moves a key to another database",
    since: "1.0.0",
    complexity: "O(N) where N is the length of the value",
    arity: 3,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[Argument::key("key"), Argument::new("db", Kind::Integer)],
    run: move_to,
    ..Command::KEYSPACE
};

fn rename(call: &mut Call<'_>, replace: bool) -> Result<bool, Failure> {
    let (key, new_key) = (call.args.at(1), call.args.at(2));
    let database = call.keyspace.number();
    let moved = if key == new_key {
        // Nothing changes, so watching clients are not notified.
        call.keyspace.expiry(key)?.map(|_| replace)
    } else {
        let keys = [(database, key), (database, new_key)];
        call.keyspace.atomically_on(&keys, |keyspace| {
            let moved = transfer(keyspace, key, (database, new_key), replace, Moved::Away)?;
            if moved == Some(true) {
                keyspace.remove(key)?;
            }
            Ok(moved)
        })?
    };
    if moved == Some(true) && key != new_key {
        call.keyspace
            .notify(EventClass::Generic, "rename_from", key);
        call.keyspace
            .notify(EventClass::Generic, "rename_to", new_key);
    }
    moved.ok_or(Failure::other("ERR no such key"))
}

fn copy(call: &mut Call<'_>) -> Outcome {
    let (key, new_key) = (call.args.at(1), call.args.at(2));
    let (mut database, mut replace) = (call.keyspace.number(), false);
    let mut index = 3;
    while index < call.args.len() {
        if call.is(index, "REPLACE") {
            replace = true;
        } else if call.is(index, "DB") && index + 1 < call.args.len() {
            index += 1;
            database = call.database(index)?;
        } else {
            return Err(Failure::Syntax);
        }
        index += 1;
    }
    if database == call.keyspace.number() && key == new_key {
        return Err(Failure::SameObject);
    }
    let keys = [(call.keyspace.number(), key), (database, new_key)];
    let copied = call.keyspace.atomically_on(&keys, |keyspace| {
        transfer(keyspace, key, (database, new_key), replace, Moved::Copied)
    })?;
    call.keyspace.count_of(key, copied.is_some());
    if copied == Some(true) {
        let target = call.keyspace.other(database);
        target.notify(EventClass::Generic, "copy_to", new_key);
    }
    call.reply.integer(i64::from(copied == Some(true)));
    Ok(())
}

fn move_to(call: &mut Call<'_>) -> Outcome {
    let (key, database) = (call.args.at(1), call.database(2)?);
    if database == call.keyspace.number() {
        return Err(Failure::SameObject);
    }
    let keys = [(call.keyspace.number(), key), (database, key)];
    let moved = call.keyspace.atomically_on(&keys, |keyspace| {
        let moved = transfer(keyspace, key, (database, key), false, Moved::Away)?;
        if moved == Some(true) {
            keyspace.remove(key)?;
        }
        Ok(moved)
    })?;
    if moved == Some(true) {
        call.keyspace.notify(EventClass::Generic, "move_from", key);
        let target = call.keyspace.other(database);
        target.notify(EventClass::Generic, "move_to", key);
    }
    call.reply.integer(i64::from(moved == Some(true)));
    Ok(())
}

/// Whether the record also stays where it was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Away,
    Copied,
}

/// Also stores the record of `key` under `to`, a database and a key, if that is free or may be
/// replaced; returns whether it did. `None` if `key` does not exist.
fn transfer(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    to: (usize, &[u8]),
    replace: bool,
    moved: Moved,
) -> Result<Option<bool>, Failure> {
    let copied = |old: Stored<'_>| (old.value.to_vec(), old.kind, old.expiry);
    if keyspace.expiry(key)?.is_none() {
        return Ok(None);
    }
    let mut target = keyspace.other(to.0);
    let is_there = target.expiry(to.1)?.is_some();
    if !replace && is_there {
        return Ok(Some(false));
    }
    let Some((value, kind, expiry)) = keyspace.read_stored(key, |old| old.map(copied))? else {
        return Ok(None);
    };
    match kind.is_large() && moved == Moved::Copied {
        true => {
            let value = &value[..];
            keyspace.copy_large(
                Stored {
                    value,
                    kind,
                    expiry,
                },
                to,
            )?;
        }
        false => keyspace.other(to.0).put_kind(to.1, &value, kind, expiry)?,
    }
    if is_there {
        // As in Redis, which removes the old key first.
        keyspace.other(to.0).notify(EventClass::New, "new", to.1);
    }
    Ok(Some(true))
}
