//! The subscriptions of one client, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of topic of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel.
    Shard,
}

/// A value for each kind of topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByTopic<T> {
    pub channels: T,
    pub patterns: T,
    pub shard_channels: T,
}

impl<T> ByTopic<T> {
    /// The value for this kind.
    pub fn of(&self, topic: Topic) -> &T {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shard_channels,
        }
    }

    /// The value for this kind.
    pub fn of_mut(&mut self, topic: Topic) -> &mut T {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shard_channels,
        }
    }

    /// Applies `each` to every kind of topic.
    pub fn map<U>(&self, each: impl Fn(&T) -> U) -> ByTopic<U> {
        ByTopic {
            channels: each(&self.channels),
            patterns: each(&self.patterns),
            shard_channels: each(&self.shard_channels),
        }
    }
}

impl ByTopic<usize> {
    /// Whether any value is true.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    names: ByTopic<BTreeMap<Arc<[u8]>, u64>>,
    /// The number of the next subscription.
    next: u64,
    bytes: usize,
}

/// The memory of a subscription without its name, in bytes: its places here and in the server's
/// tables.
const ENTRY: usize = 256;

impl Subscriptions {
    /// Whether this subscription exists.
    pub fn has(&self, topic: Topic, name: &[u8]) -> bool {
        self.names.of(topic).contains_key(name)
    }

    /// Adds a subscription, which must not exist.
    pub fn add(&mut self, topic: Topic, name: Arc<[u8]>) {
        let number = self.next;
        self.next += 1;
        self.bytes += name.len() + ENTRY;
        self.names.of_mut(topic).insert(name, number);
    }

    /// Removes a subscription. Returns whether it existed.
    pub fn remove(&mut self, topic: Topic, name: &[u8]) -> bool {
        let removed = self.names.of_mut(topic).remove(name).is_some();
        if removed {
            self.bytes -= name.len() + ENTRY;
        }
        removed
    }

    /// The names of the topics, in the order of subscription.
    pub fn names(&self, topic: Topic) -> Vec<Arc<[u8]>> {
        let mut names: Vec<_> = self.names.of(topic).iter().collect();
        names.sort_unstable_by_key(|(_, number)| **number);
        names
            .into_iter()
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// The number of subscriptions of each kind.
    pub fn counts(&self) -> ByTopic<usize> {
        self.names.map(BTreeMap::len)
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.counts().any()
    }

    /// Whether `is_meant` returns true for any.
    pub fn any_of(&self, is_meant: impl Fn(Topic, &[u8]) -> bool) -> bool {
        [Topic::Channel, Topic::Pattern, Topic::Shard]
            .into_iter()
            .any(|topic| {
                self.names
                    .of(topic)
                    .keys()
                    .any(|name| is_meant(topic, name))
            })
    }

    /// The number that a reply about a subscription of this kind reports.
    pub fn count_with(&self, topic: Topic) -> usize {
        let counts = self.counts();
        match topic {
            Topic::Channel | Topic::Pattern => counts.channels + counts.patterns,
            Topic::Shard => counts.shard_channels,
        }
    }

    /// The memory that they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
