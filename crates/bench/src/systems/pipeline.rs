//! A connection to a server that speaks Redis' protocol: commands are queued, sent at once, and
//! their replies read.

use crate::error::BenchError;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// A connection.
pub struct Pipeline {
    connection: BufReader<UnixStream>,
    request: Vec<u8>,
    awaited: usize,
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::Server {
        server: "a server on a socket",
        what: what.to_string(),
    }
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
}
