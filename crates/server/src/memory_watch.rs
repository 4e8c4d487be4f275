//! Logs when memory cannot shrink with the data: **one line for each thing that compaction waits
//! for, and one when that is over**, however often it begins and ends in between.

use mneme_log::CompactionWait;

/// The number of milliseconds without a wait after which it is over.
const OVER_MS: u64 = 60_000;

/// What was logged.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    logged: Vec<CompactionWait>,
    /// When compaction was last found to wait.
    seen_ms: u64,
}

/// A line to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Waits(CompactionWait),
    Over,
}

impl MemoryWatch {
    /// Records what compaction waits for now, and returns the line to log.
    pub fn look(&mut self, now_ms: u64, wait: Option<CompactionWait>) -> Option<Line> {
        if let Some(wait) = wait {
            self.seen_ms = now_ms;
            let is_new = !self.logged.contains(&wait);
            return is_new.then(|| {
                self.logged.push(wait);
                Line::Waits(wait)
            });
        }
        let is_over = !self.logged.is_empty() && now_ms.saturating_sub(self.seen_ms) >= OVER_MS;
        is_over.then(|| {
            self.logged.clear();
            Line::Over
        })
    }
}

impl Line {
    /// Logs it.
    pub fn log(self) {
        match self {
            Line::Waits(CompactionWait::Readers) => tracing::warn!(
                "memory does not follow what lives: {}; `mneme segment show` says which",
                CompactionWait::Readers
            ),
            Line::Waits(wait) => tracing::warn!("memory does not follow what lives: {wait}"),
            Line::Over => tracing::info!("memory follows what lives again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_logged_once_until_none_was_seen_for_a_minute() {
        use CompactionWait::{Readers, Space};
        let mut watch = MemoryWatch::default();
        assert_eq!(watch.look(0, None), None);
        assert_eq!(
            watch.look(10_000, Some(Readers)),
            Some(Line::Waits(Readers))
        );
        for step in 1..20 {
            let wait = (step % 3 > 0).then_some(Readers);
            assert_eq!(watch.look(10_000 + step * 10_000, wait), None);
        }
        assert_eq!(watch.look(210_000, Some(Space)), Some(Line::Waits(Space)));
        assert_eq!(watch.look(210_000 + OVER_MS - 1, None), None);
        assert_eq!(watch.look(210_000 + OVER_MS, None), Some(Line::Over));
        assert_eq!(watch.look(900_000, None), None);
        assert_eq!(watch.look(910_000, Some(Space)), Some(Line::Waits(Space)));
    }
}
