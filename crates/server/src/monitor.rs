//! Sends commands to clients that have called `MONITOR`: **every command that the server received
//! after its reply to `MONITOR` and that it executes**, in order for each sender, except for
//! commands of administrators. Passwords are left out.
//!
//! When a thread enters a section, it checks whether there are such clients: it has already
//! received the commands that it executes there.

use std::io::Write as _;
use std::sync::Arc;

use crate::client::{Client, Push, PushHead};
use crate::command::{Command, Flag};
use crate::resp::Arguments;
use crate::shared::Shared;
use crate::statistics::is_secret;

/// Sends an executed command to these clients; `database` was selected.
#[cold]
pub(crate) fn show(
    server: &Shared,
    client: &mut Client,
    database: usize,
    command: &Command,
    args: Arguments<'_>,
) {
    if command.has(Flag::Admin) || command.has(Flag::SkipMonitor) {
        return;
    }
    let push = Push {
        head: PushHead::Nothing,
        body: Arc::new(line(server.wall_us(), database, &client.entry.peer, args)),
    };
    let posted = |thread| client.wake_later(thread);
    server.pubsub.show(push, posted);
}

fn line(now_us: u64, database: usize, peer: &str, args: Arguments<'_>) -> Vec<u8> {
    let (second, microsecond) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut line = Vec::new();
    let unix = if peer.starts_with('/') { "unix:" } else { "" };
    // Writing to a `Vec` does not fail.
    let _ = write!(line, "+{second}.{microsecond:06} [{database} {unix}{peer}]");
    for (index, argument) in args.iter().enumerate() {
        line.push(b' ');
        match is_secret(args, index) {
            true => quote(b"(redacted)", &mut line),
            false => quote(argument, &mut line),
        }
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Writes `bytes` in quotes, as one word of printable characters.
fn quote(bytes: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            byte => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_as_redis_quotes_them() {
        let mut line = Vec::new();
        quote(b"a \"b\\\n\r\t\x07\x08\x00\xff~", &mut line);
        assert_eq!(line, br#""a \"b\\\n\r\t\a\b\x00\xff~""#);
    }
}
