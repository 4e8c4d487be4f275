//! Client-side caching (`CLIENT TRACKING`): **a client that tracks keys gets a message for each key
//! that it has read, once, if the key may have changed since**, whoever changes it: a client, a
//! local program, its expiry, or eviction.
//!
//! A client is entered in the table of the keys that it is about to read, and a change takes the
//! key's clients out of the table once it can be seen. So a client that has read the value of
//! before is in the table, or gets the message already. Changes are those that are noted as
//! [events](crate::notify): while any client tracks, all threads note them, and the store's own
//! come from its [feed](crate::report_key_events). As in Redis, a key is one of whichever database.
//!
//! A client that broadcasts is in no table: it gets messages of every key with its prefixes, one
//! message a prefix for all that a client's pipeline changes in one go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mneme_log::MAX_KEY;

use crate::client::{Client, Entry, Push, PushHead};
use crate::client_memory;
use crate::command::{Command, Flag};
use crate::resp::{Arguments, Protocol, Reply};
use crate::settings::Key;
use crate::shared::Shared;
use crate::tracking::{Prefixes, TableLimits, TrackingMode};

/// Keys that are invalidated in one go where the table is larger than it may be.
const SHRUNK: usize = 1_000;

/// The body of a message that names these keys.
fn naming(keys: &[&[u8]]) -> Arc<Vec<u8>> {
    let mut body = Vec::new();
    let mut reply = Reply::new(&mut body, Protocol::Resp2);
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Arc::new(body)
}

impl Shared {
    /// Makes a client track from now on, or in another way, also keys with these prefixes. Changes
    /// that are under way may not be noted: the caller waits for the sections of all threads.
    pub fn begin_tracking(&self, client: &mut Client, mode: TrackingMode, prefixes: &Prefixes) {
        let mode = Arc::new(mode);
        self.tracking.broadcast(client.entry.id, prefixes);
        client.prefixes.append(prefixes);
        client.entry.state().tracking = Some(Arc::clone(&mode));
        let bytes = size_of::<TrackingMode>() + client.prefixes.bytes();
        client.entry.buffers.tracking.set(bytes);
        if client.tracking.replace(mode).is_none() {
            self.tracking.begin();
        }
        client.caching = None;
        client.settle_pushes();
        client.event_flags = self.event_flags();
        self.follow_key_events();
    }

    /// Makes a client track no longer.
    pub fn end_tracking(&self, client: &mut Client) {
        let Some(mode) = client.tracking.take() else {
            return;
        };
        client.caching = None;
        client.entry.state().tracking = None;
        client.entry.buffers.tracking.set(0);
        let prefixes = std::mem::take(&mut client.prefixes);
        self.tracking.end_broadcast(client.entry.id, &prefixes);
        if self.tracking.end() {
            self.follow_key_events();
        }
        if !mode.broadcasts {
            self.background.forget_tracked();
        }
        client.event_flags = self.event_flags();
    }

    /// Removes the entries of clients that track no longer, and what is too much.
    pub fn forget_tracked(&self) {
        self.tracking.retain(|id| {
            let entries = self.clients.named(&[id]);
            entries.iter().any(|entry| entry.state().tracking.is_some())
        });
        while !self.stopping() && self.shrink_table(|thread| self.wake_reader(thread)) {}
    }

    /// Enters a client in the table of the keys that its command is about to read.
    #[cold]
    pub fn remember_keys_of(&self, client: &mut Client, command: &Command, args: &Arguments<'_>) {
        let Some(mode) = &client.tracking else {
            return;
        };
        if !command.has(Flag::Readonly) || !mode.tracks(client.caching) {
            return;
        }
        let (id, limits) = (client.entry.id, self.table_limits());
        for (at, _) in command.keys_of(args) {
            let key = args.at(at);
            // Nothing is ever stored under a longer key.
            if key.len() > MAX_KEY {
                continue;
            }
            for key in self.tracking.remember(id, key, limits) {
                self.invalidate(&key, None, |thread| client.wake_later(thread));
            }
        }
    }

    fn table_limits(&self) -> TableLimits {
        let keys = self.settings.count(Key::TrackingKeys);
        TableLimits::new(keys, client_memory::limit(self))
    }

    /// Invalidates some keys of a table that is larger than it may be, as after a change of a
    /// setting. Returns whether there may be more. `posted` as below.
    pub fn shrink_table(&self, mut posted: impl FnMut(usize)) -> bool {
        let surplus = (self.tracking).surplus(self.table_limits(), (SHRUNK, usize::MAX), b"");
        for key in &surplus {
            self.invalidate(key, None, &mut posted);
        }
        surplus.len() >= SHRUNK
    }

    /// Sends a message to the clients that have read `key`, which `by` has changed if it is a
    /// client. `posted` as in [`publish`](crate::pubsub::PubSub::publish).
    pub fn invalidate(&self, key: &[u8], by: Option<u64>, posted: impl FnMut(usize)) {
        let readers = self.tracking.take(key);
        if readers.is_empty() {
            return;
        }
        let (body, mut deliveries) = (naming(&[key]), Vec::new());
        for entry in self.clients.named(&readers) {
            deliveries.extend(self.delivery_of_keys(&entry, false, by, &body));
        }
        self.pubsub.send(deliveries, posted);
    }

    /// Sends, for each prefix of any of `keys`, one message of the keys with it to the clients that
    /// broadcast it. `by` has changed the keys if it is a client. `posted` as above.
    pub fn broadcast(&self, mut keys: Vec<Box<[u8]>>, by: Option<u64>, posted: impl FnMut(usize)) {
        keys.sort_unstable();
        keys.dedup();
        let mut by_prefix: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for key in &keys {
            for prefix in self.tracking.prefixes_of(key) {
                by_prefix.entry(prefix).or_default().push(key);
            }
        }
        let mut deliveries = Vec::new();
        for (prefix, keys) in by_prefix {
            let body = naming(&keys);
            for entry in self.clients.named(&self.tracking.broadcasting(prefix)) {
                deliveries.extend(self.delivery_of_keys(&entry, true, by, &body));
            }
        }
        self.pubsub.send(deliveries, posted);
    }

    /// [`broadcast`](Self::broadcast)s what the client's commands have changed since the last time.
    #[cold]
    pub fn broadcast_changes_of(&self, client: &mut Client) {
        let (changed, by) = (std::mem::take(&mut client.changed), client.entry.id);
        self.broadcast(changed, Some(by), |thread| client.wake_later(thread));
    }

    /// As [`delivery`](Self::delivery), of keys that `by` has changed, for a client that
    /// `broadcasts`, or does not.
    fn delivery_of_keys(
        &self,
        entry: &Arc<Entry>,
        broadcasts: bool,
        by: Option<u64>,
        body: &Arc<Vec<u8>>,
    ) -> Option<(Arc<Entry>, Push)> {
        let mode = entry.state().tracking.clone()?;
        let is_own = mode.skips_own && by == Some(entry.id);
        match mode.broadcasts == broadcasts && !is_own {
            true => self.delivery(entry, &mode, body),
            false => None,
        }
    }

    /// Sends a message to all clients that track: all keys may have changed.
    pub fn invalidate_all(&self, posted: impl FnMut(usize)) {
        if !self.tracking.is_active() {
            return;
        }
        self.tracking.retain(|_| false);
        let body = Arc::new(Vec::new());
        let mut deliveries = Vec::new();
        for entry in self.clients.list() {
            let mode = entry.state().tracking.clone();
            if let Some(mode) = mode {
                deliveries.extend(self.delivery(&entry, &mode, &body));
            }
        }
        self.pubsub.send(deliveries, posted);
    }

    /// What is sent for a client that tracks in this way, and to whom; `None`: one that could not
    /// read it.
    fn delivery(
        &self,
        entry: &Arc<Entry>,
        mode: &TrackingMode,
        body: &Arc<Vec<u8>>,
    ) -> Option<(Arc<Entry>, Push)> {
        let push = |entry: &Arc<Entry>, head, body| Some((Arc::clone(entry), Push { head, body }));
        let is_modern = |entry: &Entry| entry.state().protocol == Protocol::Resp3;
        let body = Arc::clone(body);
        if mode.redirect == 0 {
            return match is_modern(entry) {
                true => push(entry, PushHead::Invalidation, body),
                false => None,
            };
        }
        match self.clients.named(&[mode.redirect]).first() {
            Some(target) if is_modern(target) || target.state().subscriptions.any() => {
                push(target, PushHead::Invalidation, body)
            }
            Some(_) => None,
            None => {
                // SYNC: pairs with nothing; something that is shown.
                mode.is_broken.store(true, Ordering::Relaxed);
                let mut broken = Vec::new();
                let mut reply = Reply::new(&mut broken, Protocol::Resp3);
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(i64::try_from(mode.redirect).unwrap_or(i64::MAX));
                match is_modern(entry) {
                    true => push(entry, PushHead::BrokenRedirection, Arc::new(broken)),
                    false => None,
                }
            }
        }
    }
}
