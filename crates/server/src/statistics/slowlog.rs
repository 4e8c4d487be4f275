//! The slow log: the most recent commands that took long, with their arguments shortened.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::resp::Arguments;

/// The number of arguments kept of a command, and of bytes kept of an argument, as in Redis.
const ARGUMENTS: usize = 32;
const BYTES: usize = 128;

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Slowlog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// The newest first.
    slow: VecDeque<Slow>,
}

/// An entry: one slow command.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    /// Counted from 0 since the server's start.
    pub id: u64,
    /// When it ended: seconds since 1970.
    pub at_s: u64,
    /// Microseconds that it took.
    pub took_us: u64,
    /// Its name and arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// The client's address and its name, shortened.
    pub client: (String, Vec<u8>),
}

impl Slowlog {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, and removes the oldest if there are `most` already. The entry's `id` is
    /// assigned here.
    pub fn enter(&self, mut slow: Slow, most: usize) {
        let mut entries = self.entries();
        slow.id = entries.next;
        entries.next += 1;
        entries.slow.push_front(slow);
        entries.slow.truncate(most);
    }

    /// Forgets all but the newest `most`.
    pub fn trim(&self, most: usize) {
        self.entries().slow.truncate(most);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries().slow.len()
    }

    /// The newest `most`, the newest first.
    pub fn newest(&self, most: usize) -> Vec<Slow> {
        self.entries().slow.iter().take(most).cloned().collect()
    }
}

/// The arguments as the log keeps them, shortened and without secrets. `together` is the number of
/// commands that were executed together in the recorded time.
pub(crate) fn shortened(args: Arguments<'_>, together: u64) -> Vec<Vec<u8>> {
    let kept = if args.len() > ARGUMENTS {
        ARGUMENTS - 1
    } else {
        args.len()
    };
    let mut words: Vec<Vec<u8>> = (0..kept)
        .map(|index| match is_secret(args, index) {
            true => b"(redacted)".to_vec(),
            false => cut(args.at(index)),
        })
        .collect();
    if kept < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    if together > 1 {
        words.push(format!("... ({} more commands)", together - 1).into_bytes());
    }
    words
}

/// The first bytes, followed by the number of bytes left out.
pub(crate) fn cut(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() <= BYTES {
        return bytes.to_vec();
    }
    let more = format!("... ({} more bytes)", bytes.len() - BYTES);
    [&bytes[..BYTES], more.as_bytes()].concat()
}

/// Settings that Redis keeps secret. Settings that this server refuses are included, because a
/// client that tries to set one has sent its password.
const SECRETS: [&[u8]; 5] = [
    b"requirepass",
    b"masterauth",
    b"masteruser",
    b"tls-key-file-pass",
    b"tls-client-key-file-pass",
];

/// Whether argument `index` is a password.
pub(crate) fn is_secret(args: Arguments<'_>, index: usize) -> bool {
    let is = |index: usize, word: &[u8]| args.at(index).eq_ignore_ascii_case(word);
    if is(0, b"AUTH") {
        return index > 0;
    }
    if is(0, b"HELLO") {
        return index > 2 && (is(index - 1, b"AUTH") || is(index - 2, b"AUTH"));
    }
    if is(0, b"ACL") {
        return index > 1 && is(1, b"SETUSER");
    }
    let is_value = is(0, b"CONFIG") && index > 2 && is(1, b"SET");
    is_value && SECRETS.iter().any(|name| is(index - 1, name))
}
