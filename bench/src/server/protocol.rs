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
    /// Another of Redis' commands.
    Other(Verb),
}

/// Commands that only Redis' protocol has, with the arguments that we give them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Incr,
    IncrBy,
    Append,
    GetSet,
    GetRange,
    Expire,
    Ttl,
    Exists,
    Del,
    SetNx,
    GetEx,
}

/// All but those that leave other records than they found, which come last.
pub const VERBS: [Verb; 11] = [
    Verb::Incr,
    Verb::IncrBy,
    Verb::Append,
    Verb::GetSet,
    Verb::GetRange,
    Verb::Expire,
    Verb::Ttl,
    Verb::Exists,
    Verb::GetEx,
    Verb::Del,
    Verb::SetNx,
];

/// What stands behind a key.
#[derive(Clone, Copy)]
enum Behind {
    Words(&'static [&'static str]),
    /// The record's value.
    Value,
}

/// What a reply must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The number 1: it was done.
    One,
    /// A number that is not below zero, or -1: there is no time to live.
    Number,
    /// The beginning of the record's value, at least.
    Text,
}

impl Verb {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.form().0
    }

    fn form(self) -> (&'static str, Behind, Answer) {
        use Behind::{Value, Words};
        match self {
            Self::Incr => ("INCR", Words(&[]), Answer::Number),
            Self::IncrBy => ("INCRBY", Words(&["7"]), Answer::Number),
            Self::Append => ("APPEND", Words(&["eight by"]), Answer::Number),
            Self::GetSet => ("GETSET", Value, Answer::Text),
            Self::GetRange => ("GETRANGE", Words(&["0", "9"]), Answer::Text),
            Self::Expire => ("EXPIRE", Words(&["100000"]), Answer::One),
            Self::Ttl => ("TTL", Words(&[]), Answer::Number),
            Self::Exists => ("EXISTS", Words(&[]), Answer::One),
            Self::Del => ("DEL", Words(&[]), Answer::One),
            Self::SetNx => ("SETNX", Value, Answer::One),
            Self::GetEx => ("GETEX", Words(&["EX", "100000"]), Answer::Text),
        }
    }

    /// Whether it is asked of counters, which are other records.
    fn counts(self) -> bool {
        matches!(self, Self::Incr | Self::IncrBy)
    }

    /// What stands before its key, and behind it unless that is a value.
    fn frame(self) -> [Vec<u8>; 2] {
        let (name, behind, _) = self.form();
        let (words, tail) = match behind {
            Behind::Value => (1, String::new()),
            Behind::Words(words) => {
                let each = words.iter();
                let each = each.map(|word| format!("${}\r\n{word}\r\n", word.len()));
                (words.len(), each.collect())
            }
        };
        let bytes = name.len();
        let head = format!("*{}\r\n${bytes}\r\n{name}\r\n${KEY_BYTES}\r\n", words + 2);
        [head, tail].map(String::into_bytes)
    }
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
    /// What other commands have before their keys and behind, by their numbers.
    frames: Vec<[Vec<u8>; 2]>,
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
            frames: frames(),
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
            Kind::Other(verb) => return self.ask_other(verb, id, to),
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

    #[inline]
    fn ask_other(&self, verb: Verb, id: u32, to: &mut Vec<u8>) {
        debug_assert_eq!(self.protocol, Protocol::Resp, "memcached has other words");
        let [head, tail] = &self.frames[verb as usize];
        to.extend_from_slice(head);
        // Counters are numbered from the far end.
        to.extend_from_slice(&key(if verb.counts() { !id } else { id }));
        if matches!(verb.form().1, Behind::Value) {
            to.extend_from_slice(&self.between);
            (self.value_of)(id, self.value, to);
        }
        to.extend_from_slice(b"\r\n");
        to.extend_from_slice(tail);
    }

    /// As [`reply`](Self::reply), to another command.
    #[inline]
    fn reply_to(&self, verb: Verb, id: u32, bytes: &[u8], line: usize) -> Option<Taken> {
        let text = std::str::from_utf8(bytes.get(1..line.checked_sub(2)?)?).ok()?;
        let number: i64 = text.parse().ok()?;
        match (bytes[0], verb.form().2) {
            (b':', Answer::One) => (number == 1).then_some(Taken::Whole(line)),
            (b':', Answer::Number) => (number >= -1).then_some(Taken::Whole(line)),
            (b'$', Answer::Text) => {
                let end = line + usize::try_from(number).ok()?;
                let Some(tail) = bytes.get(end..end + 2) else {
                    return Some(Taken::Part);
                };
                let value = &bytes[line..end];
                let is_right = tail == b"\r\n" && value.starts_with(&id.to_le_bytes());
                is_right.then_some(Taken::Whole(end + 2))
            }
            _ => None,
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
        if let Kind::Other(verb) = asked.kind {
            return match self.reply_to(verb, asked.id, bytes, line.len()) {
                Some(Taken::Whole(bytes)) => Ok(Some(bytes)),
                Some(Taken::Part) => Ok(None),
                None => wrong(),
            };
        }
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

/// What is there of a reply.
enum Taken {
    /// This number of bytes, all of it.
    Whole(usize),
    /// Not all of it yet.
    Part,
}

fn frames() -> Vec<[Vec<u8>; 2]> {
    // By the numbers that the compiler gave them.
    let mut frames = vec![[const { Vec::new() }; 2]; VERBS.len()];
    for verb in VERBS {
        frames[verb as usize] = verb.frame();
    }
    frames
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
    fn other_commands_are_whole_and_their_replies_are_looked_at() {
        let resp = Dialect::new(Protocol::Resp, 5);
        let ask = |verb| {
            let kind = Kind::Other(verb);
            asked(&resp, Request { id: 7, kind })
        };
        let [key, counter] = [7, !7].map(|id| String::from_utf8(key(id).to_vec()).unwrap());
        assert_eq!(
            ask(Verb::IncrBy),
            format!(r"*3\r\n$6\r\nINCRBY\r\n$16\r\n{counter}\r\n$1\r\n7\r\n")
        );
        assert_eq!(
            ask(Verb::Del),
            format!(r"*2\r\n$3\r\nDEL\r\n$16\r\n{key}\r\n")
        );
        let value = r"\x07\x00\x00\x00Z";
        assert_eq!(
            ask(Verb::SetNx),
            format!(r"*3\r\n$5\r\nSETNX\r\n$16\r\n{key}\r\n$5\r\n{value}\r\n")
        );
        let reply = |verb, bytes: &[u8]| {
            let kind = Kind::Other(verb);
            resp.reply(Request { id: 7, kind }, bytes)
        };
        assert_eq!(reply(Verb::Incr, b":12\r\n:1").unwrap(), Some(5));
        assert_eq!(reply(Verb::Ttl, b":-1\r\n").unwrap(), Some(5));
        assert_eq!(
            reply(Verb::GetSet, b"$5\r\n\x07\0\0\0Z\r\n").unwrap(),
            Some(11)
        );
        assert_eq!(reply(Verb::GetSet, b"$5\r\n\x07\0\0\0Z\r").unwrap(), None);
        assert_eq!(reply(Verb::GetSet, b"$5").unwrap(), None);
        for (verb, wrong) in [
            (Verb::Del, &b":0\r\n"[..]),
            (Verb::Exists, b"+OK\r\n"),
            (Verb::Ttl, b":-2\r\n"),
            (Verb::Incr, b"-ERR value is not an integer\r\n"),
            (Verb::GetRange, b"$-1\r\n"),
            (Verb::GetEx, b"$4\r\n\x08\0\0\0\r\n"),
        ] {
            assert!(reply(verb, wrong).is_err(), "{verb:?}");
        }
    }

    #[test]
    fn a_missing_record_or_a_refusal_ends_the_run() {
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
