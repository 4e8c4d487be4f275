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
    /// node at most). Counted by a look at each frame.
    pub lent: u32,
    /// Frames that ordinary claims leave alone.
    pub reserved: u32,
    /// The most frames that one claim can get now (reserve aside).
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
    /// Frames that are lent to the second class.
    pub lent: u32,
    /// Frames that nobody has, and that the file system has no space for, as far as this opening
    /// has met them.
    pub withheld: u32,
    /// The most frames that one claim can get on the node.
    pub longest_run: u32,
}

impl ArenaStats {
    /// Bytes that can be handed out, taken or not.
    pub fn bytes(&self) -> u64 {
        u64::from(self.frames) * FRAME_BYTES
    }
}

impl Arena {
    /// Numbers about the arena. Lock-free, O(zones * log frames), in an arena that lends O(frames);
    /// while others claim and release, each number is of a moment of its own.
    pub fn stats(&self) -> ArenaStats {
        let mut stats = ArenaStats {
            own: self.geometry.first_frame,
            frames: self.end_frame() - self.geometry.first_frame,
            growable: self.geometry.max_frames - self.end_frame(),
            nodes: vec![NodeStats::default(); usize::from(self.nodes())],
            ..ArenaStats::default()
        };
        let (Ok(header), Ok(summary), Ok(zones)) = (self.header(), self.summary(), self.zones())
        else {
            return stats;
        };
        stats.reserved = self
            .reserve_now()
            .unwrap_or_else(|_| header.reserve_frames.load(Relaxed));
        let table = self
            .table()
            .ok()
            .filter(|_| self.geometry.lending.is_some());
        for zone in zones {
            let frames = zone.end - zone.start;
            let mut lent = 0;
            // The tree leaves out what was being filled when a claim looked last.
            let mut filling = 0;
            // None are looked at in an arena that lends nothing.
            let lendable = table.as_ref().map_or(0..0, |_| zone.range());
            for frame in lendable {
                let status = table.as_ref().and_then(|table| table.get(frame)?.status());
                let Some(status) = status else { continue };
                lent += u32::from(status.state.is_lent());
                let claimable = status.state.is_claimable();
                filling += i32::from(summary.is_free(frame)) - i32::from(claimable);
            }
            stats.lent += lent;
            let within = summary.within(zone.range());
            // Numbers read in the middle of a change may be any; they are kept within what is
            // possible.
            let below = summary.within(self.backed.below_withheld(&zone));
            let free = within.free.min(frames).saturating_add_signed(-filling);
            let longest = below.longest[0].min(frames);
            stats.free += free;
            stats.longest_run = stats.longest_run.max(longest);
            if let Some(node) = stats.nodes.get_mut(usize::from(zone.node)) {
                node.frames += frames;
                node.lent += lent;
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
