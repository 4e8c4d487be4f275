//! Redis, started on the files of the same records: a snapshot (RDB) and a log of writes (AOF).

use crate::client::socket::Socket;
use crate::error::BenchError;
use crate::restart::{SIZE, load, until_found};
use crate::scratch::Directory;
use crate::systems::daemon::Daemon;
use crate::systems::pipeline::until_loaded;
use crate::systems::redis::Peer as Program;
use std::path::Path;
use std::time::{Duration, Instant};

/// A directory with both files.
pub struct Peer {
    data: Directory,
}

/// From which of them it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The snapshot (RDB).
    Snapshot,
    /// The log of writes (AOF).
    Log,
}

impl Peer {
    /// Has Redis write both, of so many bytes of values, in that directory.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn new(data: Directory, bytes: u64) -> Result<Self, BenchError> {
        let peer = Self { data };
        let mut running = peer.spawn(From::Log)?;
        until_loaded(&running.socket())?;
        let mut client = Socket::connect(&running.socket(), SIZE)?;
        load(&mut client, (bytes / SIZE as u64) as u32)?;
        let mut commands = running.connect()?;
        commands.queue(&[b"SAVE"]);
        commands.flush(|_| {})?;
        // What is still to be written of its log it writes at the end.
        commands.queue(&[b"SHUTDOWN", b"NOSAVE"]);
        commands.send()?;
        running.until_ended()?;
        Ok(peer)
    }

    /// Where the files are.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    fn spawn(&self, from: From) -> Result<Daemon, BenchError> {
        let appends = if from == From::Log { "yes" } else { "no" };
        let settings = ["--appendonly", appends, "--appendfsync", "no"];
        let settings = [&settings[..], &["--auto-aof-rewrite-percentage", "0"]].concat();
        Program::Redis.spawn(Some(self.data.path()), &settings)
    }

    /// Starts it; from before its process is made until the record was found.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, from: From, id: u32) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let running = self.spawn(from)?;
        until_found(&running.socket(), id)?;
        Ok(begin.elapsed())
    }
}
