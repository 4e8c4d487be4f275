//! Channels: **each message reaches each client once, if it subscribed before the publication and
//! had not unsubscribed**, and all clients receive messages that they share in the same order.
//!
//! Subscriptions are in tables that all threads share. A publisher looks up the recipients there,
//! encodes the message once, and puts it into the inboxes of all threads that serve a recipient, at
//! one instant (*posted*). So no two threads see messages in different orders. Meanwhile the tables
//! are locked for reading. A subscription locks them for writing, so it happens entirely before or
//! after the publication. Each thread gives the messages in its inbox to its own clients
//! (*dispatched*) and sends them with the clients' replies.
//!
//! A command's reply follows every message that was posted before the command took effect: a thread
//! dispatches its inbox before it appends the replies of a client that may receive messages.

mod inbox;
#[cfg(test)]
mod models;
mod posting;
mod tables;

/// The product's locks and atomics; a model checker supplies others.
mod primitives {
    pub use std::sync::atomic::AtomicBool;
    pub use std::sync::{Mutex, MutexGuard};
}

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use self::inbox::Fed;
use self::inbox::{Delivery, Inbox};
pub(crate) use self::posting::Posted;
use self::tables::TopicTables;
use crate::client::{ByTopic, Entry, Push, PushHead, Topic};
use crate::glob::Steps;
use crate::resp::{Protocol, Reply};

/// All subscriptions of a server, and the messages on their way to its threads.
#[derive(Debug)]
pub(crate) struct PubSub {
    tables: RwLock<TopicTables>,
    inboxes: Box<[Inbox]>,
    /// Whether any client monitors all commands.
    is_monitored: AtomicBool,
}

impl PubSub {
    /// For a server with this number of threads.
    pub fn new(threads: usize) -> Self {
        Self {
            tables: RwLock::default(),
            is_monitored: AtomicBool::new(false),
            inboxes: (0..threads).map(|_| Inbox::new()).collect(),
        }
    }

    fn tables(&self) -> RwLockReadGuard<'_, TopicTables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, TopicTables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a client monitor all commands.
    pub fn begin_monitoring(&self, entry: &Arc<Entry>) {
        let mut tables = self.change();
        tables.monitors.add(entry);
        // SYNC: pairs with nothing: a command that was sent after the monitoring client had its
        // reply is executed by a thread that has seen everything before that reply.
        self.is_monitored.store(true, Ordering::Relaxed);
    }

    /// Ends a client's monitoring.
    pub fn end_monitoring(&self, entry: &Entry) {
        let mut tables = self.change();
        tables.monitors.remove(entry);
        // SYNC: as above, under the same lock.
        self.is_monitored
            .store(tables.monitors.len() > 0, Ordering::Relaxed);
    }

    /// Whether any client monitors all commands.
    #[inline]
    pub fn is_monitored(&self) -> bool {
        // SYNC: as in `begin_monitoring`.
        self.is_monitored.load(Ordering::Relaxed)
    }

    /// Sends `push` to the monitoring clients. `posted` as in [`publish`](Self::publish).
    pub fn show(&self, push: Push, posted: impl FnMut(usize)) {
        let tables = self.tables();
        let monitors = tables.monitors.by_thread().iter();
        let deliveries = monitors.map(|(thread, to)| {
            let (push, to) = (push.clone(), Arc::clone(to));
            (*thread, Delivery { push, to })
        });
        Posted::post(
            |thread| &self.inboxes[thread].posted,
            deliveries.collect(),
            posted,
        );
    }

    /// Sends each client its message. `posted` as in [`publish`](Self::publish).
    pub fn send(&self, pushes: Vec<(Arc<Entry>, Push)>, posted: impl FnMut(usize)) {
        if pushes.is_empty() {
            return;
        }
        let deliveries = pushes.into_iter().map(|(entry, push)| {
            let to = Arc::new(vec![Arc::clone(&entry)]);
            (entry.thread, Delivery { push, to })
        });
        let mut deliveries: Vec<_> = deliveries.collect();
        deliveries.sort_by_key(|(thread, _)| *thread);
        Posted::post(|thread| &self.inboxes[thread].posted, deliveries, posted);
    }

    /// Adds a subscription, which must not exist. Returns its name, which all subscribers share.
    pub fn add(&self, topic: Topic, name: &[u8], entry: &Arc<Entry>) -> Arc<[u8]> {
        self.change().add(topic, name, entry)
    }

    /// Removes a subscription.
    pub fn remove(&self, topic: Topic, name: &[u8], entry: &Entry) {
        self.change().remove(topic, name, entry);
    }

    /// Sends `message` to all subscribers of `channel`, of the kind `topic`, and calls `posted` for
    /// each thread that must dispatch its inbox. The caller then wakes those that [ask to be
    /// woken](Self::asks_to_be_woken). Returns the number of recipients; a client that has
    /// subscribed to several matching patterns receives and counts several times.
    pub fn publish(
        &self,
        topic: Topic,
        channel: &[u8],
        message: &[u8],
        posted: impl FnMut(usize),
    ) -> usize {
        let tables = self.tables();
        let body = || {
            let mut body = Vec::with_capacity(channel.len() + message.len() + 32);
            let mut reply = Reply::new(&mut body, Protocol::Resp2);
            reply.bulk(channel);
            reply.bulk(message);
            Arc::new(body)
        };
        let mut shared = None;
        let (mut receivers, mut deliveries) = (0, Vec::new());
        let mut deliver = |head: PushHead, subscribers: &tables::Subscribers| {
            let body = shared.get_or_insert_with(body);
            receivers += subscribers.len();
            for (thread, to) in subscribers.by_thread() {
                let push = Push {
                    head: head.clone(),
                    body: Arc::clone(body),
                };
                let to = Arc::clone(to);
                deliveries.push((*thread, Delivery { push, to }));
            }
        };
        let head = match topic {
            Topic::Shard => PushHead::ShardMessage,
            Topic::Channel | Topic::Pattern => PushHead::Message,
        };
        if let Some(subscribers) = tables.subscribers(topic, channel) {
            deliver(head, subscribers);
        }
        if topic != Topic::Shard {
            // A pattern that takes too long counts as not matching.
            let steps = Steps::default();
            for (pattern, subscribers) in tables.topics.of(Topic::Pattern) {
                if steps.matches_beside_others(pattern, channel) {
                    deliver(PushHead::PatternMessage(Arc::clone(pattern)), subscribers);
                }
            }
        }
        if receivers > 0 {
            // The sort is stable: deliveries of one thread stay in order.
            deliveries.sort_by_key(|(thread, _)| *thread);
            Posted::post(|thread| &self.inboxes[thread].posted, deliveries, posted);
        }
        receivers
    }

    /// Whether a thread has something in its inbox and nobody was asked to wake it yet. Then the
    /// caller must wake it.
    pub fn asks_to_be_woken(&self, thread: usize) -> bool {
        self.inboxes[thread].posted.asks_to_be_woken()
    }

    /// Gives the messages in the inbox of a thread to its clients. Only for that thread.
    #[inline]
    pub fn dispatch(&self, thread: usize) {
        self.inboxes[thread].dispatch();
    }

    /// The clients of a thread that were given messages since the last call. Only for that thread.
    pub fn fed(&self, thread: usize) -> Vec<Fed> {
        self.inboxes[thread].fed()
    }

    /// The names of topics of this kind that have subscribers and for which `matches` returns true.
    pub fn names(&self, topic: Topic, matches: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let tables = self.tables();
        let names = tables.topics.of(topic).keys().filter(|name| matches(name));
        names.map(Arc::clone).collect()
    }

    /// The number of subscribers of this topic.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        let tables = self.tables();
        tables
            .subscribers(topic, name)
            .map_or(0, tables::Subscribers::len)
    }

    /// The number of topics of each kind that have subscribers.
    pub fn counts(&self) -> ByTopic<usize> {
        self.tables().topics.map(BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Arrival, Clients};

    #[test]
    fn a_client_gets_nothing_that_was_published_after_it_was_killed() {
        let (clients, pubsub) = (Clients::default(), PubSub::new(1));
        let entry = clients.enter(Arrival {
            peer: String::new(),
            local: String::new(),
            descriptor: 0,
            now_ms: 0,
            thread: 0,
            key: 0,
            connection_bytes: 0,
        });
        pubsub.add(Topic::Channel, b"a", &entry);
        let publish = |text: &[u8]| {
            pubsub.publish(Topic::Channel, b"a", text, |_| ());
            pubsub.dispatch(0);
            entry.pushes.bytes()
        };
        let before = publish(b"before");
        assert!(before > 0);
        // Its subscriptions end later, when its connection is closed.
        clients.kill(&entry);
        assert_eq!(publish(b"after"), before);
    }
}
