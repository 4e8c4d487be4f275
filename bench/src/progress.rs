//! What is being done, on one line of a terminal; nothing elsewhere.

use std::io::{IsTerminal, Write};

/// Shows what is being done, in place of what was before.
pub fn show(what: impl std::fmt::Display) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Nothing depends on it.
        let _ = write!(terminal, "\r\x1b[2K{what}\r");
    }
}

/// Leaves the line to what is printed next.
pub fn clear() {
    show("");
}
