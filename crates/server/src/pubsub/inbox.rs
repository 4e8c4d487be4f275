//! Messages published for the clients of one thread. The step *dispatched* of [`pubsub`](super).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::posting::Posted;
use super::tables::SubscriberList;
use crate::client::Push;

/// A message for some clients of one thread.
#[derive(Debug)]
pub(super) struct Delivery {
    pub push: Push,
    pub to: SubscriberList,
}

/// A client that was given messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fed {
    /// The index of its connection in its thread's slab.
    pub key: usize,
    /// Its number.
    pub client: u64,
}

/// The inbox of one thread.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inbox {
    pub posted: Posted<Delivery>,
    /// Used by this thread only.
    handed: Mutex<Handed>,
}

/// The state of deliveries that were taken from the inbox.
#[derive(Debug, Default)]
struct Handed {
    /// Counts the calls of [`Inbox::fed`] that have returned any client.
    round: u64,
    fed: Vec<Fed>,
}

impl Inbox {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            posted: Posted::new(),
            handed: Mutex::default(),
        }
    }

    fn handed(&self) -> MutexGuard<'_, Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives all messages in the inbox to their clients.
    #[inline]
    pub fn dispatch(&self) {
        let posted = self.posted.take();
        if !posted.is_empty() {
            self.hand(posted);
        }
    }

    fn hand(&self, deliveries: Vec<Delivery>) {
        let Handed { round, fed } = &mut *self.handed();
        for Delivery { push, to } in deliveries {
            // A client that was killed before the message was published does not receive it,
            // although its connection may be closed only later.
            for entry in to.iter().filter(|entry| !entry.is_killed()) {
                if entry.pushes.add(push.clone(), *round + 1) {
                    fed.push(Fed {
                        key: entry.key,
                        client: entry.id,
                    });
                }
            }
        }
    }

    /// The clients that were given messages since the last call.
    pub fn fed(&self) -> Vec<Fed> {
        let mut handed = self.handed();
        if handed.fed.is_empty() {
            return Vec::new();
        }
        handed.round += 1;
        std::mem::take(&mut handed.fed)
    }
}
