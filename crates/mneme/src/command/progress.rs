//! A progress bar on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use super::size;

/// The bar's width in characters.
const WIDTH: u64 = 40;

/// Shows the progress of an operation on standard error, if that is a terminal.
#[derive(Debug, Default)]
pub struct ProgressLine(Mutex<Option<u64>>);

impl ProgressLine {
    /// Shows that `done` of `total` bytes are done.
    pub fn show(&self, done: u64, total: u64) {
        let mut errors = std::io::stderr();
        if !errors.is_terminal() || total == 0 {
            return;
        }
        let done = done.min(total);
        let part = (done as u128 * 1000 / u128::from(total)) as u64;
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.replace(part) != Some(part) {
            let end = if done == total { "\n" } else { "" };
            // An error in writing to the terminal does not stop the operation.
            let _ = write!(errors, "\r{}{end}", bar(part, total));
        }
    }
}

/// The bar, filled to `part` of `total`.
fn bar(part: u64, total: u64) -> String {
    let full = (part * WIDTH / 1000) as usize;
    let empty = WIDTH as usize - full;
    let (done, left) = ("#".repeat(full), ".".repeat(empty));
    let (percent, total) = (part / 10, size::show(total));
    format!("[{done}{left}] {percent:3} % of {total}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_from_left_to_right() {
        assert!(bar(0, 1 << 20).starts_with("[....") && bar(0, 1 << 20).contains("]   0 % of "));
        assert!(bar(500, 1 << 20).contains("#.") && bar(500, 1 << 20).contains("]  50 %"));
        assert!(bar(1000, 1 << 20).contains("##] 100 %"));
    }
}
