//! A client as every thread sees it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pushes::Pushes;
use super::subscriptions::{ByTopic, Subscriptions};
use crate::resp::Protocol;
use crate::tracking::TrackingMode;
use mneme_log::Watch;

/// The maximum length in bytes of each name in a line that is stored.
const SHORT: usize = 128;

/// A client as every thread sees it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// A number, counted from 1 and never reused.
    pub id: u64,
    /// Its address; for a unix socket, the socket's path.
    pub peer: String,
    /// The address that it connected to.
    pub local: String,
    /// The socket's file descriptor.
    pub descriptor: i32,
    /// When it connected, in milliseconds of the server's clock.
    pub since_ms: u64,
    /// The I/O thread that serves it.
    pub thread: usize,
    /// The index of its connection in the slab of its thread.
    pub key: usize,
    /// The memory of its connection, without buffers.
    connection_bytes: usize,
    /// The memory of its connection's buffers.
    pub buffers: Buffers,
    /// Its total memory at the end of its last turn.
    pub memory: Gauge,
    /// Messages that wait to be sent to it, other than replies.
    pub pushes: Pushes,
    is_killed: AtomicBool,
    state: Mutex<State>,
    watch: Mutex<Option<Watch>>,
    subscriptions: Mutex<Subscriptions>,
}

/// The connection of a new client.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub peer: String,
    pub local: String,
    pub descriptor: i32,
    pub now_ms: u64,
    pub thread: usize,
    pub key: usize,
    /// The memory of its connection, without buffers.
    pub connection_bytes: usize,
}

/// The part of a client's description that changes.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The name that it gave itself; empty for none.
    pub name: Vec<u8>,
    /// The name and version of its library, as reported by the client.
    pub library: (Vec<u8>, Vec<u8>),
    /// The name of its user.
    pub user: Arc<[u8]>,
    /// The selected database.
    pub database: usize,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// The last command.
    pub last_command: &'static str,
    /// When it last sent or read something, in milliseconds.
    pub active_ms: u64,
    /// The number of commands that wait for `EXEC`, since `MULTI`.
    pub queued: Option<usize>,
    /// Bytes of the arguments of the command that is being executed.
    pub arguments: usize,
    /// Whether it has authenticated, or need not.
    pub authenticated: bool,
    /// Whether it has asked for `CLIENT NO-EVICT`.
    pub no_evict_on: bool,
    /// Whether it will be closed once it has read its replies.
    pub is_closing: bool,
    /// Whether its next command waits for a key, or for the end of a pause.
    pub is_held: bool,
    /// The number of its subscriptions.
    pub subscriptions: ByTopic<usize>,
    /// Whether it monitors all commands.
    pub is_monitor: bool,
    /// How it tracks the keys that it reads.
    pub tracking: Option<Arc<TrackingMode>>,
}

/// Bytes of a connection's own buffers, and of other data that it stores for its client. An idle
/// connection has no buffers: while it is served, it uses those of its thread.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Received and not yet executed.
    pub query: Gauge,
    /// Free space after that.
    pub query_free: Gauge,
    /// Not yet sent.
    pub unsent: Gauge,
    /// The size of the output buffer.
    pub output: Gauge,
    /// The largest number of bytes that were unsent at the end of a turn.
    pub output_peak: Gauge,
    /// The parser's state for an incomplete command.
    pub parsed: Gauge,
    /// Commands that wait for `EXEC`.
    pub queue: Gauge,
    /// Watched keys.
    pub watched: Gauge,
    /// Keys that its command waits for.
    pub waited: Gauge,
    /// The reply of a command that is not finished.
    pub unfinished: Gauge,
    /// The client's name, and those of its library.
    pub names: Gauge,
    /// Its subscriptions.
    pub subscriptions: Gauge,
    /// The keys that it tracks, as it has specified.
    pub tracking: Gauge,
}

/// A number that the connection's thread sets and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    #[inline]
    pub fn set(&self, value: usize) {
        // SYNC: pairs with nothing; a statistic, whose reader wants some recent value.
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> usize {
        // SYNC: as above.
        self.0.load(Ordering::Relaxed)
    }
}

impl State {
    fn new(now_ms: u64) -> Self {
        Self {
            name: Vec::new(),
            library: Default::default(),
            user: Arc::default(),
            database: 0,
            protocol: Protocol::Resp2,
            last_command: "NULL",
            active_ms: now_ms,
            queued: None,
            arguments: 0,
            authenticated: false,
            no_evict_on: false,
            is_closing: false,
            is_held: false,
            subscriptions: ByTopic::default(),
            is_monitor: false,
            tracking: None,
        }
    }
}

impl Entry {
    /// The entry of a client that has just connected.
    pub(super) fn new(id: u64, arrival: Arrival) -> Self {
        Self {
            id,
            peer: arrival.peer,
            local: arrival.local,
            descriptor: arrival.descriptor,
            since_ms: arrival.now_ms,
            thread: arrival.thread,
            key: arrival.key,
            connection_bytes: arrival.connection_bytes,
            buffers: Buffers::default(),
            memory: Gauge::default(),
            pushes: Pushes::default(),
            is_killed: AtomicBool::new(false),
            state: Mutex::new(State::new(arrival.now_ms)),
            watch: Mutex::default(),
            subscriptions: Mutex::default(),
        }
    }

    /// The changing part of the client's description.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that must not change before its `EXEC`.
    pub fn watch(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its subscriptions. Others look at them in an exclusive section.
    pub fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as killed: none of its further commands begins once its thread has entered its next
    /// shared section. For [`Clients::kill`](super::Clients::kill).
    pub(super) fn kill(&self) {
        // SYNC: pairs with nothing: sections that begin after the notification see it; for others,
        // a few more commands do no harm.
        self.is_killed.store(true, Ordering::Relaxed);
    }

    /// Whether it was killed. Its thread checks this after it has entered its section.
    #[inline]
    pub fn is_killed(&self) -> bool {
        // SYNC: as in `kill`.
        self.is_killed.load(Ordering::Relaxed)
    }

    /// The number of bytes that it takes.
    pub fn bytes(&self) -> usize {
        let Buffers {
            query,
            query_free,
            unsent: _,
            output,
            output_peak: _,
            parsed,
            queue,
            watched,
            waited,
            unfinished,
            names,
            subscriptions,
            tracking,
        } = &self.buffers;
        let gauges = [
            query,
            query_free,
            output,
            parsed,
            queue,
            watched,
            waited,
            unfinished,
            names,
            subscriptions,
            tracking,
        ];
        let buffers: usize = gauges.into_iter().map(Gauge::get).sum();
        let buffers = buffers + self.pushes.bytes();
        size_of::<Self>() + self.connection_bytes + self.peer.len() + self.local.len() + buffers
    }

    /// Whether it is connected by a unix socket.
    fn is_unix(&self) -> bool {
        self.peer.starts_with('/')
    }

    /// Whether a key that it watches has changed, so that its `EXEC` will fail.
    fn is_dirty(&self) -> bool {
        // A thread that is adding a watched key may wait for a transaction, and that transaction
        // for this thread.
        let watch = self.watch.try_lock();
        watch.is_ok_and(|watch| watch.as_ref().is_some_and(|watch| !watch.is_unchanged()))
    }

    /// The client's line in `CLIENT LIST`.
    pub fn line(&self, now_ms: u64) -> impl fmt::Display {
        Line {
            entry: self,
            state: self.state().clone(),
            now_ms,
        }
    }

    /// As [`line`](Self::line), for a line that is stored: names, which may have any length, are
    /// shortened.
    pub fn short_line(&self, now_ms: u64) -> impl fmt::Display {
        let cut = |name: &[u8]| name[..name.len().min(SHORT)].to_vec();
        let state = {
            let state = self.state();
            State {
                name: cut(&state.name),
                library: (cut(&state.library.0), cut(&state.library.1)),
                user: cut(&state.user).into(),
                tracking: state.tracking.clone(),
                ..*state
            }
        };
        Line {
            entry: self,
            state,
            now_ms,
        }
    }
}

struct Line<'a> {
    entry: &'a Entry,
    state: State,
    now_ms: u64,
}

impl Line<'_> {
    /// A letter for each property that holds.
    fn flags(&self) -> String {
        let Self { entry, state, .. } = self;
        let tracking = state.tracking.as_ref();
        let flags: String = [
            (state.is_monitor, 'O'),
            (state.subscriptions.any(), 'P'),
            (state.queued.is_some(), 'x'),
            (state.is_held, 'b'),
            (state.tracking.is_some(), 't'),
            (
                tracking.is_some_and(|mode| mode.is_broken.load(Ordering::Relaxed)),
                'R',
            ),
            (tracking.is_some_and(|mode| mode.broadcasts), 'B'),
            (entry.is_dirty(), 'd'),
            (state.is_closing, 'c'),
            (entry.is_unix(), 'U'),
            (state.no_evict_on, 'e'),
        ]
        .into_iter()
        .filter_map(|(holds, letter)| holds.then_some(letter))
        .collect();
        match flags.is_empty() {
            true => "N".into(),
            false => flags,
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entry, state) = (self.entry, &self.state);
        let buffers = &entry.buffers;
        let [query, query_free] = [buffers.query.get(), buffers.query_free.get()];
        let pushed = entry.pushes.bytes();
        let [unsent, output] = [buffers.unsent.get(), buffers.output.get() + pushed];
        let ByTopic {
            channels,
            patterns,
            shard_channels,
        } = state.subscriptions;
        let seconds_since = |then: u64| self.now_ms.saturating_sub(then) / 1000;
        let total = entry.bytes() + state.arguments;
        write!(
            f,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} \
             sub={channels} psub={patterns} ssub={shard_channels} multi={}",
            entry.id,
            entry.peer,
            entry.local,
            entry.descriptor,
            String::from_utf8_lossy(&state.name),
            seconds_since(entry.since_ms),
            seconds_since(state.active_ms),
            self.flags(),
            state.database,
            state.queued.map_or(-1, |queued| queued as i64),
        )?;
        write!(
            f,
            " qbuf={query} qbuf-free={query_free} argv-mem={} multi-mem={} rbs={output} rbp={} obl={unsent} oll=0 \
             omem={output} tot-mem={total} events={}",
            state.arguments,
            buffers.queue.get(),
            buffers.output_peak.get(),
            if unsent == 0 { "r" } else { "rw" },
        )?;
        write!(
            f,
            " cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
            state.last_command,
            String::from_utf8_lossy(&state.user),
            state
                .tracking
                .as_ref()
                .map_or(-1, |mode| mode.redirect as i64),
            state.protocol.number(),
            String::from_utf8_lossy(&state.library.0),
            String::from_utf8_lossy(&state.library.1),
        )
    }
}
