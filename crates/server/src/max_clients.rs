//! The number of clients that the limit on open files allows, after it was raised as far as the
//! system permits. As in Redis, `maxclients` is lowered to that number, and cannot be set beyond
//! it.

use crate::metrics;

/// Descriptors that are not used for clients: standard streams, listeners, the store's own, those
/// for a successor's requests.
const RESERVED: usize = 32;

/// Descriptors of one I/O thread: its event queue, its waker, its copies of the listeners.
const PER_THREAD: usize = 8;

/// How many of the `wanted` clients this process has descriptors for in addition to its threads,
/// and its scrapers if it `has_metrics`. Raises the limit on descriptors if necessary.
pub(crate) fn clients(wanted: usize, threads: usize, has_metrics: bool) -> usize {
    let metrics = if has_metrics { metrics::DESCRIPTORS } else { 0 };
    let others = RESERVED + PER_THREAD * threads + metrics;
    let needed = wanted.saturating_add(others);
    match mneme_sys::allow_open_files(needed as u64) {
        Ok(open_files) => wanted.min(possible(open_files, others)),
        // The limit is unknown.
        Err(_) => wanted,
    }
}

/// The number of clients that the limit allows; at least one.
fn possible(open_files: u64, others: usize) -> usize {
    usize::try_from(open_files)
        .unwrap_or(usize::MAX)
        .saturating_sub(others)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_remaining_descriptors() {
        assert_eq!(possible(1024, 48), 976);
        assert_eq!(possible(20, 48), 1);
        assert_eq!(possible(u64::MAX, 48), usize::MAX - 48);
    }
}
