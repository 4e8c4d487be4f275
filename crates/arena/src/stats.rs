//! Numbers about an arena, from the search tree, without a lock: cheap enough for any moment, exact
//! when nobody claims.

use crate::arena::Arena;
use crate::frame::FRAME_BYTES;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers about an arena, all in frames of 2 MiB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArenaStats {
    /// Frames that can be handed out, taken or not.
    pub frames: u32,
    /// As many more the arena can get by growing.
    pub growable: u32,
    /// Frames before those: tables and client area.
    pub own: u32,
    /// Frames that nobody has, but for those [withheld](NodeStats::withheld). In an arena that
    /// lends, frames that are rented count as free, for any claim may have them.
    pub free: u32,
    /// Frames that are lent to the second class: rented (free), or being filled (not free, one a
    /// node at most). A death in between makes it wrong until the next
    /// [`sweep`](crate::Discardable::sweep).
    pub lent: u32,
    /// Frames that ordinary claims leave alone.
    pub reserved: u32,
    /// The most frames that one claim can get now (reserve aside). What a tenant has filled since
    /// the last claim counts as taken.
    pub longest_run: u32,
    /// These numbers by NUMA node.
    pub nodes: Vec<NodeStats>,
}

/// Numbers about the frames of a NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStats {
    /// Frames on the node.
    pub frames: u32,
    /// Frames that nobody has, but for those withheld, and what is rented.
    pub free: u32,
    /// Frames that nobody has, and that the file system has no space for, as far as this opening
    /// has met them.
    pub withheld: u32,
    /// The most frames that one claim can get on the node.
    pub longest_run: u32,
}

impl NodeStats {
    /// Frames of the node that somebody has.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        let unused = self.free.saturating_add(self.withheld);
        self.frames.saturating_sub(unused)
    }
}

impl ArenaStats {
    /// Bytes that can be handed out, taken or not.
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }

    /// Frames that somebody has. Those [withheld](NodeStats::withheld) nobody has.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.nodes.iter().map(NodeStats::in_use).sum()
    }
}

impl Arena {
    /// Numbers about the arena. Lock-free, O(zones * log frames); while others claim and release,
    /// each number is of a moment of its own.
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
            // Numbers read in the middle of a change may be any; they are kept within what is
            // possible.
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
