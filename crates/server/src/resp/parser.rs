//! An incremental parser of requests: however the bytes are cut into reads, the same commands come
//! out, and every input ends in commands, in a wait for more bytes, or in one of Redis' own error
//! texts.
//!
//! A command that is not complete keeps what has been understood of it, so a request is looked at
//! once, however many reads it takes. Nothing is reserved on a client's word: a length that has
//! merely been announced costs nothing until its bytes arrive.

use super::batch::{Batch, Span};
use super::{inline, number};

/// What a client may send. The defaults are Redis'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Arguments of one command, its name included.
    pub arguments: u32,
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk: u32,
    /// Bytes of an inline command, or of a length's digits.
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

/// A client that has not authenticated may send no more than this: arguments a command, bytes an
/// argument.
const STRANGER: RequestLimits = RequestLimits {
    arguments: 10,
    bulk: 16 << 10,
    line: 64 << 10,
};

/// Commands in one batch at most; a longer pipeline comes as several batches.
const BATCH: usize = 1024;

/// The spans of an unfinished command with more arguments than this are moved with their memory: a
/// client that sends millions of them in many reads has them copied once, not at each read.
const MOVED: usize = 1024;

/// How the first record of TLS begins, and the preface of HTTP/2: no command does.
const FOREIGN: [&[u8]; 2] = [b"\x16\x03", b"PRI "];

/// Why a request cannot be understood. The text is Redis', to be sent behind `-ERR `; the
/// connection is then closed, because where the next command begins is anybody's guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is not a number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The number of arguments has no end of line in 64 KiB.
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
    /// An argument's length has no end of line in 64 KiB.
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
    /// What should be an inline command has a NUL, or begins as TLS or HTTP/2 do.
    #[error("Protocol error: another protocol than that of Redis")]
    ForeignProtocol,
}

/// An error is one line.
fn printable(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        _ => byte as char,
    }
}

/// Why the parser stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Everything complete is in the batch; the rest needs more bytes.
    Incomplete,
    /// The batch is full: execute it and call again with the input behind it.
    Full,
    /// What follows the batch's commands cannot be understood.
    Broken(ProtocolError),
}

/// What one call of [`Parser::parse`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes that need not be shown again: the batch's commands and the empty ones between them.
    pub consumed: usize,
    /// Why it stopped there.
    pub stop: Stop,
}

/// One connection's parser.
#[derive(Debug)]
pub struct Parser {
    limits: RequestLimits,
    trusted: bool,
    /// Arguments that the unfinished command still lacks; 0 between commands.
    missing: u32,
    /// Length of the argument at hand, once its header has been read.
    bulk: Option<u32>,
    /// Where to go on in the input, whose first byte is the unfinished command's.
    resume: usize,
    /// Arguments of the unfinished command.
    held: Vec<Span>,
}

impl Parser {
    /// A parser for a client that may send what `limits` allow.
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

    /// Whether the client has authenticated or need not. One that has not gets Redis' narrower
    /// limits, and its commands one by one, because each may change that.
    pub fn set_trusted(&mut self, trusted: bool) {
        self.trusted = trusted;
    }

    /// Forgets an unfinished command: the next call sees it again from its first byte.
    pub fn rewind(&mut self) {
        self.missing = 0;
        self.bulk = None;
        self.resume = 0;
        self.held.clear();
    }

    /// Bytes of memory that it keeps of an unfinished command, beside the input.
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
    /// The next call must show the input from [`Parsed::consumed`] on, longer if it can be (or call
    /// [`rewind`](Self::rewind) first). Inline commands are unescaped in place, and each is a batch
    /// of its own: a caller that leaves commands of a batch unexecuted may show them again, since
    /// only multi-bulk ones, which stay as they were, can be left.
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
            // In a local while the loop runs, so that it stays in a register.
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

    /// The number behind a `*`, and where the line after it begins. Redis takes a negative one for
    /// zero.
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
            // As Redis: the complaint comes with the end of the line.
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
    /// begins. A client of another protocol may be made to connect here by someone who chooses a
    /// part of what it sends. The binary fields before that part have a NUL: nothing behind a NUL
    /// is a command.
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

/// A line without its end is awaited, up to a limit.
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
/// `None` while the end of the line is missing. As Redis does, it takes `\r` and whatever byte
/// follows for the end.
#[inline(always)]
fn line(input: &[u8], at: usize) -> Option<(Option<i64>, usize)> {
    let digit = |byte: u8| i64::from(byte - b'0');
    // Nearly every line is one to three digits and has a few bytes behind it.
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

/// As [`line`], for every line.
#[inline(never)]
fn any_line(input: &[u8], at: usize) -> Option<(Option<i64>, usize)> {
    let rest = input.get(at..)?;
    let end = memchr::memchr(b'\r', rest)?;
    (end + 1 < rest.len()).then(|| (number::parse_i64(&rest[..end]), at + end + 2))
}
