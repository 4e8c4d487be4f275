//! Events of keys that were not changed by a client's command: **each key that the store removes,
//! because it has expired or to free memory, is reported once. So are changes by local programs**
//! of values, and of keys' expiries and existence. The exception is changes that the [change
//! feed](mneme_log::ChangeListener) reports as lost.
//!
//! A listener of the feed exists only while such events are wanted. A key is not removed at the
//! very moment when it expires. As in Redis, it is removed when a command names it, or when the
//! store's maintainer finds it. A command first removes those of its keys that have expired, so
//! that their events precede its own.

use std::sync::MutexGuard;
use std::time::Duration;

use mneme_collections::{HASH, LIST, SET, SORTED_SET};
use mneme_log::{ChangeKind, ChangeListener, Notification, SlotError, ValueChange, ValueKind};

use crate::client::Topic;
use crate::command::{Command, Reach};
use crate::notify::{EventClass, KeyEvent};
use crate::resp::Arguments;
use crate::settings::Key;
use crate::shared::Shared;
use crate::transaction_queue::Queue;

/// The maximum number of changes processed at once. Meanwhile a command that has removed a key may
/// have to wait.
const AT_ONCE: usize = 128;
/// The maximum duration of the reports by one command, in nanoseconds.
const SLICE_NS: u64 = 1_000_000;
/// The longest sleep without a change.
const LONG: Duration = Duration::from_secs(60);
/// The sleep if the kernel refuses a barrier now.
const RETRY: Duration = Duration::from_millis(10);

/// The classes of such events.
const CLASSES: u32 = EventClass::Expired as u32
    | EventClass::Evicted as u32
    | EventClass::Generic as u32
    | EventClass::String as u32
    | EventClass::List as u32
    | EventClass::Set as u32
    | EventClass::Hash as u32
    | EventClass::SortedSet as u32;

/// The events of a type of values whose elements a local program sets, and removes.
struct TypeEvents {
    class: EventClass,
    set: &'static str,
    removed: &'static str,
}

impl TypeEvents {
    /// The events of values of this packed kind.
    fn of(kind: ValueKind) -> Option<TypeEvents> {
        let (class, set, removed) = match kind {
            ValueKind::STRING => (EventClass::String, "set", "set"),
            HASH => (EventClass::Hash, "hset", "hdel"),
            SET => (EventClass::Set, "sadd", "srem"),
            SORTED_SET => (EventClass::SortedSet, "zadd", "zrem"),
            LIST => (EventClass::List, "rpush", "lrem"),
            _ => return None,
        };
        Some(TypeEvents {
            class,
            set,
            removed,
        })
    }
}

impl Shared {
    /// Listens to the store if the settings request events that are not caused by commands.
    pub fn follow_key_events(&self) {
        // A store that is being loaded is listened to once it is open.
        if self.store.is_loading() || self.stopping() {
            return;
        }
        let is_wanted = || {
            let flags = self.settings.number(Key::NotifyEvents) as u32;
            flags & CLASSES != 0 && KeyEvent::are_reported(flags) || self.tracking.is_active()
        };
        if let Err(error) = self.key_events.listen(&self.store, is_wanted) {
            tracing::warn!(%error, "keys that expire or are evicted are not reported");
        }
    }

    /// Reports some of the recent changes. Returns their number; `None`: no such events are wanted.
    fn report_key_events(
        &self,
        mut listener: MutexGuard<'_, Option<ChangeListener>>,
    ) -> Option<Result<usize, SlotError>> {
        let receive = |notification: Notification<'_>| {
            let change = match notification {
                Notification::Change(change) => change,
                Notification::Lost => {
                    return self.invalidate_all(|thread| self.wake_reader(thread));
                }
            };
            self.invalidate_changed(change.kind);
            let (class, name, key) = match change.kind {
                ChangeKind::Expired(key) => (EventClass::Expired, "expired", key),
                ChangeKind::Evicted(key) => (EventClass::Evicted, "evicted", key),
                ChangeKind::Removed(key) => (EventClass::Generic, "del", key),
                ChangeKind::Retimed(key) => (EventClass::Generic, "expire", key),
                ChangeKind::Stored(key) => {
                    return self.report_stored(change.database, key, change.value);
                }
                // Changes of databases have no events in Redis.
                _ => return,
            };
            self.publish_key_event(class, name, change.database, key);
        };
        Some(listener.as_mut()?.drain(AT_ONCE, receive))
    }

    /// Sends messages to clients that track the changed keys.
    fn invalidate_changed(&self, change: ChangeKind<'_>) {
        if !self.tracking.is_active() {
            return;
        }
        let wake = |thread| self.wake_reader(thread);
        match change {
            ChangeKind::Stored(key)
            | ChangeKind::Retimed(key)
            | ChangeKind::Removed(key)
            | ChangeKind::Expired(key)
            | ChangeKind::Evicted(key) => {
                self.invalidate(key, None, wake);
                self.broadcast(vec![key.into()], None, wake);
            }
            _ => self.invalidate_all(wake),
        }
    }

    /// Wakes a thread whose clients have messages to receive, unless it was woken for them already.
    pub(crate) fn wake_reader(&self, thread: usize) {
        if self.pubsub.asks_to_be_woken(thread) {
            self.threads[thread].wake();
        }
    }

    /// Reports what a local program has done to the value of a key. If the change does not say its
    /// type, that is the one which the value has by now.
    fn report_stored(&self, database: usize, key: &[u8], value: ValueChange) {
        let kind = value.kind.or_else(|| {
            let kind = self.store.database(database).map(|it| it.kind(key));
            kind.ok()?.ok().flatten().map(ValueKind::packed)
        });
        let Some(events) = kind.and_then(TypeEvents::of) else {
            return;
        };
        // A removal from a list gives the items behind it other places.
        let removed = value.removed;
        let set = !removed || value.set && kind != Some(LIST);
        for (happened, name) in [(set, events.set), (removed, events.removed)] {
            if happened {
                self.publish_key_event(events.class, name, database, key);
            }
        }
    }

    fn publish_key_event(
        &self,
        class: EventClass,
        name: &'static str,
        database: usize,
        key: &[u8],
    ) {
        let flags = self.settings.number(Key::NotifyEvents) as u32;
        if flags & class as u32 == 0 {
            return;
        }
        let event = KeyEvent {
            class,
            name,
            database,
            key: key.into(),
        };
        event.report(flags, |channel, message| {
            let wake = |thread| self.wake_reader(thread);
            self.pubsub.publish(Topic::Channel, channel, message, wake);
        });
    }

    /// Reports until the server stops, and then releases the store.
    pub fn serve_key_events(&self) {
        while !self.stopping() {
            match self.report_key_events(self.key_events.lock_after_others()) {
                Some(Ok(0)) => {
                    let sleep = self
                        .key_events
                        .lock()
                        .as_ref()
                        .and_then(ChangeListener::sleep);
                    // The bell is armed: a server that stops now rings it.
                    if let Some(sleep) = sleep
                        && !self.stopping()
                    {
                        sleep.at_most(LONG);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) => std::thread::sleep(RETRY),
                None => self.key_events.wait(|| self.stopping()),
            }
        }
        *self.key_events.lock() = None;
    }

    /// Removes the expired keys among those of a command, or of the transaction that it executes,
    /// and reports that. If local programs have made so many changes before that this would keep
    /// other clients waiting, the reporting thread does it instead.
    #[cold]
    pub fn expire_keys_of(
        &self,
        command: &Command,
        args: &Arguments<'_>,
        database: usize,
        queue: Option<&Queue>,
    ) {
        let keys = match (command.reach, queue) {
            (Reach::Queue, Some(queue)) => queue.named_keys(database),
            _ => {
                let keys = command.keys_of(args).into_iter();
                keys.map(|(at, _)| (database, args.at(at))).collect()
            }
        };
        let mut has_removed = false;
        for (database, key) in keys {
            // A key that cannot be removed now counts as absent all the same, and is removed later.
            let removed = (self.store.database(database)).map(|it| it.remove_if_expired(key));
            has_removed |= matches!(removed, Ok(Ok(true)));
        }
        if has_removed {
            let ends_ns = self.now_ns().saturating_add(SLICE_NS);
            let report = || self.report_key_events(self.key_events.lock());
            while report().is_some_and(|it| it.is_ok_and(|changes| changes >= AT_ONCE))
                && self.now_ns() < ends_ns
            {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Server;
    use std::sync::Barrier;

    /// A client ends tracking while another one begins it.
    #[test]
    fn the_store_is_listened_to_if_any_client_tracks() {
        let running = Server::builder()
            .port(0)
            .threads(1)
            .memory(64 << 20)
            .start();
        let running = running.expect("a free port and a little memory");
        let shared = running.shared();
        shared.tracking.begin();
        for round in 0..2_000 {
            let barrier = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    shared.tracking.end();
                    shared.follow_key_events();
                });
                barrier.wait();
                shared.tracking.begin();
                shared.follow_key_events();
            });
            assert!(shared.key_events.lock().is_some(), "round {round}");
        }
    }
}
