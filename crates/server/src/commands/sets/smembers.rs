//! `SMEMBERS key`: all of a set.

use crate::command::*;
use mneme_collections::{Form, LargeSet, SetType};

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
    let of_large = |mut set: LargeSet<'_>| set.members();
    call.keyspace
        .read_collection::<SetType, _, _>(key, of_large, |set| {
            match set {
                None => reply.set(0),
                Some(Form::Packed(set)) => {
                    reply.set(set.len()?);
                    for member in set.members() {
                        // The rest will not be sent.
                        if reply.is_over() {
                            break;
                        }
                        member?.with_bytes(|member| reply.bulk(member));
                    }
                }
                Some(Form::Large(members)) => {
                    reply.set(members.len());
                    for member in members {
                        if reply.is_over() {
                            break;
                        }
                        reply.bulk(&member);
                    }
                }
            }
            Ok(())
        })
}
