//! `SPOP key [count]`: removes and returns random members.

use crate::command::*;
use mneme_collections::{Lot, SetType};
use mneme_log::Updated;

pub(super) static SPOP: Command = Command {
    name: "spop",
    summary: "Removes members drawn by lot from a set and returns them",
    complexity: "O(N) where N is the number of members to remove; a small set is looked through",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Delete,
    ])],
    arguments: &[
        Argument::key("key"),
        Argument::new("count", Kind::Integer)
            .since("3.2.0")
            .optional(),
    ],
    run,
    ..Command::SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 => one(call),
        3 => several(call),
        _ => Err(Failure::Syntax),
    }
}

fn one(call: &mut Call<'_>) -> Outcome {
    let (key, mut lot) = (call.args.at(1), Lot::new());
    let (popped, updated) = call
        .keyspace
        .update_collection::<SetType, _>(key, (), |set| {
            let popped = set.pop(&mut lot)?;
            let is_changed = popped.is_some();
            Ok((popped, is_changed))
        })?;
    if popped.is_some() {
        (call.keyspace).notify_taken(EventClass::Set, "spop", key, updated);
    }
    call.reply.value(popped.as_deref());
    Ok(())
}

fn several(call: &mut Call<'_>) -> Outcome {
    let out_of_range = Failure::other("ERR value is out of range, must be positive");
    let count = call.integer(2).ok();
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(out_of_range)?;
    let (key, mut lot) = (call.args.at(1), Lot::new());
    let keys = [(call.keyspace.number(), key)];
    let (popped, updated) = call.keyspace.atomically_on(&keys, |keyspace| {
        let (popped, updated) = keyspace.update_collection::<SetType, _>(key, (), |set| {
            let len = set.len()?;
            // All members are wanted: the key is removed below, which takes no longer for a large
            // set.
            let popped = match count < len {
                true => set.pop_many(count, &mut lot)?,
                false => set.members()?,
            };
            Ok(((popped, len), count > 0 && count < len))
        })?;
        let (popped, len) = popped;
        if len == 0 || count < len {
            return Ok((popped, updated));
        }
        keyspace.remove(key)?;
        Ok((popped, Updated::Removed))
    })?;
    if updated != Updated::Absent && count > 0 {
        (call.keyspace).notify_taken(EventClass::Set, "spop", key, updated);
    }
    let reply = &mut call.reply;
    reply.set(popped.len());
    popped.iter().for_each(|member| reply.bulk(member));
    Ok(())
}
