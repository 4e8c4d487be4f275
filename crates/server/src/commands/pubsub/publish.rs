//! `PUBLISH` and `SPUBLISH`: sends a message to all subscribers of a channel.

use super::PLAIN;
use crate::client::Topic;
use crate::command::*;
use crate::report_events::report_events;

/// The common fields of both.
const BOTH: Command = Command {
    arity: 3,
    flags: &[Flag::PubSub, Flag::Loading, Flag::Stale, Flag::Fast],
    ..PLAIN
};

pub(super) static PUBLISH: Command = Command {
    name: "publish",
    summary: "Sends a message to all that have subscribed to a channel",
    complexity: "O(N+M) where N is the number of threads with subscribers and M is the number of patterns",
    channels: Some(Channels::First(Topic::Channel)),
    arguments: &[
        Argument::new("channel", Kind::String),
        Argument::new("message", Kind::String),
    ],
    run: |call| publish(call, Topic::Channel),
    ..BOTH
};

pub(super) static SPUBLISH: Command = Command {
    name: "spublish",
    summary: "Sends a message to all that have subscribed to a shard channel",
    since: "7.0.0",
    complexity: "O(N) where N is the number of threads with subscribers",
    keys: &[KeySpec::first(&[KeyFlag::NotKey])],
    channels: Some(Channels::First(Topic::Shard)),
    arguments: &[
        Argument::new("shardchannel", Kind::String),
        Argument::new("message", Kind::String),
    ],
    run: |call| publish(call, Topic::Shard),
    ..BOTH
};

fn publish(call: &mut Call<'_>, topic: Topic) -> Outcome {
    // A transaction with this command runs only once, so earlier changes in it are final.
    if call.client.event_flags != 0 {
        report_events(call.server, call.client);
    }
    let receivers = call.publish(topic, call.args.at(1), call.args.at(2));
    // If the client has subscribed to the channel itself, the message precedes the reply.
    call.drain_pushes();
    call.reply.integer(receivers as i64);
    Ok(())
}
