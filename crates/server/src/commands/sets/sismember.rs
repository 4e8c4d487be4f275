//! `SISMEMBER`, `SMISMEMBER`, `SCARD`: read a set.

use crate::command::*;
use mneme_collections::{Form, LargeSet, PackedBuilder, PackedSet, SetType};

pub(super) static SISMEMBER: Command = Command {
    name: "sismember",
    summary: "Says whether a set has a member",
    complexity: "O(1); a small set is looked through",
    arity: 3,
    arguments: &[Argument::key("key"), MEMBER],
    run: |call| {
        let (key, member) = (call.args.at(1), call.args.at(2));
        let of_large = |mut set: LargeSet<'_>| set.contains(member);
        let found = call
            .keyspace
            .read_collection::<SetType, _, _>(key, of_large, |set| {
                Ok(match set {
                    None => false,
                    Some(Form::Packed(set)) => set.contains(member)?,
                    Some(Form::Large(found)) => found,
                })
            })?;
        call.reply.integer(i64::from(found));
        Ok(())
    },
    ..LOOK
};

pub(super) static SMISMEMBER: Command = Command {
    name: "smismember",
    summary: "Says of each of several values whether a set has it",
    since: "6.2.0",
    complexity: "O(N) where N is the number of values; a small set is looked through",
    arity: -3,
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key"), MEMBER.multiple()],
    run: |call| {
        let strings: Vec<&[u8]> = call.args.from(2).iter().collect();
        let mut sought = PackedBuilder::default();
        sought.push_strings(&strings);
        let sought = sought.into_image()?;
        let members: Vec<_> = PackedSet::read(&sought)?.raw().collect::<Result<_, _>>()?;
        let key = call.args.at(1);
        let of_large = |mut set: LargeSet<'_>| set.contains_many(&members);
        let reply = &mut call.reply;
        call.keyspace
            .read_collection::<SetType, _, _>(key, of_large, |set| {
                let found = match set {
                    None => vec![false; members.len()],
                    Some(Form::Packed(set)) => set.contains_many(&members)?,
                    Some(Form::Large(found)) => found,
                };
                reply.array(found.len());
                for found in found {
                    reply.integer(i64::from(found));
                }
                Ok(())
            })
    },
    ..LOOK
};

pub(super) static SCARD: Command = Command {
    name: "scard",
    summary: "Returns the number of members of a set",
    arity: 2,
    arguments: &[Argument::key("key")],
    run: |call| {
        let key = call.args.at(1);
        let count = |set: LargeSet<'_>| Ok(set.count());
        let count = call
            .keyspace
            .read_collection::<SetType, _, _>(key, count, |set| {
                Ok(match set {
                    None => 0,
                    Some(Form::Packed(set)) => set.len()? as u64,
                    Some(Form::Large(count)) => count,
                })
            })?;
        call.reply.integer(count as i64);
        Ok(())
    },
    ..LOOK
};

pub(super) const MEMBER: Argument = Argument::new("member", Kind::String);

const LOOK: Command = Command {
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly])],
    ..Command::SET
};
