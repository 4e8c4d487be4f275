//! Starting and stopping a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use mio::{Poll, Waker};
use mneme_sys::{Clock, SysfsTopology, SystemClock, Topology};

use crate::backing::{Backing, Origin, Wanted};
use crate::descriptors;
use crate::event_loop::{EventLoop, WAKER};
use crate::eviction;
use crate::handover::Listeners;
use crate::listen::Listener;
use crate::metrics::Endpoint;
use crate::settings::{Key, MOST_THREADS, Refused, Settings, Source, Value};
use crate::shared::Shared;
use mneme_log::{DATABASES, Evict, LogStore, OpenError, PageReport, UpdatePolicy, WriteError};
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
    /// The store does not take what it is to forget.
    #[error("cannot set what the store forgets when it is full: {0}")]
    Eviction(WriteError),
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
        let settings = Settings::default();
        settings.put(Key::Threads, Value::number(1));
        settings.put(Key::MaxMemory, Value::number(256 << 20));
        Self {
            settings,
            store: None,
            segment: None,
            listeners: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// All settings at once, in place of those made before. What only the `mneme` command heeds (the segment's name and
    /// registry, `private`) is without effect.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// A setting by its text, as a flag says it.
    ///
    /// # Errors
    /// The text is no value of this setting.
    pub fn set(self, key: Key, text: &str) -> Result<Self, Refused> {
        self.settings.say(key, text, Source::Said)?;
        Ok(self)
    }

    fn with(self, key: Key, value: Value) -> Self {
        self.settings.put(key, value);
        self
    }

    /// The addresses to listen on, all at the same port. None is allowed if there is a unix socket.
    pub fn bind(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses: Vec<_> = addresses.into_iter().map(|ip| ip.to_string()).collect();
        self.with(Key::Bind, Value::text(addresses.join(" ")))
    }

    /// The TCP port; 0 lets the system choose one (see [`Running::addresses`]).
    pub fn port(self, port: u16) -> Self {
        self.with(Key::Port, Value::number(port.into()))
    }

    /// A unix socket to listen on as well. One left behind by a dead server is replaced.
    pub fn unix_socket(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into().to_string_lossy().into_owned();
        self.with(Key::UnixSocket, Value::text(path))
    }

    /// I/O threads. Each serves its own connections and executes their commands; one a core is right, and what 0 stands
    /// for.
    pub fn threads(self, threads: usize) -> Self {
        self.with(Key::Threads, number(threads))
    }

    /// Bytes of memory for the data and everything about it; 0 is half of what the machine, or the control group, has.
    /// Without effect if [`store`](Self::store) or
    /// [`segment`](Self::segment) is given.
    pub fn memory(self, bytes: u64) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with(Key::MaxMemory, Value::number(bytes))
    }

    /// How records are updated. Without effect if [`store`](Self::store) or [`segment`](Self::segment) is given.
    pub fn update_policy(self, policy: UpdatePolicy) -> Self {
        let number = i64::from(policy == UpdatePolicy::InPlace);
        self.with(Key::UpdatePolicy, Value::number(number))
    }

    /// Which records are forgotten when the store is full, whatever it was told before.
    pub fn eviction(self, evict: Evict) -> Self {
        self.with(Key::MaxMemoryPolicy, Value::number(eviction::number(evict)))
    }

    /// How many databases clients may `SELECT`; 1 to 64.
    pub fn databases(self, databases: usize) -> Self {
        self.with(Key::Databases, number(databases))
    }

    /// Connections beyond which further ones are refused. The start raises the process' limit on open files for them; they
    /// are fewer where it cannot be raised so far.
    pub fn max_clients(self, clients: usize) -> Self {
        self.with(Key::MaxClients, number(clients))
    }

    /// Seconds after which a client that sends and reads nothing is cut off; 0, the default, is never.
    pub fn idle_timeout(self, seconds: u64) -> Self {
        self.with(
            Key::Timeout,
            number(usize::try_from(seconds).unwrap_or(usize::MAX)),
        )
    }

    /// The password that clients must give (`AUTH`, `HELLO`) before anything else.
    pub fn password(self, password: impl Into<String>) -> Self {
        self.with(Key::Password, Value::text(password.into()))
    }

    /// Whether connections from other machines are refused while there is no password. They are by default.
    pub fn protected_mode(self, on: bool) -> Self {
        self.with(Key::ProtectedMode, Value::number(on.into()))
    }

    /// Bytes of unsent replies beyond which a client is not listened to until it has read (64 MiB), and beyond which
    /// it is cut off (1 GiB).
    pub fn output_bounds(self, pause: usize, limit: usize) -> Self {
        self.with(Key::OutputPause, number(pause))
            .with(Key::OutputLimit, number(limit))
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

    /// Where to serve metrics for Prometheus; port 0 lets the system choose (see [`Running::metrics`]). Nowhere by default.
    pub fn metrics(self, address: SocketAddr) -> Self {
        self.with(Key::Metrics, Value::text(address.to_string()))
    }

    /// The clock behind `TIME`, `INFO` and `CLIENT LIST`.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the store, listens, and serves until told to stop. When it returns, clients can connect.
    pub fn start(self) -> Result<Running, StartError> {
        let Self {
            settings,
            store,
            segment,
            listeners,
            clock,
        } = self;
        let threads = match settings.count(Key::Threads) {
            0 => SysfsTopology::detect().cpus().clamp(1, MOST_THREADS),
            threads => threads,
        };
        if threads > MOST_THREADS {
            return Err(StartError::Threads(threads));
        }
        let databases = settings.count(Key::Databases);
        if !(1..=DATABASES).contains(&databases) {
            return Err(StartError::Databases(databases));
        }
        allow_clients(&settings, threads);
        let refused = |what| move |source| StartError::System { what, source };
        let (listeners, addresses) = match listeners {
            None => listen(&settings)?,
            Some(listeners) => {
                let path = listeners.0.iter().find_map(Listener::path);
                let path = path.map_or(String::new(), |path| path.to_string_lossy().into_owned());
                settings.put(Key::UnixSocket, Value::text(path));
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
        if let Some(address) = addresses.first() {
            settings.put(Key::Port, Value::number(address.port().into()));
        }
        let metrics = settings.metrics().map(listen_for_metrics).transpose()?;
        let (store, origin) = match (store, segment) {
            (Some(store), _) => (Backing::Process(store), Origin::Process),
            (None, Some(wanted)) => wanted.open()?,
            (None, None) => {
                let store = Arc::new(open(&settings)?);
                (Backing::Process(store), Origin::Process)
            }
        };
        if settings.is_given(Key::MaxMemoryPolicy) {
            let evict = eviction::policy(settings.number(Key::MaxMemoryPolicy));
            store.set_eviction(evict).map_err(StartError::Eviction)?;
        }

        let mut polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..threads {
            let poll = Poll::new().map_err(refused("an event queue"))?;
            wakers.push(Waker::new(poll.registry(), WAKER).map_err(refused("an event"))?);
            polls.push(poll);
        }
        let run_id = run_id().map_err(refused("randomness"))?;
        let unix_socket = settings.unix_socket();
        let shares: Vec<Vec<Listener>> = (0..threads)
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
            // If this fails, dropping `running` stops the threads that have been started.
            running.spawn(format!("mneme-io-{index}"), |_| event_loop.run())?;
        }
        if running.shared.store.segment().is_some() {
            running.spawn("mneme-effects".to_owned(), |shared| {
                shared.keep_listening();
                Ok(())
            })?;
        }
        running.spawn("mneme-background".to_owned(), |shared| {
            shared.work_in_background();
            Ok(())
        })?;
        if let Some(endpoint) = metrics {
            let waker = endpoint.waker().map_err(refused("an event"))?;
            // Nobody else sets it.
            let _ = running.shared.metrics.set((endpoint.address(), waker));
            running.spawn("mneme-metrics".to_owned(), |shared| endpoint.serve(shared))?;
        }
        running
            .threads
            .push(purger(&running).map_err(refused("a thread"))?);
        Ok(running)
    }
}

/// Starts the thread that compacts when a client asks for it.
fn purger(running: &Running) -> io::Result<JoinHandle<io::Result<()>>> {
    let (shared, stopper) = (Arc::clone(&running.shared), running.stopper());
    let thread = std::thread::Builder::new().name("mneme-purge".to_owned());
    thread.spawn(move || {
        let _others = StopAll(stopper);
        shared.purge.serve(|| {
            if let Err(error) = shared.store.compact() {
                tracing::warn!(%error, "a compaction that a client asked for has ended early");
            }
        });
        Ok(())
    })
}

fn number(count: usize) -> Value {
    Value::number(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Raises the limit on open files for as many clients as are wanted, and lowers their number where it stays too low.
fn allow_clients(settings: &Settings, threads: usize) {
    let wanted = settings.count(Key::MaxClients);
    let possible = descriptors::clients(wanted, threads);
    if possible < wanted {
        tracing::warn!(
            maxclients = possible,
            wanted,
            "fewer clients than wanted: the hard limit on open files (ulimit -Hn) is too low"
        );
        settings.put(Key::MaxClients, number(possible));
    }
}

fn open(settings: &Settings) -> Result<LogStore, StartError> {
    let machine = mneme_sys::total_memory();
    let bytes = match settings.count(Key::MaxMemory) as u64 {
        0 => machine / 2,
        bytes => bytes,
    };
    // As far as `CONFIG SET maxmemory` may make it grow: as a store in a segment.
    let most = bytes.saturating_mul(4).min(machine).max(bytes);
    LogStore::builder()
        .capacity(bytes)
        .max_capacity(most)
        .update_policy(settings.update_policy())
        .maintainer(true)
        .open_private()
        .map_err(|source| StartError::Store { bytes, source })
}

fn listen(settings: &Settings) -> Result<(Vec<Listener>, Vec<SocketAddr>), StartError> {
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    // If the system chooses the port, it chooses it for the first address, and the others take the same.
    let mut port = settings.number(Key::Port) as u16;
    let backlog = settings.number(Key::Backlog) as i32;
    for ip in settings.addresses() {
        let address = SocketAddr::new(ip, port);
        let bound = Listener::tcp(address, backlog)
            .and_then(|listener| Ok((listener.address()?, listener)));
        let (actual, listener) = bound.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
            _ => StartError::Bind { address, source },
        })?;
        let actual = actual.unwrap_or(address);
        port = actual.port();
        listeners.push(listener);
        addresses.push(actual);
    }
    if let Some(path) = &settings.unix_socket() {
        let unix = |source| StartError::UnixSocket {
            path: path.clone(),
            source,
        };
        listeners.push(Listener::unix(path, settings).map_err(unix)?);
    }
    if listeners.is_empty() {
        return Err(StartError::NothingToListenOn);
    }
    Ok((listeners, addresses))
}

fn listen_for_metrics(address: SocketAddr) -> Result<Endpoint, StartError> {
    Endpoint::listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Bind { address, source },
    })
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
    /// Starts one of its threads. The others stop when it ends, however it ends.
    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let (stopper, shared) = (self.stopper(), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _others = StopAll(stopper);
                run(&shared)
            })
            .map_err(|source| StartError::System {
                what: "a thread",
                source,
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Where it serves metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.shared.metrics.get().map(|(address, _)| *address)
    }

    /// The store it serves.
    pub fn store(&self) -> &LogStore {
        &self.shared.store
    }

    /// Where its records are.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its I/O threads.
    pub fn threads(&self) -> usize {
        self.shared.threads.len()
    }

    /// The memory it has obtained.
    pub fn memory(&self) -> Memory {
        let store = &self.shared.store;
        Memory {
            bytes: store.capacity(),
            pages: self.shared.pages.last(self.shared.now_ns()).0,
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
