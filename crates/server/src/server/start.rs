//! Starting a server. Sockets are opened first, so that the start fails early if a port is taken;
//! then the store; then the threads.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::{Poll, Waker};
use mneme_sys::{SysfsTopology, Topology};

use super::{Running, Server, StartError, number};
use crate::backing::{LateStore, ServedStore, StoreOrigin, Wanted};
use crate::commands::TABLE;
use crate::durable::Kept;
use crate::event_loop::{EventLoop, WAKER};
use crate::eviction_policy;
use crate::listen::{Bound, Listener, Listeners};
use crate::max_clients;
use crate::metrics::Endpoint;
use crate::settings::{Address, Key, MOST_THREADS, Settings, Source};
use crate::shared::Shared;
use crate::socket_file::SocketFile;
use crate::tls::TlsIdentity;
use mneme_log::{DATABASES, Evict, LogStore};

impl Server {
    /// Opens the store, listens, and serves until the server is stopped. When this returns, clients
    /// can connect.
    pub fn start(self) -> Result<Running, StartError> {
        let Self {
            settings,
            store,
            segment,
            listeners,
            clock,
            starting,
            loading,
        } = self;
        let segment = segment.map(|mut wanted| {
            wanted.opening.local_programs = settings.local_programs();
            wanted
        });
        let threads = threads(&settings)?;
        allow_clients(&settings, threads);
        let lock = listeners
            .as_ref()
            .and_then(|inherited| inherited.lock.as_ref());
        // If this fails, the lock is waited for instead.
        let lock = lock.and_then(|lock| lock.try_clone().ok());
        let speaks_tls = match &listeners {
            None => settings.number(Key::TlsPort) != 0,
            Some(inherited) => inherited
                .sockets
                .iter()
                .any(|one| matches!(one, Listener::Tls(_))),
        };
        let identity = speaks_tls.then(|| TlsIdentity::read(&settings)).transpose();
        let identity = identity.map_err(|error| StartError::Tls(error.to_string()))?;
        let users = listeners
            .as_ref()
            .and_then(|inherited| inherited.users.clone());
        let (bound, socket_file) = match listeners {
            None => listen(&settings)?,
            // The predecessor's sockets; the predecessor keeps them if this start fails.
            Some(inherited) => (inherit(&inherited, &settings)?, None),
        };
        let metrics = settings.metrics().map(listen_for_metrics).transpose()?;
        check_data(&settings, store.is_some())?;
        // Data on disk may take long to load; meanwhile clients get an error that says so.
        let (store, origin, late) = match settings.data() {
            Some(directory) => {
                let kept = Kept {
                    directory,
                    segment,
                    loading,
                    lock,
                };
                (LateStore::loading()?, StoreOrigin::Process, Some(kept))
            }
            None => {
                let (store, origin) = back(&settings, store, segment)?;
                (LateStore::opened(store), origin, None)
            }
        };

        let refused = |what| move |source| StartError::System { what, source };
        let mut event_loops = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..threads {
            let poll = Poll::new().map_err(refused("an event queue"))?;
            wakers.push(Waker::new(poll.registry(), WAKER).map_err(refused("an event"))?);
            let own =
                Listener::share_all(&bound.listeners).map_err(refused("a file descriptor"))?;
            event_loops.push((poll, own));
        }
        let run_id = run_id().map_err(refused("randomness"))?;
        let inherited = settings.unix_socket().filter(|_| socket_file.is_none());
        let shared = Arc::new(Shared::new(
            store, settings, &TABLE, wakers, bound, run_id, clock,
        ));
        if let Some(identity) = identity {
            shared.set_identity(identity);
        }
        if let Some(users) = users {
            // The users that the predecessor handed over, not those of the file: it may have become
            // invalid since.
            shared.users.take(users);
        } else if shared.settings.is(Key::AclFile) {
            shared
                .load_users()
                .map_err(|error| StartError::Users(error.to_string()))?;
        }
        // Set before the first client can ask for it; no other code sets it.
        if let Some(endpoint) = &metrics {
            let waker = endpoint.waker().map_err(refused("an event"))?;
            let _ = shared.metrics.set((endpoint.address(), waker));
        }
        // Starts reading change notifications before the first client's request.
        shared.local_changes.drain(&shared.store, &*shared);
        // If a thread fails to start, dropping this value stops the threads started before.
        let mut running = Running::new(Arc::clone(&shared), socket_file, origin);
        for (index, (poll, listeners)) in event_loops.into_iter().enumerate() {
            let event_loop = EventLoop::new(poll, Arc::clone(&shared), index, listeners)
                .map_err(refused("an event queue"))?;
            running.spawn(format!("mneme-io-{index}"), |_| event_loop.run())?;
        }
        // Metrics are served while the data is loaded, and report its progress.
        if let Some(endpoint) = metrics {
            running.spawn("mneme-metrics", |shared| endpoint.serve(shared))?;
        }
        // Users are loaded while the data is, too.
        if shared.settings.is(Key::AclFile) {
            running.spawn("mneme-users", |shared| {
                shared.serve_loads();
                Ok(())
            })?;
        }
        if let Some(starting) = starting {
            starting(&running.stopper());
        }
        if let Some(kept) = late {
            let origin = kept.open(&shared)?;
            running.is_at(origin);
        }
        running.spawn_helpers()?;
        if let Some(path) = inherited {
            running.takes_over(SocketFile::new(path));
        }
        Ok(running)
    }
}

/// The number of I/O threads that the settings ask for.
fn threads(settings: &Settings) -> Result<usize, StartError> {
    let threads = match settings.count(Key::Threads) {
        0 => SysfsTopology::detect().cpus().clamp(1, MOST_THREADS),
        threads => threads,
    };
    if threads > MOST_THREADS {
        return Err(StartError::Threads(threads));
    }
    Ok(threads)
}

/// Uses the sockets of a predecessor, and overwrites the settings that say where to listen.
fn inherit(listeners: &Listeners, settings: &Settings) -> Result<Bound, StartError> {
    let refused = |what| move |source| StartError::System { what, source };
    let addresses = |is_tls| -> Result<Vec<SocketAddr>, StartError> {
        let all = listeners.sockets.iter();
        let addresses = all.filter_map(|one| one.address(is_tls).transpose());
        addresses
            .collect::<io::Result<_>>()
            .map_err(refused("an address"))
    };
    let (addresses, tls_addresses) = (addresses(false)?, addresses(true)?);
    let shared = Listener::share_all(&listeners.sockets).map_err(refused("a file descriptor"))?;

    let path = listeners.sockets.iter().find_map(Listener::path);
    let path = path.map_or(String::new(), |path| path.to_string_lossy().into_owned());
    if path != *settings.text(Key::UnixSocket) {
        replace(settings, Key::UnixSocket, &path)?;
    }
    let all = addresses.iter().chain(&tls_addresses);
    let ips: BTreeSet<_> = all.map(SocketAddr::ip).collect();
    let asked = settings.addresses();
    let is_met = asked
        .iter()
        .all(|one| one.is_optional || ips.contains(&one.ip))
        && ips.iter().all(|ip| asked.iter().any(|one| one.ip == *ip));
    if !is_met {
        let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
        replace(settings, Key::Bind, &ips.join(" "))?;
    }
    let port = addresses.first().map_or(0, SocketAddr::port);
    if i64::from(port) != settings.number(Key::Port) {
        replace(settings, Key::Port, &port.to_string())?;
    }
    let tls_port = tls_addresses.first().map_or(0, SocketAddr::port);
    if i64::from(tls_port) != settings.number(Key::TlsPort) {
        replace(settings, Key::TlsPort, &tls_port.to_string())?;
    }
    Ok(Bound {
        listeners: shared,
        addresses,
        tls_addresses,
    })
}

/// Overwrites a setting with what the predecessor's sockets determine, for this run, and logs if
/// the setting therefore has no effect.
fn replace(settings: &Settings, key: Key, inherited: &str) -> Result<(), StartError> {
    let asked = settings.show(key);
    // Port 0 asks for any port, so it has had its effect.
    if settings.is_given(key) && !(key == Key::Port && asked == "0") {
        tracing::warn!(
            setting = key.setting().name,
            asked,
            inherited,
            "without effect: the listening sockets are those of the server before, until a start without --take-over"
        );
    }
    say_of_sockets(settings, key, inherited)
}

/// Overwrites a setting, for this run, with what the sockets determine.
fn say_of_sockets(settings: &Settings, key: Key, text: &str) -> Result<(), StartError> {
    let said = settings.say(key, text, Source::Sockets);
    said.map_err(|source| StartError::System {
        what: "an address",
        source: io::Error::other(source),
    })
}

/// Opens the store to serve, and sets its eviction policy.
fn back(
    settings: &Settings,
    store: Option<Arc<LogStore>>,
    segment: Option<Wanted>,
) -> Result<(ServedStore, StoreOrigin), StartError> {
    let databases = settings.count(Key::Databases);
    if !(1..=DATABASES).contains(&databases) {
        return Err(StartError::Databases(databases));
    }
    let (store, origin) = match (store, segment) {
        (Some(store), _) => (ServedStore::Process(store), StoreOrigin::Process),
        (None, Some(wanted)) => wanted.open()?,
        (None, None) => {
            let store = Arc::new(open(settings)?);
            (ServedStore::Process(store), StoreOrigin::Process)
        }
    };
    set_eviction(settings, &store)?;
    Ok((store, origin))
}

/// Sets the store's eviction policy, if the settings have one.
pub(crate) fn set_eviction(settings: &Settings, store: &LogStore) -> Result<(), StartError> {
    match eviction(settings) {
        Some(evict) => store.set_eviction(evict).map_err(StartError::Eviction),
        None => Ok(()),
    }
}

/// The eviction policy in the settings, if they have one.
pub(crate) fn eviction(settings: &Settings) -> Option<Evict> {
    let is_given = settings.is_given(Key::MaxMemoryPolicy);
    is_given.then(|| eviction_policy::policy(settings.number(Key::MaxMemoryPolicy)))
}

/// Checks that the settings for data on disk do not contradict each other.
fn check_data(settings: &Settings, has_store: bool) -> Result<(), StartError> {
    if has_store && settings.is(Key::Data) {
        return Err(StartError::OwnStore);
    }
    for key in [Key::AppendOnly, Key::Save, Key::Durability] {
        if let Some(reason) = settings.data_refusal(key, &settings.value(key))
            && settings.is_given(key)
        {
            let name = key.setting().name;
            return Err(StartError::Data { name, reason });
        }
    }
    Ok(())
}

/// Raises the limit on open files for the wanted number of clients, and lowers that number if the
/// limit stays too low.
fn allow_clients(settings: &Settings, threads: usize) {
    let wanted = settings.count(Key::MaxClients);
    let possible = max_clients::clients(wanted, threads, settings.metrics().is_some());
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
    let (builder, bytes) = builder(settings);
    builder
        .open_private()
        .map_err(|source| StartError::Store { bytes, source })
}

/// The builder for a store in this process' memory, and its size in bytes.
pub(crate) fn builder(settings: &Settings) -> (mneme_log::Builder, u64) {
    let machine = mneme_sys::total_memory();
    let bytes = match settings.count(Key::MaxMemory) as u64 {
        0 => machine / 2,
        bytes => bytes,
    };
    // The limit to which `CONFIG SET maxmemory` can make it grow, as for a store in a segment.
    let most = bytes.saturating_mul(4).min(machine).max(bytes);
    let builder = LogStore::builder()
        .capacity(bytes)
        .max_capacity(most)
        .update_policy(settings.update_policy())
        .maintainer(true);
    let builder = match settings.lending(bytes) {
        Some(lending) => builder.lend_idle(lending),
        None => builder,
    };
    (builder, bytes)
}

/// Listens where the settings say, and writes the port that was chosen into them.
fn listen(settings: &Settings) -> Result<(Bound, Option<SocketFile>), StartError> {
    let mut listeners = Vec::new();
    let tls_port = settings.number(Key::TlsPort) as u16;
    let mut addresses = Vec::new();
    if tls_port == 0 || !settings.is(Key::TlsOnly) {
        let bound = listen_at(settings, settings.number(Key::Port) as u16)?;
        (listeners, addresses) = bound.into_iter().unzip();
    }
    let mut tls_addresses = Vec::new();
    if tls_port != 0 {
        for (listener, address) in listen_at(settings, tls_port)? {
            listeners.push(listener.with_tls());
            tls_addresses.push(address);
        }
    }
    let mut socket_file = None;
    if let Some(path) = &settings.unix_socket() {
        let unix = |source| StartError::UnixSocket {
            path: path.clone(),
            source,
        };
        let (listener, file) = Listener::unix(path, settings).map_err(unix)?;
        listeners.push(listener);
        socket_file = Some(file);
    }
    if listeners.is_empty() {
        return Err(StartError::NothingToListenOn);
    }
    let port = addresses.first().map_or(0, SocketAddr::port);
    // The system has chosen the port, or there is none. Valid for this run only: the configuration
    // file keeps its own value.
    if i64::from(port) != settings.number(Key::Port) {
        say_of_sockets(settings, Key::Port, &port.to_string())?;
    }
    let bound = Bound {
        listeners,
        addresses,
        tls_addresses,
    };
    Ok((bound, socket_file))
}

/// Listens on one port at all addresses. If the system is to choose the port, it does so for the
/// first address, and the others use the same.
fn listen_at(
    settings: &Settings,
    mut port: u16,
) -> Result<Vec<(Listener, SocketAddr)>, StartError> {
    let mut listeners = Vec::new();
    let backlog = settings.number(Key::Backlog) as i32;
    for Address { ip, is_optional } in settings.addresses() {
        let address = SocketAddr::new(ip, port);
        let bound = Listener::tcp(address, backlog)
            .and_then(|listener| Ok((listener.address(false)?, listener)));
        let (actual, listener) = match bound {
            Ok(bound) => bound,
            Err(error) if is_optional && is_unavailable(&error) => {
                tracing::info!(%address, %error, "not listened on: it need not be there");
                continue;
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                return Err(StartError::AddressInUse { address });
            }
            Err(source) => return Err(StartError::Bind { address, source }),
        };
        let actual = actual.unwrap_or(address);
        port = actual.port();
        listeners.push((listener, actual));
    }
    Ok(listeners)
}

/// Whether the machine lacks this address, or addresses of this kind altogether.
fn is_unavailable(error: &io::Error) -> bool {
    /// `EAFNOSUPPORT` of Linux: a kernel without IPv6.
    const NO_SUCH_FAMILY: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(NO_SUCH_FAMILY)
}

fn listen_for_metrics(address: SocketAddr) -> Result<Endpoint, StartError> {
    Endpoint::listen(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
        _ => StartError::Bind { address, source },
    })
}

/// Forty random hexadecimal digits that identify this run.
fn run_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    mneme_sys::random_bytes(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
