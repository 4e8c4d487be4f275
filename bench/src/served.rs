//! Our server in a process of its own, on a segment as `mneme serve` runs it, or on its own memory
//! as `--private` does.

use crate::error::BenchError;
use crate::machine::cpus;
use crate::options;
use crate::processes::{Helper, Words};
use crate::scratch::{Directory, space};
use mneme_server::settings::Key;
use mneme_server::{Opening, Registry, Server};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};

fn failed(what: impl ToString) -> BenchError {
    BenchError::server("mneme", what)
}

/// Serves until SIGTERM, or until nobody holds the other end of the standard input.
///
/// # Errors
/// The segment cannot be served, or there is not enough memory.
pub fn serve_here(options: &options::Served) -> Result<(), BenchError> {
    let server = Server::builder()
        .bind([])
        .unix_socket(&options.socket)
        .threads(options.io_threads.unwrap_or_else(cpus))
        .set(Key::AppendFsync, &options.appendfsync)
        .map_err(failed)?;
    let server = match &options.durability {
        Some(form) => server.set(Key::Durability, form).map_err(failed)?,
        None => server,
    };
    let server = match (&options.registry, &options.segment) {
        (Some(registry), Some(segment)) => {
            let mut opening = Opening::default();
            if let Some(bytes) = options.memory {
                opening.options = opening.options.capacity(bytes);
            }
            let registry = Registry::open(registry).map_err(space)?;
            server.segment(registry, segment, opening)
        }
        _ => server.memory(options.memory.unwrap_or_default()),
    };
    serve(match &options.data {
        Some(directory) => server.data(directory),
        None => server,
    })
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

/// A server of ours; killed when this is dropped.
pub struct Served {
    /// The process.
    pub process: Helper,
    socket: PathBuf,
    _directory: Option<Directory>,
}

impl Served {
    /// Starts one on a segment, with these options of the hidden subcommand. It may not answer yet
    /// when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(
        registry: &Path,
        segment: &str,
        socket: &Path,
        options: Words<'_>,
    ) -> Result<Self, BenchError> {
        let words: Words<'_> = &[
            &"served",
            &socket,
            &"--registry",
            &registry,
            &"--segment",
            &segment,
        ];
        Ok(Self {
            process: Helper::start(&[words, options].concat())?,
            socket: socket.to_owned(),
            _directory: None,
        })
    }

    /// Starts one on its own memory, with so many threads and bytes.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn of_memory(threads: usize, memory: u64) -> Result<Self, BenchError> {
        let directory = Directory::new("served")?;
        let socket = directory.path().join("socket");
        let (threads, memory) = (threads.to_string(), memory.to_string());
        let words: Words<'_> = &[
            &"served",
            &socket,
            &"--io-threads",
            &threads,
            &"--memory",
            &memory,
        ];
        Ok(Self {
            process: Helper::start(words)?,
            socket,
            _directory: Some(directory),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}
