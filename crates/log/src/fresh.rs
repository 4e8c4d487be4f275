//! Fresh memory is touched ahead of the writers, so that they seldom wait for the kernel.
//!
//! The first touch of a huge page zeroes it, and in a virtual machine may have to wait until the host
//! has one: milliseconds (5 ms a 2 MiB page, at times 80 ms, where this was measured), which a writer
//! would spend within one operation. Claims take the lowest free frames, so that what nobody has touched
//! begins behind the highest frame that was ever claimed; the maintainer keeps a few frames from there
//! on populated. Who is faster than it, or has no maintainer, touches for himself.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{Extent, FRAME_BYTES, Frame};
use mneme_sys::NodeId;

use crate::core::Core;

/// Frames populated ahead: at 16 to 32 bytes a record a second's worth of one writer, at 1 KiB some
/// milliseconds of it.
const AHEAD: u32 = 16;
/// They are at most this share of the frames, since they are resident before they are needed.
const SHARE: u32 = 64;

/// How far a node's frames have been claimed, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Claimed(Vec<AtomicU32>);

/// How far a maintainer has populated its node.
#[derive(Debug)]
pub(crate) struct Populated {
    node: NodeId,
    /// Where the node begins, once that has been looked up.
    start: Option<u32>,
    /// The frame behind the last that was populated.
    end: u32,
}

impl Claimed {
    pub fn new(nodes: u16) -> Claimed {
        Claimed((0..nodes).map(|_| AtomicU32::new(0)).collect())
    }

    /// Notes that `extent`, on `node`, is in use from now on.
    pub fn note(&self, node: NodeId, extent: Extent) {
        if let Some(end) = self.0.get(usize::from(node.0)) {
            // Relaxed: tells where to begin to touch, which is right wherever it is.
            end.fetch_max(extent.start.0 + extent.frames, Relaxed);
        }
    }

    fn end(&self, node: NodeId) -> u32 {
        let end = self.0.get(usize::from(node.0));
        end.map_or(0, |end| end.load(Relaxed))
    }
}

impl Populated {
    pub fn new(node: NodeId) -> Populated {
        Populated {
            node,
            start: None,
            end: 0,
        }
    }
}

impl Core {
    /// Populates fresh frames of the node up to the number kept ahead, one at a time, until `stopped`.
    pub(crate) fn populate(&self, populated: &mut Populated, stopped: &dyn Fn() -> bool) {
        let stats = self.arena.stats();
        let (first, behind) = (stats.own, stats.own + stats.frames);
        let ahead = AHEAD.min(stats.frames / SHARE).max(1);
        let start = *populated.start.get_or_insert_with(|| {
            let on_node = |frame: &u32| self.arena.node_of(Frame(*frame)) == populated.node;
            (first..behind).find(on_node).unwrap_or(behind)
        });
        loop {
            // What is claimed meanwhile is touched by those who claimed it.
            let claimed = self.claimed.end(populated.node).max(start);
            let next = populated.end.max(claimed);
            if next >= claimed.saturating_add(ahead).min(behind)
                || self.arena.node_of(Frame(next)) != populated.node
                || stopped()
            {
                break;
            }
            let bytes = u64::from(next) * FRAME_BYTES;
            let range = bytes as usize..(bytes + FRAME_BYTES) as usize;
            let backed = self.arena.back(Frame(next));
            if backed.is_err() || self.mem.region().prefault(range).is_err() {
                // No memory: who needs it hears of it.
                break;
            }
            populated.end = next + 1;
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::store::LogStore;

    #[test]
    fn what_is_claimed_next_is_resident_and_no_more() {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let core = store.core();
        let resident = || core.mem.region().pages().resident_bytes as u64;
        let ahead = u64::from(core.arena.stats().frames / SHARE) * FRAME_BYTES;
        let mut populated = Populated::new(NodeId(0));
        let before = resident();
        core.populate(&mut populated, &|| false);
        assert_eq!(resident(), before + ahead);
        // Nothing claimed since: nothing to do.
        core.populate(&mut populated, &|| false);
        assert_eq!(resident(), before + ahead);
        for i in 0..100u32 {
            store.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
        }
        core.populate(&mut populated, &|| false);
        let claimed = u64::from(core.claimed.end(NodeId(0))) * FRAME_BYTES;
        assert!(claimed > 10 << 20);
        let kept = core.claimed.end(NodeId(0)) + (ahead / FRAME_BYTES) as u32;
        assert_eq!(populated.end, kept);
        let stocked = resident();
        assert!(stocked > before + ahead && stocked <= claimed + ahead);
        core.populate(&mut Populated::new(NodeId(0)), &|| true);
        assert_eq!(resident(), stocked);
    }
}
