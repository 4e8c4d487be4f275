//! Redis, where it is installed.

use super::daemon::Daemon;
use crate::error::BenchError;
use crate::processes::is_on_path;
use std::path::Path;

/// The program.
const PROGRAM: &str = "redis-server";

/// Whether the program is on the PATH.
pub fn is_there() -> bool {
    is_on_path(PROGRAM)
}

/// What a report notes where it is not.
pub fn missing() -> Option<String> {
    (!is_there()).then(|| "redis is missing: no redis-server on the PATH".to_owned())
}

/// Starts one that listens, keeps everything in memory and writes nothing to disk.
///
/// # Errors
/// [`BenchError::Server`].
pub fn start() -> Result<Daemon, BenchError> {
    let mut server = spawn(None, &["--appendonly", "no"])?;
    server.connect()?;
    Ok(server)
}

/// Starts one with these settings, and its files in that directory; without snapshots unless
/// asked. It may not listen yet when this returns.
///
/// # Errors
/// [`BenchError::Server`].
pub fn spawn(data: Option<&Path>, settings: &[&str]) -> Result<Daemon, BenchError> {
    let mut words: Vec<&dyn AsRef<_>> = vec![&"--port", &"0", &"--save", &""];
    words.extend(settings.iter().map(|word| word as &dyn AsRef<_>));
    if let Some(data) = &data {
        words.extend([&"--dir" as &dyn AsRef<_>, data]);
    }
    Daemon::spawn(PROGRAM, "--unixsocket", &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_and_leaves_nothing_behind() {
        if !is_there() {
            return;
        }
        let mut redis = start().unwrap();
        let mut pipeline = redis.connect().unwrap();
        pipeline.queue(&[b"SET", b"muse", b"Clio"]);
        pipeline.queue(&[b"DEL", b"muse", b"nobody"]);
        let mut replies = Vec::new();
        pipeline
            .flush(|reply| replies.push(reply.to_owned()))
            .unwrap();
        assert_eq!(replies, ["+OK", ":1"]);
        pipeline.queue(&[b"NONSENSE"]);
        assert!(pipeline.flush(|_| {}).is_err());
        let socket = redis.socket();
        drop(redis);
        assert!(!socket.parent().unwrap().exists());
    }
}
