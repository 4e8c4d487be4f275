//! Which pages a region asked for, and which it really has.

#[cfg(any(test, not(miri)))]
use std::ops::Range;

/// The pages that a region would like to be backed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PagePolicy {
    /// The hugetlb pool if it has enough free pages, else as [`Thp`](Self::Thp). Private memory
    /// asks the pool for each piece that it grows by; a memfd is of one kind for ever and takes
    /// the pool only if that could hold its maximum.
    #[default]
    Huge,
    /// Transparent huge pages where the kernel gives them, else 4 KiB.
    Thp,
    /// 4 KiB pages, even where the kernel would give huge ones unasked.
    Small,
}

/// The pages that back a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageKind {
    /// 4 KiB.
    Small,
    /// Transparent huge pages of 2 MiB; [`PageReport::huge_bytes`] says how many so far.
    Thp,
    /// 2 MiB pages from the reserved pool, guaranteed and not swappable.
    HugeTlb,
}

/// What a region was given, at the moment of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageReport {
    /// What was asked for.
    pub policy: PagePolicy,
    /// What was obtained; of several the weakest. Before the first touch, what the kernel's
    /// settings promise; later, what is found in memory.
    pub kind: PageKind,
    /// Bytes of the region in memory and mapped by this process.
    pub resident_bytes: usize,
    /// Of these, bytes in pages of 2 MiB (or more).
    pub huge_bytes: usize,
    /// Set when less was obtained than asked for: why, and what to set.
    pub warning: Option<String>,
}

/// Bytes in memory, as `/proc/self/smaps` counts them.
#[cfg(any(test, not(miri)))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Resident {
    pub total: usize,
    pub huge: usize,
}

/// Sums what `smaps` says of the mappings that begin inside `range`.
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
    fn smaps_is_summed_over_the_range_alone() {
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
