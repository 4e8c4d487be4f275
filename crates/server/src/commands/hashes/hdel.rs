//! `HDEL key field [field ...]`: removes fields; the last one takes the key with it.

use crate::command::*;

pub(super) static HDEL: Command = Command {
    name: "hdel",
    summary: "Removes fields of a hash, and the hash with the last of them",
    since: "2.0.0",
    complexity: "O(N+M) where N is the number of fields to remove and M the length of the hash in bytes",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Delete])],
    arguments: &[
        Argument::key("key"),
        Argument::new("field", Kind::String).multiple(),
    ],
    run,
    ..Command::HASH
};

fn run(call: &mut Call<'_>) -> Outcome {
    let fields: Vec<&[u8]> = call.args.from(2).iter().collect();
    let (removed, is_gone) = call.keyspace.update_hash(call.args.at(1), |hash| {
        let removed = hash.remove_many(&fields)?;
        Ok(((removed, hash.is_empty()?), removed > 0))
    })?;
    if removed > 0 {
        call.keyspace
            .notify(EventClass::Hash, "hdel", call.args.at(1));
        if is_gone {
            call.keyspace
                .notify(EventClass::Generic, "del", call.args.at(1));
        }
    }
    call.reply.integer(removed as i64);
    Ok(())
}
