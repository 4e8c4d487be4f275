//! `MGET key [key ...]`: the values of several keys.

use crate::command::*;

pub(super) static MGET: Command = Command {
    name: "mget",
    summary: "Returns the values of several keys",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys",
    arity: -2,
    flags: &[Flag::Readonly, Flag::Fast],
    tips: &["request_policy:multi_shard"],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key").multiple()],
    run,
    ..Command::STRING
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (args, reply) = (call.args.from(1), &mut call.reply);
    let position = reply.position();
    call.keyspace.atomically_if(args.len() > 1, |keyspace| {
        reply.truncate(position);
        reply.array(args.len());
        for key in args.iter() {
            // The reply is too long: the rest would not be sent.
            if reply.is_over() {
                break;
            }
            match keyspace.read(key, |value| reply.value(value)) {
                // A value of another type counts as missing.
                Err(Failure::WrongType) => reply.null(),
                read => read?,
            }
        }
        Ok(())
    })
}
