//! A page drawn over the one before on a terminal: never longer or wider than that, so that nothing
//! moves and what was on the terminal before stays in its history.

use std::io::IsTerminal;

use crate::command::output;

/// Of a terminal that does not say.
const USUAL: (usize, usize) = (80, 24);

/// Whether standard output can be drawn on.
pub fn is_drawn() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// What draws the page over whatever is there.
pub fn draw(page: &str) -> String {
    let (width, height) = mneme_sys::terminal_size().unwrap_or(USUAL);
    drawing(&output::plain(page), width, height)
}

/// The page's beginning, as much as fits, each line in the place of an old one, and away with what
/// is left of those. The last line is the cursor's.
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
    fn what_does_not_fit_is_left_out() {
        let page = "the head\nsecond line\n\nfourth\n";
        assert_eq!(
            drawing(page, 8, 3),
            "\x1b[H\x1b[2Kthe head\n\x1b[2Ksecond l\n\x1b[J"
        );
        let whole = drawing(page, 80, 24);
        assert_eq!(whole.matches('\n').count(), 4);
        assert!(whole.ends_with("fourth\n\x1b[J"));
        // Never what some terminals push into their history.
        assert!(!whole.contains("\x1b[2J"));
        assert_eq!(drawing(page, 80, 0), "\x1b[H\x1b[J");
    }
}
