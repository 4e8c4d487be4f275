//! `UNSUBSCRIBE`, `PUNSUBSCRIBE`, `SUNSUBSCRIBE`: end subscriptions of the client.
//!
//! Earlier messages precede the reply, and no message of the channel follows it.

use super::{PLAIN, SHARD_CHANNELS};
use crate::client::Topic;
use crate::command::*;

pub(super) static UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    summary: "Has no more messages of channels sent to the client: of these, or of all",
    complexity: "O(N) where N is the number of channels",
    arguments: &[Argument::new("channel", Kind::String).optional().multiple()],
    suits_subscribers: true,
    run: |call| unsubscribe(call, Topic::Channel, b"unsubscribe"),
    ..PLAIN
};

pub(super) static PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    summary: "Has no more messages sent to the client because of patterns: of these, or of all",
    complexity: "O(N) where N is the number of patterns",
    arguments: &[Argument::new("pattern", Kind::Pattern)
        .optional()
        .multiple()],
    suits_subscribers: true,
    run: |call| unsubscribe(call, Topic::Pattern, b"punsubscribe"),
    ..PLAIN
};

pub(super) static SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    summary: "Has no more messages of shard channels sent to the client: of these, or of all",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels",
    keys: SHARD_CHANNELS,
    arguments: &[Argument::new("shardchannel", Kind::String)
        .optional()
        .multiple()],
    suits_subscribers: true,
    run: |call| unsubscribe(call, Topic::Shard, b"sunsubscribe"),
    ..PLAIN
};

fn unsubscribe(call: &mut Call<'_>, topic: Topic, word: &[u8]) -> Outcome {
    // These are messages that it can no longer read once it has no subscription.
    call.drain_pushes();
    if call.args.len() > 1 {
        for name in call.args.from(1).iter() {
            end(call, topic, word, Some(name));
        }
        return Ok(());
    }
    let names = call.client.entry.subscriptions().names(topic);
    for name in &names {
        end(call, topic, word, Some(name));
    }
    if names.is_empty() {
        end(call, topic, word, None);
    }
    Ok(())
}

/// Ends one subscription, or none, and replies.
fn end(call: &mut Call<'_>, topic: Topic, word: &[u8], name: Option<&[u8]>) {
    if let Some(name) = name {
        call.client.unsubscribe(&call.server.pubsub, topic, name);
    }
    call.drain_pushes();
    call.client.settle_pushes();
    let count = call.client.entry.subscriptions().count_with(topic);
    call.push(|reply| {
        reply.push(3);
        reply.bulk(word);
        reply.value(name);
        reply.integer(count as i64);
    });
}
