//! `SMEMBERS key`: returns a whole set.

use std::cell::RefCell;

use crate::command::*;
use crate::resp::Reply;
use mneme_collections::{Damage, Form, PackedSet, SetType};

pub(super) static SMEMBERS: Command = Command {
    name: "smembers",
    summary: "Returns all members of a set",
    complexity: "O(N) where N is the number of members",
    arity: 2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output_order"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key")],
    run: |call| {
        let key = call.args.at(1);
        all(call, key)
    },
    ..Command::SET
};

/// Replies with all members of the set under `key`.
pub(super) fn all(call: &mut Call<'_>, key: &[u8]) -> Outcome {
    let reply = &mut call.reply;
    let begin = reply.position();
    let reply = RefCell::new(reply);
    let head = |len: usize| {
        let mut reply = reply.borrow_mut();
        // The value may have been removed while it was read.
        reply.truncate(begin);
        reply.set(len);
    };
    call.keyspace.read_collection::<SetType, _, _>(
        key,
        |mut large| {
            head(large.count() as usize);
            large.all_leaves(|leaf| Ok(elements(&mut reply.borrow_mut(), &leaf)?))
        },
        |set| {
            match set {
                Some(Form::Packed(set)) => members(&mut reply.borrow_mut(), &set)?,
                Some(Form::Large(())) => {}
                None => head(0),
            }
            Ok(())
        },
    )
}

/// Replies with all members of a set.
pub(super) fn members(reply: &mut Reply<'_>, set: &PackedSet<'_>) -> Outcome {
    reply.set(set.len()?);
    elements(reply, set)?;
    Ok(())
}

/// Writes the members of a set, or of a part of one. Returns whether to continue; otherwise the
/// reply is too long, and the rest would not be sent.
fn elements(reply: &mut Reply<'_>, set: &PackedSet<'_>) -> Result<bool, Damage> {
    for member in set.members() {
        if reply.is_over() {
            return Ok(false);
        }
        member?.with_bytes(|member| reply.bulk(member));
    }
    Ok(!reply.is_over())
}
