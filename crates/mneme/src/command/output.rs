//! All output of the command passes through here. If the reader of a pipe goes away, as `head`
//! does, the command ends without a panic.

use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Write as _};

pub use mneme_sys::with_causes;

/// The other end of the pipe is closed.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
pub struct Unheard;

/// The exit code that a shell shows for a program that was ended by SIGPIPE.
pub const UNHEARD: u8 = 128 + 13;

/// Prints a text unchanged.
pub fn print(text: impl Display) -> Result<(), Box<dyn Error>> {
    to(|out| write!(out, "{text}"))
}

/// Prints the output of `write`, which may be long.
pub fn to(
    write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = write(&mut out).and_then(|()| out.flush());
    printed.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Unheard.into(),
        _ => format!("cannot print: {error}").into(),
    })
}

/// Escapes the control characters, except line ends, in a text that others have influenced, such as
/// a server's answer, so that it cannot send commands to the terminal.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => plain.push('\n'),
            // Writing to a `String` does not fail.
            control if control.is_control() => {
                let _ = write!(plain, "\\x{:02x}", u32::from(control));
            }
            other => plain.push(other),
        }
    }
    plain
}

/// Prints a text and a line end.
pub fn line(text: impl Display) -> Result<(), Box<dyn Error>> {
    print(format_args!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            plain("gr\u{fc}n\n\u{1b}[2J\r\t\u{7f}\u{9b}"),
            "gr\u{fc}n\n\\x1b[2J\\x0d\\x09\\x7f\\x9b"
        );
    }
}
