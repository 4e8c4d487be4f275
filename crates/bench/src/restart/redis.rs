//! Redis, started on the files of the same records: a snapshot (RDB) and a log of writes (AOF).

use crate::client::socket::Socket;
use crate::error::BenchError;
use crate::processes::until_ended;
use crate::restart::{SIZE, load, until_found};
use crate::scratch::Scratch;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A directory with both files.
pub struct Peer {
    scratch: Scratch,
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
    /// Has Redis write both.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn new(data: u64) -> Result<Self, BenchError> {
        let peer = Self {
            scratch: Scratch::new("restart-redis", 1 << 20)?,
        };
        let mut running = peer.spawn(From::Log)?;
        let mut client = Socket::connect(&peer.socket(), SIZE)?;
        load(&mut client, (data / SIZE as u64) as u32)?;
        client.command(b"*1\r\n$4\r\nSAVE\r\n", b"+OK\r\n")?;
        // What is still to be written of its log it writes at the end.
        client.command_unanswered(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")?;
        until_ended(&mut running.0)?;
        Ok(peer)
    }

    fn socket(&self) -> PathBuf {
        self.scratch.root().join("socket")
    }

    fn spawn(&self, from: From) -> Result<Running, BenchError> {
        let appends = if from == From::Log { "yes" } else { "no" };
        let spawned = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", appends])
            .args(["--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(self.scratch.root())
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
