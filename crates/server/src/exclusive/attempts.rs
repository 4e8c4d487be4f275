//! Attempts to enter an exclusive section, each of which keeps others out for a short time only.

use std::time::Duration;

use super::{Earlier, ExclusiveSection, Sections};

/// How long each attempt at exclusive access keeps others from executing commands. It is short at
/// first, so that a long command of another thread delays few clients, and never longer than a
/// client may be kept waiting. After each failed attempt other threads may enter until the section
/// in the way is over. After the last one they may not, because otherwise this command might never
/// run while others send long commands all the time.
const ATTEMPTS_MS: [u64; 8] = [1, 2, 4, 8, 16, 32, 32, 32];

/// How long such an attempt waits before it checks again.
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How long a thread that serves no clients waits between two checks whether the section in its way
/// is over.
const PAUSE: Duration = Duration::from_millis(1);

impl Sections {
    /// Enters an exclusive section, as [`exclusive`](Self::exclusive), for a caller that has
    /// `tried` so often before.
    ///
    /// # Errors
    /// The section that was in the way for too long.
    pub fn attempt(
        &self,
        tried: usize,
        now_ns: impl Fn() -> u64,
    ) -> Result<ExclusiveSection<'_>, Earlier> {
        let mut end_ns = None;
        self.exclusive(|| {
            std::thread::sleep(LOOK_AGAIN);
            ATTEMPTS_MS.get(tried).is_none_or(|ms| {
                let now_ns = now_ns();
                now_ns < *end_ns.get_or_insert(now_ns + ms * 1_000_000)
            })
        })
    }

    /// Enters an exclusive section, for a thread that serves no clients. `None`: `goes_on` has
    /// returned false meanwhile.
    pub fn exclusive_while(
        &self,
        now_ns: impl Fn() -> u64,
        goes_on: impl Fn() -> bool,
    ) -> Option<ExclusiveSection<'_>> {
        let mut tried = 0;
        while goes_on() {
            let mut earlier = match self.attempt(tried, &now_ns) {
                Ok(section) => return Some(section),
                Err(earlier) => earlier,
            };
            tried += 1;
            while goes_on() && !self.are_over(&mut earlier) {
                std::thread::sleep(PAUSE);
            }
        }
        None
    }
}
