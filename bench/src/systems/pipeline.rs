//! A connection to a server that speaks Redis' protocol: commands are queued, sent at once, and
//! their replies read.

use crate::error::{BenchError, socket_failed as failed};
use crate::processes::until;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection.
pub struct Pipeline {
    connection: BufReader<UnixStream>,
    request: Vec<u8>,
    awaited: usize,
}

impl Pipeline {
    /// On this connection.
    pub fn new(connection: UnixStream) -> Self {
        Self {
            connection: BufReader::new(connection),
            request: Vec::new(),
            awaited: 0,
        }
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

    /// Bytes of the commands that are queued.
    pub fn queued_bytes(&self) -> usize {
        self.request.len()
    }

    /// Sends what is queued and reads as many replies; `each` gets every reply's first line,
    /// without its end.
    ///
    /// # Errors
    /// [`BenchError::Server`], also for an error reply.
    pub fn flush(&mut self, mut each: impl FnMut(&str)) -> Result<(), BenchError> {
        self.send()?;
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

    /// Sends what is queued and reads all of as many replies: the number of texts, numbers and
    /// states in them, nothings left out.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn drain(&mut self) -> Result<usize, BenchError> {
        self.send()?;
        let mut line = String::new();
        // Replies, and elements of them, that are still to be read.
        let mut left = std::mem::take(&mut self.awaited);
        let mut found = 0;
        while left > 0 {
            left -= 1;
            line.clear();
            self.connection.read_line(&mut line).map_err(failed)?;
            let reply = line.trim_end();
            let unexpected = || failed(format!("it replied `{reply}`"));
            let number = || reply.get(1..).and_then(|number| number.parse::<i64>().ok());
            match (reply.as_bytes().first(), number()) {
                (Some(b'+' | b':'), _) => found += 1,
                (Some(b'$' | b'*'), Some(..0)) => {}
                (Some(b'*'), Some(elements)) => left += elements as usize,
                (Some(b'$'), Some(bytes)) => {
                    found += 1;
                    let mut text = (&mut self.connection).take(bytes as u64 + 2);
                    std::io::copy(&mut text, &mut std::io::sink()).map_err(failed)?;
                }
                _ => return Err(unexpected()),
            }
        }
        Ok(found)
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn send(&mut self) -> Result<(), BenchError> {
        let sent = self.connection.get_mut().write_all(&self.request);
        self.request.clear();
        sent.map_err(failed)
    }

    /// Asks for something that is answered by one text, such as INFO.
    ///
    /// # Errors
    /// [`BenchError::Server`], also for another kind of reply.
    pub fn text(&mut self, words: &[&[u8]]) -> Result<String, BenchError> {
        self.queue(words);
        self.awaited = 0;
        self.send()?;
        let mut line = String::new();
        self.connection.read_line(&mut line).map_err(failed)?;
        let bytes = line.trim_end().strip_prefix('$').map(str::parse);
        let Some(Ok(bytes)) = bytes else {
            return Err(failed(format!("it replied `{}`", line.trim_end())));
        };
        let mut text: Vec<u8> = vec![0; bytes];
        self.connection.read_exact(&mut text).map_err(failed)?;
        self.connection.read_exact(&mut [0; 2]).map_err(failed)?;
        String::from_utf8(text).map_err(failed)
    }
}

/// How long a server may take to listen, and to load what there is.
const START: Duration = Duration::from_secs(60);

/// A connection to a server, as soon as it listens.
///
/// # Errors
/// [`BenchError::Server`] if it does not for long.
pub fn connected(socket: &Path) -> Result<UnixStream, BenchError> {
    until(START, || UnixStream::connect(socket).map_err(failed))
}

/// Waits until a server listens and executes commands: Redis refuses them while it looks at its
/// files, if there are none too.
///
/// # Errors
/// [`BenchError::Server`] if it does not for long.
pub fn until_loaded(socket: &Path) -> Result<(), BenchError> {
    until(START, || {
        let connection = UnixStream::connect(socket).map_err(failed)?;
        let info = Pipeline::new(connection).text(&[b"INFO", b"persistence"])?;
        match field(&info, "loading") {
            Some(0) => Ok(()),
            _ => Err(failed("it does not end loading")),
        }
    })
}

/// A number of a text of lines `name:number`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_names() {
        let text = "# Persistence\r\naof_base_size:7\r\naof_current_size:99\r\nname:words\r\n";
        assert_eq!(field(text, "aof_current_size"), Some(99));
        assert_eq!(field(text, "current_size"), None);
        assert_eq!(field(text, "name"), None);
        assert_eq!(field("write_bytes: 4096\n", "write_bytes"), Some(4096));
    }
}
