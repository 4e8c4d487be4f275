//! `DBSIZE`: the number of keys in the selected database.

use crate::command::*;

pub(super) static DBSIZE: Command = Command {
    name: "dbsize",
    summary: "Returns the number of keys in the database",
    since: "1.0.0",
    group: Group::Server,
    arity: 1,
    flags: &[Flag::Readonly, Flag::Fast],
    categories: &[Category::Keyspace],
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    reach: Reach::Databases,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.keyspace.whole()?.try_len()? as i64);
    Ok(())
}
