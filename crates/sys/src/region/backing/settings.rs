//! What the kernel's settings promise about huge pages, and what to set if it is too little.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use super::super::pages::{Resident, chosen};
use super::super::{FRAME, PageKind};

/// Bytes that the hugetlb pool of 2 MiB pages could still promise.
pub(in super::super) fn hugetlb_free() -> usize {
    let read = |name: &str| -> usize {
        fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    let spare = read("nr_overcommit_hugepages").saturating_sub(read("surplus_hugepages"));
    (read("free_hugepages") + spare)
        .saturating_sub(read("resv_hugepages"))
        .saturating_mul(FRAME)
}

/// Whether memory will come in transparent huge pages on touch.
pub(super) enum Promise {
    Huge,
    /// Not, unless this is done.
    Unless(String),
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// For private memory.
pub(super) fn anonymous() -> Promise {
    judge("enabled", &["always", "madvise"], "madvise")
}

/// For a memfd.
pub(super) fn memfd() -> Promise {
    let good = ["always", "advise", "within_size", "force"];
    judge("shmem_enabled", &good, "advise")
}

/// For a file on a mounted tmpfs, whose mount option rules.
pub(super) fn tmpfs(file: &File) -> Promise {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = file.metadata().map_or(0, |meta| meta.dev());
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    match mount_of(&mounts, &device) {
        Some((_, options)) if promises_huge(options) => Promise::Huge,
        Some((point, _)) => Promise::Unless(format!("`mount -o remount,huge=advise {point}`")),
        None => memfd(),
    }
}

/// For a file on anything else.
pub(super) fn other() -> Promise {
    Promise::Unless("put the file on hugetlbfs or tmpfs".to_owned())
}

/// The mount point and the file system's options of the first mount of a device.
fn mount_of<'a>(mounts: &'a str, device: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        // `id parent major:minor root point options [tags] - type source super-options`
        let mut words = line.split(' ');
        let point = (words.nth(2)? == device).then(|| words.nth(1))??;
        Some((point, line.rsplit(' ').next()?))
    })
}

fn promises_huge(options: &str) -> bool {
    options
        .split(',')
        .filter_map(|option| option.strip_prefix("huge="))
        .any(|choice| matches!(choice, "always" | "within_size" | "advise"))
}

fn judge(name: &str, good: &[&str], wish: &str) -> Promise {
    // Since Linux 6.8 (6.11 for shared memory) each size has a setting of its own, which usually
    // says `inherit`.
    let own = format!("{THP}/hugepages-2048kB/{name}");
    let general = format!("{THP}/{name}");
    let path = match read_choice(&own).as_deref() {
        None | Some("inherit") => general,
        Some(_) => own,
    };
    match read_choice(&path) {
        Some(choice) if good.contains(&choice.as_str()) => Promise::Huge,
        Some(_) => Promise::Unless(format!("`echo {wish} > {path}`")),
        None => Promise::Unless("use a kernel with transparent huge pages".to_owned()),
    }
}

fn read_choice(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    chosen(&text).map(str::to_owned)
}

/// The kind to report for memory without a pool, and the warning if it is not huge: what is
/// found in memory, once there is a frame to look at; before that, what is promised.
pub(super) fn report(promise: Promise, resident: Resident) -> (PageKind, Option<String>) {
    let seen = resident.total >= FRAME;
    let huge = if seen {
        resident.huge.saturating_mul(2) >= resident.total
    } else {
        matches!(promise, Promise::Huge)
    };
    if huge {
        return (PageKind::Thp, None);
    }
    let remedy = match promise {
        Promise::Unless(remedy) => remedy,
        // They were promised and did not come.
        Promise::Huge => "memory may be fragmented: `sysctl vm.compact_memory=1`".to_owned(),
    };
    let state = if seen {
        format!(
            "only {} of {} MiB in memory are in huge pages",
            resident.huge >> 20,
            resident.total >> 20
        )
    } else {
        "memory will come in pages of 4 KiB".to_owned()
    };
    let warning = format!(
        "{state}, which costs speed. As root: {remedy}; or reserve a pool: \
         `sysctl vm.nr_hugepages=N` (2 MiB each)"
    );
    (PageKind::Small, Some(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n\
30 1 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=1024k,huge=advise\n\
31 1 0:26 / /run rw - tmpfs tmpfs rw,huge=never\n";

    #[test]
    fn a_tmpfs_mount_s_huge_option_is_found() {
        let (point, options) = mount_of(MOUNTS, "0:25").unwrap();
        assert_eq!(point, "/dev/shm");
        assert!(promises_huge(options));
        let (point, options) = mount_of(MOUNTS, "0:26").unwrap();
        assert_eq!(point, "/run");
        assert!(!promises_huge(options));
        assert_eq!(mount_of(MOUNTS, "0:99"), None);
        assert_eq!(mount_of("nonsense\n\n", "0:20"), None);
    }

    #[test]
    fn what_is_in_memory_overrules_what_was_promised() {
        let half = Resident {
            total: 4 * FRAME,
            huge: FRAME,
        };
        let (kind, warning) = report(Promise::Huge, half);
        assert_eq!(kind, PageKind::Small);
        assert!(warning.unwrap().contains("compact_memory"));
        let all = Resident {
            total: 4 * FRAME,
            huge: 4 * FRAME,
        };
        assert_eq!(
            report(Promise::Unless("x".to_owned()), all),
            (PageKind::Thp, None)
        );
        let (kind, warning) = report(Promise::Unless("do this".to_owned()), Resident::default());
        assert_eq!(kind, PageKind::Small);
        assert!(warning.unwrap().contains("do this"));
    }
}
