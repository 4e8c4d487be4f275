//! Channels: see [`crate::pubsub`].

mod channels;
mod publish;
mod subscribe;
mod unsubscribe;

use crate::command::*;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &publish::PUBLISH,
    &publish::SPUBLISH,
    &channels::PUBSUB,
    &subscribe::PSUBSCRIBE,
    &subscribe::SSUBSCRIBE,
    &subscribe::SUBSCRIBE,
    &unsubscribe::PUNSUBSCRIBE,
    &unsubscribe::SUNSUBSCRIBE,
    &unsubscribe::UNSUBSCRIBE,
];

/// The common fields. A transaction with one of these commands is executed only once.
const PLAIN: Command = Command {
    since: "2.0.0",
    group: Group::PubSub,
    flags: &[Flag::PubSub, Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &[Category::PubSub],
    reach: Reach::Databases,
    ..Command::BLANK
};

/// Shard channels are spread over a cluster by the same rule as keys.
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::all(&[KeyFlag::NotKey])];
