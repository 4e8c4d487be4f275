//! A server that is not ours: found on the PATH, on a socket in a directory of its own, killed when
//! dropped.

use super::pipeline::Pipeline;
use crate::error::BenchError;
use crate::processes::{until, until_ended};
use crate::scratch::Directory;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long it may take to begin.
const START: Duration = Duration::from_secs(10);

/// A running server.
pub struct Daemon {
    name: &'static str,
    child: Child,
    directory: Directory,
}

impl Daemon {
    /// Starts this program, and `option` before its socket. It may not listen yet when this
    /// returns.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn spawn(
        name: &'static str,
        option: &str,
        mut command: Command,
    ) -> Result<Self, BenchError> {
        let directory = Directory::new(name)?;
        let child = command
            .arg(option)
            .arg(directory.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| BenchError::server(name, error))?;
        Ok(Self {
            name,
            child,
            directory,
        })
    }

    /// A connection to it, as soon as it listens.
    ///
    /// # Errors
    /// It has ended, or does not listen for long.
    pub fn connect(&mut self) -> Result<Pipeline, BenchError> {
        let (name, socket) = (self.name, self.socket());
        let connected = until(START, || match UnixStream::connect(&socket) {
            Ok(connection) => Ok(Ok(Pipeline::new(connection))),
            Err(error) => match self.child.try_wait() {
                Ok(Some(status)) => Ok(Err(format!("it ended with {status}"))),
                _ => Err(BenchError::server(name, error)),
            },
        })?;
        connected.map_err(|what| BenchError::server(name, what))
    }

    /// Its process' number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Waits until it has ended as it should.
    ///
    /// # Errors
    /// It does not end for long, or says that it failed.
    pub fn until_ended(&mut self) -> Result<(), BenchError> {
        until_ended(&mut self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
