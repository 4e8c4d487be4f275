//! An operation of one class is stopped at each of its steps, while others run completely in
//! another process: they finish without waiting for the first, and whatever is claimed belongs to
//! nobody else afterwards.
//!
//! They run in the first operation's thread, so one that waited for the first would never end, and
//! the frames that a claim may take are counted, not timed.
#![allow(clippy::unwrap_used)]

mod support;

use mneme_arena::{CacheLookup, Class, Discardable, Extent, MAX_RECORD, Stored, Ticket};
use mneme_sys::fault::{self, Action};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use support::{NODE, Process, Shape, World, world};

/// The number of frames available to the operations: one may be filled, and a run of three is left
/// beside it.
const FREE: u32 = 7;
const SHAPE: Shape = Shape {
    frames: 1 + 2 + 2 + 1 + FREE as usize,
    max_frames: 20,
    nodes: 1,
    reserve: 0,
    client_bytes: 4096,
    records: 100,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Op {
    Claim,
    ClaimRun,
    /// Claims single frames, until there are none.
    ClaimAll,
    Release,
    Adopt,
    /// Returns the memory of free frames, until there are none.
    GiveBack,
    Grow,
    /// Reaps a dead process, which had claimed a frame.
    Reap,
    Put,
    /// Seals a frame and takes another, twice.
    PutLarge,
    /// Fills with an earlier ticket.
    Fill,
    Get,
    Remove,
    /// Removes the key of the ticket.
    RemoveOther,
    Clear,
    Sweep,
}
use Op::*;

/// Operations that run one after the other.
type Ops = &'static [Op];

const FIRST: [Op; 8] = [
    Claim, ClaimRun, ClaimAll, Release, Adopt, GiveBack, Grow, Reap,
];
const SECOND: [Op; 8] = [Put, PutLarge, Fill, Get, Remove, RemoveOther, Clear, Sweep];

/// One of two processes, with the data for its operations.
struct Side {
    process: Process,
    cache: Discardable,
    /// Adopted, with two frames.
    held: Extent,
    ticket: Option<Ticket>,
    /// The byte that its puts store.
    value: u8,
    /// The extents that it has claimed, each with the value that it stored there.
    claimed: Mutex<Vec<(Extent, u64)>>,
}

struct Scene {
    world: World,
    sides: [Side; 2],
    /// A process that claimed a frame and did not adopt it.
    third: Process,
}

fn scene(full: bool) -> Scene {
    let (world, first) = world(SHAPE);
    first.warm(SHAPE.frames as u32 - 1);
    let third = world.open();
    third.claim(1).unwrap();
    let mut sides = [first, world.open()].map(|process| Side {
        held: process.hold(2),
        cache: process.cache(),
        ticket: None,
        process,
        value: 0,
        claimed: Mutex::default(),
    });
    let slot = sides[0].process.arena.participants().slot().unwrap();
    if full {
        for number in 0..FREE {
            let large = vec![1; MAX_RECORD - 4];
            let stored = sides[0]
                .cache
                .put(&slot, NODE, &number.to_le_bytes(), &large);
            assert_eq!(stored.unwrap(), Stored::Kept);
        }
    }
    let _ = sides[0].cache.put(&slot, NODE, b"key", b"old").unwrap();
    drop(slot);
    for (side, value) in sides.iter_mut().zip([b'a', b'b']) {
        side.value = value;
        side.ticket = match side.cache.get(b"other", &mut Vec::new()) {
            CacheLookup::Miss(ticket) => Some(ticket),
            CacheLookup::Hit => panic!("nobody has put it"),
        };
    }
    Scene {
        world,
        sides,
        third,
    }
}

impl Side {
    /// Stores a value throughout a claimed extent.
    fn stamp(&self, extent: Extent) {
        let stamp = u64::from(extent.start.0) << 32 | u64::from(self.value);
        for at in (extent.offset()..extent.end()).step_by(16) {
            let word: &AtomicU64 = self.process.arena.region().at(at).unwrap();
            word.store(stamp, Relaxed);
        }
        self.claimed.lock().unwrap().push((extent, stamp));
    }

    /// Whether nobody else has stored there since.
    fn is_its_own(&self, (extent, stamp): (Extent, u64)) -> bool {
        let words = (extent.offset()..extent.end()).step_by(16);
        words
            .map(|at| self.process.arena.region().at::<AtomicU64>(at).unwrap())
            .all(|word| word.load(Relaxed) == stamp)
    }

    fn run(&self, op: Op, world: &World, third: u32) {
        let slot = self.process.arena.participants().slot().unwrap();
        let put = |value: &[u8]| self.cache.put(&slot, NODE, b"key", value).unwrap();
        match op {
            Claim => self.stamp(self.process.claim(1).unwrap()),
            ClaimRun => self.stamp(self.process.claim(3).unwrap()),
            ClaimAll => {
                let class = Class::Reserved;
                while let Ok(extent) = self.process.claim_as(1, 1, NODE, class, 0) {
                    self.stamp(extent);
                }
                let claimed = self.claimed.lock().unwrap().len() as u32;
                assert!(claimed >= FREE - 1, "{claimed}");
            }
            Release => self.process.release(self.held).unwrap(),
            Adopt => {
                let extent = self.process.claim(1).unwrap();
                self.process.arena.adopt(extent).unwrap();
                self.stamp(extent);
            }
            GiveBack => {
                let arena = &self.process.arena;
                while arena.give_back_spare(&slot, NODE).unwrap().is_some() {}
            }
            Grow => self.process.grow(SHAPE.max_frames).unwrap(),
            Reap => {
                world.kill(third);
                assert_eq!(self.process.reap(), 1);
            }
            Put => {
                let _ = put(&[self.value]);
            }
            PutLarge => {
                for _ in 0..2 {
                    let _ = put(&vec![self.value; MAX_RECORD - 3]);
                }
            }
            Fill => {
                let ticket = self.ticket.unwrap();
                let filled = self.cache.fill(&slot, NODE, ticket, b"other", b"other");
                let _ = filled.unwrap();
            }
            Get => {
                let mut found = Vec::new();
                for key in [&b"key"[..], b"other"] {
                    let _ = self.cache.get(key, &mut found);
                }
            }
            Remove => self.cache.remove(b"key").unwrap(),
            RemoveOther => self.cache.remove(b"other").unwrap(),
            Clear => self.cache.clear().unwrap(),
            Sweep => {
                self.cache.sweep().unwrap();
            }
        }
    }
}

/// The fault points that an operation passes, and how often.
fn steps(op: Op, full: bool) -> BTreeMap<&'static str, u64> {
    let scene = scene(full);
    let before: BTreeMap<_, _> = fault::passed().into_iter().collect();
    scene.sides[0].run(op, &scene.world, scene.third.number);
    let passed = fault::passed().into_iter();
    passed
        .filter(|(name, _)| name.starts_with("arena."))
        .map(|(name, times)| (name, times - before.get(name).unwrap_or(&0)))
        .filter(|(_, times)| *times > 0)
        .collect()
}

/// Runs all of `inner` at the `nth` passage of `point` in `outer`.
fn meet(outer: Op, point: &'static str, nth: u64, inner: Ops, full: bool) {
    let scene = Arc::new(scene(full));
    let meeting = format!("{inner:?} in {outer:?} at {point} {nth}, full: {full}");
    let there = Arc::clone(&scene);
    let before = fault::reached();
    let call = move || {
        for op in inner {
            there.sides[1].run(*op, &there.world, there.third.number);
        }
    };
    fault::arm(point, Action::Call(Arc::new(call)), nth);
    scene.sides[0].run(outer, &scene.world, scene.third.number);
    fault::disarm();
    assert_eq!(fault::reached(), before + 1, "{meeting}: never met");

    let [one, other] = &scene.sides;
    let mut found = Vec::new();
    if one.cache.get(b"key", &mut found) == CacheLookup::Hit {
        let changes = |op| matches!(op, Put | PutLarge | Remove | Clear);
        let is_put =
            |op, value: u8| matches!(op, Put | PutLarge) && found.iter().all(|byte| *byte == value);
        let is_old = found == b"old" && !changes(outer) && !inner.iter().any(|op| changes(*op));
        let is_inner = inner.iter().any(|op| is_put(*op, b'b'));
        assert!(
            is_old || is_put(outer, b'a') || is_inner,
            "{meeting}: an old value"
        );
    }
    if other.cache.get(b"other", &mut found) == CacheLookup::Hit {
        assert_eq!(found, b"other", "{meeting}");
        let removes = |op: &Op| matches!(op, RemoveOther | Clear);
        let removed = removes(&outer) || inner.iter().any(removes);
        assert!(!removed, "{meeting}: an old fill");
    }
    // What was claimed belongs to nobody else, whatever is put and claimed next.
    for side in [other, one] {
        let slot = side.process.arena.participants().slot().unwrap();
        let large = vec![9; MAX_RECORD - 4];
        let _ = side.cache.put(&slot, NODE, b"next", &large).unwrap();
    }
    let all: Vec<(&Side, (Extent, u64))> = scene
        .sides
        .iter()
        .flat_map(|side| {
            let claimed = side.claimed.lock().unwrap().clone();
            claimed.into_iter().map(move |extent| (side, extent))
        })
        .collect();
    for (number, (side, (extent, stamp))) in all.iter().enumerate() {
        assert!(side.is_its_own((*extent, *stamp)), "{meeting}: {extent}");
        let mut others = all[..number].iter().map(|(_, (extent, _))| extent);
        assert!(!others.any(|one| one.contains(extent.start)), "{meeting}");
    }
    one.process.assert_whole();
    let taken: u32 = one.process.arena.extents().map(|it| it.extent.frames).sum();
    let stats = one.process.arena.stats();
    let filling = one.process.arena.being_filled().len() as u32;
    assert_eq!(
        (stats.free + taken + filling, filling <= 1),
        (stats.frames, true),
        "{meeting}"
    );
}

fn meetings(outer: &[Op], inner: &[Ops]) {
    let mut met = BTreeMap::<Op, u32>::new();
    for full in [false, true] {
        for &outer in outer {
            for (point, times) in steps(outer, full) {
                // The first passage and the last.
                let mut passages = vec![1, times];
                passages.dedup();
                for nth in passages {
                    for &inner in inner {
                        // If nothing is idle, it matters which operation takes frames, and which
                        // has them.
                        let takes = |op: &Op| matches!(op, ClaimRun | ClaimAll | PutLarge | Clear);
                        if full && !inner.iter().any(takes) {
                            continue;
                        }
                        meet(outer, point, nth, inner, full);
                        *met.entry(outer).or_default() += 1;
                    }
                }
            }
        }
    }
    eprintln!("{met:?}");
    assert!(met.len() >= 4);
}

#[test]
fn a_tenant_waits_for_no_claim() {
    meetings(
        &FIRST,
        &[
            &[Put, PutLarge],
            &[Get, Fill, RemoveOther, Remove],
            &[Clear, Sweep],
        ],
    );
}

#[test]
fn no_claim_waits_for_a_tenant() {
    meetings(
        &SECOND,
        &[&[ClaimAll], &[Grow, Claim, ClaimRun, Adopt, Release, Reap]],
    );
}

#[test]
fn tenants_do_not_wait_for_each_other() {
    meetings(
        &SECOND,
        &[
            &[Put],
            &[PutLarge],
            &[Fill],
            &[Remove],
            &[RemoveOther],
            &[Clear],
        ],
    );
}
