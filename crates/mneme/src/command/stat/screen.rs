//! A page drawn over the previous one on a terminal. It is cut to the terminal's size, so that
//! nothing scrolls, and the earlier contents of the terminal remain in its history.

use std::io::IsTerminal;

use crate::command::output;

/// The size assumed if the terminal does not report one.
const USUAL: (usize, usize) = (80, 24);

/// Whether standard output is a terminal that can be redrawn.
pub fn is_drawn() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// The bytes that draw the page over the current contents.
pub fn draw(page: &str) -> String {
    let (width, height) = mneme_sys::terminal_size().unwrap_or(USUAL);
    drawing(&output::plain(page), width, height)
}

/// The beginning of the page that fits. Each line replaces an old one, and the remaining old lines
/// are erased. The last line is left for the cursor.
fn drawing(page: &str, width: usize, height: usize) -> String {
    let mut drawing = "\x1b[H".to_owned();
    for line in page.lines().take(height.saturating_sub(1)) {
        drawing.push_str("\x1b[2K");
        drawing.extend(line.chars().take(width));
        drawing.push('\n');
    }
    drawing.push_str("\x1b[J");
    drawing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_left_out() {
        let page = "the head\nsecond line\n\nfourth\n";
        assert_eq!(
            drawing(page, 8, 3),
            "\x1b[H\x1b[2Kthe head\n\x1b[2Ksecond l\n\x1b[J"
        );
        let whole = drawing(page, 80, 24);
        assert_eq!(whole.matches('\n').count(), 4);
        assert!(whole.ends_with("fourth\n\x1b[J"));
        // Never the erase sequence that makes some terminals push the screen into their history.
        assert!(!whole.contains("\x1b[2J"));
        assert_eq!(drawing(page, 80, 0), "\x1b[H\x1b[J");
    }
}
