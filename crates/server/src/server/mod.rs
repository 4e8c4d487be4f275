//! A server's configuration as a program gives it, [how it is started](start), and [what runs
//! then](running).

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
use crate::eviction_policy;
use crate::listen::Listeners;
use crate::settings::{Key, Refused, Settings, Source, Value};
use mneme_log::{Evict, LogStore, UpdatePolicy};
use mneme_shared::{Opening, Registry};

/// A server that has not been started. Everything has a default; see each method.
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

/// Called with what stops a server that is starting.
type StartingListener = Arc<dyn Fn(&Stopper) + Send + Sync>;

/// Called with the bytes that were read of the files of the data, and all that are to be read.
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

    /// All settings at once, in place of those made before. What only the `mneme` command heeds
    /// (the segment's name and registry, `private`) is without effect.
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

    /// The directory that keeps the data through a power cut; a private store, or the
    /// [segment](Self::segment), is loaded from it if it is gone. Not together with
    /// [`store`](Self::store).
    pub fn data(self, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into().to_string_lossy().into_owned();
        self.with(Key::Data, Value::text(directory))
    }

    /// A unix socket to listen on as well. One left behind by a dead server is replaced.
    pub fn unix_socket(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into().to_string_lossy().into_owned();
        self.with(Key::UnixSocket, Value::text(path))
    }

    /// I/O threads. Each serves its own connections and executes their commands; one a core is
    /// right, and what 0 stands for.
    pub fn threads(self, threads: usize) -> Self {
        self.with(Key::Threads, number(threads))
    }

    /// Bytes of memory for the data and everything about it; 0 is half of what the machine, or the
    /// control group, has. Without effect if [`store`](Self::store) or [`segment`](Self::segment)
    /// is given.
    pub fn memory(self, bytes: u64) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with(Key::MaxMemory, Value::number(bytes))
    }

    /// How records are updated. Without effect if [`store`](Self::store) or
    /// [`segment`](Self::segment) is given.
    pub fn update_policy(self, policy: UpdatePolicy) -> Self {
        let number = i64::from(policy == UpdatePolicy::InPlace);
        self.with(Key::UpdatePolicy, Value::number(number))
    }

    /// The eviction policy, whatever the store had before.
    pub fn eviction(self, evict: Evict) -> Self {
        self.with(
            Key::MaxMemoryPolicy,
            Value::number(eviction_policy::number(evict)),
        )
    }

    /// How many databases clients may `SELECT`; 1 to 64.
    pub fn databases(self, databases: usize) -> Self {
        self.with(Key::Databases, number(databases))
    }

    /// Connections beyond which further ones are refused. The start raises the process' limit on
    /// open files for them; they are fewer where it cannot be raised so far.
    pub fn max_clients(self, clients: usize) -> Self {
        self.with(Key::MaxClients, number(clients))
    }

    /// Seconds after which a client that sends and reads nothing is cut off; 0, the default, is
    /// never.
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

    /// Whether connections from other machines are refused while there is no password. They are by
    /// default.
    pub fn protected_mode(self, on: bool) -> Self {
        self.with(Key::ProtectedMode, Value::number(on.into()))
    }

    /// Bytes of unsent replies beyond which a client is not listened to until it has read (64 MiB),
    /// and beyond which it is cut off (1 GiB).
    pub fn output_bounds(self, pause: usize, limit: usize) -> Self {
        self.with(Key::OutputPause, number(pause))
            .with(Key::OutputLimit, number(limit))
    }

    /// The store to serve, which the embedding program may use beside the clients. Otherwise a
    /// private one is opened.
    pub fn store(mut self, store: Arc<LogStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The segment to serve, made as `opening` says if there is none: it outlives the server, and
    /// local programs attach it beside the clients. Without effect if [`store`](Self::store) is
    /// given.
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

    /// Sockets that listen already, taken over from another server: used instead of those that
    /// would be opened.
    pub fn listeners(mut self, listeners: Listeners) -> Self {
        self.listeners = Some(Arc::new(listeners));
        self
    }

    /// Where to serve metrics for Prometheus; port 0 lets the system choose (see
    /// [`Running::metrics`]). Nowhere by default.
    pub fn metrics(self, address: SocketAddr) -> Self {
        self.with(Key::Metrics, Value::text(address.to_string()))
    }

    /// Called by [`start`](Self::start) as soon as the server can be stopped: it may load for long
    /// before it returns.
    pub fn on_starting(mut self, call: impl Fn(&Stopper) + Send + Sync + 'static) -> Self {
        self.starting = Some(Arc::new(call));
        self
    }

    /// Called some times a second while [`start`](Self::start) loads the data from its
    /// [directory](Self::data): with the bytes that were read, and all that are to be read.
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
