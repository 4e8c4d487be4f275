//! The free frames and units. Derived from the tables, kept in memory by the writer.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{TreeExtent, UNITS};

/// The free space of a store, except free leaves.
#[derive(Debug, Default)]
pub(crate) struct FreeSpace {
    /// Frames without content, whose table on the medium is zero.
    unused: BTreeSet<u32>,
    /// Runs of frames with extents, by their first frame.
    maps: BTreeMap<u32, Units>,
    /// For each run: its number of frames, its longest free range of units, and its first frame.
    longest: BTreeSet<(u32, u32, u32)>,
    /// The number of frames in all runs.
    map_frames: u64,
}

/// The used units of a run, a bit each.
#[derive(Debug, Clone, Copy)]
struct Units {
    run: u32,
    used: [u64; UNITS as usize / 64],
}

impl Units {
    fn new(run: u32) -> Self {
        let mut units = Self {
            run,
            used: [0; UNITS as usize / 64],
        };
        units.set(0, TreeExtent::first(run), true);
        units
    }

    /// The first unit from `from` on that is used, or that is not; [`UNITS`] if there is none.
    fn next(&self, mut from: u32, used: bool) -> u32 {
        while from < UNITS {
            let word = self.used[from as usize / 64];
            let wanted = if used { word } else { !word } >> (from % 64);
            if wanted != 0 {
                return from + wanted.trailing_zeros();
            }
            from = (from / 64 + 1) * 64;
        }
        UNITS
    }

    fn set(&mut self, from: u32, count: u32, used: bool) {
        for unit in from..(from + count).min(UNITS) {
            let bit = 1 << (unit % 64);
            match used {
                true => self.used[unit as usize / 64] |= bit,
                false => self.used[unit as usize / 64] &= !bit,
            }
        }
    }

    /// The free ranges: where each begins, and its length.
    fn rows(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = self.next(next, false);
            next = self.next(first, true);
            (first < UNITS).then_some((first, next - first))
        })
    }

    fn longest(&self) -> u32 {
        self.rows().map(|(_, count)| count).max().unwrap_or(0)
    }
}

impl FreeSpace {
    /// Adds frames without content.
    pub(crate) fn add_unused(&mut self, frames: impl IntoIterator<Item = u32>) {
        self.unused.extend(frames);
    }

    /// Takes the lowest frame without content.
    pub(crate) fn take_frame(&mut self) -> Option<u32> {
        self.unused.pop_first()
    }

    /// Takes `run` adjacent frames without content, and returns the first.
    pub(crate) fn take_run(&mut self, run: u32) -> Option<u32> {
        let mut frames = self.unused.iter();
        let mut first = *frames.next()?;
        let mut count = 1;
        while count < run {
            let frame = *frames.next()?;
            if frame == first + count {
                count += 1;
            } else {
                (first, count) = (frame, 1);
            }
        }
        for frame in first..first + run {
            self.unused.remove(&frame);
        }
        Some(first)
    }

    /// How many of the frames directly before frame `end` have no content.
    pub(crate) fn unused_before(&self, end: u32) -> u32 {
        let last = self.unused.iter().rev();
        last.zip(1..)
            .take_while(|(frame, n)| **frame + n == end)
            .count() as u32
    }

    /// Adds a run of frames for extents.
    pub(crate) fn add_map(&mut self, frame: u32, run: u32) {
        let units = Units::new(run);
        self.longest.insert((run, units.longest(), frame));
        self.maps.insert(frame, units);
        self.map_frames += u64::from(run);
    }

    /// Allocates an extent in the smallest free range with space for it, in a run as short as
    /// possible.
    pub(crate) fn allocate(&mut self, len: u32) -> Option<TreeExtent> {
        let mut from = 1;
        while let Some(&(run, _, _)) = self.longest.range((from, 0, 0)..).next() {
            from = run + 1;
            let wanted = TreeExtent::units_of(len, run);
            let rows = self.longest.range((run, wanted, 0)..(from, 0, 0)).next();
            let Some(&(_, _, frame)) = rows.filter(|_| TreeExtent::suits(len, run)) else {
                continue;
            };
            let rows = self.maps.get(&frame)?.rows();
            let fits = rows.filter(|(_, count)| *count >= wanted);
            let extent = TreeExtent {
                frame,
                run,
                unit: fits.min_by_key(|(_, count)| *count)?.0,
                len,
            };
            self.mark(extent, true);
            return Some(extent);
        }
        None
    }

    /// Marks the units of an extent as used or free.
    pub(crate) fn mark(&mut self, extent: TreeExtent, used: bool) {
        if let Some(units) = self.maps.get_mut(&extent.frame) {
            self.longest
                .remove(&(units.run, units.longest(), extent.frame));
            units.set(extent.unit, extent.units(), used);
            self.longest
                .insert((units.run, units.longest(), extent.frame));
        }
    }

    /// Removes the runs without extents; returns the first frame and the length of each.
    pub(crate) fn take_empty(&mut self) -> Vec<(u32, u32)> {
        let is_empty =
            |(run, longest, _): &(u32, u32, u32)| *longest == UNITS - TreeExtent::first(*run);
        let empty = self.longest.extract_if(.., |map| is_empty(map));
        let empty: Vec<_> = empty.map(|(run, _, frame)| (frame, run)).collect();
        for (frame, run) in &empty {
            self.maps.remove(frame);
            self.map_frames -= u64::from(*run);
        }
        empty
    }

    /// The number of frames that do not hold leaves.
    pub(crate) fn frames(&self) -> u64 {
        self.unused.len() as u64 + self.map_frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{FRAME, TABLE};

    #[test]
    fn rows_are_used_from_the_smallest_and_join_again() {
        let mut space = FreeSpace::default();
        assert_eq!(space.allocate(5000), None);
        space.add_map(3, 1);
        let extents: Vec<_> = (0..508).map(|_| space.allocate(4096).unwrap()).collect();
        assert_eq!(space.allocate(1), None);
        assert_eq!((extents[0].unit, extents[507].unit), (4, 511));
        for i in [10, 11, 12, 20, 21] {
            space.mark(extents[i], false);
        }
        assert_eq!(space.allocate(3 * 4096 + 1), None);
        assert_eq!(space.allocate(4097).unwrap().unit, 24, "the smaller of two");
        assert_eq!(space.allocate(3 * 4096).unwrap().unit, 14);
        assert!(space.take_empty().is_empty());
        let mut space = FreeSpace::default();
        space.add_map(7, 1);
        let all = space.allocate(508 * 4096).unwrap();
        space.mark(all, false);
        assert_eq!(space.take_empty(), [(7, 1)]);
        assert_eq!(space.frames(), 0);
    }

    #[test]
    fn an_extent_of_any_length_lies_in_a_run_of_its_own_frames() {
        for len in [1, 508 * 4096, 508 * 4096 + 1, 2 << 20, 100 << 20, 1 << 30] {
            let run = TreeExtent::least_run(len);
            let mut space = FreeSpace::default();
            space.add_map(9, run);
            let extent = space.allocate(len).unwrap();
            assert!(extent.is_inside() && (extent.frame, extent.run) == (9, run));
            assert!(extent.at() >= 9 * FRAME + TABLE as u64);
            assert!(extent.at() + u64::from(len) <= (9 + u64::from(run)) * FRAME);
            assert_eq!(TreeExtent::at_word(extent.word(), len), extent);
            assert!(run == 1 || len >= (run - 2) * FRAME as u32);
        }
        let mut space = FreeSpace::default();
        space.add_map(1, 8);
        assert_eq!(
            space.allocate(4 * 32 * 1024),
            None,
            "too short for its units"
        );
        let values: Vec<_> = (0..7).map(|_| space.allocate(2_100_000).unwrap()).collect();
        assert_eq!(space.allocate(2_100_000), None);
        assert!(space.allocate(1_800_000).is_some());
        assert!(space.take_empty().is_empty());
        space.mark(values[3], false);
        assert_eq!(
            space.allocate(2_080_769),
            Some(TreeExtent {
                len: 2_080_769,
                ..values[3]
            })
        );
    }

    #[test]
    fn runs_are_frames_in_a_row() {
        let mut space = FreeSpace::default();
        space.add_unused([2, 3, 5, 6, 7, 9]);
        assert_eq!(space.take_run(4), None);
        assert_eq!(space.unused_before(10), 1);
        assert_eq!(space.take_run(3), Some(5));
        assert_eq!(space.take_run(2), Some(2));
        assert_eq!(space.take_frame(), Some(9));
        assert_eq!(space.unused_before(10), 0);
    }
}
