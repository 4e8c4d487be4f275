//! What a map of address ranges promises: that of a map of single addresses, to each thread and
//! between threads. Small enough for Miri.
#![allow(clippy::unwrap_used)]

#[path = "../../../crates/sync/tests/common/mod.rs"]
mod common;

use common::private;
use mneme_rcx::{RangeError, RangeMap, Rcx, RcxError, TakeLanes};
use mneme_sync::Participants;
use mneme_sys::{NodeId, SyntheticTopology, SysfsTopology, Topology};
use mneme_testkit::{Random, in_threads};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// For waits that must end.
const LONG: Duration = Duration::from_secs(60);

/// Updates of each thread.
const UPDATES: u64 = if cfg!(miri) { 12 } else { 3_000 };

/// The machine's own nodes where there are several, else two made up ones.
fn topology() -> Arc<dyn Topology> {
    let machine = SysfsTopology::detect();
    match machine.nodes() {
        1 => Arc::new(SyntheticTopology::new(2, 2)),
        _ => Arc::new(machine),
    }
}

fn map_of(p: &Participants, when: TakeLanes) -> RangeMap<u8> {
    let rcx = Rcx::new(p, topology()).take_lanes(when).timeout(LONG);
    RangeMap::with_rcx(p, rcx)
}

/// Single addresses, and what they are mapped to: the model.
#[derive(Default)]
struct Addresses(BTreeMap<u64, u8>);

impl Addresses {
    /// The addresses around `at` that are mapped as it is, as a range.
    fn range_at(&self, at: u64, limits: (u64, u64)) -> (u64, u64) {
        let is = |other: u64| self.0.get(&other) == self.0.get(&at);
        let mut start = at;
        while start > limits.0 && is(start - 1) {
            start -= 1;
        }
        let mut end = at + 1;
        while end < limits.1 && is(end) {
            end += 1;
        }
        (start, end)
    }

    fn fill(&mut self, range: std::ops::Range<u64>, value: Option<u8>) {
        for address in range {
            match value {
                Some(value) => self.0.insert(address, value),
                None => self.0.remove(&address),
            };
        }
    }

    fn ranges(&self) -> Vec<(u64, u64, u8)> {
        let mut ranges: Vec<(u64, u64, u8)> = Vec::new();
        for (&address, &value) in &self.0 {
            match ranges.last_mut() {
                Some(last) if last.1 == address && last.2 == value => last.1 += 1,
                _ => ranges.push((address, address + 1, value)),
            }
        }
        ranges
    }
}

fn ranges(map: &RangeMap<u8>) -> Vec<(u64, u64, u8)> {
    let reader = map.read().unwrap();
    let ranges = reader.iter();
    ranges
        .map(|found| (found.start, found.end, found.value.unwrap()))
        .collect()
}

/// Random updates of the map and of the model, which must answer alike.
fn against_addresses(first: u64, seed: u64) {
    const SPAN: u64 = 40;
    let p = private(common::options());
    let mut map = map_of(&p, TakeLanes::WhenBusy);
    let mut model = Addresses::default();
    let mut random = Random::new(seed);
    let rounds = if cfg!(miri) { 8 } else { 1_500 };
    for round in 0..rounds {
        let start = first + random.below(SPAN);
        let end = first + random.below(SPAN + 1);
        let (range, value) = (start..end, 1 + random.below(3) as u8);
        let mapped = |wanted: bool| {
            let mut inside = range.clone();
            inside.find(|at| model.0.contains_key(at) == wanted)
        };
        let empty = (start >= end).then_some(RangeError::Empty { start, end });
        // The range around an address that is in the way; a gap may reach to the ends of all.
        let around = |at: u64| model.range_at(at, (first, first + SPAN));
        let wrong = match random.below(4) {
            0 => {
                let expected = empty.or(mapped(true).map(|at| {
                    let (start, end) = around(at);
                    RangeError::Mapped { start, end }
                }));
                assert_eq!(map.map(range.clone(), value).err(), expected, "{round}");
                (expected.is_none(), Some(value))
            }
            1 => {
                let refused = map.protect(range.clone(), value).err();
                match empty.or(mapped(false).map(|_| RangeError::Unmapped { start: 0, end: 0 })) {
                    Some(RangeError::Unmapped { .. }) => {
                        assert!(matches!(refused, Some(RangeError::Unmapped { .. })));
                        (false, None)
                    }
                    expected => {
                        assert_eq!(refused, expected, "{round}");
                        (expected.is_none(), Some(value))
                    }
                }
            }
            2 => {
                assert_eq!(map.unmap(range.clone()).err(), empty);
                (empty.is_none(), None)
            }
            _ => {
                shift(&map, &mut model, start, end, first);
                (false, None)
            }
        };
        if let (true, value) = wrong {
            model.fill(range, value);
        }
        assert_eq!(ranges(&map), model.ranges(), "{round}");
        for at in first..first + SPAN {
            assert_eq!(map.get(at).unwrap(), model.0.get(&at).copied());
        }
        assert_eq!(map.check(), Vec::<String>::new(), "{round}");
    }
    assert_eq!(map.get(u64::MAX).unwrap(), None);
    assert_eq!(map.flush(), 0);
}

/// Moves the boundary at `from`, if there is one, to `to`, if that lies within its neighbours.
fn shift(map: &RangeMap<u8>, model: &mut Addresses, from: u64, to: u64, first: u64) {
    let at = |address: u64| model.0.get(&address).copied();
    let is_boundary = from > 0 && at(from - 1) != at(from);
    let moved = map.shift(from, to);
    if !is_boundary {
        assert_eq!(moved, Err(RangeError::NoBoundary(from)));
        return;
    }
    // What is read off the map itself here is checked against the model after each update.
    let reader = map.read().unwrap();
    match moved {
        Ok(()) if to < from => model.fill(to..from, at(from)),
        Ok(()) => model.fill(from..to, at(from - 1)),
        Err(RangeError::BeyondNeighbours { after, before }) => {
            assert!(to <= after || to >= before);
            assert_eq!((after, before), {
                let (before, behind) = (reader.find(from - 1), reader.find(from));
                (before.start, behind.end)
            });
        }
        Err(error) => panic!("{error}, at {}", from - first),
    }
}

#[test]
fn updates_do_what_they_do_to_single_addresses() {
    for (first, seed) in [(0, 1), (1 << 40, 2), (u64::MAX - 41, 3)] {
        against_addresses(first, seed);
    }
}

/// Each thread's addresses lie between the others', so that every update meets neighbours that
/// change; what it has mapped itself stays as it is.
#[test]
fn threads_find_what_they_have_mapped_whatever_happens_beside_it() {
    let topology = topology();
    for when in [TakeLanes::WhenBusy, TakeLanes::Always] {
        let p = private(common::options());
        let mut map = map_of(&p, when);
        in_threads(4, |thread| {
            topology.stay_on(NodeId((thread % topology.nodes()) as u16));
            let mut random = Random::new(thread as u64 + 5);
            let mut mine = [None; 12];
            for _ in 0..UPDATES {
                let place = random.below(12);
                let start = 8 * (4 * place + thread as u64);
                let value = 1 + random.below(3) as u8;
                let range = start..start + 8;
                let own = &mut mine[place as usize];
                match random.below(4) {
                    0 => {
                        let taken = map.map(range, value).is_err();
                        assert_eq!(taken, own.is_some());
                        own.get_or_insert(value);
                    }
                    1 => {
                        let missing = map.protect(range, value).is_err();
                        assert_eq!(missing, own.is_none());
                        own.as_mut().map(|own| std::mem::replace(own, value));
                    }
                    2 => {
                        map.unmap(range).unwrap();
                        *own = None;
                    }
                    _ => {
                        let found = map.read().unwrap().find(start + 3);
                        assert_eq!(found.value, *own);
                        assert!(found.start <= start && start + 8 <= found.end || own.is_none());
                    }
                }
            }
        });
        assert_eq!(map.check(), Vec::<String>::new());
        map.unmap(0..u64::MAX).unwrap();
        assert_eq!(map.read().unwrap().iter().count(), 0);
        assert_eq!(map.flush(), 0);
        println!("@count range map, {when:?}: {:?}", map.stats());
    }
}

/// A whole range is mapped at one moment, and taken apart in pieces: whoever has it, has it alone.
#[test]
fn a_range_is_one_threads_alone() {
    let p = private(common::options());
    let mut map = map_of(&p, TakeLanes::WhenBusy);
    let had = AtomicU64::new(0);
    in_threads(3, |thread| {
        let mine = 1 + thread as u8;
        let mut random = Random::new(thread as u64);
        for _ in 0..UPDATES {
            if map.map(100..200, mine).is_err() {
                // Its start is never mapped: refused, whatever it would have changed.
                let end = 101 + random.below(80);
                assert!(map.protect(90..end, mine).is_err());
                continue;
            }
            assert_eq!(had.fetch_add(1, Relaxed), 0, "two have it");
            for at in [100, 150, 199] {
                assert_eq!(map.get(at).unwrap(), Some(mine));
            }
            let cut = 101 + random.below(98);
            had.fetch_sub(1, Relaxed);
            map.unmap(cut..200).unwrap();
            map.unmap(100..cut).unwrap();
        }
    });
    assert_eq!(map.read().unwrap().iter().count(), 0);
    assert_eq!(map.check(), Vec::<String>::new());
}

/// Boundaries that move anywhere, between ranges that come and go.
#[test]
fn ranges_come_and_go_while_their_boundaries_move() {
    let p = private(common::options());
    let mut map = map_of(&p, TakeLanes::WhenBusy);
    in_threads(4, |thread| {
        let mut random = Random::new(thread as u64 + 40);
        for _ in 0..UPDATES {
            let start = random.below(60);
            let (range, value) = (
                start..start + 1 + random.below(30),
                1 + random.below(3) as u8,
            );
            let _ = match random.below(4) {
                0 => map.map(range, value),
                1 => map.protect(range, value),
                2 => map.unmap(range),
                _ => map.shift(range.start, range.end),
            };
        }
    });
    assert_eq!(map.check(), Vec::<String>::new());
    map.unmap(0..u64::MAX).unwrap();
    assert_eq!(map.read().unwrap().iter().count(), 0);
    assert_eq!(map.flush(), 0);
}

/// Boundaries move to and fro between ranges whose values are known: what is found between them is
/// never a mixture of two states.
#[test]
fn boundaries_that_move_are_read_where_they_stand() {
    let p = private(common::options());
    let mut map = map_of(&p, TakeLanes::WhenBusy);
    for n in 0..5 {
        map.map(100 * n..100 * (n + 1), 1 + n as u8).unwrap();
    }
    in_threads(4, |thread| {
        let mut random = Random::new(thread as u64);
        if thread < 2 {
            // The boundaries of even number, or of odd number.
            let mut places = [100, 200, 300, 400];
            for _ in 0..UPDATES {
                let n = thread + 2 * random.below(2) as usize;
                let to = 100 * (n as u64 + 1) + random.below(80) - 40;
                if to != places[n] {
                    map.shift(places[n], to).unwrap();
                    places[n] = to;
                }
            }
            return;
        }
        for _ in 0..UPDATES {
            let n = random.below(5);
            let found = map.read().unwrap().find(100 * n + 50);
            assert_eq!(found.value, Some(1 + n as u8));
            for (edge, at) in [(100 * n, found.start), (100 * (n + 1), found.end)] {
                assert!(edge.abs_diff(at) <= 40, "{found:?}");
            }
        }
    });
    assert_eq!(ranges(&map).len(), 5);
    assert_eq!(map.check(), Vec::<String>::new());
}

#[test]
fn an_update_within_a_guard_is_refused_and_changes_nothing() {
    let p = private(common::options());
    let map = map_of(&p, TakeLanes::WhenBusy);
    map.map(10..20, 1).unwrap();
    let rcx = Rcx::new(&p, topology());
    let lock = mneme_sync::RobustLock::new();
    let guard = rcx.lock([mneme_rcx::Item::new(u64::MAX, &lock)]);
    let refused = map.unmap(0..100).unwrap_err();
    assert!(
        matches!(refused, RangeError::Lock(RcxError::OutOfOrder { .. })),
        "{refused}"
    );
    drop(guard);
    assert_eq!(ranges(&map), [(10, 20, 1)]);
}

// A thread that dies gives nothing back, which Miri takes for a leak.
#[cfg(not(miri))]
mod interrupted {
    use super::*;
    use mneme_sync::Holding;
    use mneme_sys::fault::{self, Action};
    use std::sync::{Mutex, mpsc};

    /// Where an update may be interrupted, and one that comes by there.
    type Update = fn(&RangeMap<u8>) -> Result<(), RangeError>;
    const POINTS: [(&str, Update); 9] = [
        ("rcx.range.locked", |map| map.protect(10..70, 9)),
        ("rcx.range.valued", |map| map.protect(10..70, 9)),
        ("rcx.range.inserted", |map| map.protect(15..18, 9)),
        ("rcx.range.marked", |map| map.protect(10..70, 9)),
        ("rcx.range.removed", |map| map.protect(10..70, 9)),
        ("rcx.range.moved", |map| map.shift(20, 17)),
        // The locks are released by then.
        ("rcx.range.changed", |map| map.unmap(0..100)),
        ("rcx.range.counted", |map| map.protect(15..18, 9)),
        ("rcx.range.lowered", |map| map.unmap(0..100)),
    ];

    /// Ranges of ten addresses, 10 to 100, each with a value of its own.
    fn tens(timeout: Duration) -> RangeMap<u8> {
        let p = private(common::options());
        let rcx = Rcx::new(&p, topology()).timeout(timeout);
        let map = RangeMap::with_rcx(&p, rcx);
        for n in 1..10 {
            map.map(10 * n..10 * (n + 1), n as u8).unwrap();
        }
        // Not next to those, nor to the gap behind them.
        map.map(400..700, 20).unwrap();
        map
    }

    fn values(map: &RangeMap<u8>) -> Vec<Option<u8>> {
        (0..110).map(|at| map.get(at).unwrap()).collect()
    }

    /// What an update makes of all addresses, if nothing interrupts it.
    fn result_of(update: Update) -> Vec<Option<u8>> {
        let map = tens(LONG);
        update(&map).unwrap();
        values(&map)
    }

    fn assert_before_or_after(map: &RangeMap<u8>, update: Update, story: &str) {
        let states = [values(&tens(LONG)), result_of(update)];
        for (at, found) in values(map).into_iter().enumerate() {
            assert!(
                states.iter().any(|state| state[at] == found),
                "{story}: {at}"
            );
        }
    }

    #[test]
    fn an_update_that_stops_anywhere_keeps_no_reader_and_no_distant_update_waiting() {
        for (point, update) in POINTS {
            let map = tens(Duration::from_millis(1));
            let (stop, is_stopped) = mpsc::channel();
            let (go_on, may_go_on) = mpsc::channel::<()>();
            let may_go_on = Mutex::new(may_go_on);
            let stand = Action::Call(Arc::new(move || {
                stop.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            }));
            std::thread::scope(|scope| {
                // Dropped if this fails, so that nobody stands there for ever.
                let (map, go_on) = (&map, go_on);
                let stopped = scope.spawn(move || {
                    fault::arm(point, stand, 1);
                    update(map)
                });
                let stops = is_stopped.recv_timeout(LONG);
                assert!(stops.is_ok(), "{point}: no update comes by");
                assert_before_or_after(map, update, point);
                map.protect(500..600, 21).unwrap();
                if !["changed", "counted", "lowered"]
                    .iter()
                    .any(|later| point.ends_with(later))
                {
                    let refused = map.protect(12..19, 3).unwrap_err();
                    assert!(
                        matches!(
                            refused,
                            RangeError::Lock(RcxError::Stalled(s)) if s.what == Holding::Lock
                        ),
                        "{point}: {refused}"
                    );
                }
                go_on.send(()).unwrap();
                stopped.join().unwrap().unwrap();
            });
            let mut map = map;
            assert_eq!(values(&map), result_of(update), "{point}");
            assert_eq!(map.check(), Vec::<String>::new(), "{point}");
        }
    }

    /// A boundary that moves between the search and the locks: what was the neighbour behind the
    /// range is none any more.
    #[test]
    fn a_range_that_moves_before_it_is_locked_is_detected() {
        for to in [15, 18, 25] {
            let map = Arc::new(tens(LONG));
            let moved = Arc::clone(&map);
            let shift = Action::Call(Arc::new(move || moved.shift(20, to).unwrap()));
            fault::arm("rcx.range.gathered", shift, 1);
            map.protect(15..20, 2).unwrap();
            fault::disarm();
            let expected = |at: u64| match at {
                10..15 => 1,
                15..20 => 2,
                _ if at < to => 1,
                _ => 2,
            };
            for at in 10..30 {
                assert_eq!(map.get(at).unwrap(), Some(expected(at)), "{to}: {at}");
            }
            let mut map = Arc::into_inner(map).unwrap();
            assert_eq!(map.check(), Vec::<String>::new());
        }
    }

    #[test]
    fn an_update_that_unwinds_anywhere_leaves_whole_ranges() {
        for (point, update) in POINTS {
            for nth in 1..4 {
                let mut map = tens(LONG);
                std::thread::scope(|scope| {
                    let map = &map;
                    let unwinds = scope.spawn(move || {
                        let unwind = || std::panic::resume_unwind(Box::new(()));
                        fault::arm(point, Action::Call(Arc::new(unwind)), nth);
                        let _ = update(map);
                        fault::disarm();
                    });
                    let _ = unwinds.join();
                });
                let story = format!("{point}, time {nth}");
                assert_before_or_after(&map, update, &story);
                // Whatever it left is tidied up by the next.
                map.unmap(0..u64::MAX).unwrap();
                assert_eq!(map.read().unwrap().iter().count(), 0, "{story}");
                assert_eq!(map.check(), Vec::<String>::new(), "{story}");
                map.map(10..20, 1).unwrap();
                assert_eq!(ranges(&map), [(10, 20, 1)], "{story}");
            }
        }
    }
}
