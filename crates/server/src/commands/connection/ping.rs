//! `PING [message]`: tests whether the server answers.

use crate::command::*;
use crate::resp::Protocol;

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
    suits_subscribers: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.client.is_subscriber() && call.client.protocol == Protocol::Resp2 {
        return answer_subscriber(call);
    }
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.args.at(1)),
        _ => return Err(Failure::WrongArity("ping")),
    }
    Ok(())
}

/// To a subscriber that speaks RESP2 every reply has the form of a message.
fn answer_subscriber(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        return Err(Failure::WrongArity("ping"));
    }
    call.reply.array(2);
    call.reply.bulk(b"pong");
    call.reply.bulk(call.args.at(1));
    Ok(())
}
