//! Which alignments of a store in coordinate order overlap a region.
//!
//! The scheme of BAM's indices (SAM specification, sections 5.1 to 5.3), over ranks instead of file
//! offsets. Every alignment belongs to the smallest bin that contains it; a bin of one level is an
//! eighth of one of the level above, the smallest have 16 KiB. What overlaps a region is in the few
//! bins that do. Beside the bins stands, for each window of 16 KiB, the first alignment that
//! reaches into it or beyond: what ranks below cannot overlap. As in CSI there are as many levels
//! as the longest reference needs; the list of windows has an entry only where the answer changes,
//! so that a position far out costs nothing.

use crate::Alignment;
use crate::error::OutOfMemory;
use crate::memory::{push, with_capacity_in};
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use mneme_space::Stored;
use std::ops::Range;

/// The smallest bins and the windows have 2 to this many positions.
const MIN_SHIFT: u32 = 14;

/// Levels below the bin of everything; as in BAI, 2^29 positions.
const MIN_LEVELS: u32 = 5;

/// Levels that suffice for every position of 63 bits.
const MAX_LEVELS: u32 = 17;

/// An index of one order of a store's alignments.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
pub struct Index<A: Allocator> {
    levels: u32,
    references: Vec<Shelf<A>, A>,
    /// The rank of the first alignment that is placed nowhere; all that follow are.
    unplaced: u32,
}

/// The alignments of one reference sequence.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
struct Shelf<A: Allocator> {
    /// By bin, then by rank.
    chunks: Vec<Chunk, A>,
    /// By window and by rank.
    reaches: Vec<Reach, A>,
}

/// Alignments in a row that belong to one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Stored)]
struct Chunk {
    bin: u64,
    start: u32,
    end: u32,
}

/// The first alignment that reaches into this window.
#[derive(Debug, Clone, Copy, Stored)]
struct Reach {
    window: i64,
    rank: u32,
}

/// Why there is no index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The alignment of this rank is out of order.
    Unsorted(u32),
    /// The memory is exhausted.
    OutOfMemory(OutOfMemory),
}

impl From<OutOfMemory> for Refused {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(error)
    }
}

impl<A: Allocator + Copy> Index<A> {
    /// Indexes alignments that are given by rank. `longest` is the length of the longest of
    /// `references` sequences.
    ///
    /// The alignments of a reference must stand together, by position; those placed nowhere last.
    pub(crate) fn build<'a>(
        alignments: impl Iterator<Item = &'a Alignment<A>>,
        references: usize,
        longest: u64,
        memory: A,
    ) -> Result<Self, Refused>
    where
        A: 'a,
    {
        let mut index = Self {
            levels: levels(longest),
            references: with_capacity_in(references, memory)?,
            unplaced: 0,
        };
        for _ in 0..references {
            index.references.push(Shelf {
                chunks: Vec::new_in(memory),
                reaches: Vec::new_in(memory),
            });
        }
        let mut last = (-1, -1);
        let mut placed = 0;
        for (rank, alignment) in (0..).zip(alignments) {
            let here = (alignment.reference(), alignment.position());
            let Ok(reference) = usize::try_from(here.0) else {
                continue;
            };
            let shelf = &mut index.references[reference];
            let returns = here.0 != last.0 && !shelf.reaches.is_empty();
            let backwards = here.0 == last.0 && here.1 < last.1;
            if returns || backwards || placed < rank {
                return Err(Refused::Unsorted(rank));
            }
            shelf.add(index.levels, here.1.max(0), alignment.end().max(1), rank)?;
            last = here;
            placed = rank + 1;
        }
        for shelf in &mut index.references {
            shelf.chunks.sort_unstable();
        }
        index.unplaced = placed;
        Ok(index)
    }

    /// The rank from which on alignments are placed nowhere.
    pub(crate) fn unplaced(&self) -> u32 {
        self.unplaced
    }

    /// Ranks, ascending, among which all alignments are that overlap `start..end`.
    pub(crate) fn candidates(
        &self,
        reference: u32,
        start: i64,
        end: i64,
    ) -> std::vec::Vec<Range<u32>> {
        let Some(shelf) = self.references.get(reference as usize) else {
            return std::vec::Vec::new();
        };
        let window = start >> MIN_SHIFT;
        let first = shelf.reaches.partition_point(|reach| reach.window < window);
        let Some(first) = shelf.reaches.get(first) else {
            return std::vec::Vec::new();
        };
        let mut found = std::vec::Vec::new();
        for level in 0..=self.levels {
            let bins = bin(self.levels, level, start)..=bin(self.levels, level, end - 1);
            let from = shelf
                .chunks
                .partition_point(|chunk| chunk.bin < *bins.start());
            let chunks = shelf.chunks[from..].iter();
            found.extend(
                chunks
                    .take_while(|chunk| chunk.bin <= *bins.end())
                    .filter(|chunk| chunk.end > first.rank)
                    .map(|chunk| chunk.start.max(first.rank)..chunk.end),
            );
        }
        found.sort_unstable_by_key(|range| range.start);
        found
    }
}

impl<A: Allocator> Shelf<A> {
    fn add(&mut self, levels: u32, start: i64, end: i64, rank: u32) -> Result<(), OutOfMemory> {
        let window = (end - 1) >> MIN_SHIFT;
        if self
            .reaches
            .last()
            .is_none_or(|reach| reach.window < window)
        {
            push(&mut self.reaches, Reach { window, rank })?;
        }
        let bin = smallest_bin(levels, start, end);
        match self.chunks.last_mut() {
            Some(chunk) if chunk.bin == bin => chunk.end = rank + 1,
            _ => push(
                &mut self.chunks,
                Chunk {
                    bin,
                    start: rank,
                    end: rank + 1,
                },
            )?,
        }
        Ok(())
    }
}

/// How many levels a reference of that length needs.
fn levels(longest: u64) -> u32 {
    (MIN_LEVELS..MAX_LEVELS)
        .find(|levels| longest <= 1 << (MIN_SHIFT + 3 * levels))
        .unwrap_or(MAX_LEVELS)
}

/// The bin of `level` that contains `position`; level 0 is one bin. What lies beyond the last bin
/// is put into it.
fn bin(levels: u32, level: u32, position: i64) -> u64 {
    let bins = 1u64 << (3 * level);
    let shift = MIN_SHIFT + 3 * (levels - level);
    let within = (position as u64).checked_shr(shift).unwrap_or(0);
    (bins - 1) / 7 + within.min(bins - 1)
}

/// The smallest bin that contains `start..end`.
fn smallest_bin(levels: u32, start: i64, end: i64) -> u64 {
    let same = |level: &u32| bin(levels, *level, start) == bin(levels, *level, end - 1);
    bin(levels, (0..=levels).rev().find(same).unwrap_or(0), start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alignment::{Fields, UNMAPPED};
    use allocator_api2::alloc::Global;
    use proptest::prelude::*;

    fn placed(reference: i32, position: i64, length: u32) -> Alignment<Global> {
        let fields = Fields {
            name: b"r",
            flags: if reference < 0 { UNMAPPED } else { 0 },
            reference,
            position,
            mapping_quality: 0,
            cigar: &(length << 4).to_le_bytes(),
            mate_reference: -1,
            mate_position: -1,
            template_length: 0,
            bases: 0,
            sequence: b"",
            qualities: b"",
            tags: b"",
        };
        Alignment::new_in(&fields, Global).unwrap()
    }

    fn index(alignments: &[Alignment<Global>]) -> Result<Index<Global>, Refused> {
        Index::build(alignments.iter(), 3, 1 << 20, Global)
    }

    #[test]
    fn out_of_order_alignments_are_named_by_rank() {
        let refused = |places: &[(i32, i64)]| {
            let alignments: Vec<_> = places.iter().map(|(r, p)| placed(*r, *p, 1)).collect();
            index(&alignments).err()
        };
        assert_eq!(refused(&[(2, 5), (2, 5), (0, 1), (-1, -1)]), None);
        assert_eq!(refused(&[(0, 5), (0, 4)]), Some(Refused::Unsorted(1)));
        assert_eq!(
            refused(&[(0, 5), (1, 4), (0, 6)]),
            Some(Refused::Unsorted(2))
        );
        assert_eq!(refused(&[(-1, -1), (0, 1)]), Some(Refused::Unsorted(1)));
    }

    proptest! {
        #[test]
        fn every_overlap_is_a_candidate_once(
            places in prop::collection::vec((0..2i32, prop_oneof![0..200_000i64, 0..1i64 << 40], prop_oneof![1..50u32, 1..1u32 << 20]), 0..200),
            regions in prop::collection::vec((0..2u32, prop_oneof![0..200_000i64, 0..1i64 << 40], 1..100_000i64), 20),
        ) {
            let mut places = places;
            places.sort_by_key(|place| (place.0, place.1));
            let alignments: Vec<_> = places.iter().map(|(r, p, l)| placed(*r, *p, *l)).collect();
            let index = index(&alignments).unwrap();
            for (reference, start, length) in regions {
                let end = start + length;
                let overlaps = |rank: &usize| {
                    let alignment = &alignments[*rank];
                    alignment.reference() as u32 == reference && alignment.position() < end && alignment.end() > start
                };
                let candidates = index.candidates(reference, start, end);
                let ranks = candidates.into_iter().flatten().map(|rank| rank as usize);
                let found: Vec<usize> = ranks.filter(overlaps).collect();
                let meant: Vec<usize> = (0..alignments.len()).filter(overlaps).collect();
                prop_assert_eq!(found, meant);
            }
        }
    }
}
