//! A client of a server that speaks Redis' protocol, on a unix socket, as tight as one can be:
//! requests are written from one buffer, replies of known length are read to another, and nothing
//! is allocated or parsed but to see that each reply is the one expected.

use super::{Asks, is_value, value_of};
use crate::error::{BenchError, socket_failed as failed};
use crate::generate::keys::{KEY_BYTES, key};
use crate::systems::pipeline::connected;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any reply takes that comes.
const TIMEOUT: Duration = Duration::from_secs(60);

const STORED: &[u8] = b"+OK\r\n";

/// A connection.
pub struct Socket {
    stream: UnixStream,
    value: usize,
    /// `$4\r\n`, before a value.
    head: Vec<u8>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Socket {
    /// Connects, as soon as somebody listens. Values have `value` bytes.
    ///
    /// # Errors
    /// [`BenchError::Server`] if nobody does for long.
    pub fn connect(socket: &Path, value: usize) -> Result<Self, BenchError> {
        let stream = connected(socket)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(Self {
            stream,
            value,
            head: format!("${value}\r\n").into_bytes(),
            request: Vec::new(),
            reply: Vec::new(),
        })
    }

    fn request_get(&mut self, id: u32) {
        self.request
            .extend_from_slice(b"*2\r\n$3\r\nGET\r\n$24\r\n");
        self.request.extend_from_slice(&key(id));
        self.request.extend_from_slice(b"\r\n");
    }

    fn request_set(&mut self, id: u32) {
        self.request
            .extend_from_slice(b"*3\r\n$3\r\nSET\r\n$24\r\n");
        self.request.extend_from_slice(&key(id));
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(&self.head);
        value_of(id, self.value, &mut self.request);
        self.request.extend_from_slice(b"\r\n");
    }

    /// Bytes of the reply to a GET that finds something.
    fn found(&self) -> usize {
        self.head.len() + self.value + 2
    }

    /// Sends what was requested and reads so many bytes of replies.
    fn exchange(&mut self, expected: usize) -> Result<(), BenchError> {
        self.stream.write_all(&self.request).map_err(failed)?;
        self.request.clear();
        self.reply.resize(expected, 0);
        let mut read = 0;
        while read < expected {
            match self.stream.read(&mut self.reply[read..]) {
                Ok(0) => return Err(failed("it has closed the connection")),
                Ok(bytes) => read += bytes,
                Err(error) => return Err(failed(error)),
            }
            // Shorter than what is awaited: the rest would never come.
            if self.reply[..read].starts_with(b"-") || self.reply[..read].starts_with(b"$-1") {
                let said = String::from_utf8_lossy(&self.reply[..read]);
                return Err(failed(format!("it replied `{}`", said.trim_end())));
            }
        }
        Ok(())
    }

    /// Whether a reply is the value of record `id`.
    fn is_found(&self, reply: &[u8], id: u32) -> bool {
        let value = reply.strip_prefix(self.head.as_slice());
        let value = value.and_then(|rest| rest.strip_suffix(b"\r\n"));
        value.is_some_and(|value| is_value(value, id, self.value))
    }
}

const _: () = assert!(KEY_BYTES == 24, "the requests say so");

impl Asks for Socket {
    fn get(&mut self, id: u32) -> Result<bool, BenchError> {
        self.request_get(id);
        self.exchange(self.found())?;
        Ok(self.is_found(&self.reply, id))
    }

    fn set(&mut self, id: u32) -> Result<bool, BenchError> {
        self.request_set(id);
        self.exchange(STORED.len())?;
        Ok(self.reply == STORED)
    }

    fn batch(&mut self, gets: &[u32], sets: &[u32]) -> Result<usize, BenchError> {
        gets.iter().for_each(|&id| self.request_get(id));
        sets.iter().for_each(|&id| self.request_set(id));
        let found = self.found();
        self.exchange(gets.len() * found + sets.len() * STORED.len())?;
        let (values, stored) = self.reply.split_at(gets.len() * found);
        let replies = gets.iter().zip(values.chunks_exact(found));
        let right = replies.filter(|(id, reply)| self.is_found(reply, **id));
        let stored = stored.chunks_exact(STORED.len()).filter(|r| *r == STORED);
        Ok(right.count() + stored.count())
    }
}
