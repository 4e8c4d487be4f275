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
pub(crate) use subscriptions::{ByTopic, Subscriptions, Topic};

use std::sync::Arc;

use mneme_log::{Cursor, Draw, Watch};

use crate::acl::{User, Users};
use crate::blocking::KeyWait;
use crate::exclusive::Earlier;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::resp::Protocol;
use crate::settings::OutputClass;
use crate::tracking::{Prefixes, TrackingMode};
use crate::transaction_queue::Queue;

/// A client as its commands see it; only its thread touches it.
#[derive(Debug)]
pub(crate) struct Client {
    /// The selected database.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Whether it may send commands: it has authenticated, or need not.
    pub authenticated: bool,
    /// Whether it has authenticated, or did not need to when it came.
    pub is_known: bool,
    /// The user whose rules its commands are judged by.
    pub user: Arc<User>,
    /// The changes to users that `user` is as new as.
    epoch: u64,
    /// Failed attempts to authenticate since it last did.
    pub failed_attempts: u32,
    /// Whether to close the connection once its replies are sent.
    pub closing: bool,
    /// Which replies it wants.
    pub replies: Replies,
    /// Whether it has asked for `CLIENT NO-EVICT`.
    pub no_evict_on: bool,
    /// The last command it has sent.
    pub last_command: &'static str,
    /// When it last sent or read something: milliseconds of the server's clock.
    pub active_ms: u64,
    /// Its next command waits for the end of this pause.
    pub held: Option<Pause>,
    /// Its command waits for a key.
    pub wait: Option<Box<KeyWait>>,
    /// Since when its command is tried again and again: milliseconds.
    pub retries_ms: Option<u64>,
    /// How far the store's change feed was durable when its command was tried last.
    pub durable: u64,
    /// Whether its command is to be retried after other clients have been served.
    pub yields: bool,
    /// Whether that waits until the change feed has space.
    pub awaits_space: bool,
    /// The state of a command whose time slice was over.
    pub unfinished: Option<Box<Unfinished>>,
    /// The time that its command has taken in earlier slices: nanoseconds.
    pub unfinished_ns: u64,
    /// The sections of other threads that its command waits for. It is looked at again soon.
    pub awaits: Option<Awaits>,
    /// Bytes of the arguments of the command that is being executed.
    pub arguments: usize,
    /// Which I/O thread serves it.
    pub thread: usize,
    /// What waits for `EXEC`, since `MULTI`.
    pub queue: Option<Queue>,
    /// Bytes that the keys take which it watches.
    pub watched_bytes: usize,
    /// What it has subscribed to.
    pub subscriptions: Subscriptions,
    /// Whether it may get messages that it has not asked for just now: it has subscribed to
    /// something since it came.
    pub is_pushed_to: bool,
    /// Whether it is shown all commands: it has sent `MONITOR`.
    pub is_monitor: bool,
    /// How it tracks the keys that it reads.
    pub tracking: Option<Arc<TrackingMode>>,
    /// The prefixes of the keys that are broadcast to it.
    pub prefixes: Prefixes,
    /// Whether `CLIENT CACHING` has just said that the keys of the next command are tracked.
    pub caching: Option<bool>,
    /// Whether there are clients that are shown its commands.
    pub is_monitored: bool,
    /// Messages to it, encoded, that the current command would send amid replies that the client
    /// does not want.
    pub unsilenced: Vec<u8>,
    /// Which events are reported.
    pub event_flags: u32,
    /// Keys that its commands have changed, and clients that broadcast do not know of yet.
    pub changed: Vec<Box<[u8]>>,
    /// Other threads that are to dispatch their inboxes, for what this client has published.
    pub wakes: Vec<usize>,
    /// Its entry in [`Clients`].
    pub entry: Arc<Entry>,
}

/// A command that walks a database in several time slices, as it was interrupted.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Where it goes on.
    pub cursor: Cursor,
    /// The elements of its reply so far, encoded.
    pub reply: Vec<u8>,
    /// How many those are.
    pub elements: usize,
    /// The key that it draws.
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
    /// It wants the server to itself, and has tried so often.
    Alone(usize),
    /// It is done but for its reply, which says that all of them have taken notice: the reply, and
    /// whether the client is to be closed.
    Reply(Vec<u8>, bool),
}

impl Default for Unfinished {
    /// Of a command that has not begun.
    fn default() -> Self {
        Self {
            cursor: Cursor::START,
            reply: Vec::new(),
            elements: 0,
            draw: Draw::default(),
        }
    }
}

/// Which replies a client wants: `CLIENT REPLY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// All but the one to the command after this.
    SkipNext,
    /// All but the one to this command.
    Skip,
}

impl Replies {
    /// Whether the command that is being executed gets no reply.
    #[inline]
    pub fn is_silent(self) -> bool {
        matches!(self, Replies::Off | Replies::Skip)
    }

    /// What holds for the next command.
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
    pub fn new(entry: Arc<Entry>, thread: usize, users: &Users) -> Self {
        // Before the user, which is then newer at worst.
        let epoch = users.epoch();
        let (user, is_open) = (users.default(), users.is_open());
        {
            let mut state = entry.state();
            state.authenticated = is_open;
            state.user = Arc::clone(user.name());
        }
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
            subscriptions: Subscriptions::default(),
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

    /// Shows the others what has become of this client. Called before its replies are sent, not
    /// once a command.
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
        state.subscriptions = self.subscriptions.counts();
        state.is_monitor = self.is_monitor;
        let buffers = &self.entry.buffers;
        buffers
            .queue
            .set(self.queue.as_ref().map_or(0, Queue::bytes));
        buffers.watched.set(self.watched_bytes);
        buffers
            .waited
            .set(self.wait.as_ref().map_or(0, |wait| wait.bytes));
        buffers.subscriptions.set(self.subscriptions.bytes());
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

    /// Looks its user up again. It is closed if there is none any more.
    #[cold]
    pub fn renew_rules(&mut self, users: &Users) {
        self.epoch = users.epoch();
        match users.find(self.user.name()) {
            Some(user) => self.user = user,
            None => {
                self.become_default(users);
                self.is_known = false;
                self.closing = true;
            }
        }
        self.authenticated = self.is_known || users.is_open();
    }

    /// Makes the rules of `user`, as which the client has authenticated, apply to its commands.
    pub fn become_user(&mut self, user: Arc<User>) {
        self.entry.state().user = Arc::clone(user.name());
        self.user = user;
        self.is_known = true;
        self.authenticated = true;
    }

    /// Makes it a client that has not authenticated.
    pub fn become_default(&mut self, users: &Users) {
        self.become_user(users.default());
        self.is_known = users.is_open();
        self.authenticated = self.is_known;
    }

    /// Watches no key any more. Returns what has been watched.
    pub fn unwatch(&mut self) -> Option<Watch> {
        self.watched_bytes = 0;
        self.entry.watch().take()
    }

    /// Subscribes it, unless it has subscribed already.
    pub fn subscribe(&mut self, pubsub: &PubSub, topic: Topic, name: &[u8]) {
        if !self.subscriptions.has(topic, name) {
            let name = pubsub.add(topic, name, &self.entry);
            self.subscriptions.add(topic, name);
            self.is_pushed_to = true;
        }
    }

    /// Ends a subscription, if there is this one.
    pub fn unsubscribe(&mut self, pubsub: &PubSub, topic: Topic, name: &[u8]) {
        if self.subscriptions.remove(topic, name) {
            pubsub.remove(topic, name, &self.entry);
        }
    }

    /// Shows it all commands from now on.
    pub fn begin_monitoring(&mut self, pubsub: &PubSub) {
        pubsub.begin_monitoring(&self.entry);
        (self.is_monitor, self.is_pushed_to) = (true, true);
        // What it has sent already behind this, too.
        self.is_monitored = true;
    }

    /// Makes a thread dispatch its inbox once the commands that are executed together are done. Its
    /// own does so anyway.
    pub fn wake_later(&mut self, thread: usize) {
        if thread != self.thread && !self.wakes.contains(&thread) {
            self.wakes.push(thread);
        }
    }

    /// Ends all its subscriptions, and has it shown no more commands.
    pub fn unsubscribe_all(&mut self, pubsub: &PubSub) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for name in self.subscriptions.names(topic) {
                self.unsubscribe(pubsub, topic, &name);
            }
        }
        if std::mem::take(&mut self.is_monitor) {
            pubsub.end_monitoring(&self.entry);
        }
    }

    /// Writes what was sent to it, and it can read, at the end of `out`, until that is as long as
    /// `most`.
    pub fn take_pushes(&self, out: &mut Vec<u8>, most: usize) {
        let recipient = Recipient {
            protocol: self.protocol,
            is_subscriber: self.subscriptions.counts().any(),
        };
        self.entry.pushes.take(out, recipient, most);
    }

    /// Makes it speak this protocol. Others see it at once: what they send it depends on that.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.entry.state().protocol = protocol;
    }

    /// Whether it has subscribed to something.
    #[inline]
    pub fn is_subscriber(&self) -> bool {
        self.is_pushed_to && self.subscriptions.counts().any()
    }

    /// Notes whether it may still get messages. Those that were published for it have been taken.
    pub fn settle_pushes(&mut self) {
        self.is_pushed_to =
            self.is_monitor || self.tracking.is_some() || self.subscriptions.counts().any();
    }

    /// The class of its output limit.
    pub fn class(&self) -> OutputClass {
        match self.is_subscriber() {
            true => OutputClass::PubSub,
            false => OutputClass::Normal,
        }
    }

    /// As if it had just connected, its identity, authentication and subscriptions apart.
    pub fn reset(&mut self) {
        self.database = 0;
        self.speak(Protocol::Resp2);
        self.queue = None;
        self.unwatch();
        // What is said about this very reply stands.
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
