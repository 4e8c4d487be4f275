//! What the command prints goes out here: whoever stops listening, as `head` does, ends it without a panic.

use std::error::Error;
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};

/// Nobody reads on: the other end of the pipe is closed.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
pub struct Unheard;

/// What a shell shows of a program that a closed pipe has ended.
pub const UNHEARD: u8 = 128 + 13;

/// Prints a text as it is.
pub fn print(text: impl Display) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let printed = write!(out, "{text}").and_then(|()| out.flush());
    printed.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Unheard.into(),
        _ => format!("cannot print: {error}").into(),
    })
}

/// Prints a text and ends the line.
pub fn line(text: impl Display) -> Result<(), Box<dyn Error>> {
    print(format_args!("{text}\n"))
}
