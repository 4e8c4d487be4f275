//! `PING [message]`: tests whether the server answers.

use crate::command::*;

pub(super) static PING: Command = Command {
    name: "ping",
    summary: "Answers, with the message if there is one",
    since: "1.0.0",
    group: Group::Connection,
    arity: -1,
    flags: &[Flag::Fast],
    categories: &[Category::Connection],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::new("message", Kind::String).optional()],
    is_repeatable: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.args.at(1)),
        _ => return Err(Failure::WrongArity("ping")),
    }
    Ok(())
}
