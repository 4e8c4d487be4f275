//! Who is connected: what a connection's own thread knows of its client, and what the others may see.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::queue::Queue;
use crate::resp::Protocol;
use mneme_log::Watch;

/// A client as its commands see it; only its thread touches it.
#[derive(Debug)]
pub(crate) struct Client {
    /// The selected database.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Whether it has given the password, or none is asked.
    pub authenticated: bool,
    /// Whether to close the connection once its replies are sent.
    pub closing: bool,
    /// The last command it has sent.
    pub last_command: &'static str,
    /// Which I/O thread serves it.
    pub thread: usize,
    /// What waits for `EXEC`, since `MULTI`.
    pub queue: Option<Queue>,
    /// The keys that must not change before `EXEC`.
    pub watch: Option<Watch>,
    /// Its entry in [`Clients`].
    pub entry: Arc<Entry>,
}

/// A client as every thread sees it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Counted from 1, never used again.
    pub id: u64,
    /// Its address; a unix socket's path for one that came that way.
    pub peer: String,
    /// The address it has connected to.
    pub local: String,
    /// The socket's file descriptor.
    pub descriptor: i32,
    /// When it came: milliseconds of the server's clock.
    pub since_ms: u64,
    state: Mutex<State>,
}

/// What changes about a client.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The name it has given itself; empty for none.
    pub name: Vec<u8>,
    /// Its library's name and version, as it says.
    pub library: (Vec<u8>, Vec<u8>),
    /// The selected database.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// The last command.
    pub last_command: &'static str,
    /// When it last sent something.
    pub active_ms: u64,
}

impl Client {
    /// A client that has just connected.
    pub fn new(entry: Arc<Entry>, thread: usize, authenticated: bool) -> Self {
        Self {
            thread,
            queue: None,
            watch: None,
            database: 0,
            protocol: Protocol::Resp2,
            authenticated,
            closing: false,
            last_command: "NULL",
            entry,
        }
    }

    /// Shows the others what has become of this client. Called once a read, not once a command.
    pub fn publish(&self, now_ms: u64) {
        let mut state = self.entry.state();
        state.database = self.database;
        state.protocol = self.protocol;
        state.last_command = self.last_command;
        state.active_ms = now_ms;
    }

    /// As if it had just connected, its identity and authentication apart.
    pub fn reset(&mut self) {
        self.database = 0;
        self.protocol = Protocol::Resp2;
        self.queue = None;
        self.watch = None;
        self.entry.state().name.clear();
    }
}

impl Entry {
    /// What changes about the client.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's line in `CLIENT LIST`.
    pub fn line(&self, now_ms: u64) -> impl fmt::Display {
        Line {
            entry: self,
            state: self.state().clone(),
            now_ms,
        }
    }
}

struct Line<'a> {
    entry: &'a Entry,
    state: State,
    now_ms: u64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry {
            id,
            peer,
            local,
            descriptor,
            since_ms,
            ..
        } = self.entry;
        let State {
            name,
            library,
            database,
            protocol,
            last_command,
            active_ms,
        } = &self.state;
        let seconds_since = |then: u64| self.now_ms.saturating_sub(then) / 1000;
        write!(
            f,
            "id={id} addr={peer} laddr={local} fd={descriptor} name={} age={} idle={} flags={} db={database} sub=0 \
             psub=0 ssub=0 multi=-1 cmd={last_command} user=default redir=-1 resp={} lib-name={} lib-ver={}",
            String::from_utf8_lossy(name),
            seconds_since(*since_ms),
            seconds_since(*active_ms),
            if peer.starts_with('/') { 'U' } else { 'N' },
            protocol.number(),
            String::from_utf8_lossy(&library.0),
            String::from_utf8_lossy(&library.1),
        )
    }
}

/// All clients of a server.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
}

impl Clients {
    /// Enters a client that has just connected.
    pub fn enter(&self, peer: String, local: String, descriptor: i32, now_ms: u64) -> Arc<Entry> {
        // SYNC: pairs with nothing; all that counts is that no two get the same.
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let state = State {
            name: Vec::new(),
            library: Default::default(),
            database: 0,
            protocol: Protocol::Resp2,
            last_command: "NULL",
            active_ms: now_ms,
        };
        let entry = Arc::new(Entry {
            id,
            peer,
            local,
            descriptor,
            since_ms: now_ms,
            state: Mutex::new(state),
        });
        self.entries().insert(id, Arc::clone(&entry));
        entry
    }

    /// Takes a client out.
    pub fn leave(&self, id: u64) {
        self.entries().remove(&id);
    }

    /// Everybody, in the order they came.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.entries().values().map(Arc::clone).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
