//! `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`: subscribe the client to channels.
//!
//! The reply to each subscription comes before its first message: it is in the output before any
//! message is added.

use super::{PLAIN, SHARD_CHANNELS};
use crate::client::Topic;
use crate::command::*;

pub(super) static SUBSCRIBE: Command = Command {
    name: "subscribe",
    summary: "Has the messages of channels sent to the client",
    complexity: "O(N) where N is the number of channels",
    arity: -2,
    channels: Some(Channels::All(Topic::Channel)),
    arguments: &[Argument::new("channel", Kind::String).multiple()],
    suits_subscribers: true,
    run: |call| subscribe(call, Topic::Channel, b"subscribe"),
    ..PLAIN
};

pub(super) static PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    summary: "Has the messages of all channels that match a pattern sent to the client",
    complexity: "O(N) where N is the number of patterns",
    arity: -2,
    channels: Some(Channels::All(Topic::Pattern)),
    arguments: &[Argument::block("pattern", &[Argument::new("pattern", Kind::Pattern)]).multiple()],
    suits_subscribers: true,
    run: |call| subscribe(call, Topic::Pattern, b"psubscribe"),
    ..PLAIN
};

pub(super) static SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    summary: "Has the messages of shard channels sent to the client",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels",
    arity: -2,
    keys: SHARD_CHANNELS,
    channels: Some(Channels::All(Topic::Shard)),
    arguments: &[Argument::new("shardchannel", Kind::String).multiple()],
    suits_subscribers: true,
    run: |call| match call.is_within_exec() {
        // As in Redis, which allows the other commands for old clients.
        true => Err(Failure::other(
            "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client",
        )),
        false => subscribe(call, Topic::Shard, b"ssubscribe"),
    },
    ..PLAIN
};

fn subscribe(call: &mut Call<'_>, topic: Topic, word: &[u8]) -> Outcome {
    call.drain_pushes();
    for name in call.args.from(1).iter() {
        call.client.subscribe(&call.server.pubsub, topic, name);
        let count = call.client.entry.subscriptions().count_with(topic);
        call.push(|reply| {
            reply.push(3);
            reply.bulk(word);
            reply.bulk(name);
            reply.integer(count as i64);
        });
    }
    Ok(())
}
