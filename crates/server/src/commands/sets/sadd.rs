//! `SADD key member [member ...]`: adds members.

use super::sismember::MEMBER;
use crate::command::*;
use crate::settings::Key;
use mneme_collections::SetType;

pub(super) static SADD: Command = Command {
    name: "sadd",
    summary: "Adds members to a set",
    complexity: "O(N) where N is the number of members; a small set is looked through",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Insert])],
    arguments: &[Argument::key("key"), MEMBER.multiple()],
    run,
    ..Command::SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (key, members): (_, Vec<&[u8]>) = (call.args.at(1), call.args.from(2).iter().collect());
    let most = call.server.settings.count(Key::SetIntegers);
    let (added, _) = call
        .keyspace
        .update_collection::<SetType, _>(key, (), |set| {
            let added = set.add_many(&members)?;
            if added > 0 {
                set.convert(most)?;
            }
            Ok((added, added > 0))
        })?;
    if added > 0 {
        call.keyspace.notify(EventClass::Set, "sadd", key);
    }
    call.reply.integer(added as i64);
    Ok(())
}
