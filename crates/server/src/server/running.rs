//! A running server: its properties, and how it ends.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use super::StartError;
use crate::backing::StoreOrigin;
use crate::configure;
use crate::listen::Listeners;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::socket_file::SocketFile;
use mneme_durable::{Durability, DurableError};
use mneme_log::{LogStore, PageReport};

/// A running server. Dropping it stops it and waits until it has stopped.
pub struct Running {
    shared: Arc<Shared>,
    stopper: Stopper,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix_socket: Option<SocketFile>,
    origin: StoreOrigin,
    /// Whether its end has been awaited.
    has_ended: bool,
}

/// The memory that a server has for its data.
#[derive(Debug, Clone)]
pub struct DataMemory {
    /// The number of bytes.
    pub bytes: u64,
    /// The kind of pages it consists of.
    pub pages: PageReport,
}

/// Why a server failed, or did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A thread's event queue failed.
    #[error("an I/O thread failed: {0}")]
    EventQueue(#[from] io::Error),
    /// A thread panicked: a bug in Mneme.
    #[error("an I/O thread panicked; please report this")]
    Panicked,
    /// The server was stopped, and its directory does not have the last changes.
    #[error("the last changes are not durable: {0}")]
    NotDurable(#[source] DurableError),
}

/// A handle that stops its server, and can be sent to another thread, such as one that waits for
/// signals. It does not keep the server alive.
#[derive(Clone)]
pub struct Stopper(Arc<Mutex<Weak<Shared>>>);

/// How a server ended.
#[derive(Debug)]
pub enum Ended {
    /// The server was stopped.
    Stopped,
    /// The server [retired](Stopper::retire): these sockets still listen, for its successor.
    Retired(Listeners),
}

impl Running {
    /// A server whose threads have not been started.
    pub(super) fn new(
        shared: Arc<Shared>,
        unix_socket: Option<SocketFile>,
        origin: StoreOrigin,
    ) -> Self {
        Self {
            stopper: Stopper(Arc::new(Mutex::new(Arc::downgrade(&shared)))),
            shared,
            threads: Vec::new(),
            unix_socket,
            origin,
            has_ended: false,
        }
    }

    /// Sets where its records were found, once they are loaded.
    pub(super) fn is_at(&mut self, origin: StoreOrigin) {
        self.origin = origin;
    }

    /// Makes this server, no longer its predecessor, the owner of the unix socket's file.
    pub(super) fn takes_over(&mut self, file: SocketFile) {
        self.unix_socket = Some(file);
    }

    /// Starts the threads that serve no clients.
    pub(super) fn spawn_helpers(&mut self) -> Result<(), StartError> {
        if self.shared.store.segment().is_some() {
            self.spawn("mneme-changes", |shared| {
                shared
                    .local_changes
                    .read(&shared.store, shared, || shared.stopping());
                Ok(())
            })?;
        }
        self.shared.follow_key_events();
        self.spawn("mneme-key-events", |shared| {
            shared.serve_key_events();
            Ok(())
        })?;
        self.spawn("mneme-background", |shared| {
            let (store, pages) = (&shared.store, &shared.pages);
            shared.background.work(
                store,
                pages,
                || shared.now_ns(),
                || shared.stopping(),
                || shared.totals().commands,
                || {
                    let (report, _) = pages.last(shared.now_ns());
                    store.stats_with(report).compaction_wait
                },
                || shared.forget_tracked(),
            );
            Ok(())
        })?;
        if self.shared.store.durability().is_some() {
            self.spawn("mneme-save", |shared| {
                if let Some(durability) = shared.store.durability() {
                    shared.saver.serve(shared, durability);
                }
                Ok(())
            })?;
        }
        self.spawn("mneme-purge", |shared| {
            shared.purge.serve(|| {
                let compacted = shared.store.compact_while(|| !shared.stopping());
                if let Err(error) = compacted.and_then(|_| shared.store.give_back_memory()) {
                    tracing::warn!(%error, "a compaction that a client asked for has ended early");
                }
            });
            Ok(())
        })
    }

    /// Starts one of the server's threads. When it ends, for whatever reason, the others stop.
    pub(super) fn spawn(
        &mut self,
        name: impl Into<String>,
        run: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let others = EndAll(shared);
                run(&others.0)
            })
            .map_err(|source| StartError::System {
                what: "a thread",
                source,
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// The state that its threads share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The addresses it listens at.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The addresses it listens at for clients that use TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.shared.tls_addresses
    }

    /// The unix socket that it listens on.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.unix_socket.as_ref().map(SocketFile::path)
    }

    /// The address that serves metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.shared.metrics.get().map(|(address, _)| *address)
    }

    /// The store it serves.
    pub fn store(&self) -> &LogStore {
        &self.shared.store
    }

    /// Where its records were found.
    pub fn origin(&self) -> &StoreOrigin {
        &self.origin
    }

    /// Its settings, including changes that clients make. They can also be read after it has ended.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.settings)
    }

    /// The directory that keeps its data through a power cut, if there is one.
    pub fn data(&self) -> Option<PathBuf> {
        self.shared.settings.data()
    }

    /// The memory it has obtained.
    pub fn memory(&self) -> DataMemory {
        let store = &self.shared.store;
        DataMemory {
            bytes: store.capacity(),
            pages: self.shared.pages.last(self.shared.now_ns()).0,
        }
    }

    /// Requests a stop: the server accepts and reads no more, sends the replies it owes, and closes
    /// its connections. Returns at once; [`join`](Self::join) waits for the end.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// A handle that can stop it from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the server has stopped, because of [`shutdown`](Self::shutdown), a [`Stopper`]
    /// or a client's `SHUTDOWN`. Its store is then closed, unless the embedding program also holds
    /// it.
    pub fn join(mut self) -> Result<Ended, ServeError> {
        self.wait()?;
        let Some(mut retired) = self.shared.retired() else {
            return Ok(Ended::Stopped);
        };
        // Before the directory is closed with the store.
        let durability = self.shared.store.durability();
        let lock = durability.and_then(Durability::directory_lock);
        retired.lock = lock.and_then(|lock| lock.try_clone_to_owned().ok());
        Ok(Ended::Retired(retired))
    }

    fn wait(&mut self) -> Result<(), ServeError> {
        let mut result = Ok(());
        if std::mem::replace(&mut self.has_ended, true) {
            return result;
        }
        for thread in std::mem::take(&mut self.threads) {
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(ServeError::EventQueue),
                Err(_) => Err(ServeError::Panicked),
            };
            result = result.and(ended);
        }
        // From here on no thread changes anything.
        if let Some(durability) = self.shared.store.durability()
            && let Err(error) = durability.sync()
        {
            tracing::error!(%error, "the last changes are not durable");
            // If the server retired, its successor takes the changes over with the segment.
            if !self.shared.has_retired() && !self.shared.may_lose_changes() {
                result = result.and(Err(ServeError::NotDurable(error)));
            }
        }
        if let Some(file) = self.unix_socket.take()
            && self.shared.has_retired()
        {
            file.keep();
        }
        result
    }
}

impl Stopper {
    /// As [`Running::shutdown`].
    pub fn stop(&self) {
        self.tell(|shared| shared.stop());
    }

    /// Stops the server, but keeps its sockets listening for a successor: [`Running::join`] returns
    /// them.
    pub fn retire(&self) {
        self.tell(|shared| shared.retire());
    }

    /// Reads the TLS files again, for new connections. If a file cannot be read, nothing changes,
    /// and the error is logged.
    pub fn reload(&self) {
        self.tell(configure::reload_tls);
    }

    /// Duplicated handles of the listening sockets; none if the server has ended.
    pub(crate) fn listeners(&self) -> io::Result<Listeners> {
        self.tell(|shared| shared.listeners())
            .unwrap_or_else(|| Ok(Listeners::default()))
    }

    /// Calls `tell` unless the server has ended. A server that ends waits for the call, so that
    /// its store is closed by the thread that joins it, before the program ends.
    fn tell<T>(&self, tell: impl FnOnce(&Shared) -> T) -> Option<T> {
        let server = self.server();
        let shared = server.upgrade();
        // Dropped before `server` is unlocked.
        shared.as_deref().map(tell)
    }

    /// Waits for calls in progress; later ones do nothing.
    fn forget(&self) {
        *self.server() = Weak::new();
    }

    fn server(&self) -> MutexGuard<'_, Weak<Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the server when the thread that holds this value ends, for whatever reason: the clients of
/// a thread that has ended would wait forever. If the server was not stopped before, the thread has
/// failed, and this start of the server counts as failed.
struct EndAll(Arc<Shared>);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => self.shared.end(),
            false => self.shared.stop(),
        }
        if let Err(error) = self.wait() {
            tracing::error!(%error, "a server ended badly");
        }
        self.stopper.forget();
    }
}
