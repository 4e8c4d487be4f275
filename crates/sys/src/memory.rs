//! How much memory this process may use, and in which pages the kernel provides it.
//!
//! The kernel's files are read below a root, which is `/` for this machine, so that tests can
//! simulate others.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine's memory in bytes, or that of the process's control group if that is less.
///
/// Never returns zero: if nothing can be read, the whole address space counts as memory.
pub fn total_memory() -> u64 {
    let root = Path::new("/");
    let machine = memory_info(root, "MemTotal").unwrap_or(u64::MAX);
    let limit = memory_limit(root).map_or(u64::MAX, |limit| limit.bytes);
    machine.min(limit).max(1)
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

/// For each version of control groups: where they are, the controller under which
/// `/proc/self/cgroup` lists this process's group, and the file with a group's limit.
const GROUPS: [(&str, &str, &str); 2] = [
    ("sys/fs/cgroup", "", "memory.max"),
    ("sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
];

/// A limit on the memory of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The file in which it is set.
    pub file: PathBuf,
}

/// The smallest limit of this process's control groups, of either version, and of the groups above
/// them; `None` if no group limits memory.
#[must_use]
pub fn memory_limit(root: &Path) -> Option<MemoryLimit> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = GROUPS.iter().flat_map(|(mount, controller, file)| {
        // A container that sees only its own groups has its limit at their root, whatever its group
        // is called outside.
        let group = Path::new(group_of(&own, controller).unwrap_or_default());
        let files = group
            .ancestors()
            .map(move |group| root.join(mount).join(group).join(file));
        files.filter_map(|file| {
            let limit = fs::read_to_string(&file).ok()?;
            let bytes = limit.trim().parse().ok()?;
            Some(MemoryLimit { bytes, file })
        })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// The group with this controller, relative to the root of all groups.
fn group_of<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        controllers
            .split(',')
            .any(|one| one == controller)
            .then(|| group.trim_start_matches('/'))
    })
}

/// The setting for transparent huge pages of 2 MiB, `enabled` or `shmem_enabled`, and the file that
/// contains it.
///
/// Since Linux 6.8 (6.11 for shared memory) each size has its own setting, which usually is
/// `inherit`.
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

/// The selected value in a line such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(choice, _)| choice)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
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

    /// Checks that a simulated machine with these files has this limit.
    fn limited(test: &str, files: &[(&str, &str)], limit: Option<u64>) {
        let root = format!("mneme-groups-{test}-{}", std::process::id());
        let root = std::env::temp_dir().join(root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = memory_limit(&root);
        let file = found
            .as_ref()
            .map(|limit| fs::read_to_string(&limit.file).unwrap());
        let _ = fs::remove_dir_all(&root);
        assert_eq!(found.map(|limit| limit.bytes), limit, "{test}");
        let said = file.map(|text| text.trim().parse().unwrap());
        assert_eq!(said, limit, "{test}: the file that it names");
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code")]
    fn the_smallest_limit_of_a_processs_groups_counts() {
        let own = ("proc/self/cgroup", "0::/system.slice/mneme.service\n");
        let (above, service, other) = (
            "sys/fs/cgroup/system.slice/memory.max",
            "sys/fs/cgroup/system.slice/mneme.service/memory.max",
            "sys/fs/cgroup/user.slice/memory.max",
        );
        limited("none", &[], None);
        limited("free", &[own, (above, "max\n")], None);
        limited(
            "service",
            &[own, (above, "900\n"), (service, "800\n"), (other, "1\n")],
            Some(800),
        );
        limited(
            "slice",
            &[own, (above, "700\n"), (service, "max\n")],
            Some(700),
        );
        let first = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n";
        limited(
            "container of version 1",
            &[
                ("proc/self/cgroup", first),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "600\n"),
            ],
            Some(600),
        );
        limited(
            "version 1",
            &[
                ("proc/self/cgroup", first),
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
                (
                    "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
                    "500\n",
                ),
            ],
            Some(500),
        );
        // What a container with version 2 sees.
        limited(
            "container",
            &[
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "400\n"),
            ],
            Some(400),
        );
    }

    #[test]
    fn the_selected_value_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }
}
