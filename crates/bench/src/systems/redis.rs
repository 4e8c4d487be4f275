//! A Redis server of our own: found on the PATH, on a socket in a directory of its own, stopped
//! when dropped.

use super::pipeline::Pipeline;
use crate::error::BenchError;
use crate::processes::is_on_path;
use crate::scratch::Directory;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program.
const PROGRAM: &str = "redis-server";

/// Its socket, in its directory.
const SOCKET: &str = "socket";

/// How long it may take to begin.
const START: Duration = Duration::from_secs(10);

/// A running server and a connection to it.
pub struct Redis {
    server: Child,
    directory: Directory,
    pipeline: Pipeline,
}

/// What a report notes where it is not.
pub const MISSING: &str = "redis is missing: no redis-server on the PATH";

/// Whether the program is on the PATH.
pub fn is_there() -> bool {
    is_on_path(PROGRAM)
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::Server {
        server: "redis",
        what: what.to_string(),
    }
}

impl Redis {
    /// Starts one that keeps everything in memory and writes nothing to disk.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn start() -> Result<Self, BenchError> {
        Self::start_with(None, &["--appendonly", "no"])
    }

    /// Starts one with these settings, and its files in that directory; without snapshots unless
    /// asked. It may be loading still when this returns.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn start_with(data: Option<&Path>, settings: &[&str]) -> Result<Self, BenchError> {
        let directory = Directory::new("redis")?;
        let socket = directory.path().join(SOCKET);
        let server = Command::new(PROGRAM)
            .args(["--port", "0", "--save", ""])
            .args(settings)
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(data.unwrap_or(directory.path()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut server = server.map_err(failed)?;
        match connect(&socket, &mut server) {
            Ok(connection) => Ok(Self {
                server,
                directory,
                pipeline: Pipeline::new(connection),
            }),
            Err(error) => {
                stop(&mut server);
                Err(error)
            }
        }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// The connection to it.
    pub fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Queues a command; see [`Pipeline::queue`].
    pub fn queue(&mut self, words: &[&[u8]]) {
        self.pipeline.queue(words);
    }

    /// Sends what is queued and reads as many replies; see [`Pipeline::flush`].
    ///
    /// # Errors
    /// [`BenchError::Server`], also for an error reply.
    pub fn flush(&mut self, each: impl FnMut(&str)) -> Result<(), BenchError> {
        self.pipeline.flush(each)
    }

    /// Resident bytes of its process.
    pub fn resident(&self) -> u64 {
        crate::machine::resident_bytes_of(&self.server.id().to_string())
    }
}

fn connect(socket: &Path, server: &mut Child) -> Result<UnixStream, BenchError> {
    let until = Instant::now() + START;
    loop {
        match UnixStream::connect(socket) {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > until => return Err(failed(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        if let Ok(Some(status)) = server.try_wait() {
            return Err(failed(format!("it ended with {status}")));
        }
    }
}

fn stop(server: &mut Child) {
    // Nothing of it is wanted any more, and nobody could act on a failure.
    let _ = server.kill();
    let _ = server.wait();
}

impl Drop for Redis {
    fn drop(&mut self) {
        stop(&mut self.server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_and_leaves_nothing_behind() {
        if !is_there() {
            return;
        }
        let mut redis = Redis::start().unwrap();
        redis.queue(&[b"SET", b"muse", b"Clio"]);
        redis.queue(&[b"DEL", b"muse", b"nobody"]);
        let mut replies = Vec::new();
        redis.flush(|reply| replies.push(reply.to_owned())).unwrap();
        assert_eq!(replies, ["+OK", ":1"]);
        assert!(redis.resident() > 1 << 20);
        redis.queue(&[b"NONSENSE"]);
        assert!(redis.flush(|_| {}).is_err());
        let directory = redis.directory.path().to_owned();
        drop(redis);
        assert!(!directory.exists());
    }
}
