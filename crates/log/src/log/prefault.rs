//! Prefaulting: fresh memory is touched ahead of the writers, so that they seldom wait for the
//! kernel.
//!
//! The first touch of a huge page zeroes it, and in a virtual machine may have to wait until the
//! host has one. This takes milliseconds (5 ms for a 2 MiB page, at times 80 ms, where it was
//! measured), which would be a part of a writer's operation. Claims take the lowest free frames, so
//! untouched memory begins after the highest frame that was ever claimed. The maintainer keeps a
//! few frames from there on populated. A writer that is faster than the maintainer, or has none,
//! touches its frames itself.
//!
//! Shared memory that is touched page by page stays in small pages, for every process that maps it,
//! until a process gathers them into a huge page. So the maintainer walks the frames in use, for a
//! short time in each of its rounds: frames whose writers were faster than it, those of a store
//! that it has just opened, and the store's own tables. The pages of a file on a disk are not
//! gathered: that would read the whole file, and write it.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{Extent, FRAME_BYTES, Frame, SPACE_AHEAD};
use mneme_sync::Slot;
use mneme_sys::{NodeId, RegionError};

use crate::log::Log;

/// Frames populated ahead: at 16 to 32 bytes a record they last one writer a second, at 1 KiB some
/// milliseconds.
const AHEAD: u32 = 16;
/// The number of frames that an idle store keeps populated.
const IDLE: u32 = 2;
/// The share of all frames that may be populated ahead, since they are resident before they are
/// needed.
const SHARE: u32 = 64;

/// The pause after a frame could not be populated: a refused attempt costs as much time as a
/// successful one.
const AGAIN_NS: u64 = 100_000_000;
/// The longest pause. Each further refusal doubles it, so that a store on a full file system costs
/// no CPU time; a claim that lacks the space asks for it itself.
const LONGEST_PAUSE_NS: u64 = 64 * AGAIN_NS;

/// How long the maintainer may gather pages in each of its rounds: a 20th of its time.
const GATHERING_NS: u64 = 500_000;
/// How long it rests between two rounds.
const REST_NS: u64 = 1_000_000_000;
/// The number of frames of the tables that are gathered. A large store uses only a part of its
/// tables.
const TABLES: u32 = 8;

/// How far a node's frames have been claimed, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Claimed(Vec<AtomicU32>);

/// How far a maintainer has populated its node.
#[derive(Debug)]
pub(crate) struct Populated {
    node: NodeId,
    /// Where the node begins, once it has been looked up.
    start: Option<u32>,
    /// The frame after the last one that was populated.
    end: u32,
    /// How many populated frames exceed the number that is kept ahead.
    surplus: u32,
    /// Whether the store is idle: it keeps fewer frames ahead.
    idle: bool,
    /// When to try again after a lack of space, in nanoseconds.
    again_ns: u64,
    /// The pause before that, in nanoseconds; 0 after a success.
    pause_ns: u64,
}

/// How far a maintainer has gathered the pages of its node's frames.
#[derive(Debug)]
pub(crate) struct Gathered {
    node: NodeId,
    /// The next frame of this round.
    next: u32,
    /// The number of free frames when this round began. `None`: no round has begun.
    free: Option<u32>,
    /// When the last round ended.
    ended: Option<u64>,
}

impl Gathered {
    pub fn new(node: NodeId) -> Gathered {
        Gathered {
            node,
            next: 0,
            free: None,
            ended: None,
        }
    }
}

impl Claimed {
    pub fn new(nodes: u16) -> Claimed {
        Claimed((0..nodes).map(|_| AtomicU32::new(0)).collect())
    }

    /// Notes that `extent`, on `node`, is in use.
    pub fn note(&self, node: NodeId, extent: Extent) {
        if let Some(end) = self.0.get(usize::from(node.0)) {
            // Relaxed: this only decides where touching begins, and any place is correct.
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
            surplus: 0,
            idle: false,
            again_ns: 0,
            pause_ns: 0,
        }
    }
}

impl Log {
    /// Populates fresh frames of the node up to the number kept ahead, one at a time, until
    /// `stopped`.
    pub(crate) fn populate(&self, populated: &mut Populated, stopped: &dyn Fn() -> bool) {
        if self.session().clock.now_ns() < populated.again_ns {
            return;
        }
        populated.pause_ns = match self.populate_now(populated, stopped) {
            Ok(()) => 0,
            // No memory: a claim that needs it will report that.
            Err(_) => (2 * populated.pause_ns).clamp(AGAIN_NS, LONGEST_PAUSE_NS),
        };
        populated.again_ns = self
            .session()
            .clock
            .now_ns()
            .saturating_add(populated.pause_ns);
    }

    fn populate_now(
        &self,
        populated: &mut Populated,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), RegionError> {
        self.arena.seek_space()?;
        let stats = self.arena.stats();
        let (first, behind) = (stats.own, stats.own + stats.frames);
        // Also the further frames that the next claim would request from the file system, if any.
        let further = match self.session().mem.region().is_lazy() {
            true => stats.reserved.min(SPACE_AHEAD),
            false => 0,
        };
        // A store that uses little keeps little ahead. Claims first take frames that were in use
        // before.
        let ahead = AHEAD
            .min(stats.frames / SHARE)
            .min((stats.in_use() / 16).max(IDLE))
            .max(1);
        let ahead = match populated.idle {
            true => ahead.min(IDLE),
            false => ahead,
        };
        let spare = self.arena.spare(populated.node).resident;
        let ahead = ahead.saturating_sub(spare) + further.saturating_sub(spare);
        let start = *populated.start.get_or_insert_with(|| {
            let on_node = |frame: &u32| self.arena.node_of(Frame(*frame)) == populated.node;
            (first..behind).find(on_node).unwrap_or(behind)
        });
        let is_here = |frame| self.arena.node_of(Frame(frame)) == populated.node;
        loop {
            // Frames that are claimed meanwhile are touched by their claimants.
            let claimed = self.claimed.end(populated.node).max(start);
            let next = populated.end.max(claimed);
            populated.surplus = next.saturating_sub(claimed.saturating_add(ahead));
            if next >= claimed.saturating_add(ahead).min(behind) || !is_here(next) || stopped() {
                return Ok(());
            }
            let bytes = u64::from(next) * FRAME_BYTES;
            let range = bytes as usize..(bytes + FRAME_BYTES) as usize;
            // A huge page at once, if possible: pages that have memory already would have to be
            // copied into it.
            self.session().mem.region().prefault(range)?;
            self.arena.back(Frame(next))?;
            populated.end = next + 1;
        }
    }

    /// Gives a frame that was populated ahead back to the machine, if the store is `idle` and has
    /// more of these than an idle store keeps.
    pub(crate) fn give_back_ahead(&self, slot: &Slot<'_>, populated: &mut Populated, idle: bool) {
        populated.idle = idle;
        if !idle || populated.surplus == 0 {
            return;
        }
        // Counted first: a frame that cannot be given back, or that has been claimed, stays as it
        // is.
        populated.surplus -= 1;
        populated.end -= 1;
        let _ = self.arena.give_back_fresh(slot, Frame(populated.end));
    }
}

impl Log {
    /// Continues a round over the node's frames in use, whose pages are gathered into huge ones.
    /// Begins another round if more frames are in use than when the last one began: their claimants
    /// may have touched them after the round had passed.
    pub(crate) fn gather(&self, gathered: &mut Gathered, stopped: &dyn Fn() -> bool) {
        if self.session().mem.region().is_on_medium() {
            return;
        }
        let (stats, begin) = (self.arena.stats(), self.session().clock.now_ns());
        let behind = stats.own + stats.frames;
        if let Some(ended) = gathered.ended {
            let seen = gathered.free.is_some_and(|free| stats.free >= free);
            if seen || begin < ended.saturating_add(REST_NS) {
                return;
            }
            *gathered = Gathered::new(gathered.node);
        }
        gathered.free.get_or_insert(stats.free);
        while gathered.next < behind {
            if stopped() || self.session().clock.now_ns() >= begin.saturating_add(GATHERING_NS) {
                return;
            }
            let frame = Frame(gathered.next);
            gathered.next += 1;
            let tables = frame.0 < stats.own.min(TABLES);
            if self.arena.node_of(frame) == gathered.node
                && (tables || self.arena.extent_of(frame).is_some())
            {
                let start = frame.0 as usize * FRAME_BYTES as usize;
                // Pages that cannot be gathered stay as they are.
                let _ = (self.session().mem.region()).prefault(start..start + FRAME_BYTES as usize);
            }
        }
        gathered.ended = Some(begin);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;

    use mneme_sys::{ManualClock, PagePolicy, Region};

    use super::*;
    use crate::store::LogStore;

    #[test]
    fn only_the_frames_claimed_next_are_made_resident() {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let resident = || inner.session().mem.region().pages().resident_bytes as u64;
        let ahead = 2 * FRAME_BYTES;
        let mut populated = Populated::new(NodeId(0));
        let before = resident();
        inner.log().populate(&mut populated, &|| false);
        assert_eq!(resident(), before + ahead);
        // Nothing claimed since: nothing to do.
        inner.log().populate(&mut populated, &|| false);
        assert_eq!(resident(), before + ahead);
        for i in 0..100u32 {
            store.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
        }
        inner.log().populate(&mut populated, &|| false);
        let claimed = u64::from(inner.log().claimed.end(NodeId(0))) * FRAME_BYTES;
        assert!(claimed > 10 << 20);
        let kept = inner.log().claimed.end(NodeId(0)) + (ahead / FRAME_BYTES) as u32;
        assert_eq!(populated.end, kept);
        let stocked = resident();
        assert!(stocked > before + ahead && stocked <= claimed + ahead);
        (inner.log()).populate(&mut Populated::new(NodeId(0)), &|| true);
        assert_eq!(resident(), stocked);
    }

    #[test]
    fn a_store_that_is_loaded_has_memory_ahead_of_the_claims() {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let region = store.inner().session().mem.region();
        let ahead = 2 * FRAME_BYTES;
        let before = region.pages().resident_bytes as u64;
        let looks = std::cell::Cell::new(0);
        let is_there = || region.pages().resident_bytes as u64 >= before + ahead;
        store.populate_ahead(&|| {
            looks.set(looks.get() + 1);
            is_there() || looks.get() > 1000
        });
        assert!(is_there());
    }

    #[test]
    fn an_idle_store_keeps_less_ahead_of_its_claims_and_can_claim_what_it_gave_back() {
        let builder = LogStore::builder().capacity(1024 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let resident = || inner.session().mem.region().pages().resident_bytes as u64;
        let fill = |values: std::ops::Range<u32>| {
            for i in values {
                store.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
            }
        };
        fill(0..1400);
        let slot = inner.session().writer().unwrap();
        let mut populated = Populated::new(NodeId(0));
        let mut round = |idle: bool| {
            inner.log().give_back_ahead(&slot, &mut populated, idle);
            inner.log().populate(&mut populated, &|| false);
        };
        let few = resident();
        round(false);
        let many = resident();
        assert_eq!(many, few + 4 * FRAME_BYTES);
        (0..20).for_each(|_| round(true));
        assert_eq!(resident(), few + u64::from(IDLE) * FRAME_BYTES);
        round(false);
        assert_eq!(resident(), many);
        (0..20).for_each(|_| round(true));
        fill(1400..2000);
        for i in 0..2000u32 {
            let value = store.get(&i.to_le_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&[7; 100 << 10][..]));
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }

    #[test]
    fn a_round_touches_frames_in_use_and_tables_alone() {
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let resident = || inner.session().mem.region().pages().resident_bytes as u64;
        for i in 0..100u32 {
            store.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
        }
        let stats = inner.log().arena.stats();
        let mut gathered = Gathered::new(NodeId(0));
        while gathered.ended.is_none() {
            inner.log().gather(&mut gathered, &|| false);
        }
        let in_use = stats.own.min(TABLES) + stats.frames - stats.free;
        let others = u64::from(stats.own.saturating_sub(TABLES)) * FRAME_BYTES;
        let used = u64::from(in_use) * FRAME_BYTES;
        assert!((used..=used + others).contains(&resident()));
        // It rests, and there is no reason to begin another round.
        inner.log().gather(&mut gathered, &|| false);
        assert!(gathered.ended.is_some());
        gathered = Gathered::new(NodeId(0));
        inner.log().gather(&mut gathered, &|| true);
        assert_eq!(gathered.next, 0);
    }

    #[test]
    fn frames_claimed_behind_a_round_are_gathered_by_the_next() {
        let clock = Arc::new(ManualClock::new(1, 1));
        let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
        let builder = builder.page_policy(PagePolicy::Small).clock(clock.clone());
        let store = builder.open_private().unwrap();
        let inner = store.inner();
        let stats = inner.log().arena.stats();
        let mut gathered = Gathered::new(NodeId(0));
        // A round that has begun, and has passed all frames but one.
        inner.log().gather(&mut gathered, &|| true);
        gathered.next = stats.own + stats.frames - 1;
        for i in 0..100u32 {
            store.put(&i.to_le_bytes(), &[7; 100 << 10]).unwrap();
        }
        inner.log().gather(&mut gathered, &|| false);
        assert_eq!(gathered.ended, Some(1));
        clock.advance_ns(2 * REST_NS);
        inner.log().gather(&mut gathered, &|| false);
        assert_eq!(gathered.ended, Some(1 + 2 * REST_NS));
        // That round has passed all frames.
        clock.advance_ns(2 * REST_NS);
        inner.log().gather(&mut gathered, &|| false);
        assert_eq!(gathered.ended, Some(1 + 2 * REST_NS));
    }

    #[test]
    fn a_file_on_a_disk_is_not_read_for_its_pages() {
        let (file, page) = (mneme_sys::Access::ReadWrite, PagePolicy::Thp);
        // In the directory of the test's own program, which is on a disk.
        let path = std::env::current_exe().unwrap().with_extension("gathered");
        let mut options = std::fs::File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        let data = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let data = Region::map(data.into(), file, 512 << 20, page).unwrap();
        if !data.is_on_medium() {
            eprintln!("skipped: the test's program is not on a disk");
            return;
        }
        data.grow(512 << 20).unwrap();
        let bytes = crate::control_bytes();
        let control = Region::private(bytes, bytes, PagePolicy::Small).unwrap();
        let liveness = Arc::new(mneme_sys::ScriptedLiveness::new().process(0));
        // The clock is stopped, so the time that a round may take does not pass.
        let clock = Arc::new(ManualClock::new(1, 1));
        let builder = LogStore::builder().maintainer(false).clock(clock);
        let store = builder.create_in(data, control, liveness).unwrap();
        for i in 0..100u32 {
            store.put(&i.to_le_bytes(), &[7; 4 << 10]).unwrap();
        }
        let inner = store.inner();
        let resident = || inner.session().mem.region().pages().resident_bytes;
        let before = resident();
        let mut gathered = Gathered::new(NodeId(0));
        inner.log().gather(&mut gathered, &|| false);
        assert_eq!((gathered.next, resident()), (0, before));
    }
}
