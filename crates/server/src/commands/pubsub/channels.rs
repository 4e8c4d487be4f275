//! `PUBSUB`: the channels that have subscribers, and the numbers of subscribers.

use super::PLAIN;
use crate::client::Topic;
use crate::command::*;
use crate::commands::help;
use crate::glob::Steps;

pub(super) static PUBSUB: Command = Command {
    name: "pubsub",
    summary: "A container for commands about channels",
    since: "2.8.0",
    group: Group::PubSub,
    subcommands: &[
        &CHANNELS,
        &HELP,
        &NUMPAT,
        &NUMSUB,
        &SHARDCHANNELS,
        &SHARDNUMSUB,
    ],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const ANY: Command = Command {
    since: "2.8.0",
    arity: -2,
    flags: &[Flag::PubSub, Flag::Loading, Flag::Stale],
    ..PLAIN
};

static CHANNELS: Command = Command {
    name: "pubsub|channels",
    summary: "Returns the channels that somebody has subscribed to, all or those that match a pattern",
    complexity: "O(N) where N is the number of channels",
    arguments: &[Argument::new("pattern", Kind::Pattern).optional()],
    run: |call| channels(call, Topic::Channel),
    ..ANY
};

static SHARDCHANNELS: Command = Command {
    name: "pubsub|shardchannels",
    summary: "Returns the shard channels that somebody has subscribed to, all or those that match a pattern",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels",
    arguments: &[Argument::new("pattern", Kind::Pattern).optional()],
    run: |call| channels(call, Topic::Shard),
    ..ANY
};

static NUMSUB: Command = Command {
    name: "pubsub|numsub",
    summary: "Returns how many have subscribed to each of the channels",
    complexity: "O(N) where N is the number of channels asked for",
    arguments: &[Argument::new("channel", Kind::String).optional().multiple()],
    run: |call| subscribers(call, Topic::Channel),
    ..ANY
};

static SHARDNUMSUB: Command = Command {
    name: "pubsub|shardnumsub",
    summary: "Returns how many have subscribed to each of the shard channels",
    since: "7.0.0",
    complexity: "O(N) where N is the number of shard channels asked for",
    arguments: &[Argument::new("shardchannel", Kind::String)
        .optional()
        .multiple()],
    run: |call| subscribers(call, Topic::Shard),
    ..ANY
};

static NUMPAT: Command = Command {
    name: "pubsub|numpat",
    summary: "Returns the number of patterns that somebody has subscribed to",
    arity: 2,
    run: |call| {
        let patterns = call.server.pubsub.counts().patterns;
        call.reply.integer(patterns as i64);
        Ok(())
    },
    ..ANY
};

static HELP: Command = Command {
    name: "pubsub|help",
    since: "6.2.0",
    group: Group::PubSub,
    run: |call| help::of(call, &PUBSUB),
    ..help::HELP
};

fn channels(call: &mut Call<'_>, topic: Topic) -> Outcome {
    let pattern = match call.args.len() {
        2 => None,
        3 => Some(call.args.at(2)),
        _ => return Err(call.no_such_subcommand("PUBSUB")),
    };
    let steps = Steps::default();
    let names = call.server.pubsub.names(topic, |name| {
        pattern.is_none_or(|pattern| steps.matches(pattern, name))
    });
    steps.check()?;
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(&name);
    }
    Ok(())
}

fn subscribers(call: &mut Call<'_>, topic: Topic) -> Outcome {
    let names = call.args.from(2);
    call.reply.array(2 * names.len());
    for name in names.iter() {
        let count = call.server.pubsub.subscribers(topic, name);
        call.reply.bulk(name);
        call.reply.integer(count as i64);
    }
    Ok(())
}
