//! Redis, started on the files of the same records: a snapshot (RDB) and a log of writes (AOF).

use crate::client::socket::Socket;
use crate::error::BenchError;
use crate::processes::until_ended;
use crate::restart::{SIZE, load, until_found};
use crate::scratch::Directory;
use crate::systems::pipeline::until_loaded;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A directory with both files.
pub struct Peer {
    data: Directory,
    /// Of the socket.
    directory: Directory,
}

/// From which of them it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Snapshot,
    Log,
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::Server {
        server: "redis",
        what: what.to_string(),
    }
}

impl Peer {
    /// Has Redis write both, of so many bytes of values, in that directory.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn new(data: Directory, bytes: u64) -> Result<Self, BenchError> {
        let peer = Self {
            data,
            directory: Directory::new("restart-socket")?,
        };
        let mut running = peer.spawn(From::Log)?;
        until_loaded(&peer.socket())?;
        let mut client = Socket::connect(&peer.socket(), SIZE)?;
        load(&mut client, (bytes / SIZE as u64) as u32)?;
        client.command(b"*1\r\n$4\r\nSAVE\r\n", b"+OK\r\n")?;
        // What is still to be written of its log it writes at the end.
        client.command_unanswered(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")?;
        until_ended(&mut running.0)?;
        Ok(peer)
    }

    /// Where the files are.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn spawn(&self, from: From) -> Result<Running, BenchError> {
        let appends = if from == From::Log { "yes" } else { "no" };
        let spawned = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", appends])
            .args(["--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(self.data.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        spawned.map(Running).map_err(failed)
    }

    /// Starts it; from before its process is made until the record was found.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, from: From, id: u32) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let _running = self.spawn(from)?;
        until_found(&self.socket(), id)?;
        Ok(begin.elapsed())
    }
}
