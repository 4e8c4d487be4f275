//! Orders: permutations of all alignments, equal ones left as they stood.
//!
//! Both sorts take from every alignment a key that decides almost always alone, sort the keys with
//! all threads they are given, and never touch the alignments again.

mod name;

use crate::Alignment;
use crate::alignment::REVERSE;
use allocator_api2::alloc::Allocator;
use mneme_space::Stored;
use name::Names;
use std::cmp::Ordering;
use std::fmt;

/// In which order the alignments of a store stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Stored)]
pub enum Order {
    /// As in the file.
    #[default]
    AsRead,
    /// By reference sequence, position and strand; reads that are placed nowhere last.
    Coordinate,
    /// By name, numbers in names by their values; then by which read of a template it is.
    Name,
}

impl Order {
    /// What `@HD` says of it in `SO`.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Order::AsRead => "unknown",
            Order::Coordinate => "coordinate",
            Order::Name => "queryname",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::AsRead => "that of the file",
            Order::Coordinate => "by coordinate",
            Order::Name => "by name",
        })
    }
}

/// What orders alignments by coordinate, with the rank they had in the low 32 bits: so no two keys
/// are equal, and a sort that is not stable gives the result of one that is.
pub fn coordinate_key<A: Allocator>(alignment: &Alignment<A>, rank: u32) -> u128 {
    // -1, "nowhere", becomes the greatest number.
    let reference = alignment.reference() as u32;
    let reverse = alignment.flags() & REVERSE != 0;
    let place = ((alignment.position() + 1) as u64) << 1 | u64::from(reverse);
    u128::from(reference) << 96 | u128::from(place) << 32 | u128::from(rank)
}

/// The ranks of `keys` in order. See [`coordinate_key`].
pub fn by_coordinate(mut keys: Vec<u128>, threads: usize) -> impl Iterator<Item = u32> {
    sort(&mut keys, threads, u128::cmp);
    keys.into_iter().map(|key| key as u32)
}

/// The ranks of reads in order, by names and flags.
pub fn by_name(reads: &[(&[u8], u16)], threads: usize) -> impl Iterator<Item = u32> {
    let names = Names::new(reads);
    let mut keys = names.keys();
    sort(&mut keys, threads, |a, b| names.compare(a, b));
    keys.into_iter().map(|key| key.rank)
}

/// Sorts keys of which no two are equal, with that many threads: each a part, and the parts, now
/// sorted runs, by the standard library's stable sort, which finds runs and merges them.
fn sort<K: Send>(keys: &mut [K], threads: usize, compare: impl Fn(&K, &K) -> Ordering + Sync) {
    /// Below that many keys a thread costs more than it saves.
    const WORTH_A_THREAD: usize = 1 << 14;
    let threads = threads.min(keys.len() / WORTH_A_THREAD).max(1);
    if threads == 1 {
        return keys.sort_unstable_by(&compare);
    }
    std::thread::scope(|scope| {
        for part in keys.chunks_mut(keys.len().div_ceil(threads)) {
            scope.spawn(|| part.sort_unstable_by(&compare));
        }
    });
    keys.sort_by(&compare);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_give_the_same_order() {
        let scrambled = |n: u64| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let keys: Vec<u128> = (0..100_000).map(scrambled).collect();
        let alone: Vec<u32> = by_coordinate(keys.clone(), 1).collect();
        let together: Vec<u32> = by_coordinate(keys, 3).collect();
        assert!(alone == together);
    }
}
