//! Spare frames: free ones whose memory is still there. The machine gets back those that a store
//! has not needed for a while.
//!
//! Some are kept for the next writes: a share of the frames in use, and at least the number that is
//! populated ahead. Of the rest, only frames that were spare during the whole of the last
//! [seconds](UNUSED_NS) are given back, one at a time, from the highest address down, because
//! claims take the lowest. `mneme_arena::spare` explains how a frame is given back, and why no
//! thread misses it.

use mneme_arena::{FRAME_BYTES, GiveBackError};
use mneme_sync::Slot;
use mneme_sys::NodeId;

use crate::error::{Corrupt, WriteError};
use crate::log::Log;

/// How long frames must have been spare, in nanoseconds, and the number of parts in which that time
/// is observed: it may begin with any of them.
const UNUSED_NS: u64 = 2_000_000_000;
const PARTS: usize = 4;
/// The minimum time between two counts, in nanoseconds and as a multiple of the time of a count.
const COUNT_NS: u64 = 50_000_000;
const COUNTS: u64 = 200;
/// The share of the frames in use that is kept.
const SHARE: u32 = 20;
/// The minimum number of frames that are kept: 8 MiB.
const FEW: u32 = 4;
/// The number that is kept by a store to which nothing is written.
const IDLE: u32 = 1;
/// Frames that are given back before the maintainer checks anything else.
const AT_ONCE: u32 = 4;
/// The pause after the system has refused, in nanoseconds.
const REFUSED_NS: u64 = 1_000_000_000;

/// What a maintainer knows about its node's spare frames.
#[derive(Debug)]
pub(crate) struct SpareFrames {
    node: NodeId,
    /// When to count next, in nanoseconds.
    count_ns: u64,
    /// The number of frames beyond what is kept that were spare at every count of the present part.
    surplus: u32,
    /// When the part began; 0: there was no count yet.
    since_ns: u64,
    /// The surplus of each earlier part.
    parts: [u32; PARTS],
    /// The number of frames still to be given back.
    due: u32,
}

impl SpareFrames {
    pub fn new(node: NodeId) -> SpareFrames {
        SpareFrames {
            node,
            count_ns: 0,
            surplus: 0,
            since_ns: 0,
            parts: [0; PARTS],
            due: 0,
        }
    }
}

impl Log {
    /// Gives back all spare frames that tenants are not likely to use. Returns the number of bytes.
    pub(crate) fn give_all_back(&self, slot: &Slot<'_>) -> Result<u64, WriteError> {
        let mut given = 0;
        for node in (0..self.arena.nodes()).map(NodeId) {
            for _ in self.wanted_by_tenants()..self.arena.spare(node).resident {
                match self.arena.give_back_spare(slot, node) {
                    Ok(Some(_)) => given += FRAME_BYTES,
                    Ok(None) | Err(GiveBackError::Region(_) | GiveBackError::Reader) => break,
                    Err(GiveBackError::Stalled(stalled)) => return Err(stalled.into()),
                    Err(other) => return Err(Corrupt::at(0, other.to_string()).into()),
                }
            }
        }
        Ok(given)
    }

    /// Frames that the second class may still rent.
    fn wanted_by_tenants(&self) -> u32 {
        let lent = self.lent.as_ref().and_then(|lent| lent.options().ok());
        lent.map_or(0, |options| {
            options.max_frames.saturating_sub(self.arena.stats().lent)
        })
    }

    /// Gives back some of the node's spare frames, if they were not needed for a while.
    pub(crate) fn give_back(&self, slot: &Slot<'_>, spare: &mut SpareFrames, idle: bool) {
        let now = self.session().clock.now_ns();
        if spare.due == 0 && now < spare.count_ns || !self.session().mem.region().gives_back() {
            return;
        }
        let stats = self.arena.stats();
        let lent = self.wanted_by_tenants();
        let kept = match idle {
            true => IDLE,
            false => (stats.in_use() / SHARE).max(FEW),
        };
        let count = self.arena.spare(spare.node).resident;
        let surplus = count.saturating_sub(kept.saturating_add(lent));
        let took = self.session().clock.now_ns().saturating_sub(now);
        spare.count_ns = now.saturating_add((took * COUNTS).max(COUNT_NS));
        if spare.due > 0 {
            for _ in 0..spare.due.min(AT_ONCE).min(surplus) {
                match self.arena.give_back_spare(slot, spare.node) {
                    Ok(Some(_)) => spare.due -= 1,
                    Ok(None) => spare.due = 0,
                    Err(error) => {
                        spare.due = 0;
                        if let GiveBackError::Region(_) | GiveBackError::Reader = error {
                            spare.count_ns = now.saturating_add(REFUSED_NS);
                        }
                    }
                }
                if spare.due == 0 {
                    break;
                }
            }
            if surplus <= AT_ONCE {
                spare.due = 0;
            }
            if spare.due == 0 {
                (spare.surplus, spare.since_ns) = (u32::MAX, now);
                spare.parts = [0; PARTS];
            }
            return;
        }
        if surplus == 0 || spare.since_ns == 0 {
            (spare.surplus, spare.since_ns) = (u32::MAX, now);
            spare.parts = [0; PARTS];
            return;
        }
        spare.surplus = spare.surplus.min(surplus);
        if now.saturating_sub(spare.since_ns) >= UNUSED_NS / PARTS as u64 {
            spare.parts.rotate_left(1);
            spare.parts[PARTS - 1] = spare.surplus;
            spare.due = spare.parts.into_iter().min().unwrap_or(0);
            (spare.surplus, spare.since_ns) = (u32::MAX, now);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use mneme_sys::{Access, ManualClock, OfdLiveness, PagePolicy, Region, Reserve};
    use mneme_testkit::{Mount, TestDir};

    use super::*;
    use crate::{LogStore, control_bytes};

    #[test]
    fn freed_frames_go_back_within_two_seconds_and_a_half() {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.clock(clock.clone()).open_private().unwrap();
        let inner = store.inner();
        let fill = |database: usize, values: u32| {
            let database = store.database(database).unwrap();
            for i in 0..values {
                database.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
            }
        };
        let clear = |database: usize| {
            store.database(database).unwrap().clear().unwrap();
            while store.compact().unwrap() > 0 {}
        };
        let resident = || inner.log().arena.spare(NodeId(0)).resident;
        fill(0, 600);
        fill(1, 200);
        clear(1);
        let mut spare = SpareFrames::new(NodeId(0));
        let mut observe = |nanoseconds: u64| {
            let slot = inner.session().writer().unwrap();
            for _ in 0..nanoseconds / COUNT_NS {
                clock.advance_ns(COUNT_NS);
                inner.log().give_back(&slot, &mut spare, false);
            }
        };
        assert!(resident() > FEW);
        observe(UNUSED_NS / 2);
        clear(0);
        let freed = resident();
        assert!(freed > 20, "{freed}");
        // Frames that were spare for a shorter time are kept.
        observe(UNUSED_NS * 3 / 4);
        assert!(resident() > 20);
        observe(UNUSED_NS);
        assert_eq!(resident(), FEW);
        fill(0, 600);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn a_full_store_refuses_nothing_because_frames_were_given_back() {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let fill = |size: usize| {
            let value = vec![7; size];
            let is_stored = |i: &u32| store.put(&i.to_le_bytes(), &value).is_ok();
            (0u32..).take_while(is_stored).count()
        };
        let empty = || {
            store.clear().unwrap();
            while store.compact().unwrap() > 0 {}
        };
        for size in [1_000, 300_000] {
            fill(size);
            empty();
            let stored = fill(size);
            empty();
            assert!(store.give_back_memory().unwrap() > 30 << 20);
            assert_eq!(store.stats().spare_bytes, 0);
            let again = fill(size);
            assert!(again >= stored, "{size} B: {again} of {stored}");
            empty();
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    /// Frames for which a full file system has no space are not in use. Otherwise a store that may
    /// grow far beyond the file system would keep all of it, however little is live.
    #[test]
    fn a_store_gives_back_to_a_full_file_system_what_it_does_not_need() {
        let directory = TestDir::new("spare-full");
        let Some(mount) = Mount::tmpfs(&directory, "64m") else {
            return;
        };
        let file = |name: &str| {
            let mut options = std::fs::File::options();
            let options = options.read(true).write(true).create(true).truncate(true);
            options.open(mount.path().join(name)).unwrap()
        };
        let (access, lazy, small) = (Access::ReadWrite, Reserve::Lazy, PagePolicy::Small);
        let bytes = 4 << 30;
        let region = Region::map_with(file("data").into(), access, bytes, small, lazy).unwrap();
        region.grow(bytes).unwrap();
        let size = control_bytes();
        let locks = Region::map(file("control").into(), access, size, small).unwrap();
        locks.grow(size).unwrap();
        let liveness = OfdLiveness::open(&mount.path().join("control"), 0).unwrap();
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().maintainer(false).clock(clock.clone());
        let store = builder
            .create_in(region, locks, Arc::new(liveness))
            .unwrap();
        let inner = store.inner();
        let value = [7; 100 << 10];
        let is_stored = |i: &u32| store.put(&i.to_le_bytes(), &value).is_ok();
        assert!((0u32..).take_while(is_stored).count() > 200);
        store.clear().unwrap();
        while store.compact().unwrap() > 0 {}
        let resident = || inner.log().arena.spare(NodeId(0)).resident;
        assert!(inner.log().arena.withheld() > 1000 && resident() > 15);
        let mut spare = SpareFrames::new(NodeId(0));
        let slot = inner.session().writer().unwrap();
        for _ in 0..2 * UNUSED_NS / COUNT_NS {
            clock.advance_ns(COUNT_NS);
            inner.log().give_back(&slot, &mut spare, false);
        }
        assert_eq!(resident(), FEW);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}
