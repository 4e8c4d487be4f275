//! A server's configuration as an embedding program gives it, [its start](start), and [the running
//! server](running).

mod error;
mod running;
mod start;

pub use self::error::StartError;
pub use self::running::{DataMemory, Ended, Running, ServeError, Stopper};
pub(crate) use self::start::{builder, eviction, set_eviction};

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use mneme_sys::{Clock, SystemClock};

use crate::backing::Wanted;
use crate::listen::Listeners;
use crate::settings::{Key, Refused, Settings, Source, Value};
use mneme_log::LogStore;
use mneme_shared::{Opening, Registry};

/// The configuration of a server that has not been started. Every setting has a default; see each
/// method.
#[derive(Clone)]
pub struct Server {
    settings: Settings,
    store: Option<Arc<LogStore>>,
    segment: Option<Wanted>,
    listeners: Option<Arc<Listeners>>,
    clock: Arc<dyn Clock>,
    starting: Option<StartingListener>,
    loading: Option<LoadingListener>,
}

/// A callback that gets the [`Stopper`] of a server that is starting.
type StartingListener = Arc<dyn Fn(&Stopper) + Send + Sync>;

/// A callback that gets the number of bytes read so far of the data files, and the number in all.
pub(crate) type LoadingListener = Arc<dyn Fn(u64, u64) + Send + Sync>;

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
            starting: None,
            loading: None,
        }
    }

    /// Sets all settings at once, instead of those made before. Settings that only the `mneme`
    /// command uses (the segment's name and registry, `private`) have no effect.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets one setting from text, as a command line flag does.
    ///
    /// # Errors
    /// If the text is not a valid value of this setting.
    pub fn set(self, key: Key, text: &str) -> Result<Self, Refused> {
        self.settings.say(key, text, Source::Said)?;
        Ok(self)
    }

    fn with(self, key: Key, value: Value) -> Self {
        self.settings.put(key, value);
        self
    }

    /// The addresses to listen on, all at the same port. The list may be empty if there is a unix
    /// socket.
    pub fn bind(self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses: Vec<_> = addresses.into_iter().map(|ip| ip.to_string()).collect();
        self.with(Key::Bind, Value::text(addresses.join(" ")))
    }

    /// The TCP port; 0 lets the system choose one (see [`Running::addresses`]).
    pub fn port(self, port: u16) -> Self {
        self.with(Key::Port, Value::number(port.into()))
    }

    /// The directory that keeps the data through a power cut. If a private store is served, or the
    /// [segment](Self::segment) does not exist any more, the data is loaded from it. It cannot be
    /// combined with [`store`](Self::store).
    pub fn data(self, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into().to_string_lossy().into_owned();
        self.with(Key::Data, Value::text(directory))
    }

    /// A unix socket to listen on as well. One left behind by a dead server is replaced.
    pub fn unix_socket(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into().to_string_lossy().into_owned();
        self.with(Key::UnixSocket, Value::text(path))
    }

    /// The number of I/O threads. Each serves its own connections and executes their commands. One
    /// for each core is right, and is what 0 means.
    pub fn threads(self, threads: usize) -> Self {
        self.with(Key::Threads, number(threads))
    }

    /// Bytes of memory for the data and all that belongs to it; 0 means half of the machine's
    /// memory, or of the control group's. Without effect if [`store`](Self::store) or
    /// [`segment`](Self::segment) is given.
    pub fn memory(self, bytes: u64) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with(Key::MaxMemory, Value::number(bytes))
    }

    /// How many databases clients may `SELECT`; 1 to 64.
    pub fn databases(self, databases: usize) -> Self {
        self.with(Key::Databases, number(databases))
    }

    /// The maximum number of connections; further ones are refused. The start raises the process'
    /// limit on open files accordingly, and lowers this number if that limit cannot be raised
    /// enough.
    pub fn max_clients(self, clients: usize) -> Self {
        self.with(Key::MaxClients, number(clients))
    }

    /// The password that clients must give (with `AUTH` or `HELLO`) before any other command.
    pub fn password(self, password: impl Into<String>) -> Self {
        self.with(Key::Password, Value::text(password.into()))
    }

    /// The store to serve, which the embedding program may use beside the clients. Otherwise a
    /// private one is opened.
    pub fn store(mut self, store: Arc<LogStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The segment to serve; if it does not exist, it is made as `opening` describes. It outlives
    /// the server, and local programs can attach it while the server serves clients. Without effect
    /// if [`store`](Self::store) is given.
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

    /// Listening sockets taken over from another server, used instead of new ones.
    pub fn listeners(mut self, listeners: Listeners) -> Self {
        self.listeners = Some(Arc::new(listeners));
        self
    }

    /// The address that serves metrics for Prometheus; port 0 lets the system choose (see
    /// [`Running::metrics`]). Without this call there are no metrics.
    pub fn metrics(self, address: SocketAddr) -> Self {
        self.with(Key::Metrics, Value::text(address.to_string()))
    }

    /// Sets a callback that [`start`](Self::start) calls as soon as the server can be stopped,
    /// since loading may take long before `start` returns.
    pub fn on_starting(mut self, call: impl Fn(&Stopper) + Send + Sync + 'static) -> Self {
        self.starting = Some(Arc::new(call));
        self
    }

    /// Sets a callback that [`start`](Self::start) calls a few times a second while it loads the
    /// data from its [directory](Self::data), with the number of bytes read so far and the number
    /// in all.
    pub fn on_loading(mut self, call: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.loading = Some(Arc::new(call));
        self
    }

    /// The clock behind `TIME`, `INFO` and `CLIENT LIST`.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

fn number(count: usize) -> Value {
    Value::number(i64::try_from(count).unwrap_or(i64::MAX))
}
