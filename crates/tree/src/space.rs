//! Which frames and units are free. Derived from the tables, in memory, the writer's alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{Extent, TABLE_UNITS, UNITS};

/// The free space of a store, but for free leaves.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Frames that hold nothing, and whose table is zero on the medium.
    unused: BTreeSet<u32>,
    /// Frames with extents.
    maps: BTreeMap<u32, Units>,
    /// The longest free row of units of each of these, and the frame.
    longest: BTreeSet<(u32, u32)>,
    /// Runs whose only extent is gone: the first frame and how many.
    free_runs: Vec<(u32, u32)>,
    /// Frames of runs in use.
    run_frames: u32,
}

/// The used units of a frame, a bit each.
#[derive(Debug, Clone, Copy)]
struct Units([u64; UNITS as usize / 64]);

impl Units {
    fn new() -> Self {
        let mut units = Self([0; UNITS as usize / 64]);
        units.set(0, TABLE_UNITS, true);
        units
    }

    fn is_used(&self, unit: u32) -> bool {
        self.0[unit as usize / 64] >> (unit % 64) & 1 == 1
    }

    fn set(&mut self, from: u32, count: u32, used: bool) {
        for unit in from..(from + count).min(UNITS) {
            let bit = 1 << (unit % 64);
            match used {
                true => self.0[unit as usize / 64] |= bit,
                false => self.0[unit as usize / 64] &= !bit,
            }
        }
    }

    /// The free rows: where they begin, and how long they are.
    fn rows(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = (next..UNITS).find(|unit| !self.is_used(*unit))?;
            next = (first..UNITS)
                .find(|unit| self.is_used(*unit))
                .unwrap_or(UNITS);
            Some((first, next - first))
        })
    }

    fn longest(&self) -> u32 {
        self.rows().map(|(_, count)| count).max().unwrap_or(0)
    }
}

impl Space {
    /// Adds frames that hold nothing.
    pub(crate) fn add_unused(&mut self, frames: impl IntoIterator<Item = u32>) {
        self.unused.extend(frames);
    }

    /// The lowest frame that holds nothing.
    pub(crate) fn take_frame(&mut self) -> Option<u32> {
        self.unused.pop_first()
    }

    /// The first of `run` frames in a row that hold nothing.
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

    /// How many of the last frames before frame `end` hold nothing.
    pub(crate) fn unused_before(&self, end: u32) -> u32 {
        let last = self.unused.iter().rev();
        last.zip(1..)
            .take_while(|(frame, n)| **frame + n == end)
            .count() as u32
    }

    /// Adds a frame for extents.
    pub(crate) fn add_map(&mut self, frame: u32) {
        let units = Units::new();
        self.longest.insert((units.longest(), frame));
        self.maps.insert(frame, units);
    }

    /// Adds a run of frames from `frame` on, with an extent or without one.
    pub(crate) fn add_run(&mut self, frame: u32, run: u32, used: bool) {
        match used {
            true => self.run_frames += run,
            false => self.free_runs.push((frame, run)),
        }
    }

    /// An extent in the smallest row that has space for it.
    pub(crate) fn allocate(&mut self, len: u32) -> Option<Extent> {
        let run = Extent::run(len);
        if run > 1 {
            let i = self.free_runs.iter().position(|(_, many)| *many == run)?;
            let (frame, _) = self.free_runs.swap_remove(i);
            self.run_frames += run;
            return Some(Extent {
                frame,
                unit: TABLE_UNITS,
                len,
            });
        }
        let mut extent = Extent {
            frame: 0,
            unit: 0,
            len,
        };
        let wanted = extent.units();
        let (_, frame) = *self.longest.range((wanted, 0)..).next()?;
        let rows = self.maps.get(&frame)?.rows();
        let fits = rows.filter(|(_, count)| *count >= wanted);
        (extent.frame, extent.unit) = (frame, fits.min_by_key(|(_, count)| *count)?.0);
        self.mark(extent, true);
        Some(extent)
    }

    /// Marks the units of an extent as used or free.
    pub(crate) fn mark(&mut self, extent: Extent, used: bool) {
        let run = Extent::run(extent.len);
        if run > 1 {
            debug_assert!(!used);
            self.run_frames -= run;
            self.free_runs.push((extent.frame, run));
        } else if let Some(units) = self.maps.get_mut(&extent.frame) {
            self.longest.remove(&(units.longest(), extent.frame));
            units.set(extent.unit, extent.units(), used);
            self.longest.insert((units.longest(), extent.frame));
        }
    }

    /// Takes the runs and the frames of extents that hold nothing any more; the first frame of each
    /// and how many.
    pub(crate) fn take_empty(&mut self) -> Vec<(u32, u32)> {
        let mut empty = std::mem::take(&mut self.free_runs);
        while let Some(&(longest, frame)) = self.longest.last()
            && longest == UNITS - TABLE_UNITS
        {
            self.longest.pop_last();
            self.maps.remove(&frame);
            empty.push((frame, 1));
        }
        empty
    }

    /// Frames that hold no leaves.
    pub(crate) fn frames(&self) -> u64 {
        let free: u32 = self.free_runs.iter().map(|(_, run)| run).sum();
        self.unused.len() as u64 + self.maps.len() as u64 + u64::from(self.run_frames + free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_used_from_the_smallest_and_join_again() {
        let mut space = Space::default();
        assert_eq!(space.allocate(5000), None);
        space.add_map(3);
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
        let mut space = Space::default();
        space.add_map(7);
        let all = space.allocate(508 * 4096).unwrap();
        assert_eq!(Extent::run(508 * 4096 + 1), 2);
        space.mark(all, false);
        assert_eq!(space.take_empty(), [(7, 1)]);
    }

    #[test]
    fn runs_are_frames_in_a_row() {
        let mut space = Space::default();
        space.add_unused([2, 3, 5, 6, 7, 9]);
        assert_eq!(space.take_run(4), None);
        assert_eq!(space.unused_before(10), 1);
        assert_eq!(space.take_run(3), Some(5));
        assert_eq!(space.take_run(2), Some(2));
        assert_eq!(space.take_frame(), Some(9));
        assert_eq!(space.unused_before(10), 0);
    }
}
