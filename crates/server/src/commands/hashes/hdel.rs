//! `HDEL key field [field ...]`: removes fields; removing the last one removes the key.

use crate::command::*;

pub(super) static HDEL: Command = Command {
    name: "hdel",
    summary: "Removes fields of a hash, and the hash with the last of them",
    since: "2.0.0",
    complexity: "O(N) where N is the number of fields to remove; a small hash is looked through",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    batching: Some(Batching::Elements),
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
    let (removed, updated) = call
        .keyspace
        .update_hash(call.args.at(1), &fields, |hash| {
            let removed = hash.remove_many(&fields)?;
            Ok((removed, removed > 0))
        })?;
    call.reply_taken(EventClass::Hash, "hdel", removed as u64, updated);
    Ok(())
}
