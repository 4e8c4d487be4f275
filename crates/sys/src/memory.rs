//! How much memory this process may use, and in which pages it comes.
//!
//! What the kernel says in files is read below a root, `/` for this machine, so that tests have machines of
//! their own.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory of this machine, or of the control group the process runs in if that is less.
///
/// Zero never comes back: where nothing can be read, all addresses count as memory.
pub fn total_memory() -> u64 {
    let root = Path::new("/");
    let machine = memory_info(root, "MemTotal").unwrap_or(u64::MAX);
    machine.min(memory_limit(root).unwrap_or(u64::MAX)).max(1)
}

/// A line of `/proc/meminfo` in bytes.
#[must_use]
pub fn memory_info(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    line_of(&text, name)
}

fn line_of(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| *found == name)?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes that the control group allows, of either version; `None`: it does not limit memory.
#[must_use]
pub fn memory_limit(root: &Path) -> Option<u64> {
    let groups = [
        "sys/fs/cgroup/memory.max",
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    groups.iter().find_map(|path| {
        fs::read_to_string(root.join(path))
            .ok()?
            .trim()
            .parse()
            .ok()
    })
}

/// The choice that counts for transparent huge pages of 2 MiB, `enabled` or `shmem_enabled`, and the file that
/// has it.
///
/// Since Linux 6.8 (6.11 for shared memory) each size has a setting of its own, which usually says `inherit`.
#[must_use]
pub fn huge_page_setting(root: &Path, name: &str) -> Option<(PathBuf, String)> {
    let directory = root.join("sys/kernel/mm/transparent_hugepage");
    let choice = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path, chosen(&text)?.to_owned()))
    };
    let own = choice(directory.join("hugepages-2048kB").join(name));
    let own = own.filter(|(_, choice)| choice != "inherit");
    own.or_else(|| choice(directory.join(name)))
}

/// The choice in a line such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kibibytes() {
        let text = "MemFree: 1 kB\nMemTotal:       24561340 kB\n";
        assert_eq!(line_of(text, "MemTotal"), Some(24_561_340 << 10));
        assert_eq!(line_of(text, "Mem"), None);
        assert_eq!(line_of("MemTotal: lots\n", "MemTotal"), None);
        assert!(total_memory() > 1 << 20);
    }

    #[test]
    fn a_choice_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }
}
