//! Our server in a process of its own, on a segment as `mneme serve` runs it, or on its own memory
//! as `--private` does.

use crate::error::BenchError;
use crate::options;
use crate::processes::Helper;
use crate::scratch::{Directory, space};
use mneme_server::settings::Key;
use mneme_server::{Opening, Registry, Server};
use mneme_sys::{SysfsTopology, Topology};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn failed(what: impl ToString) -> BenchError {
    BenchError::Server {
        server: "mneme",
        what: what.to_string(),
    }
}

/// Serves until SIGTERM, or until nobody holds the other end of the standard input.
///
/// # Errors
/// The segment cannot be served.
pub fn serve_here(options: &options::Served) -> Result<(), BenchError> {
    let registry = Registry::open(&options.registry).map_err(space)?;
    let mut opening = Opening::default();
    if let Some(bytes) = options.memory {
        opening.options = opening.options.capacity(bytes);
    }
    let threads = options.threads;
    let mut server = Server::builder()
        .bind([])
        .unix_socket(&options.socket)
        .threads(threads.unwrap_or_else(|| SysfsTopology::detect().cpus()))
        .segment(registry, &options.segment, opening)
        .set(Key::AppendFsync, &options.appendfsync)
        .map_err(failed)?;
    if let Some(directory) = &options.data {
        server = server.data(directory);
    }
    serve(server)
}

/// Serves memory of this process, until the same.
///
/// # Errors
/// There is not enough of it.
pub fn serve_memory_here(options: &options::ServedMemory) -> Result<(), BenchError> {
    let server = Server::builder()
        .bind([])
        .unix_socket(&options.socket)
        .threads(options.threads)
        .memory(options.memory);
    serve(server)
}

fn serve(server: Server) -> Result<(), BenchError> {
    let mut signals = Signals::new([SIGTERM]).map_err(failed)?;
    let running = server.start().map_err(failed)?;
    let stopper = running.stopper();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    let stopper = running.stopper();
    std::thread::spawn(move || {
        // Nothing is sent: this waits for the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopper.stop();
    });
    running.join().map(|_| ()).map_err(failed)
}

/// A server of ours on its own memory; killed when this is dropped.
pub struct ServedMemory {
    process: Helper,
    directory: Directory,
}

impl ServedMemory {
    /// Starts one with so many threads and bytes. It may not answer yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(threads: usize, memory: u64) -> Result<Self, BenchError> {
        let directory = Directory::new("served")?;
        let (threads, memory) = (threads.to_string(), memory.to_string());
        let socket = directory.path().join("socket");
        let words = [
            "served-memory".as_ref(),
            socket.as_os_str(),
            threads.as_ref(),
            memory.as_ref(),
        ];
        let process = Helper::start(&words)?;
        Ok(Self { process, directory })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

/// A server of ours; killed when this is dropped.
pub struct Served {
    /// The process.
    pub process: Helper,
    socket: PathBuf,
}

impl Served {
    /// Starts one. It may not answer yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(registry: &Path, segment: &str, socket: &Path) -> Result<Self, BenchError> {
        Self::start_with(registry, segment, socket, &[])
    }

    /// Starts one with these options of the hidden subcommand.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        registry: &Path,
        segment: &str,
        socket: &Path,
        options: &[&OsStr],
    ) -> Result<Self, BenchError> {
        let mut words = vec![
            "served".as_ref(),
            registry.as_os_str(),
            segment.as_ref(),
            socket.as_os_str(),
        ];
        words.extend(options);
        Ok(Self {
            process: Helper::start(&words)?,
            socket: socket.to_owned(),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}
