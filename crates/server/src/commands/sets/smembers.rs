//! `SMEMBERS key`: all of a set.

use std::cell::RefCell;

use crate::command::*;
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
        // It may have gone while it was read.
        reply.truncate(begin);
        reply.set(len);
    };
    let write = |set: PackedSet<'_>| -> Result<bool, Damage> {
        let mut reply = reply.borrow_mut();
        for member in set.members() {
            member?.with_bytes(|member| reply.bulk(member));
            // The rest will not be sent.
            if reply.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    call.keyspace.read_collection::<SetType, _, _>(
        key,
        |mut large| {
            head(large.count() as usize);
            large.all_leaves(|leaf| Ok(write(leaf)?))
        },
        |set| {
            match set {
                Some(Form::Packed(set)) => {
                    head(set.len()?);
                    write(set)?;
                }
                Some(Form::Large(())) => {}
                None => head(0),
            }
            Ok(())
        },
    )
}
