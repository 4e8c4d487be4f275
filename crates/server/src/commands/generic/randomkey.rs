//! `RANDOMKEY`: a key drawn by lot.

use crate::command::*;

pub(super) static RANDOMKEY: Command = Command {
    name: "randomkey",
    summary: "Returns a key drawn by lot, each as likely as any other",
    since: "1.0.0",
    arity: 1,
    flags: &[Flag::Readonly],
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    reach: Reach::Databases,
    run,
    ..Command::KEYSPACE
};

fn run(call: &mut Call<'_>) -> Outcome {
    let key = call.keyspace.whole()?.random_key()?;
    call.reply.value(key.as_deref());
    Ok(())
}
