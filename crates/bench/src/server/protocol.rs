//! What servers are asked, and what they reply: Redis' protocol, and memcached's by words.
//!
//! A request is written from its record's number in a few nanoseconds and a reply is read where it
//! lies, for the load must cost less than the servers do. Every value that comes back is looked at:
//! whoever mixes up records ends the run.

use crate::client::{is_value, noise_of, value_of};
use crate::error::BenchError;
use crate::generate::keys;
use std::io::Write;

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// The key of record `id`: letters. Different records have different keys.
#[inline]
pub fn key(id: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    // What stands before is the same in all keys.
    key.copy_from_slice(&keys::key(id)[keys::KEY_BYTES - KEY_BYTES..]);
    key
}

/// Which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Redis' and ours.
    Resp,
    /// memcached's `get` and `set`.
    Memcached,
}

/// What is done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its value is asked for, and it is there.
    Get,
    /// It is stored.
    Set,
    /// It is stored for so many milliseconds.
    SetFor(u32),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The record.
    pub id: u32,
    /// What is done to it.
    pub kind: Kind,
}

/// A protocol, and the size of all values.
#[derive(Debug, Clone)]
pub struct Dialect {
    protocol: Protocol,
    value: usize,
    /// Appends the value of a record.
    value_of: fn(u32, usize, &mut Vec<u8>),
    /// What a command has before its key: GET, SET, SET for a time.
    heads: [Vec<u8>; 3],
    /// What stands between key and value of a SET.
    between: Vec<u8>,
}

impl Dialect {
    /// Values have `value` bytes, 4 or more.
    pub fn new(protocol: Protocol, value: usize) -> Self {
        let (heads, between) = match protocol {
            Protocol::Resp => (
                [
                    format!("*2\r\n$3\r\nGET\r\n${KEY_BYTES}\r\n"),
                    format!("*3\r\n$3\r\nSET\r\n${KEY_BYTES}\r\n"),
                    format!("*5\r\n$3\r\nSET\r\n${KEY_BYTES}\r\n"),
                ],
                format!("\r\n${value}\r\n"),
            ),
            Protocol::Memcached => (
                ["get ", "set ", "set "].map(str::to_owned),
                format!(" 0 0 {value}\r\n"),
            ),
        };
        Self {
            protocol,
            value,
            value_of,
            heads: heads.map(String::into_bytes),
            between: between.into_bytes(),
        }
    }

    /// With values that no compression makes shorter, for loads that do not GET.
    pub fn incompressible(self) -> Self {
        Self {
            value_of: noise_of,
            ..self
        }
    }

    /// Appends a request.
    #[inline]
    pub fn ask(&self, Request { id, kind }: Request, to: &mut Vec<u8>) {
        let head = match kind {
            Kind::Get => 0,
            Kind::Set => 1,
            Kind::SetFor(_) => 2,
        };
        to.extend_from_slice(&self.heads[head]);
        to.extend_from_slice(&key(id));
        if kind != Kind::Get {
            to.extend_from_slice(&self.between);
            (self.value_of)(id, self.value, to);
        }
        to.extend_from_slice(b"\r\n");
        if let Kind::SetFor(milliseconds) = kind {
            debug_assert_eq!(self.protocol, Protocol::Resp, "memcached counts seconds");
            // Writing to a vector does not fail.
            let _ = write!(to, "$2\r\nPX\r\n${}\r\n", digits(milliseconds));
            let _ = write!(to, "{milliseconds}\r\n");
        }
    }

    /// How long the reply is with which `bytes` begin; `None` if it has not come as a whole.
    ///
    /// # Errors
    /// [`BenchError::Wrong`]: it is not what the request asked for.
    #[inline]
    pub fn reply(&self, asked: Request, bytes: &[u8]) -> Result<Option<usize>, BenchError> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line = &bytes[..=end];
        let (is_value_next, stored, tail): (bool, &[u8], &[u8]) = match self.protocol {
            Protocol::Resp => (line[0] == b'$', b"+OK\r\n", b"\r\n"),
            Protocol::Memcached => (line.starts_with(b"VALUE "), b"STORED\r\n", b"\r\nEND\r\n"),
        };
        let wrong = || {
            let said = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
            Err(wrong(asked, said.trim_end()))
        };
        if asked.kind != Kind::Get {
            return match line == stored {
                true => Ok(Some(line.len())),
                false => wrong(),
            };
        }
        if !is_value_next || line == b"$-1\r\n" {
            return wrong();
        }
        let whole = line.len() + self.value + tail.len();
        let Some(value) = bytes.get(line.len()..whole) else {
            return Ok(None);
        };
        let (value, end) = value.split_at(self.value);
        match is_value(value, asked.id, self.value) && end == tail {
            true => Ok(Some(whole)),
            false => wrong(),
        }
    }
}

fn digits(number: u32) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn wrong(asked: Request, said: &str) -> BenchError {
    BenchError::wrong(
        "a server",
        format!("{asked:?}"),
        format!("it replied `{said}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(dialect: &Dialect, request: Request) -> String {
        let mut bytes = Vec::new();
        dialect.ask(request, &mut bytes);
        bytes
            .iter()
            .map(|byte| byte.escape_ascii().to_string())
            .collect()
    }

    #[test]
    fn requests_are_whole_commands() {
        let [get, set, brief] =
            [Kind::Get, Kind::Set, Kind::SetFor(150)].map(|kind| Request { id: 7, kind });
        let key = String::from_utf8(key(7).to_vec()).unwrap();
        let value = r"\x07\x00\x00\x00Z";
        let resp = Dialect::new(Protocol::Resp, 5);
        let head = |words, verb| format!(r"*{words}\r\n$3\r\n{verb}\r\n$16\r\n{key}\r\n");
        assert_eq!(asked(&resp, get), head(2, "GET"));
        let stored = format!(r"{}$5\r\n{value}\r\n", head(3, "SET"));
        assert_eq!(asked(&resp, set), stored);
        let stored = format!(
            r"{}$5\r\n{value}\r\n$2\r\nPX\r\n$3\r\n150\r\n",
            head(5, "SET")
        );
        assert_eq!(asked(&resp, brief), stored);
        let words = Dialect::new(Protocol::Memcached, 5);
        assert_eq!(asked(&words, get), format!(r"get {key}\r\n"));
        assert_eq!(
            asked(&words, set),
            format!(r"set {key} 0 0 5\r\n{value}\r\n")
        );
    }

    #[test]
    fn a_reply_is_taken_when_it_is_whole_and_right() {
        let mut value = Vec::new();
        value_of(7, 12, &mut value);
        let replies = [
            (Protocol::Resp, [&b"$12\r\n"[..], &value, b"\r\n"].concat()),
            (
                Protocol::Memcached,
                [b"VALUE ", &key(7)[..], b" 0 12\r\n", &value, b"\r\nEND\r\n"].concat(),
            ),
        ];
        for (protocol, mut bytes) in replies {
            let dialect = Dialect::new(protocol, 12);
            let get = Request {
                id: 7,
                kind: Kind::Get,
            };
            let whole = bytes.len();
            bytes.extend_from_slice(b"more");
            for end in 0..whole {
                assert_eq!(dialect.reply(get, &bytes[..end]).unwrap(), None, "{end}");
            }
            assert_eq!(dialect.reply(get, &bytes).unwrap(), Some(whole));
            let other = Request {
                id: 8,
                kind: Kind::Get,
            };
            assert!(dialect.reply(other, &bytes).is_err(), "another's value");
            let set = Request {
                id: 7,
                kind: Kind::Set,
            };
            assert!(dialect.reply(set, &bytes).is_err(), "a value for a SET");
        }
    }

    #[test]
    fn what_is_missing_or_refused_ends_the_run() {
        let get = Request {
            id: 7,
            kind: Kind::Get,
        };
        let set = Request {
            id: 7,
            kind: Kind::Set,
        };
        let resp = Dialect::new(Protocol::Resp, 12);
        assert_eq!(resp.reply(set, b"+OK\r\n").unwrap(), Some(5));
        assert!(resp.reply(get, b"$-1\r\n").is_err());
        assert!(resp.reply(set, b"-OOM command not allowed\r\n").is_err());
        let words = Dialect::new(Protocol::Memcached, 12);
        assert_eq!(words.reply(set, b"STORED\r\n").unwrap(), Some(8));
        assert!(words.reply(get, b"END\r\n").is_err());
        assert!(words.reply(set, b"SERVER_ERROR out of memory\r\n").is_err());
    }
}
