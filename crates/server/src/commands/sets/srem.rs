//! `SREM key member [member ...]`: removes members; removing the last one removes the key.

use super::sismember::MEMBER;
use crate::command::*;
use mneme_collections::SetType;

pub(super) static SREM: Command = Command {
    name: "srem",
    summary: "Removes members of a set, and the set with the last of them",
    complexity: "O(N) where N is the number of members to remove; a small set is looked through",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    arguments: &[Argument::key("key"), MEMBER.multiple()],
    run,
    ..Command::SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (key, members): (_, Vec<&[u8]>) = (call.args.at(1), call.args.from(2).iter().collect());
    let (removed, updated) = call
        .keyspace
        .update_collection::<SetType, _>(key, (), |set| {
            let removed = set.remove_many(&members)?;
            Ok((removed, removed > 0))
        })?;
    call.reply_taken(EventClass::Set, "srem", removed as u64, updated);
    Ok(())
}
