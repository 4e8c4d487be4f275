//! What one client has subscribed to, in the order in which it has.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a subscription is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel.
    Shard,
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeMap<Arc<[u8]>, u64>,
    patterns: BTreeMap<Arc<[u8]>, u64>,
    shard_channels: BTreeMap<Arc<[u8]>, u64>,
    /// The number of the next.
    next: u64,
    bytes: usize,
}

/// How many subscriptions a client has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionCounts {
    pub channels: usize,
    pub patterns: usize,
    pub shard_channels: usize,
}

impl SubscriptionCounts {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// What a subscription takes beside its name: its places here and in the server's tables.
const ENTRY: usize = 256;

impl Subscriptions {
    fn of(&self, topic: Topic) -> &BTreeMap<Arc<[u8]>, u64> {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shard_channels,
        }
    }

    fn of_mut(&mut self, topic: Topic) -> &mut BTreeMap<Arc<[u8]>, u64> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shard_channels,
        }
    }

    /// Whether there is this one.
    pub fn has(&self, topic: Topic, name: &[u8]) -> bool {
        self.of(topic).contains_key(name)
    }

    /// Adds one that there is not.
    pub fn add(&mut self, topic: Topic, name: Arc<[u8]>) {
        let number = self.next;
        self.next += 1;
        self.bytes += name.len() + ENTRY;
        self.of_mut(topic).insert(name, number);
    }

    /// Takes one out. Whether there was this one.
    pub fn remove(&mut self, topic: Topic, name: &[u8]) -> bool {
        let removed = self.of_mut(topic).remove(name).is_some();
        if removed {
            self.bytes -= name.len() + ENTRY;
        }
        removed
    }

    /// Their names, in the order of their subscription.
    pub fn names(&self, topic: Topic) -> Vec<Arc<[u8]>> {
        let mut names: Vec<_> = self.of(topic).iter().collect();
        names.sort_unstable_by_key(|(_, number)| **number);
        names
            .into_iter()
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// How many there are.
    pub fn counts(&self) -> SubscriptionCounts {
        SubscriptionCounts {
            channels: self.channels.len(),
            patterns: self.patterns.len(),
            shard_channels: self.shard_channels.len(),
        }
    }

    /// What a reply about a subscription to such a topic counts.
    pub fn count_with(&self, topic: Topic) -> usize {
        match topic {
            Topic::Channel | Topic::Pattern => self.channels.len() + self.patterns.len(),
            Topic::Shard => self.shard_channels.len(),
        }
    }

    /// Memory that they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
