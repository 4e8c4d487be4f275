//! How many clients the limit on open files allows.

/// Descriptors that are not clients': standard streams, listeners, event queues, the store's own.
const RESERVED: usize = 32;

/// Descriptors of one I/O thread.
const PER_THREAD: usize = 8;

/// As many of the `wanted` clients as this process may have descriptors for; says so if they are fewer.
pub fn clients(wanted: usize, threads: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(open_files) = open_files(&limits) else {
        return wanted;
    };
    let possible = open_files
        .saturating_sub(RESERVED + PER_THREAD * threads)
        .max(1);
    if possible < wanted {
        tracing::warn!(
            maxclients = possible,
            wanted,
            open_files,
            "fewer clients than wanted: the limit on open files (ulimit -n) is too low"
        );
    }
    wanted.min(possible)
}

/// The soft limit on open files; `None` if there is none.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_the_first_number() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files(
                "Max open files            unlimited            unlimited            files\n"
            ),
            None
        );
        assert_eq!(open_files(""), None);
    }
}
