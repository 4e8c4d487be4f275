//! `SMEMBERS key`: all of a set.

use crate::command::*;
use crate::resp::Reply;
use mneme_collections::{PackedSet, SetType};

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
    call.keyspace
        .read_elements::<SetType, _, _>(key, None, |set| match set {
            Some(set) => members(reply, &set),
            None => {
                reply.set(0);
                Ok(())
            }
        })
}

/// Replies with all members of a set.
pub(super) fn members(reply: &mut Reply<'_>, set: &PackedSet<'_>) -> Outcome {
    reply.set(set.len()?);
    for member in set.members() {
        // The rest will not be sent.
        if reply.is_over() {
            break;
        }
        member?.with_bytes(|member| reply.bulk(member));
    }
    Ok(())
}
