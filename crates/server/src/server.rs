//! Starting and stopping a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use mio::{Poll, Waker};
use mneme_sys::{Clock, SystemClock};

use crate::backing::{Backing, Origin, Wanted};
use crate::event_loop::{EventLoop, WAKER};
use crate::handover::Listeners;
use crate::listen::Listener;
use crate::settings::{MOST_THREADS, Settings};
use crate::shared::Shared;
use mneme_log::{DATABASES, LogStore, OpenError, PageReport, UpdatePolicy};
use mneme_shared::{Opening, Registry, ServeError as SegmentError};

/// A server that has not been started. Everything has a default; see each method.
#[derive(Clone)]
pub struct Server {
    settings: Settings,
    store: Option<Arc<LogStore>>,
    segment: Option<Wanted>,
    listeners: Option<Arc<Listeners>>,
    clock: Arc<dyn Clock>,
}

/// Why a server did not start. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Somebody listens there already.
    #[error("{address} is in use by another server; stop it, or choose another port")]
    AddressInUse {
        /// Where.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The unix socket cannot be listened on.
    #[error("cannot listen on the unix socket {}: {source}", path.display())]
    UnixSocket {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing to listen on: no address, and no unix socket.
    #[error("there is nothing to listen on: give an address or a unix socket")]
    NothingToListenOn,
    /// The number of threads is out of range.
    #[error("{0} threads: the number must be from 1 to {MOST_THREADS}")]
    Threads(usize),
    /// The number of databases is out of range.
    #[error("{0} databases: the number must be from 1 to {DATABASES}")]
    Databases(usize),
    /// The store could not be opened.
    #[error("cannot open a store of {bytes} bytes: {source}")]
    Store {
        /// How large it was to be.
        bytes: u64,
        /// Why not.
        source: OpenError,
    },
    /// The segment could not be opened for serving.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The operating system refuses a thread, an event queue or randomness.
    #[error("the operating system refuses {what}: {source}")]
    System {
        /// What it was asked for.
        what: &'static str,
        /// What it says.
        source: io::Error,
    },
}

impl Server {
    /// A server on 127.0.0.1:6379 with one thread, 16 databases and 256 MiB of memory.
    pub fn builder() -> Self {
        Self {
            settings: Settings::default(),
            store: None,
            segment: None,
            listeners: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The addresses to listen on, all at the same port. None is allowed if there is a unix socket.
    pub fn bind(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.settings.bind = addresses.into_iter().collect();
        self
    }

    /// The TCP port; 0 lets the system choose one (see [`Running::addresses`]).
    pub fn port(mut self, port: u16) -> Self {
        self.settings.port = port;
        self
    }

    /// A unix socket to listen on as well. One left behind by a dead server is replaced.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.unix_socket = Some(path.into());
        self
    }

    /// I/O threads. Each serves its own connections and executes their commands; one a core is right.
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads;
        self
    }

    /// Bytes of memory for the data and everything about it. Without effect if [`store`](Self::store) or
    /// [`segment`](Self::segment) is given.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.memory = bytes;
        self
    }

    /// How records are updated. Without effect if [`store`](Self::store) or [`segment`](Self::segment) is given.
    pub fn update_policy(mut self, policy: UpdatePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// How many databases clients may `SELECT`; 1 to 64.
    pub fn databases(mut self, databases: usize) -> Self {
        self.settings.databases = databases;
        self
    }

    /// Connections beyond which further ones are refused.
    pub fn max_clients(mut self, clients: usize) -> Self {
        self.settings.max_clients = clients;
        self
    }

    /// The password that clients must give (`AUTH`, `HELLO`) before anything else.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.settings.password = Some(password.into());
        self
    }

    /// Whether connections from other machines are refused while there is no password. They are by default.
    pub fn protected_mode(mut self, on: bool) -> Self {
        self.settings.protected_mode = on;
        self
    }

    /// Bytes of unsent replies beyond which a client is not listened to until it has read (64 MiB), and beyond which
    /// it is cut off (1 GiB).
    pub fn output_bounds(mut self, pause: usize, limit: usize) -> Self {
        self.settings.output_pause = pause;
        self.settings.output_limit = limit;
        self
    }

    /// The store to serve, which the embedding program may use beside the clients. Otherwise a private one is opened.
    pub fn store(mut self, store: Arc<LogStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The segment to serve, made as `opening` says if there is none: it outlives the server, and local programs attach
    /// it beside the clients. Without effect if [`store`](Self::store) is given.
    pub fn segment(
        mut self,
        registry: Registry,
        name: impl Into<String>,
        opening: Opening,
    ) -> Self {
        self.segment = Some(Wanted {
            registry,
            name: name.into(),
            opening,
        });
        self
    }

    /// Sockets that listen already, taken over from another server: used instead of those that would be opened.
    pub fn listeners(mut self, listeners: Listeners) -> Self {
        self.listeners = Some(Arc::new(listeners));
        self
    }

    /// The clock behind `TIME`, `INFO` and `CLIENT LIST`.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the store, listens, and serves until told to stop. When it returns, clients can connect.
    pub fn start(self) -> Result<Running, StartError> {
        let Self {
            mut settings,
            store,
            segment,
            listeners,
            clock,
        } = self;
        if !(1..=MOST_THREADS).contains(&settings.threads) {
            return Err(StartError::Threads(settings.threads));
        }
        if !(1..=DATABASES).contains(&settings.databases) {
            return Err(StartError::Databases(settings.databases));
        }
        let refused = |what| move |source| StartError::System { what, source };
        let (listeners, addresses) = match listeners {
            None => listen(&settings)?,
            Some(listeners) => {
                settings.unix_socket = listeners.0.iter().find_map(Listener::path);
                let addresses = listeners
                    .0
                    .iter()
                    .filter_map(|one| one.address().transpose());
                let addresses = addresses.collect::<io::Result<_>>();
                let shared = Listener::share_all(&listeners.0);
                let shared = shared.map_err(refused("a file descriptor"))?;
                (shared, addresses.map_err(refused("an address"))?)
            }
        };
        settings.port = addresses.first().map_or(settings.port, SocketAddr::port);
        let (store, origin) = match (store, segment) {
            (Some(store), _) => (Backing::Process(store), Origin::Process),
            (None, Some(wanted)) => wanted.open()?,
            (None, None) => {
                let store = Arc::new(open(settings.memory, settings.policy)?);
                (Backing::Process(store), Origin::Process)
            }
        };
        settings.memory = store.capacity();

        let mut polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..settings.threads {
            let poll = Poll::new().map_err(refused("an event queue"))?;
            wakers.push(Waker::new(poll.registry(), WAKER).map_err(refused("an event"))?);
            polls.push(poll);
        }
        let run_id = run_id().map_err(refused("randomness"))?;
        let unix_socket = settings.unix_socket.clone();
        let shares: Vec<Vec<Listener>> = (0..settings.threads)
            .map(|_| Listener::share_all(&listeners))
            .collect::<io::Result<_>>()
            .map_err(refused("a file descriptor"))?;
        let shared = Arc::new(Shared::new(
            store, settings, wakers, addresses, run_id, clock, listeners,
        ));
        // What local programs do is heard from before the first client's request on.
        shared.listen_to_locals();
        let mut running = Running {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            unix_socket,
            origin,
        };
        for (index, (poll, listeners)) in polls.into_iter().zip(shares).enumerate() {
            let event_loop = EventLoop::new(poll, Arc::clone(&shared), index, listeners)
                .map_err(refused("an event queue"))?;
            let stopper = running.stopper();
            // If this fails, dropping `running` stops the threads that have been started.
            let thread = std::thread::Builder::new()
                .name(format!("mneme-io-{index}"))
                .spawn(move || {
                    let _others = StopAll(stopper);
                    event_loop.run()
                })
                .map_err(refused("a thread"))?;
            running.threads.push(thread);
        }
        if running.shared.store.segment().is_some() {
            let stopper = running.stopper();
            let thread = std::thread::Builder::new()
                .name("mneme-effects".to_owned())
                .spawn(move || {
                    let _others = StopAll(stopper);
                    shared.keep_listening();
                    Ok(())
                })
                .map_err(refused("a thread"))?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

fn open(bytes: u64, policy: UpdatePolicy) -> Result<LogStore, StartError> {
    LogStore::builder()
        .capacity(bytes)
        .update_policy(policy)
        .maintainer(true)
        .open_private()
        .map_err(|source| StartError::Store { bytes, source })
}

fn listen(settings: &Settings) -> Result<(Vec<Listener>, Vec<SocketAddr>), StartError> {
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    // If the system chooses the port, it chooses it for the first address, and the others take the same.
    let mut port = settings.port;
    for &ip in &settings.bind {
        let address = SocketAddr::new(ip, port);
        let bound = Listener::tcp(address).and_then(|listener| Ok((listener.address()?, listener)));
        let (actual, listener) = bound.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
            _ => StartError::Bind { address, source },
        })?;
        let actual = actual.unwrap_or(address);
        port = actual.port();
        listeners.push(listener);
        addresses.push(actual);
    }
    if let Some(path) = &settings.unix_socket {
        let unix = |source| StartError::UnixSocket {
            path: path.clone(),
            source,
        };
        listeners.push(Listener::unix(path).map_err(unix)?);
    }
    if listeners.is_empty() {
        return Err(StartError::NothingToListenOn);
    }
    Ok((listeners, addresses))
}

/// Forty hexadecimal digits that no other run has.
fn run_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    mneme_sys::random_bytes(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A running server. Dropping it stops it, waiting until it has stopped.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix_socket: Option<PathBuf>,
    origin: Origin,
}

/// The memory that a server has for its data.
#[derive(Debug, Clone)]
pub struct Memory {
    /// How much.
    pub bytes: u64,
    /// In pages of which kind.
    pub pages: PageReport,
}

/// Why a server ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A thread's event queue failed.
    #[error("an I/O thread failed: {0}")]
    EventQueue(#[from] io::Error),
    /// A thread panicked: a bug in Mneme.
    #[error("an I/O thread panicked; please report this")]
    Panicked,
}

/// Stops its server; can be sent to another thread, such as one that waits for signals. It keeps nothing of the server
/// alive.
#[derive(Clone)]
pub struct Stopper(Weak<Shared>);

/// How a server ended.
#[derive(Debug)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// It [retired](Stopper::retire): these sockets go on listening for its successor.
    Retired(Listeners),
}

impl Running {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The store it serves.
    pub fn store(&self) -> &LogStore {
        &self.shared.store
    }

    /// Where its records are.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The memory it has obtained.
    pub fn memory(&self) -> Memory {
        let store = &self.shared.store;
        Memory {
            bytes: store.capacity(),
            pages: store.pages(),
        }
    }

    /// Tells it to stop: to accept and read no more, to send the replies it owes, and to close its connections.
    /// Returns at once; [`join`](Self::join) waits for the end.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// Something that can tell it to stop from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.shared))
    }

    /// Waits until it has stopped: told to by [`shutdown`](Self::shutdown), a [`Stopper`] or a client's `SHUTDOWN`. Its
    /// store is closed then, unless the embedding program has it too.
    pub fn join(mut self) -> Result<Ended, ServeError> {
        self.wait()?;
        let retired = self.shared.retired();
        Ok(retired.map_or(Ended::Stopped, Ended::Retired))
    }

    fn wait(&mut self) -> Result<(), ServeError> {
        let mut result = Ok(());
        for thread in std::mem::take(&mut self.threads) {
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(ServeError::EventQueue),
                Err(_) => Err(ServeError::Panicked),
            };
            result = result.and(ended);
        }
        if let Some(path) = self.unix_socket.take()
            && !self.shared.has_retired()
        {
            // It may have been removed already; nothing depends on it.
            let _ = std::fs::remove_file(path);
        }
        result
    }
}

impl Stopper {
    /// As [`Running::shutdown`].
    pub fn stop(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.stop();
        }
    }

    /// The same, but the listening sockets go on listening for a successor: [`Running::join`] returns them.
    pub fn retire(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.retire();
        }
    }

    /// The listening sockets once more; none of a server that has ended.
    pub(crate) fn listeners(&self) -> io::Result<Listeners> {
        match self.0.upgrade() {
            Some(shared) => shared.listeners(),
            None => Ok(Listeners::default()),
        }
    }
}

/// Stops the server when the thread that holds it ends, however it ends: clients of a thread that is gone would wait
/// for ever.
struct StopAll(Stopper);

impl Drop for StopAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop();
        if let Err(error) = self.wait() {
            tracing::error!(%error, "a server ended badly");
        }
    }
}
