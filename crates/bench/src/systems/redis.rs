//! A Redis server of our own: found on the PATH, on a socket in a directory of its own, stopped when dropped.

use crate::error::BenchError;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
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
    directory: PathBuf,
    connection: BufReader<UnixStream>,
    request: Vec<u8>,
    awaited: usize,
}

/// Whether the program is on the PATH.
pub fn is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(PROGRAM).is_file())
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("mneme-bench-redis-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).map_err(failed)?;
        let socket = directory.join(SOCKET);
        let server = Command::new(PROGRAM)
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut server = match server {
            Ok(server) => server,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                return Err(failed(error));
            }
        };
        match connect(&socket, &mut server) {
            Ok(connection) => Ok(Self {
                server,
                directory,
                connection: BufReader::new(connection),
                request: Vec::new(),
                awaited: 0,
            }),
            Err(error) => {
                stop(&mut server, &directory);
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
        self.directory.join(SOCKET)
    }

    /// Queues a command.
    pub fn queue(&mut self, words: &[&[u8]]) {
        // Writing to a vector does not fail.
        let _ = write!(self.request, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.request, "${}\r\n", word.len());
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
        self.awaited += 1;
    }

    /// Sends what is queued and reads as many replies; `each` gets every reply's first line, without its end.
    ///
    /// # Errors
    /// [`BenchError::Server`], also for an error reply.
    pub fn flush(&mut self, mut each: impl FnMut(&str)) -> Result<(), BenchError> {
        let sent = self.connection.get_mut().write_all(&self.request);
        sent.map_err(failed)?;
        self.request.clear();
        let mut line = String::new();
        for _ in 0..std::mem::take(&mut self.awaited) {
            line.clear();
            self.connection.read_line(&mut line).map_err(failed)?;
            let reply = line.trim_end();
            if reply.is_empty() || reply.starts_with('-') {
                return Err(failed(format!("it replied `{reply}`")));
            }
            each(reply);
        }
        Ok(())
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

fn stop(server: &mut Child, directory: &Path) {
    // Nothing of it is wanted any more, and nobody could act on a failure.
    let _ = server.kill();
    let _ = server.wait();
    let _ = std::fs::remove_dir_all(directory);
}

impl Drop for Redis {
    fn drop(&mut self) {
        stop(&mut self.server, &self.directory);
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
        let directory = redis.directory.clone();
        drop(redis);
        assert!(!directory.exists());
    }
}
