//! What several tests ask the kernel.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

/// The permissions of the mappings between two addresses, gaps shown as `hole`.
pub fn mapped(start: usize, end: usize) -> Vec<String> {
    let mut at = start;
    let mut found = Vec::new();
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let hex = |text| usize::from_str_radix(text, 16).unwrap();
        let (from, to) = (hex(from).max(start), hex(to).min(end));
        if from < to {
            if from > at {
                found.push("hole".to_owned());
            }
            found.push(rest.split(' ').next().unwrap().to_owned());
            at = to;
        }
    }
    if at < end {
        found.push("hole".to_owned());
    }
    // The kernel need not have merged neighbours of one kind yet.
    found.dedup();
    found
}
