//! The terminal that standard output is.

/// Characters in a line and lines of the terminal that standard output is; `None` if it is none, or
/// does not know.
#[must_use]
pub fn terminal_size() -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: this request writes a `winsize` to where it is pointed, which is one, and nothing if
    // it fails.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let known = asked == 0 && size.ws_col > 0 && size.ws_row > 0;
    known.then_some((size.ws_col.into(), size.ws_row.into()))
}
