//! A memcached of our own: found on the PATH, on a socket in a directory of its own, stopped when
//! dropped.

use crate::error::BenchError;
use crate::processes::is_on_path;
use crate::scratch::Directory;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The program.
const PROGRAM: &str = "memcached";

/// Whether the program is on the PATH.
pub fn is_there() -> bool {
    is_on_path(PROGRAM)
}

/// A running server.
pub struct Memcached {
    server: Child,
    directory: Directory,
}

impl Memcached {
    /// Starts one with so many threads that may take so many bytes for items, and refuses more
    /// rather than forget some. It may not answer yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn start(threads: usize, memory: u64) -> Result<Self, BenchError> {
        let directory = Directory::new("memcached")?;
        let server = Command::new(PROGRAM)
            // It does not start as root unless it is asked to.
            .args(["-u", "root", "-M", "-t", &threads.to_string()])
            .args(["-m", &(memory >> 20).to_string()])
            .arg("-s")
            .arg(directory.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = server.map_err(|error| BenchError::Server {
            server: "memcached",
            what: error.to_string(),
        })?;
        Ok(Self { server, directory })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // Nothing of it is wanted any more, and nobody could act on a failure.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
