//! Statistics of an arena, read from the search tree without a lock: cheap, and exact when nobody
//! claims.

use crate::arena::Arena;
use crate::frame::FRAME_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// Statistics of an arena, all in frames of 2 MiB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArenaStats {
    /// The number of frames that can be claimed, taken or not.
    pub frames: u32,
    /// The number of frames that the arena can still grow by.
    pub growable: u32,
    /// The number of frames before those, with tables and client area.
    pub own: u32,
    /// The number of free frames, without those [withheld](NodeStats::withheld). In an arena that
    /// lends, rented frames count as free, because any claim may take them.
    pub free: u32,
    /// The number of frames that are lent to the second class: rented (which count as free) or
    /// being filled (which do not; at most one for each node). A death during a change makes it
    /// wrong until the next [`sweep`](crate::Discardable::sweep).
    pub lent: u32,
    /// The number of frames that ordinary claims leave alone.
    pub reserved: u32,
    /// The largest number of frames that one claim can get now, ignoring the reserve. Frames that a
    /// tenant has filled since the last claim count as taken.
    pub longest_run: u32,
    /// The statistics of each NUMA node.
    pub nodes: Vec<NodeStats>,
}

/// Statistics of the frames of a NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStats {
    /// The number of frames on the node.
    pub frames: u32,
    /// The number of free frames, including rented ones, without those withheld.
    pub free: u32,
    /// The number of free frames for which the file system has no space, as far as this opening has
    /// noticed.
    pub withheld: u32,
    /// The largest number of frames that one claim can get on the node.
    pub longest_run: u32,
}

impl NodeStats {
    /// The number of the node's frames that are claimed.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        let unused = self.free.saturating_add(self.withheld);
        self.frames.saturating_sub(unused)
    }
}

impl ArenaStats {
    /// The number of bytes that can be claimed, taken or not.
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }

    /// The number of frames that are claimed; [withheld](NodeStats::withheld) ones are not.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.nodes.iter().map(NodeStats::in_use).sum()
    }
}

impl Arena {
    /// Statistics of the arena. Lock-free, O(zones * log frames); while others claim and release,
    /// each number belongs to a different moment.
    pub fn stats(&self) -> ArenaStats {
        let mut stats = ArenaStats {
            own: self.geometry.first_frame,
            frames: self.end_frame() - self.geometry.first_frame,
            growable: self.geometry.max_frames - self.end_frame(),
            nodes: vec![NodeStats::default(); usize::from(self.nodes())],
            ..ArenaStats::default()
        };
        let (Ok(header), Ok(summary), Ok(zones), Ok(lending)) =
            (self.header(), self.summary(), self.zones(), self.lending())
        else {
            return stats;
        };
        stats.reserved = self
            .reserve_now()
            .unwrap_or_else(|_| header.reserve_frames.load(Relaxed));
        stats.lent = lending.map_or(0, |lending| lending.header().lent.load(Relaxed));
        let named = self.named_by_tenants();
        for zone in zones {
            let frames = zone.end - zone.start;
            // Numbers read in the middle of a change may have any value; they are limited to what
            // is possible.
            let mut free = summary.within(zone.range()).free.min(frames);
            let below = self.backed.below_withheld(&zone);
            let (mut longest, mut from) = (0, below.start);
            for &(frame, is_claimable) in &named {
                if zone.range().contains(&frame) {
                    let in_tree = u32::from(summary.is_free(frame));
                    free = (free + u32::from(is_claimable)).saturating_sub(in_tree);
                }
                if !is_claimable && below.contains(&frame) {
                    longest = longest.max(summary.within(from..frame).longest[0]);
                    from = frame + 1;
                }
            }
            longest = longest.max(summary.within(from..below.end).longest[0]);
            let longest = longest.min(frames);
            stats.free += free;
            stats.longest_run = stats.longest_run.max(longest);
            if let Some(node) = stats.nodes.get_mut(usize::from(zone.node)) {
                node.frames += frames;
                node.free += free;
                node.longest_run = node.longest_run.max(longest);
            }
        }
        for (number, node) in (0..).zip(&mut stats.nodes) {
            let withheld = self.backed.withheld(number).min(node.free);
            node.free -= withheld;
            node.withheld = withheld;
            stats.free -= withheld;
        }
        stats
    }
}
