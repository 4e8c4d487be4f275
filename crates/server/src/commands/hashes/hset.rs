//! `HSET`, `HMSET key field value [field value ...]`, `HSETNX key field value`: set fields.

use super::hget::FIELD;
use crate::command::*;

pub(super) static HSET: Command = Command {
    name: "hset",
    summary: "Sets fields of a hash to values",
    run: |call| {
        let new = set(call, "hset")?;
        call.keyspace
            .notify(EventClass::Hash, "hset", call.args.at(1));
        call.reply.integer(new as i64);
        Ok(())
    },
    ..BOTH
};

pub(super) static HMSET: Command = Command {
    name: "hmset",
    summary: "Sets fields of a hash to values, as HSET does",
    run: |call| {
        set(call, "hmset")?;
        call.keyspace
            .notify(EventClass::Hash, "hset", call.args.at(1));
        call.reply.ok();
        Ok(())
    },
    ..BOTH
};

pub(super) static HSETNX: Command = Command {
    name: "hsetnx",
    summary: "Sets a field of a hash to a value unless it has one",
    since: "2.0.0",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[
        Argument::key("key"),
        FIELD,
        Argument::new("value", Kind::String),
    ],
    run: |call| {
        let (field, value) = (call.args.at(2), call.args.at(3));
        let limits = call.server.settings.hash_limits();
        let (is_new, _) = call
            .keyspace
            .update_hash(call.args.at(1), &[field], |hash| {
                if hash.read()?.get(field)?.is_some() {
                    return Ok((false, false));
                }
                hash.set(field, value)?;
                hash.convert(limits)?;
                Ok((true, true))
            })?;
        if is_new {
            call.keyspace
                .notify(EventClass::Hash, "hset", call.args.at(1));
        }
        call.reply.integer(i64::from(is_new));
        Ok(())
    },
    ..Command::HASH
};

const BOTH: Command = Command {
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields to set; a small hash is looked through",
    arity: -4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[
        Argument::key("key"),
        Argument::block(
            "field_value",
            &[FIELD, Argument::new("value", Kind::String)],
        )
        .multiple(),
    ],
    ..Command::HASH
};

/// Sets the fields in the arguments. Returns how many of them are new.
fn set(call: &mut Call<'_>, name: &'static str) -> Result<usize, Failure> {
    let pairs = call.args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::WrongArity(name));
    }
    let of = |at: usize| (pairs.at(at), pairs.at(at + 1));
    let limits = call.server.settings.hash_limits();
    if pairs.len() == 2 {
        let (key, (field, value)) = (call.args.at(1), of(0));
        if let Some(is_new) = call.keyspace.set_field(key, (field, value), limits)? {
            return Ok(usize::from(is_new));
        }
        let (new, _) = call.keyspace.update_hash(key, &[field], |hash| {
            let new = hash.set(field, value)?;
            hash.convert(limits)?;
            Ok((usize::from(new), true))
        })?;
        return Ok(new);
    }
    let set: Vec<_> = (0..pairs.len()).step_by(2).map(of).collect();
    let fields: Vec<&[u8]> = set.iter().map(|(field, _)| *field).collect();
    let (new, _) = call
        .keyspace
        .update_hash(call.args.at(1), &fields, |hash| {
            let new = hash.set_many(&set)?;
            hash.convert(limits)?;
            Ok((new, true))
        })?;
    Ok(new)
}
