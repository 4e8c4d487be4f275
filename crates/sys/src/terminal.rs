//! The terminal on standard output.

/// The width in characters and the height in lines of the terminal on standard output; `None` if it
/// is not a terminal, or the size is unknown.
#[must_use]
pub fn terminal_size() -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: this request writes a `winsize` through the pointer, which is valid for one, and
    // nothing if it fails.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let known = asked == 0 && size.ws_col > 0 && size.ws_row > 0;
    known.then_some((size.ws_col.into(), size.ws_row.into()))
}
