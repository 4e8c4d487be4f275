//! One connection that stores numbered values, and what it knows of them.
//!
//! Value `n` goes to key `n mod 64` of the stream's own and says which cut it was written before.
//! So what is found later shows which values of the stream are there, and whether they are the
//! first ones, without a gap.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::random::Random;

const KEYS: u64 = 64;

/// An acknowledgement that was received.
struct Mark {
    /// The disk's log was at most so long when the value was made durable.
    log_bytes: u64,
    value: u64,
    at: Instant,
}

/// What must be there after a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// All that was acknowledged.
    All,
    /// What was acknowledged two seconds before the cut.
    TwoSeconds,
}

pub struct Stream {
    id: usize,
    /// The last value that is there for certain, or was when the last cut had been looked at.
    kept: u64,
    /// The last value that was sent.
    sent: u64,
    /// From which value on they were written before which cut.
    written: Vec<(u64, u64)>,
    marks: Vec<Mark>,
    /// What the next look at the store must find at least.
    expected: u64,
    /// When the power went, at the earliest.
    cut: Option<Instant>,
}

/// What a look at the store after a cut has found.
#[derive(Debug, Default, Clone, Copy)]
pub struct Found {
    /// Values that had been promised, and how many of them are not there.
    pub promised: u64,
    pub lost: u64,
    /// The time between the acknowledgement of the first lost value and the cut.
    pub window: Duration,
}

impl Stream {
    pub fn new(id: usize) -> Self {
        Self {
            id,
            kept: 0,
            sent: 0,
            written: Vec::new(),
            marks: Vec::new(),
            expected: 0,
            cut: None,
        }
    }

    fn key(&self, value: u64) -> String {
        format!("stream-{}-{}", self.id, value % KEYS)
    }

    /// Value `n`, of up to two kilobytes.
    fn value(&self, n: u64) -> String {
        let written = self.written.iter().rev().find(|(from, _)| *from <= n);
        let before = written.map_or(0, |(_, cut)| *cut);
        let length = Random::new(n).below(2000) as usize;
        let letter = char::from(b'a' + (n % 26) as u8);
        format!("{before} {n} {}", letter.to_string().repeat(length))
    }

    /// The power went when the disk's log had that length.
    pub fn cut(&mut self, promise: Promise, log_bytes: u64) {
        // It went behind the last acknowledgement before which the log was no longer.
        let before = self.marks.iter().rfind(|mark| mark.log_bytes <= log_bytes);
        self.cut = before.map(|mark| mark.at);
        let holds = |mark: &&Mark| match (promise, self.cut) {
            (Promise::All, _) => mark.log_bytes <= log_bytes,
            // A server that answers nothing for a while is one whose machine does not run, or
            // whose disk does not answer: that time does not count.
            (_, Some(cut)) => mark.at + self.pause() + Duration::from_secs(2) <= cut,
            _ => false,
        };
        let last = self.marks.iter().rfind(holds);
        self.expected = last.map_or(self.kept, |mark| mark.value);
    }

    /// The longest time between two acknowledgements.
    fn pause(&self) -> Duration {
        let pauses = self.marks.windows(2).map(|two| two[1].at - two[0].at);
        pauses.max().unwrap_or_default()
    }

    /// Looks at what is there, before cut number `cut`. What is found is what counts from then on.
    ///
    /// # Errors
    /// In words, when the store cannot be read, or holds what it never held.
    pub fn look(&mut self, wire: &mut Wire, cut: u64) -> Result<Found, String> {
        let mut values = Vec::new();
        for key in 0..KEYS {
            wire.send(&["GET", &self.key(key)])?;
            values.push(wire.bulk()?);
        }
        let number = |value: &String| value.split(' ').nth(1)?.parse().ok();
        let last: u64 = values
            .iter()
            .flatten()
            .filter_map(number)
            .max()
            .unwrap_or(0);
        if last > self.sent {
            return Err(format!("value {last} was never sent, only {}", self.sent));
        }
        for (key, value) in (0..KEYS).zip(&values) {
            let newest = (0..=last)
                .rev()
                .take(KEYS as usize)
                .find(|n| n % KEYS == key);
            let wanted = newest.filter(|n| *n > 0).map(|n| self.value(n));
            if *value != wanted {
                let short = |value: &Option<String>| {
                    value
                        .as_ref()
                        .map(|v| v.chars().take(20).collect::<String>())
                };
                return Err(format!(
                    "stream {} holds values up to {last}, and at {key} {:?} instead of {:?}",
                    self.id,
                    short(value),
                    short(&wanted)
                ));
            }
        }
        let first_lost = self.marks.iter().find(|mark| mark.value > last);
        let window = first_lost.zip(self.cut);
        let found = Found {
            promised: self.expected,
            lost: self.expected.saturating_sub(last),
            window: window.map_or(Duration::ZERO, |(mark, cut)| {
                cut.saturating_duration_since(mark.at)
            }),
        };
        (self.kept, self.sent) = (last, last);
        self.expected = last;
        self.marks.clear();
        self.written.push((last + 1, cut));
        Ok(found)
    }

    /// Stores values until the connection ends. `log_bytes` is the present length of the log.
    ///
    /// # Errors
    /// In words, when the server answers with an error.
    pub fn store(
        &mut self,
        wire: &mut Wire,
        random: &mut Random,
        log_bytes: impl Fn() -> u64,
    ) -> Result<(), String> {
        loop {
            if self.id == 0 && random.below(400) == 0 {
                // A checkpoint beside what is written; one may be under way.
                let line = wire.send(&["BGREWRITEAOF"]).and_then(|()| wire.line());
                if line.is_err() {
                    return Ok(());
                }
            }
            let first = self.sent + 1;
            let many = 1 + random.below(8);
            let mut batch = Vec::new();
            for n in first..first + many {
                batch.extend(command(&["SET", &self.key(n), &self.value(n)]));
            }
            self.sent += many;
            if wire.stream.write_all(&batch).is_err() {
                return Ok(());
            }
            for value in first..first + many {
                let Ok(line) = wire.line() else {
                    return Ok(());
                };
                if line != "+OK" {
                    return Err(format!("SET was answered with {line}"));
                }
                self.marks.push(Mark {
                    log_bytes: log_bytes(),
                    value,
                    at: Instant::now(),
                });
            }
        }
    }
}

/// A connection to a server.
pub struct Wire {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Wire {
    /// Connects, if a server that serves answers there within that time.
    pub fn to_served(port: u16, limit: Duration) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).ok()?;
        let reader = BufReader::new(stream.try_clone().ok()?);
        let mut wire = Self { stream, reader };
        // QEMU accepts before there is a server, and may forget such a connection.
        wire.stream.set_read_timeout(Some(limit)).ok()?;
        wire.send(&["GET", "nothing"]).ok()?;
        let answered = wire.line().ok()?;
        wire.stream.set_read_timeout(None).ok()?;
        (answered == "$-1").then_some(wire)
    }

    fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let sent = self.stream.write_all(&command(words));
        sent.map_err(|error| format!("the connection: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) if line.ends_with("\r\n") => Ok(line.trim_end().to_owned()),
            Ok(_) => Err("the connection ended".to_owned()),
            Err(error) => Err(format!("the connection: {error}")),
        }
    }

    fn bulk(&mut self) -> Result<Option<String>, String> {
        let line = self.line()?;
        if line == "$-1" {
            return Ok(None);
        }
        let length = line
            .strip_prefix('$')
            .and_then(|length| length.parse().ok());
        let length: usize = length.ok_or_else(|| format!("GET was answered with {line}"))?;
        let mut bytes = vec![0; length + 2];
        let read = self.reader.read_exact(&mut bytes);
        read.map_err(|error| format!("the connection: {error}"))?;
        bytes.truncate(length);
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}
