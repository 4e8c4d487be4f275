//! How many clients the limit on open files allows, once it is raised as far as the system lets us.

/// Descriptors that are not clients': standard streams, listeners, event queues, the store's own.
const RESERVED: usize = 32;

/// Descriptors of one I/O thread.
const PER_THREAD: usize = 8;

/// As many of the `wanted` clients as this process may have descriptors for, the limit on them raised for it; says so if
/// they are fewer.
pub fn clients(wanted: usize, threads: usize) -> usize {
    let others = RESERVED + PER_THREAD * threads;
    let needed = wanted.saturating_add(others);
    let Ok(open_files) = mneme_sys::allow_open_files(needed as u64) else {
        return wanted;
    };
    let possible = possible(open_files, others);
    if possible < wanted {
        tracing::warn!(
            maxclients = possible,
            wanted,
            open_files,
            "fewer clients than wanted: the hard limit on open files (ulimit -Hn) is too low"
        );
    } else {
        tracing::debug!(
            maxclients = wanted,
            open_files,
            "the limit on open files suffices"
        );
    }
    wanted.min(possible)
}

/// Clients that the limit leaves room for; one at least.
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
    fn clients_get_what_others_leave() {
        assert_eq!(possible(1024, 48), 976);
        assert_eq!(possible(20, 48), 1);
        assert_eq!(possible(u64::MAX, 48), usize::MAX - 48);
    }
}
