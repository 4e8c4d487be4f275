//! A server that runs: what can be asked of it, and how it ends.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
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

/// A running server. Dropping it stops it, waiting until it has stopped.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix_socket: Option<SocketFile>,
    origin: StoreOrigin,
    /// It has been waited for.
    has_ended: bool,
}

/// The memory that a server has for its data.
#[derive(Debug, Clone)]
pub struct DataMemory {
    /// How much.
    pub bytes: u64,
    /// In pages of which kind.
    pub pages: PageReport,
}

/// Why a server ended without being stopped, or not as it should.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A thread's event queue failed.
    #[error("an I/O thread failed: {0}")]
    EventQueue(#[from] io::Error),
    /// A thread panicked: a bug in Mneme.
    #[error("an I/O thread panicked; please report this")]
    Panicked,
    /// It was stopped, and its directory has not taken all that was written.
    #[error("the last changes are not durable: {0}")]
    NotDurable(#[source] DurableError),
}

/// Stops its server; can be sent to another thread, such as one that waits for signals. It keeps
/// nothing of the server alive.
#[derive(Clone)]
pub struct Stopper(Weak<Shared>);

/// How a server ended.
#[derive(Debug)]
pub enum Ended {
    /// It was stopped.
    Stopped,
    /// It [retired](Stopper::retire): these sockets go on listening for its successor.
    Retired(Listeners),
}

impl Running {
    /// One without threads yet.
    pub(super) fn new(
        shared: Arc<Shared>,
        unix_socket: Option<SocketFile>,
        origin: StoreOrigin,
    ) -> Self {
        Self {
            shared,
            threads: Vec::new(),
            unix_socket,
            origin,
            has_ended: false,
        }
    }

    /// Where its records are, once they are loaded.
    pub(super) fn is_at(&mut self, origin: StoreOrigin) {
        self.origin = origin;
    }

    /// From now on the file of the unix socket is this server's and not its predecessor's.
    pub(super) fn takes_over(&mut self, file: SocketFile) {
        self.unix_socket = Some(file);
    }

    /// Starts the threads that serve no clients.
    pub(super) fn spawn_helpers(&mut self) -> Result<(), StartError> {
        if self.shared.store.segment().is_some() {
            self.spawn("mneme-changes", |shared| {
                shared
                    .local_changes
                    .read(&shared.store, || shared.stopping());
                Ok(())
            })?;
        }
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

    /// Starts one of its threads. The others stop when it ends, however it ends.
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

    /// What its threads share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Where it listens for clients that speak TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.shared.tls_addresses
    }

    /// The unix socket that it listens on.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.unix_socket.as_ref().map(SocketFile::path)
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
    pub fn origin(&self) -> &StoreOrigin {
        &self.origin
    }

    /// Its settings, as clients change them, until it has ended and afterwards.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.settings)
    }

    /// The directory that keeps them through a power cut, if there is one.
    pub fn data(&self) -> Option<PathBuf> {
        self.shared.settings.data()
    }

    /// Its I/O threads.
    pub fn threads(&self) -> usize {
        self.shared.threads.len()
    }

    /// The memory it has obtained.
    pub fn memory(&self) -> DataMemory {
        let store = &self.shared.store;
        DataMemory {
            bytes: store.capacity(),
            pages: self.shared.pages.last(self.shared.now_ns()).0,
        }
    }

    /// Tells it to stop: to accept and read no more, to send the replies it owes, and to close its
    /// connections. Returns at once; [`join`](Self::join) waits for the end.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// A handle that can stop it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper::of(&self.shared)
    }

    /// Waits until it has stopped: by [`shutdown`](Self::shutdown), a [`Stopper`] or a client's
    /// `SHUTDOWN`. Its store is closed then, unless the embedding program has it too.
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
        // No thread changes anything any more.
        if let Some(durability) = self.shared.store.durability()
            && let Err(error) = durability.sync()
        {
            tracing::error!(%error, "the last changes are not durable");
            // A successor takes them over with the segment.
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
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// As [`Running::shutdown`].
    pub fn stop(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.stop();
        }
    }

    /// Stops the server, but its listening sockets go on listening for a successor:
    /// [`Running::join`] returns them.
    pub fn retire(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.retire();
        }
    }

    /// Reads the files of TLS again, for connections from now on. What cannot be read changes
    /// nothing, and is logged.
    pub fn reload(&self) {
        if let Some(shared) = self.0.upgrade() {
            configure::reload_tls(&shared);
        }
    }

    /// Other handles of the listening sockets; none of a server that has ended.
    pub(crate) fn listeners(&self) -> io::Result<Listeners> {
        match self.0.upgrade() {
            Some(shared) => shared.listeners(),
            None => Ok(Listeners::default()),
        }
    }
}

/// Stops the server when the thread that holds this value ends, however it ends: clients of a
/// thread that is gone would wait forever. A thread that ends before the server was stopped has
/// failed, and so has the start.
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
    }
}
