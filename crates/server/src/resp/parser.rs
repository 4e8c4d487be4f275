//! An incremental parser of requests. However the bytes are split into reads, the result does not
//! change: complete commands, a wait for more bytes, or one of Redis' error texts.
//!
//! The parser keeps the state of an incomplete command, so that it examines every byte once,
//! however many reads a command takes. A length that a client announces reserves no memory until
//! its bytes arrive.

use super::batch::{Batch, Span};
use super::{inline, number};

/// Limits on a client's requests. The defaults are Redis'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// The maximum number of arguments of one command, its name included.
    pub arguments: u32,
    /// The maximum number of bytes of one argument (`proto-max-bulk-len`).
    pub bulk: u32,
    /// The maximum number of bytes of an inline command, or of a length's digits.
    pub line: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            arguments: i32::MAX.unsigned_abs(),
            bulk: 512 << 20,
            line: 64 << 10,
        }
    }
}

/// The limits for a client that has not authenticated.
const STRANGER: RequestLimits = RequestLimits {
    arguments: 10,
    bulk: 16 << 10,
    line: 64 << 10,
};

/// The maximum number of commands in one batch; a longer pipeline becomes several batches.
const BATCH: usize = 1024;

/// If an unfinished command has more arguments than this, the buffer of its spans is swapped
/// instead of copied. Otherwise a client that sends millions of arguments in many reads would have
/// them copied at each read.
const MOVED: usize = 1024;

/// The first bytes of a TLS record and of the HTTP/2 preface; no Redis command begins like this.
const FOREIGN: [&[u8]; 2] = [b"\x16\x03", b"PRI "];

/// Why a request cannot be parsed. The text is Redis', and is sent after `-ERR `. The connection is
/// then closed, because it is unknown where the next command begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number of arguments is not a number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The number of arguments is not followed by an end of line within 64 KiB.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// More arguments than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedDollar(u8),
    /// An argument's length is not a number, negative, or too large.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// An argument's length is not followed by an end of line within 64 KiB.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// A longer argument than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// An inline command of more than 64 KiB.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// An inline command with a quote that does not close.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A line that should be an inline command contains a NUL byte, or begins like TLS or HTTP/2.
    #[error("Protocol error: another protocol than that of Redis")]
    ForeignProtocol,
}

/// A byte as an error message shows it: an error must be one line.
fn printable(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        _ => byte as char,
    }
}

/// Why the parser stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Every complete command is in the batch; the rest needs more bytes.
    Incomplete,
    /// The batch is full. The caller executes it, and calls again with the input after it.
    Full,
    /// The input after the batch's commands cannot be parsed.
    Broken(ProtocolError),
}

/// The result of one call of [`Parser::parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// The number of bytes that need not be passed to the next call: the batch's commands and the
    /// empty ones between them.
    pub consumed: usize,
    /// Why parsing stopped after them.
    pub stop: Stop,
}

/// One connection's parser.
#[derive(Debug)]
pub struct Parser {
    limits: RequestLimits,
    trusted: bool,
    /// The number of arguments that the unfinished command still lacks; 0 between commands.
    missing: u32,
    /// The length of the current argument, if its header has been read.
    bulk: Option<u32>,
    /// The offset to continue at, counted from the first byte of the unfinished command.
    resume: usize,
    /// The arguments of the unfinished command so far.
    held: Vec<Span>,
}

impl Parser {
    /// A parser for a client with these limits.
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            limits,
            trusted: true,
            missing: 0,
            bulk: None,
            resume: 0,
            held: Vec::new(),
        }
    }

    /// Sets whether the client has authenticated or need not. A client that has not authenticated
    /// gets Redis' narrower limits, and its commands are returned one at a time, because each may
    /// authenticate it.
    pub fn set_trusted(&mut self, trusted: bool) {
        self.trusted = trusted;
    }

    /// Forgets an unfinished command: the next call must begin with its first byte again.
    pub fn rewind(&mut self) {
        self.missing = 0;
        self.bulk = None;
        self.resume = 0;
        self.held.clear();
    }

    /// The number of bytes of memory that hold the state of an unfinished command, without the
    /// input.
    pub fn kept_bytes(&self) -> usize {
        self.held.capacity() * size_of::<Span>()
    }

    /// How many more bytes the unfinished command is known to need; a hint for the size of the next
    /// read.
    pub fn wanted(&self, available: usize) -> usize {
        match self.bulk {
            Some(len) => (self.resume + len as usize + 2).saturating_sub(available),
            None => 0,
        }
    }

    /// Fills `batch` with the complete commands at the front of `input`.
    ///
    /// The next call must pass the input from [`Parsed::consumed`] on, with more bytes after it if
    /// there are any (or call [`rewind`](Self::rewind) first). A caller that leaves commands of a
    /// batch unexecuted may pass them again. That is safe because only multi-bulk commands, whose
    /// bytes do not change, can be left: inline commands are unescaped in place, and each is a
    /// batch of its own.
    pub fn parse(&mut self, input: &mut [u8], batch: &mut Batch) -> Parsed {
        batch.clear();
        if self.held.len() > MOVED {
            std::mem::swap(&mut batch.spans, &mut self.held);
        } else {
            batch.spans.append(&mut self.held);
        }
        // Spans hold 32-bit offsets; the query buffer's limit lies far below.
        let visible = input.len().min(u32::MAX as usize);
        let input = &mut input[..visible];
        let mut consumed = 0;
        let mut at = std::mem::take(&mut self.resume);
        let stop = match self.commands(input, &mut at, &mut consumed, batch) {
            Ok(stop) => stop,
            Err(error) => Stop::Broken(error),
        };
        let unfinished = batch.unfinished();
        if self.missing > 0 && stop == Stop::Incomplete {
            self.resume = at - consumed;
            if consumed == 0 && unfinished == 0 && batch.spans.len() > MOVED {
                std::mem::swap(&mut batch.spans, &mut self.held);
                return Parsed { consumed, stop };
            }
            self.held
                .extend(batch.spans[unfinished..].iter().map(|span| Span {
                    start: span.start - consumed as u32,
                    len: span.len,
                }));
        }
        batch.spans.truncate(unfinished);
        Parsed { consumed, stop }
    }

    fn commands(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
        consumed: &mut usize,
        batch: &mut Batch,
    ) -> Result<Stop, ProtocolError> {
        let most = if self.trusted { BATCH } else { 1 };
        loop {
            if self.missing == 0 {
                if batch.len() >= most {
                    return Ok(Stop::Full);
                }
                match input.get(*at) {
                    None => return Ok(Stop::Incomplete),
                    Some(b'*') => {
                        let Some((count, next)) = self.multibulk_count(input, *at + 1)? else {
                            return Ok(Stop::Incomplete);
                        };
                        *at = next;
                        self.missing = count;
                        if count == 0 {
                            *consumed = next;
                            continue;
                        }
                    }
                    Some(_) => {
                        if !batch.is_empty() {
                            return Ok(Stop::Full);
                        }
                        let Some(next) = self.inline(input, *at, batch)? else {
                            return Ok(Stop::Incomplete);
                        };
                        *at = next;
                        *consumed = next;
                        if !batch.spans.is_empty() {
                            batch.is_inline = true;
                            batch.finish_command(next);
                            return Ok(Stop::Full);
                        }
                        continue;
                    }
                }
            }
            // A local variable while the loop runs, so that the compiler keeps it in a register.
            let mut missing = self.missing;
            let mut known = self.bulk.take();
            while missing > 0 {
                let len = match known.take() {
                    Some(len) => len,
                    None => {
                        let Some((len, next)) = self.bulk_length(input, *at)? else {
                            self.missing = missing;
                            return Ok(Stop::Incomplete);
                        };
                        *at = next;
                        len
                    }
                };
                // Redis does not look at the two bytes behind an argument either.
                if input.len() - *at < len as usize + 2 {
                    self.missing = missing;
                    self.bulk = Some(len);
                    return Ok(Stop::Incomplete);
                }
                batch.spans.push(Span {
                    start: *at as u32,
                    len,
                });
                *at += len as usize + 2;
                missing -= 1;
            }
            self.missing = 0;
            *consumed = *at;
            batch.finish_command(*at);
        }
    }

    /// The number after a `*`, and where the line after it begins. As in Redis, a negative number
    /// counts as zero.
    fn multibulk_count(
        &self,
        input: &[u8],
        at: usize,
    ) -> Result<Option<(u32, usize)>, ProtocolError> {
        let Some(line) = line(input, at) else {
            return too_long(
                input,
                at,
                self.limits.line,
                ProtocolError::TooBigMultibulkCount,
            );
        };
        let (count, next) = line;
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?.max(0);
        if count > i64::from(self.limits.arguments) {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if !self.trusted && count > i64::from(STRANGER.arguments) {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        Ok(Some((count as u32, next)))
    }

    /// The length of the argument whose `$` should be at `at`, and where the argument begins.
    #[inline(always)]
    fn bulk_length(&self, input: &[u8], at: usize) -> Result<Option<(u32, usize)>, ProtocolError> {
        let longest = self.limits.line;
        let Some(&first) = input.get(at) else {
            return Ok(None);
        };
        if first != b'$' {
            // As in Redis, the error is reported only once the end of the line has arrived.
            return match any_line(input, at) {
                Some(_) => Err(ProtocolError::ExpectedDollar(first)),
                None => too_long(input, at, longest, ProtocolError::TooBigBulkCount),
            };
        }
        let Some((len, next)) = line(input, at + 1) else {
            return too_long(input, at, self.limits.line, ProtocolError::TooBigBulkCount);
        };
        match len {
            Some(len) if (0..=i64::from(self.limits.bulk)).contains(&len) => {
                if !self.trusted && len > i64::from(STRANGER.bulk) {
                    return Err(ProtocolError::UnauthenticatedBulkLength);
                }
                Ok(Some((len as u32, next)))
            }
            _ => Err(ProtocolError::InvalidBulkLength),
        }
    }

    /// Splits the inline command at `at` into the batch's spans; returns where the next line
    /// begins. A line with a NUL byte is refused. Reason: an attacker who controls part of what a
    /// client of another protocol sends may make that client connect to this server. The binary
    /// fields that precede the attacker's part contain a NUL, so nothing after it is executed.
    fn inline(
        &self,
        input: &mut [u8],
        at: usize,
        batch: &mut Batch,
    ) -> Result<Option<usize>, ProtocolError> {
        let rest = &input[at..];
        let found = memchr::memchr2(b'\n', 0, rest);
        if FOREIGN.iter().any(|begin| rest.starts_with(begin))
            || found.is_some_and(|at| rest[at] == 0)
        {
            return Err(ProtocolError::ForeignProtocol);
        }
        let Some(end) = found.map(|len| at + len) else {
            return too_long(input, at, self.limits.line, ProtocolError::TooBigInline);
        };
        let stripped = if end > at && input[end - 1] == b'\r' {
            end - 1
        } else {
            end
        };
        inline::split(input, at, stripped, &mut batch.spans)
            .ok_or(ProtocolError::UnbalancedQuotes)?;
        Ok(Some(end + 1))
    }
}

/// Waits for the end of a line, or returns an error if the line is longer than the limit.
fn too_long<T>(
    input: &[u8],
    at: usize,
    most: usize,
    error: ProtocolError,
) -> Result<Option<T>, ProtocolError> {
    if input.len() - at.min(input.len()) > most {
        Err(error)
    } else {
        Ok(None)
    }
}

/// The integer on the line at `at` (`None` if it is something else) and where the next line begins;
/// `None` if the end of the line has not arrived. As in Redis, the line ends with `\r` and one more
/// byte, whichever that is.
#[inline(always)]
fn line(input: &[u8], at: usize) -> Option<(Option<i64>, usize)> {
    let digit = |byte: u8| i64::from(byte - b'0');
    // Fast path: nearly every line has one to three digits, and a few more bytes follow it.
    match input.get(at..)?.first_chunk::<8>() {
        Some(&[a @ b'0'..=b'9', b'\r', ..]) => Some((Some(digit(a)), at + 3)),
        Some(&[a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', ..]) => {
            Some((Some(10 * digit(a) + digit(b)), at + 4))
        }
        Some(&[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', ..]) => {
            Some((Some(100 * digit(a) + 10 * digit(b) + digit(c)), at + 5))
        }
        _ => any_line(input, at),
    }
}

/// As [`line`], for lines of every length.
#[inline(never)]
fn any_line(input: &[u8], at: usize) -> Option<(Option<i64>, usize)> {
    let rest = input.get(at..)?;
    let end = memchr::memchr(b'\r', rest)?;
    (end + 1 < rest.len()).then(|| (number::parse_i64(&rest[..end]), at + end + 2))
}
