//! The tables of subscriptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{ByTopic, Entry, Topic};

/// The clients of one thread that have subscribed to one topic, in the order of their numbers. A
/// delivery in progress keeps the list as it was.
pub(super) type SubscriberList = Arc<Vec<Arc<Entry>>>;

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct TopicTables {
    /// Topics by their names.
    pub topics: ByTopic<BTreeMap<Arc<[u8]>, Subscribers>>,
    /// Clients that monitor all commands.
    pub monitors: Subscribers,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    /// Lists of subscribers, each with its thread.
    lists: Vec<(usize, SubscriberList)>,
    len: usize,
}

impl Subscribers {
    /// The number of subscribers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The subscribers, by the thread that serves them.
    pub fn by_thread(&self) -> &[(usize, SubscriberList)] {
        &self.lists
    }

    pub fn add(&mut self, entry: &Arc<Entry>) {
        let thread = entry.thread;
        let place = match self.lists.binary_search_by_key(&thread, |(one, _)| *one) {
            Ok(place) => place,
            Err(place) => {
                self.lists
                    .insert(place, (thread, SubscriberList::default()));
                place
            }
        };
        let list = Arc::make_mut(&mut self.lists[place].1);
        if let Err(place) = list.binary_search_by_key(&entry.id, |one| one.id) {
            list.insert(place, Arc::clone(entry));
            self.len += 1;
        }
    }

    pub fn remove(&mut self, entry: &Entry) {
        let found = self
            .lists
            .binary_search_by_key(&entry.thread, |(one, _)| *one);
        let Ok(place) = found else {
            return;
        };
        let list = Arc::make_mut(&mut self.lists[place].1);
        if let Ok(at) = list.binary_search_by_key(&entry.id, |one| one.id) {
            list.remove(at);
            self.len -= 1;
        }
        if list.is_empty() {
            self.lists.remove(place);
        }
    }
}

impl TopicTables {
    /// The subscribers of this topic.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> Option<&Subscribers> {
        self.topics.of(topic).get(name)
    }

    /// Adds a subscription. Returns its name, which the tables share.
    pub fn add(&mut self, topic: Topic, name: &[u8], entry: &Arc<Entry>) -> Arc<[u8]> {
        let table = self.topics.of_mut(topic);
        let name: Arc<[u8]> = match table.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        };
        table.entry(Arc::clone(&name)).or_default().add(entry);
        name
    }

    /// Removes a subscription.
    pub fn remove(&mut self, topic: Topic, name: &[u8], entry: &Entry) {
        let table = self.topics.of_mut(topic);
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(entry);
            if subscribers.len() == 0 {
                table.remove(name);
            }
        }
    }
}
