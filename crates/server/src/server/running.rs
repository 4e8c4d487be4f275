//! A server that runs: what can be asked of it, and how it ends.

use std::fs::Metadata;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use super::StartError;
use crate::backing::Origin;
use crate::listen::Listeners;
use crate::shared::Shared;
use mneme_log::{LogStore, PageReport};

/// A running server. Dropping it stops it, waiting until it has stopped.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix_socket: Option<SocketFile>,
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

/// Why a server ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A thread's event queue failed.
    #[error("an I/O thread failed: {0}")]
    EventQueue(#[from] io::Error),
    /// A thread panicked: a bug in Mneme.
    #[error("an I/O thread panicked; please report this")]
    Panicked,
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

/// The file of a unix socket, as it was when the server began to listen.
struct SocketFile {
    path: PathBuf,
    /// `None` if it was gone already.
    metadata: Option<Metadata>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        let metadata = std::fs::symlink_metadata(&path).ok();
        Self { path, metadata }
    }

    /// Removes it, unless another file has taken its place: the socket of another server.
    fn remove(&self) {
        let now = std::fs::symlink_metadata(&self.path).ok();
        if let (Some(own), Some(now)) = (&self.metadata, now)
            && is_same(own, &now)
        {
            // It may be removed at this moment; nothing depends on it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether both are of one file. The inode alone does not tell: once a file is gone, the next one
/// may have its number. It is born later, where the file system says when.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let inode = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    inode(one) == inode(other) && one.created().ok() == other.created().ok()
}

impl Running {
    /// One without threads yet.
    pub(super) fn new(shared: Arc<Shared>, unix_socket: Option<PathBuf>, origin: Origin) -> Self {
        Self {
            shared,
            threads: Vec::new(),
            unix_socket: unix_socket.map(SocketFile::new),
            origin,
        }
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
            );
            Ok(())
        })?;
        self.spawn("mneme-purge", |shared| {
            shared.purge.serve(|| {
                if let Err(error) = shared.store.compact_while(|| !shared.stopping()) {
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

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// The unix socket that it listens on.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.unix_socket.as_ref().map(|file| &*file.path)
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

    /// Tells it to stop: to accept and read no more, to send the replies it owes, and to close its
    /// connections. Returns at once; [`join`](Self::join) waits for the end.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// A handle that can stop it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.shared))
    }

    /// Waits until it has stopped: by [`shutdown`](Self::shutdown), a [`Stopper`] or a client's
    /// `SHUTDOWN`. Its store is closed then, unless the embedding program has it too.
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
        if let Some(file) = self.unix_socket.take()
            && !self.shared.has_retired()
        {
            file.remove();
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

    /// Stops the server, but its listening sockets go on listening for a successor:
    /// [`Running::join`] returns them.
    pub fn retire(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.retire();
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_successor_keeps_its_socket_file_even_with_the_same_inode() {
        let path = std::env::temp_dir().join(format!("mneme-successor-{}", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        let born = || std::fs::symlink_metadata(&path).unwrap().created().ok();
        let first_born = born();
        let first = SocketFile::new(path.clone());
        // The kernel's clock for files ticks every few milliseconds; servers live longer.
        loop {
            std::fs::remove_file(&path).unwrap();
            drop(UnixListener::bind(&path).unwrap());
            if first_born.is_none() || born() != first_born {
                break;
            }
        }
        first.remove();
        assert!(path.exists() || first_born.is_none());
        SocketFile::new(path.clone()).remove();
        assert!(!path.exists());
    }
}
