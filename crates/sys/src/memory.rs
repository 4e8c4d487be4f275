//! How much memory this process may use.

use std::fs;

/// Bytes of memory of this machine, or of the control group the process runs in if that is less.
///
/// Zero never comes back: where nothing can be read, all addresses count as memory.
pub fn total_memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| of_meminfo(&text));
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let group = groups
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    machine
        .unwrap_or(u64::MAX)
        .min(group.unwrap_or(u64::MAX))
        .max(1)
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kibibytes() {
        assert_eq!(
            of_meminfo("MemFree: 1 kB\nMemTotal:       24561340 kB\n"),
            Some(24_561_340 << 10)
        );
        assert_eq!(of_meminfo("MemTotal: lots\n"), None);
        assert!(total_memory() > 1 << 20);
    }
}
