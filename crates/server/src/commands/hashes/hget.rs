//! `HGET`, `HMGET`, `HEXISTS`, `HSTRLEN`, `HLEN`: read a hash.

use crate::command::*;
use mneme_collections::listpack::Element;
use mneme_collections::{Form, HashType, LargeHash, PackedHash};

pub(super) static HGET: Command = Command {
    name: "hget",
    summary: "Returns the value of a field of a hash",
    since: "2.0.0",
    arity: 3,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key"), FIELD],
    run: |call| {
        let (key, field, reply) = (call.args.at(1), call.args.at(2), &mut call.reply);
        (call.keyspace).read_field(key, field, |value| element(reply, value))
    },
    ..Command::HASH
};

pub(super) static HMGET: Command = Command {
    name: "hmget",
    summary: "Returns the values of several fields of a hash",
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields asked for; a small hash is looked through",
    arity: -3,
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key"), FIELD.multiple()],
    run: |call| {
        let fields: Vec<&[u8]> = call.args.from(2).iter().collect();
        let reply = &mut call.reply;
        call.keyspace
            .read_hash(call.args.at(1), Some(&fields), |hash| {
                let values = match hash {
                    Some(hash) => hash.get_many(&fields)?,
                    None => vec![None; fields.len()],
                };
                reply.array(values.len());
                for value in values {
                    element(reply, value);
                }
                Ok(())
            })
    },
    ..Command::HASH
};

pub(super) static HEXISTS: Command = Command {
    name: "hexists",
    summary: "Says whether a hash has a field",
    since: "2.0.0",
    arity: 3,
    arguments: &[Argument::key("key"), FIELD],
    run: |call| {
        let (key, field) = (call.args.at(1), call.args.at(2));
        let found = (call.keyspace).read_field(key, field, |value| value.is_some())?;
        call.reply.integer(i64::from(found));
        Ok(())
    },
    ..LOOK
};

pub(super) static HSTRLEN: Command = Command {
    name: "hstrlen",
    summary: "Returns the length of a field's value in bytes",
    since: "3.2.0",
    arity: 3,
    arguments: &[Argument::key("key"), FIELD],
    run: |call| {
        let (key, field) = (call.args.at(1), call.args.at(2));
        let string_len = |value: Option<Element<'_>>| value.map_or(0, |value| value.string_len());
        let len = (call.keyspace).read_field(key, field, string_len)?;
        call.reply.integer(len as i64);
        Ok(())
    },
    ..LOOK
};

pub(super) static HLEN: Command = Command {
    name: "hlen",
    summary: "Returns the number of fields of a hash",
    since: "2.0.0",
    arity: 2,
    arguments: &[Argument::key("key")],
    run: |call| {
        let key = call.args.at(1);
        let of_large = |hash: LargeHash<'_>| Ok(hash.count() as usize);
        let len = |hash: Option<Form<PackedHash<'_>, usize>>| {
            Ok(match hash {
                None => 0,
                Some(Form::Packed(hash)) => hash.len()?,
                Some(Form::Large(len)) => len,
            })
        };
        let len = (call.keyspace).read_collection::<HashType, _, _>(key, of_large, len)?;
        call.reply.integer(len as i64);
        Ok(())
    },
    ..LOOK
};

/// The common fields of the commands that return no value.
const LOOK: Command = Command {
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    ..Command::HASH
};

pub(super) const FIELD: Argument = Argument::new("field", Kind::String);

/// Replies with a value of a hash, or null if there is none.
pub(super) fn element(reply: &mut crate::resp::Reply<'_>, value: Option<Element<'_>>) {
    match value {
        Some(value) => value.with_bytes(|bytes| reply.bulk(bytes)),
        None => reply.null(),
    }
}
