//! Emptying nearly dead segments before writers use fresh frames.
//!
//! Compaction waits until free frames run short, because records that die meanwhile need no copy. A
//! store with much more space than it needs would then use all of its frames, and take as much
//! memory as it may. A segment with few live bytes is worth its copy long before: a fresh frame is
//! in no cache, and the kernel clears it. So whenever a node has many more frames in use than at
//! the last look, its nearly dead segments are emptied.

use mneme_arena::NodeStats;
use mneme_sync::Slot;
use mneme_sys::NodeId;

use crate::error::WriteError;
use crate::log::segment::State;
use crate::reclaim::Reclaim;
use crate::region::layout::LogSegmentInfo;

/// A segment is sparse if at most one in this number of its bytes is live.
const SPARSE: u64 = 8;
/// The next look is due when the frames in use have grown by this share, and by at least this
/// number: a look examines every segment.
const SHARE: u32 = 8;
const FEW: u32 = 8;
/// The maximum number of segments that a look empties, because the maintainer has other work.
const MOST: usize = 64;
/// Segments that are emptied before their frames are given back: a grace period costs a barrier.
const BATCH: usize = 4;

/// When the sparse segments of a node are looked for.
#[derive(Debug)]
pub(crate) struct Sparse {
    node: NodeId,
    /// The number of its frames in use at which they are.
    due: u32,
}

impl Sparse {
    pub fn new(node: NodeId) -> Sparse {
        Sparse { node, due: FEW }
    }
}

impl Reclaim {
    /// Empties the sparse segments of a node if many more of its frames are in use than after the
    /// last look, until `stopped`. Returns their number.
    pub(crate) fn compact_sparse(
        &self,
        slot: &Slot<'_>,
        sparse: &mut Sparse,
        stopped: &dyn Fn() -> bool,
    ) -> Result<usize, WriteError> {
        let in_use = self.in_use(sparse.node);
        // Segments that a look has condemned may be given back long after it.
        sparse.due = sparse.due.min(due_after(in_use));
        // Emptying a segment removes its expired records.
        if in_use < sparse.due || self.records().expiry_rests() {
            return Ok(0);
        }
        // Most grace periods that begin now are over at once.
        self.log().stamp_segments();
        let mut emptied = 0;
        for (frame, info, word, state) in self.log().segments() {
            if emptied == MOST || stopped() {
                // The next round continues.
                return Ok(emptied);
            }
            let is_here = state == State::Closed && self.log().arena.node_of(frame) == sparse.node;
            if !is_here || word.large() || !is_sparse(info) || !self.log().grace_over(info) {
                continue;
            }
            match self.compact_this(slot, frame, word) {
                Ok(true) => emptied += 1,
                // The check reports a damaged one.
                Ok(false) | Err(WriteError::Corrupt(_)) => continue,
                Err(other) => return Err(other),
            }
            if emptied % BATCH == 0 {
                self.free_emptied(slot)?;
            }
        }
        self.free_emptied(slot)?;
        sparse.due = due_after(self.in_use(sparse.node));
        Ok(emptied)
    }

    /// Frames of a node that an extent has.
    fn in_use(&self, node: NodeId) -> u32 {
        let stats = self.log().arena.stats();
        let on = stats.nodes.get(usize::from(node.0));
        on.map_or(0, NodeStats::in_use)
    }
}

/// The number of frames in use at which the next look is due, if `in_use` are in use now.
fn due_after(in_use: u32) -> u32 {
    in_use.saturating_add((in_use / SHARE).max(FEW))
}

fn is_sparse(info: &LogSegmentInfo) -> bool {
    // A segment whose lengths are damaged is not moved.
    info.written().is_some() && info.live().saturating_mul(SPARSE) <= info.capacity()
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use mneme_sys::ManualClock;

    use super::*;
    use crate::records::expiry::Expiry;
    use crate::store::LogStore;

    /// Frames in use after a hundred turnovers of 2 MB in a store of 512 MiB.
    fn frames_in_use(looks: bool) -> u32 {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        let mut sparse = Sparse::new(NodeId(0));
        // As after a look while much more was in use.
        sparse.due = u32::MAX;
        for round in 0..100u8 {
            for i in 0..2000u32 {
                store.put(&i.to_le_bytes(), &[round; 1000]).unwrap();
            }
            if looks {
                inner
                    .reclaim()
                    .compact_sparse(&slot, &mut sparse, &|| false)
                    .unwrap();
            }
        }
        for i in 0..2000u32 {
            let value = store.get(&i.to_le_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&[99; 1000][..]));
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        inner.reclaim().in_use(NodeId(0))
    }

    #[test]
    fn a_store_with_spare_space_does_not_use_all_of_it() {
        assert!(frames_in_use(false) > 90);
        assert!(frames_in_use(true) <= 2 * FEW);
    }

    #[test]
    fn a_segment_with_an_eighth_of_live_bytes_is_left_alone() {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        for i in 0..20_000u32 {
            store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
        }
        for i in (0..20_000u32).filter(|i| i % 7 > 0) {
            store.remove(&i.to_le_bytes()).unwrap();
        }
        let look = || {
            let mut sparse = Sparse::new(NodeId(0));
            inner
                .reclaim()
                .compact_sparse(&slot, &mut sparse, &|| false)
                .unwrap()
        };
        assert_eq!(look(), 0);
        for i in (0..20_000u32).filter(|i| i % 14 == 0) {
            store.remove(&i.to_le_bytes()).unwrap();
        }
        assert!(look() > 5);
        assert_eq!(look(), 0);
    }

    /// While expiry rests, expired records stay where they are, and nothing is entered for them.
    #[test]
    fn nothing_is_emptied_while_expiry_rests() {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let builder = builder.clock(clock.clone()).change_feed(true);
        // The feed is not kept: at first nothing is entered.
        let store = builder.loading(true).open_private().unwrap();
        let inner = store.inner();
        let slot = inner.session().writer().unwrap();
        for i in 0..20_000u32 {
            let (key, value) = (i.to_le_bytes(), [7; 1000]);
            store.put_until(&key, &value, Expiry::At(2_000)).unwrap();
            if i % 14 > 0 {
                store.remove(&key).unwrap();
            }
        }
        store.end_loading();
        let look = || {
            let mut sparse = Sparse::new(NodeId(0));
            inner
                .reclaim()
                .compact_sparse(&slot, &mut sparse, &|| false)
                .unwrap()
        };
        clock.set_wall_ms(3_000);
        let (held, tail) = (store.len(), store.feed_tail());
        store.rest_expiry(true);
        assert_eq!(look(), 0);
        assert_eq!((store.len(), store.feed_tail()), (held, tail));
        store.rest_expiry(false);
        assert!(look() > 5);
    }
}
