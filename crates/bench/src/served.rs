//! Our server on a segment, in a process of its own, as `mneme serve` runs it.

use crate::error::BenchError;
use crate::options;
use crate::processes::Helper;
use crate::scratch::space;
use mneme_server::{Opening, Registry, Server};
use mneme_sys::{SysfsTopology, Topology};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
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
    let mut signals = Signals::new([SIGTERM]).map_err(failed)?;
    let server = Server::builder()
        .bind([])
        .unix_socket(&options.socket)
        .threads(SysfsTopology::detect().cpus())
        .segment(registry, &options.segment, Opening::default());
    let running = server.start().map_err(failed)?;
    let stopper = running.stopper();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    let stopper = running.stopper();
    std::thread::spawn(move || {
        // Nothing is told: this waits for the end.
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
}

impl Served {
    /// Starts one. It may not answer yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(registry: &Path, segment: &str, socket: &Path) -> Result<Self, BenchError> {
        let words = [
            "served".as_ref(),
            registry.as_os_str(),
            segment.as_ref(),
            socket.as_os_str(),
        ];
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
