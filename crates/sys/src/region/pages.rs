//! The pages that a region requested, and those that it really has.

#[cfg(any(test, not(miri)))]
use std::ops::Range;

/// The kind of pages that a region prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PagePolicy {
    /// The hugetlb pool if it has enough free pages, otherwise as [`Thp`](Self::Thp). Private
    /// memory uses the pool for each piece by which it grows; a memfd never changes its kind and
    /// uses the pool only if that can provide its maximum.
    #[default]
    Huge,
    /// For private memory frames of `/dev/gcma`, each piece by which it grows in one piece of
    /// physical memory, if that kernel module (`papers/kernel/gcma`) is loaded and grants them;
    /// otherwise as [`Huge`](Self::Huge). A forked child does not get them.
    Guaranteed,
    /// Transparent huge pages if the kernel provides them, otherwise 4 KiB.
    Thp,
    /// 4 KiB pages, even where the kernel would provide huge ones by default.
    Small,
}

impl PagePolicy {
    /// Whether the hugetlb pool is tried.
    #[cfg(not(miri))]
    pub(super) fn wants_pool(self) -> bool {
        matches!(self, Self::Huge | Self::Guaranteed)
    }
}

/// The kind of pages that back a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageKind {
    /// 4 KiB.
    Small,
    /// Transparent huge pages of 2 MiB; [`PageReport::huge_bytes`] says how many so far.
    Thp,
    /// 2 MiB pages from the reserved pool or from `/dev/gcma`, guaranteed and not swappable.
    HugeTlb,
}

/// The pages of a region at the time of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageReport {
    /// The kind that was obtained; the weakest if there are several. Before the first touch, what
    /// the kernel's settings promise; later, the actual kind.
    pub kind: PageKind,
    /// The number of bytes of the region that are in memory and mapped by this process, without
    /// those of `/dev/gcma`.
    pub resident_bytes: usize,
    /// The number of these bytes in pages of 2 MiB or more.
    pub huge_bytes: usize,
    /// Set when less was obtained than requested: the reason, and what to change.
    pub warning: Option<String>,
}

/// The numbers of bytes in memory, from `/proc/self/smaps`.
#[cfg(any(test, not(miri)))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Resident {
    pub total: usize,
    pub huge: usize,
}

/// Sums the `smaps` entries of the mappings that begin inside `range`.
#[cfg(any(test, not(miri)))]
pub(super) fn parse_smaps(text: &str, range: &Range<usize>) -> Resident {
    let mut sum = Resident::default();
    let mut inside = false;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        // A mapping's first line: `start-end perms offset device inode path`.
        if let Some(start) = mapping_start(line) {
            inside = range.contains(&start);
            continue;
        }
        if !inside {
            continue;
        }
        let bytes = value
            .trim()
            .strip_suffix(" kB")
            .and_then(|n| n.trim().parse::<usize>().ok())
            .map_or(0, |n| n.saturating_mul(1024));
        match key {
            "Rss" => sum.total += bytes,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => sum.huge += bytes,
            // Not part of Rss.
            "Shared_Hugetlb" | "Private_Hugetlb" => {
                sum.huge += bytes;
                sum.total += bytes;
            }
            _ => {}
        }
    }
    sum
}

#[cfg(any(test, not(miri)))]
fn mapping_start(line: &str) -> Option<usize> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    usize::from_str_radix(end, 16).ok()?;
    usize::from_str_radix(start, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
Size:               4096 kB\n\
Rss:                4096 kB\n\
AnonHugePages:      2048 kB\n\
ShmemPmdMapped:        0 kB\n\
VmFlags: rd wr mr mw me hg\n\
7f0000400000-7f0000800000 rw-s 00000000 00:0f 7   /memfd:x: (deleted)\n\
Rss:                   0 kB\n\
Shared_Hugetlb:     4096 kB\n\
7f0000800000-7f0000c00000 rw-p 00000000 00:00 0 \n\
Rss:                4096 kB\n";

    #[test]
    fn smaps_is_summed_only_over_the_range() {
        let range = 0x7f00_0000_0000..0x7f00_0080_0000;
        let mib = 1 << 20;
        assert_eq!(
            parse_smaps(SMAPS, &range),
            Resident {
                total: 8 * mib,
                huge: 6 * mib
            }
        );
        assert_eq!(parse_smaps(SMAPS, &(0..4096)), Resident::default());
        assert_eq!(
            parse_smaps("nonsense\n:\n-: \n", &range),
            Resident::default()
        );
    }
}
