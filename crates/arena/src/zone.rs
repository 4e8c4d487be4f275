//! Zones: contiguous ranges of frames, each on one NUMA node; no run crosses from one into another.
//!
//! A new arena has one zone a node, of equal size. Growth appends zones, or extends the last one if
//! it is on the same node, so that the nodes with the fewest frames catch up with the others. The
//! new table depends only on the old table, clipped to its frames before the growth, and on the
//! target. So a thread that finishes a dead process's growth computes the same table.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of entries of the zone table. When they are used up, further growth extends the last
/// zone.
pub(crate) const MAX_ZONES: usize = 256;

/// The minimum number of frames that a growth adds to a node; with fewer it leaves the node out. A
/// zone limits the longest run, so a small growth is more useful in one piece. 64 frames (128 MiB)
/// hold sixteen of the largest log segments.
const WORTHWHILE: u32 = 64;

/// A zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    pub start: u32,
    pub end: u32,
    pub node: u16,
}

impl Zone {
    pub fn range(&self) -> Range<u32> {
        self.start..self.end
    }
}

/// A zone as stored in a region. Written only by the holder of the arena's lock.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ZoneEntry {
    start: AtomicU32,
    end: AtomicU32,
    node: AtomicU32,
    reserved: AtomicU32,
}

const _: () = assert!(size_of::<ZoneEntry>() == 16);

impl ZoneEntry {
    // SYNC: Relaxed: the arena's lock orders writers, and `stats()` treats what it reads as a hint.
    pub fn load(&self) -> Zone {
        Zone {
            start: self.start.load(Relaxed),
            end: self.end.load(Relaxed),
            node: self.node.load(Relaxed) as u16,
        }
    }

    pub fn store(&self, zone: Zone) {
        self.start.store(zone.start, Relaxed);
        self.end.store(zone.end, Relaxed);
        self.node.store(u32::from(zone.node), Relaxed);
    }
}

/// The table after the arena's end has moved from frame `from` to frame `to`.
pub(crate) fn planned(existing: &[Zone], from: u32, to: u32, nodes: u16) -> Vec<Zone> {
    let mut zones: Vec<Zone> = existing
        .iter()
        .map(|zone| Zone {
            end: zone.end.min(from),
            ..*zone
        })
        .filter(|zone| zone.start < zone.end)
        .collect();
    if to <= from {
        return zones;
    }
    let last = zones.last().map(|zone| zone.node);
    let mut targets: Vec<u16> = (0..nodes.max(1)).collect();
    if last.is_some() {
        let worthwhile = ((to - from) / WORTHWHILE).clamp(1, u32::from(nodes.max(1))) as usize;
        targets.sort_by_key(|node| {
            let has: u64 = zones
                .iter()
                .filter(|zone| zone.node == *node)
                .map(|zone| u64::from(zone.end - zone.start))
                .sum();
            (has, *node)
        });
        targets.truncate(worthwhile);
        targets.sort_by_key(|node| (Some(*node) != last, *node));
    }
    let (share, remainder) = (
        (to - from) / targets.len() as u32,
        (to - from) % targets.len() as u32,
    );
    let mut start = from;
    for (index, node) in targets.into_iter().enumerate() {
        let end = start + share + u32::from((index as u32) < remainder);
        match zones.last_mut() {
            _ if end == start => {}
            Some(zone) if zone.node == node => zone.end = end,
            _ => zones.push(Zone { start, end, node }),
        }
        start = end;
    }
    if zones.len() > MAX_ZONES {
        zones.truncate(MAX_ZONES);
        zones[MAX_ZONES - 1].end = to;
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zone(start: u32, end: u32, node: u16) -> Zone {
        Zone { start, end, node }
    }

    #[test]
    fn a_new_arena_has_one_zone_a_node() {
        assert_eq!(planned(&[], 1, 101, 1), [zone(1, 101, 0)]);
        assert_eq!(
            planned(&[], 1, 102, 4),
            [
                zone(1, 27, 0),
                zone(27, 52, 1),
                zone(52, 77, 2),
                zone(77, 102, 3)
            ]
        );
        assert_eq!(planned(&[], 1, 3, 4), [zone(1, 2, 0), zone(2, 3, 1)]);
    }

    #[test]
    fn growth_extends_the_last_zone_of_the_same_node_and_appends_the_others() {
        let before = [zone(1, 101, 0), zone(101, 201, 1)];
        assert_eq!(
            planned(&before, 201, 601, 2),
            [zone(1, 101, 0), zone(101, 401, 1), zone(401, 601, 0)]
        );
        // Too little to be split: it goes to one of the nodes with the fewest frames.
        assert_eq!(
            planned(&before, 201, 210, 2).last(),
            Some(&zone(201, 210, 0))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn zones_cover_all_frames_once_and_a_growth_can_be_computed_again_half_way(
            first in 1u32..10, steps in prop::collection::vec(1u32..400, 1..300), nodes in 1u16..6, kept in any::<prop::sample::Index>(),
        ) {
            let mut zones = Vec::new();
            let mut end = first;
            for step in steps {
                let after = planned(&zones, end, end + step, nodes);
                // A dead process may have written any number of entries of the new table.
                let mut torn = after.clone();
                let torn_at = kept.index(after.len() + 1);
                for (index, old) in zones.iter().enumerate().skip(torn_at) {
                    torn[index] = *old;
                }
                torn.truncate(torn_at.max(zones.len()));
                prop_assert_eq!(&planned(&torn, end, end + step, nodes), &after);
                end += step;
                zones = after;
                prop_assert!(zones.len() <= MAX_ZONES);
                let mut at = first;
                for zone in &zones {
                    prop_assert_eq!(zone.start, at);
                    prop_assert!(zone.end > zone.start && zone.node < nodes);
                    at = zone.end;
                }
                prop_assert_eq!(at, end);
            }
        }
    }
}
