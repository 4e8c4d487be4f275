//! The connected clients: the private state that a connection's own thread uses, and the shared
//! state that other threads may read.

mod clients;
mod entry;
mod pushes;
mod subscriptions;

pub(crate) use clients::{Clients, Evictions};
pub(crate) use entry::{Arrival, Entry, Gauge};
use pushes::Recipient;
pub(crate) use pushes::{Push, PushHead};
pub(crate) use subscriptions::{ByTopic, Topic};

use std::sync::Arc;

use mneme_log::{Cursor, Draw, Watch};

use crate::acl::{LoadRequest, User, Users};
use crate::blocking::KeyWait;
use crate::exclusive::Earlier;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::resp::Protocol;
use crate::settings::OutputClass;
use crate::tracking::{Prefixes, TrackingMode};
use crate::transaction_queue::Queue;

/// A client as its commands see it; only its own thread uses it.
#[derive(Debug)]
pub(crate) struct Client {
    /// The selected database.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Whether it may send commands: it has authenticated, or need not.
    pub authenticated: bool,
    /// Whether it has authenticated, or did not need to when it connected.
    pub is_known: bool,
    /// The user whose permissions apply to its commands.
    pub user: Arc<User>,
    /// The number of changes to users that `user` includes.
    epoch: u64,
    /// The number of failed attempts to authenticate since the last successful one.
    pub failed_attempts: u32,
    /// Whether to close the connection once its replies are sent.
    pub closing: bool,
    /// Which replies it wants.
    pub replies: Replies,
    /// Whether it has asked for `CLIENT NO-EVICT`.
    pub no_evict_on: bool,
    /// The last command that it sent.
    pub last_command: &'static str,
    /// When it last sent or read something, in milliseconds of the server's clock.
    pub active_ms: u64,
    /// The pause whose end its next command waits for.
    pub held: Option<Pause>,
    /// Its wait for a key.
    pub wait: Option<Box<KeyWait>>,
    /// Since when its command has been retried, in milliseconds.
    pub retries_ms: Option<u64>,
    /// The durable position of the store's change feed when its command was last tried.
    pub durable: u64,
    /// Whether its command must be retried after other clients have been served.
    pub yields: bool,
    /// Whether that retry waits until the change feed has space.
    pub awaits_space: bool,
    /// The state of a command whose time slice has ended.
    pub unfinished: Option<Box<Unfinished>>,
    /// The time that its command took in earlier slices, in nanoseconds.
    pub unfinished_ns: u64,
    /// The sections of other threads that its command waits for. They are checked again soon.
    pub awaits: Option<Awaits>,
    /// Bytes of the arguments of the command that is being executed.
    pub arguments: usize,
    /// The I/O thread that serves it.
    pub thread: usize,
    /// The commands that wait for `EXEC`, since `MULTI`.
    pub queue: Option<Queue>,
    /// The number of bytes that its watched keys take.
    pub watched_bytes: usize,
    /// Whether it may receive messages other than replies: it has subscribed to something since it
    /// connected.
    pub is_pushed_to: bool,
    /// Whether it monitors all commands: it has sent `MONITOR`.
    pub is_monitor: bool,
    /// How it tracks the keys that it reads.
    pub tracking: Option<Arc<TrackingMode>>,
    /// The prefixes of the keys that are broadcast to it.
    pub prefixes: Prefixes,
    /// Set by `CLIENT CACHING`: whether the keys of the next command are tracked.
    pub caching: Option<bool>,
    /// Whether other clients monitor its commands.
    pub is_monitored: bool,
    /// Encoded messages to it that the current command sends among replies which the client does
    /// not want.
    pub unsilenced: Vec<u8>,
    /// The events that are reported.
    pub event_flags: u32,
    /// Keys that its commands have changed, and that were not reported to broadcasting clients yet.
    pub changed: Vec<Box<[u8]>>,
    /// Other threads that must dispatch their inboxes, because of messages that this client has
    /// published.
    pub wakes: Vec<usize>,
    /// Its entry in [`Clients`].
    pub entry: Arc<Entry>,
}

/// An interrupted command that walks a database in several time slices.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// The cursor at which it continues.
    pub cursor: Cursor,
    /// The elements of its reply so far, encoded.
    pub reply: Vec<u8>,
    /// The number of those elements.
    pub elements: usize,
    /// The random choice of a key.
    pub draw: Draw,
}

/// Sections of other threads that a command waits for.
#[derive(Debug)]
pub(crate) struct Awaits {
    pub earlier: Earlier,
    pub purpose: Purpose,
}

/// Why a command waits for sections of other threads.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// It needs the server exclusively, and has tried this often.
    Alone(usize),
    /// Only its reply is missing, which must wait until all of these threads have noticed the
    /// change: the reply, and whether the client must be closed.
    Reply(Vec<u8>, bool),
    /// It does not wait for them, but until the file of users is loaded.
    Load(LoadRequest),
}

impl Default for Unfinished {
    /// The purpose of a command that has not begun.
    fn default() -> Self {
        Self {
            cursor: Cursor::START,
            reply: Vec::new(),
            elements: 0,
            draw: Draw::default(),
        }
    }
}

/// The replies that a client wants: `CLIENT REPLY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Replies {
    /// All replies.
    #[default]
    On,
    /// No replies.
    Off,
    /// All replies except that of the next command.
    SkipNext,
    /// All replies except that of this command.
    Skip,
}

impl Replies {
    /// Whether the command that is being executed gets no reply.
    #[inline]
    pub fn is_silent(self) -> bool {
        matches!(self, Replies::Off | Replies::Skip)
    }

    /// The value for the next command.
    #[inline]
    pub fn next(self) -> Self {
        match self {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            lasting => lasting,
        }
    }
}

impl Client {
    /// A client that has just connected.
    pub fn new(entry: Arc<Entry>, thread: usize, users: &Users, clients: &Clients) -> Self {
        // Read before the user, so the user is at most newer.
        let epoch = users.epoch();
        let (user, is_open) = (users.default(), users.is_open());
        entry.state().authenticated = is_open;
        clients.set_user(&entry, user.name());
        Self {
            database: 0,
            protocol: Protocol::Resp2,
            authenticated: is_open,
            is_known: is_open,
            user,
            epoch,
            failed_attempts: 0,
            closing: false,
            replies: Replies::On,
            no_evict_on: false,
            last_command: "NULL",
            active_ms: entry.since_ms,
            held: None,
            wait: None,
            retries_ms: None,
            durable: 0,
            yields: false,
            awaits_space: false,
            unfinished: None,
            unfinished_ns: 0,
            awaits: None,
            arguments: 0,
            thread,
            queue: None,
            watched_bytes: 0,
            is_pushed_to: false,
            is_monitor: false,
            tracking: None,
            prefixes: Prefixes::default(),
            caching: None,
            is_monitored: false,
            unsilenced: Vec::new(),
            event_flags: 0,
            changed: Vec::new(),
            wakes: Vec::new(),
            entry,
        }
    }

    /// Publishes the state of this client to other threads. Called before its replies are sent, not
    /// after each command.
    pub fn publish(&self) {
        let mut state = self.entry.state();
        state.database = self.database;
        state.last_command = self.last_command;
        state.active_ms = self.active_ms;
        state.queued = self.queue.as_ref().map(Queue::len);
        state.arguments = self.arguments;
        state.authenticated = self.authenticated;
        state.no_evict_on = self.no_evict_on;
        state.is_closing = self.closing;
        state.is_held = self.held.is_some() || self.wait.is_some();
        state.is_monitor = self.is_monitor;
        let buffers = &self.entry.buffers;
        buffers
            .queue
            .set(self.queue.as_ref().map_or(0, Queue::bytes));
        buffers.watched.set(self.watched_bytes);
        buffers
            .waited
            .set(self.wait.as_ref().map_or(0, |wait| wait.bytes));
        if self.is_pushed_to {
            let subscriptions = self.entry.subscriptions();
            state.subscriptions = subscriptions.counts();
            buffers.subscriptions.set(subscriptions.bytes());
        } else {
            state.subscriptions = ByTopic::default();
            buffers.subscriptions.set(0);
        }
        let unfinished = self.unfinished.as_ref();
        buffers
            .unfinished
            .set(unfinished.map_or(0, |unfinished| unfinished.reply.capacity()));
        let (library, version) = &state.library;
        buffers
            .names
            .set(state.name.len() + library.len() + version.len());
    }

    /// Whether users have changed since its own was looked up.
    #[inline]
    pub fn has_old_rules(&self, users: &Users) -> bool {
        self.epoch != users.epoch()
    }

    /// Whether its `ACL LOAD` is not answered yet: until then it keeps its rules, since no command
    /// of it begins.
    pub fn awaits_load(&self) -> bool {
        let awaits = self.awaits.as_ref();
        awaits.is_some_and(|awaits| matches!(awaits.purpose, Purpose::Load(_)))
    }

    /// Looks its user up again. If the user no longer exists, the client is closed.
    #[cold]
    pub fn renew_rules(&mut self, users: &Users, clients: &Clients) {
        self.epoch = users.epoch();
        match users.find(self.user.name()) {
            Some(user) => self.user = user,
            None => {
                self.become_default(users, clients);
                self.is_known = false;
                self.closing = true;
            }
        }
        self.authenticated = self.is_known || users.is_open();
    }

    /// Makes it a client of `user`, as which it has authenticated.
    pub fn become_user(&mut self, user: Arc<User>, clients: &Clients) {
        clients.set_user(&self.entry, user.name());
        self.user = user;
        self.is_known = true;
        self.authenticated = true;
    }

    /// Makes it a client that has not authenticated.
    pub fn become_default(&mut self, users: &Users, clients: &Clients) {
        self.become_user(users.default(), clients);
        self.is_known = users.is_open();
        self.authenticated = self.is_known;
    }

    /// Stops watching keys. Returns the keys watched so far.
    pub fn unwatch(&mut self) -> Option<Watch> {
        self.watched_bytes = 0;
        self.entry.watch().take()
    }

    /// Subscribes it, unless it is already subscribed.
    pub fn subscribe(&mut self, pubsub: &PubSub, topic: Topic, name: &[u8]) {
        if !self.entry.subscriptions().has(topic, name) {
            let name = pubsub.add(topic, name, &self.entry);
            self.entry.subscriptions().add(topic, name);
            self.is_pushed_to = true;
        }
    }

    /// Ends a subscription, if it exists.
    pub fn unsubscribe(&mut self, pubsub: &PubSub, topic: Topic, name: &[u8]) {
        let is_removed = self.entry.subscriptions().remove(topic, name);
        if is_removed {
            pubsub.remove(topic, name, &self.entry);
        }
    }

    /// Shows it all commands from now on.
    pub fn begin_monitoring(&mut self, pubsub: &PubSub) {
        pubsub.begin_monitoring(&self.entry);
        (self.is_monitor, self.is_pushed_to) = (true, true);
        // This includes commands that it has already sent.
        self.is_monitored = true;
    }

    /// Makes a thread dispatch its inbox after the commands that are executed together. The
    /// client's own thread does so anyway.
    pub fn wake_later(&mut self, thread: usize) {
        if thread != self.thread && !self.wakes.contains(&thread) {
            self.wakes.push(thread);
        }
    }

    /// Ends all its subscriptions, and stops monitoring.
    pub fn unsubscribe_all(&mut self, pubsub: &PubSub) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            let names = self.entry.subscriptions().names(topic);
            for name in names {
                self.unsubscribe(pubsub, topic, &name);
            }
        }
        if std::mem::take(&mut self.is_monitor) {
            pubsub.end_monitoring(&self.entry);
        }
    }

    /// Appends waiting messages that the client can read to `out`, until that has `most` bytes.
    pub fn take_pushes(&self, out: &mut Vec<u8>, most: usize) {
        let recipient = Recipient {
            protocol: self.protocol,
            is_subscriber: self.entry.subscriptions().any(),
        };
        self.entry.pushes.take(out, recipient, most);
    }

    /// Sets its protocol. Others see this at once, because the form of their messages to it depends
    /// on the protocol.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.entry.state().protocol = protocol;
    }

    /// Whether it has any subscription.
    #[inline]
    pub fn is_subscriber(&self) -> bool {
        self.is_pushed_to && self.entry.subscriptions().any()
    }

    /// Updates whether it may still receive messages. Those that were published for it must have
    /// been taken.
    pub fn settle_pushes(&mut self) {
        self.is_pushed_to =
            self.is_monitor || self.tracking.is_some() || self.entry.subscriptions().any();
    }

    /// The class of its output limit.
    pub fn class(&self) -> OutputClass {
        match self.is_subscriber() {
            true => OutputClass::PubSub,
            false => OutputClass::Normal,
        }
    }

    /// Resets it to the state after connecting, except for its identity, authentication and
    /// subscriptions.
    pub fn reset(&mut self) {
        self.database = 0;
        self.speak(Protocol::Resp2);
        self.queue = None;
        self.unwatch();
        // An option for this very reply remains in effect.
        if self.replies != Replies::Skip {
            self.replies = Replies::On;
        }
        self.entry.state().name.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reply_is_skipped_and_no_more() {
        let said = Replies::SkipNext;
        assert!(!said.is_silent());
        assert!(said.next().is_silent());
        assert_eq!(said.next().next(), Replies::On);
        assert_eq!(Replies::Off.next(), Replies::Off);
        assert_eq!(Replies::On.next(), Replies::On);
    }
}
