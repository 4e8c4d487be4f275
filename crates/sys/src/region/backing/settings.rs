//! What the kernel's settings promise about huge pages, and what to change if that is too little.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use super::super::pages::Resident;
use super::super::{FRAME, PageKind};
use super::mapping;
use crate::files;
use crate::memory::{MemoryLimit, huge_page_setting, memory_info, memory_limit};

/// The number of bytes that the hugetlb pool of 2 MiB pages can still provide.
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

/// Whether memory will be allocated in transparent huge pages on touch.
pub(super) enum Promise {
    Huge,
    /// No, unless this is done.
    Unless(String),
}

/// For private memory.
pub(super) fn anonymous() -> Promise {
    judge("enabled", &["always", "madvise"], "madvise")
}

/// For a memfd.
pub(super) fn memfd() -> Promise {
    let good = ["always", "advise", "within_size", "force"];
    brought_in(judge("shmem_enabled", &good, "advise"))
}

/// Whether the kernel collapses shared memory into huge pages. Tried once.
pub(crate) fn collapses_shared_memory() -> bool {
    static COLLAPSES: OnceLock<bool> = OnceLock::new();
    *COLLAPSES.get_or_init(mapping::can_collapse)
}

/// If shared memory does not become huge on touch, [prefaulting](super::super::Region::prefault)
/// collapses it all the same on kernels from 6.1 on, which is as good for programs that prefault.
fn brought_in(on_touch: Promise) -> Promise {
    match on_touch {
        Promise::Huge => Promise::Huge,
        Promise::Unless(_) if collapses_shared_memory() => Promise::Huge,
        unless => unless,
    }
}

/// For a file on a mounted tmpfs, whose mount option decides.
pub(super) fn tmpfs(file: &File) -> Promise {
    let device = file.metadata().map_or(0, |meta| meta.dev());
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    // The first mount of it.
    let mounts = files::mounts();
    match mounts.into_iter().find(|mount| mount.device == device) {
        Some(mount) if files::promises_huge_pages(&mount.options) => Promise::Huge,
        Some(mount) => brought_in(Promise::Unless(format!(
            "`mount -o remount,huge=advise {}`",
            mount.point.display()
        ))),
        None => memfd(),
    }
}

/// For a file on anything else.
pub(super) fn other() -> Promise {
    Promise::Unless("put the file on hugetlbfs or tmpfs".to_owned())
}

fn judge(name: &str, good: &[&str], wish: &str) -> Promise {
    match huge_page_setting(Path::new("/"), name) {
        Some((_, choice)) if good.contains(&choice.as_str()) => Promise::Huge,
        Some((path, _)) => Promise::Unless(format!("`echo {wish} > {}`", path.display())),
        None => Promise::Unless("use a kernel with transparent huge pages".to_owned()),
    }
}

/// The smallest amount of memory for which the actual pages are conclusive. Of less, most may be
/// tables that were touched here and there before they were prefaulted or collapsed.
const SEEN: usize = 8 * FRAME;

/// The kind to report for memory without a pool, and a warning if it is not huge: the actual pages
/// once there is enough memory in use, and the promised ones before that.
pub(super) fn report(promise: Promise, resident: Resident) -> (PageKind, Option<String>) {
    let seen = resident.total >= SEEN;
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
        // Huge pages were promised and not provided.
        Promise::Huge => {
            let root = Path::new("/");
            let machine = memory_info(root, "MemTotal").unwrap_or(u64::MAX);
            let limit = memory_limit(root).filter(|limit| limit.bytes < machine);
            unkept(limit.as_ref())
        }
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

/// What to do if huge pages are promised and not provided: one reason is that a group at its limit
/// gets small pages.
fn unkept(limit: Option<&MemoryLimit>) -> String {
    let mut remedy = "memory may be fragmented: `sysctl vm.compact_memory=1`".to_owned();
    if let Some(MemoryLimit { bytes, file }) = limit {
        let (file, mib) = (file.display(), bytes >> 20);
        remedy += &format!("; or the control group is at its limit: {file} says {mib} MiB");
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_groups_limit_is_named() {
        let limit = MemoryLimit {
            bytes: 5 << 20,
            file: "/groups/memory.max".into(),
        };
        assert!(unkept(Some(&limit)).ends_with("/groups/memory.max says 5 MiB"));
        assert!(!unkept(None).contains("limit"));
    }

    #[test]
    fn the_actual_pages_overrule_the_promised_ones() {
        let half = Resident {
            total: SEEN,
            huge: SEEN / 4,
        };
        let (kind, warning) = report(Promise::Huge, half);
        assert_eq!(kind, PageKind::Small);
        assert!(warning.unwrap().contains("compact_memory"));
        let all = Resident {
            total: SEEN,
            huge: SEEN,
        };
        let tables = Resident {
            total: FRAME,
            huge: 0,
        };
        assert_eq!(report(Promise::Huge, tables), (PageKind::Thp, None));
        assert_eq!(
            report(Promise::Unless("x".to_owned()), all),
            (PageKind::Thp, None)
        );
        let (kind, warning) = report(Promise::Unless("do this".to_owned()), Resident::default());
        assert_eq!(kind, PageKind::Small);
        assert!(warning.unwrap().contains("do this"));
    }
}
