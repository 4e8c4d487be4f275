//! Visits and moves under a model checker: [loom](https://docs.rs/loom) runs every schedule of two
//! or three threads, and every value that C11 allows a load to return, up to a bound on
//! preemptions.
//!
//! The steps are those of `visitors` and `process`. The checker watches cells that stand for one
//! segment that is moved, and for a set that is freed. Each model has twins in which one ordering
//! or step is broken, and which must fail.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The values of a visitor's cell: no visit; a set that has the segment; the same set while the
/// segment may be moved; another set.
const OUTSIDE: u64 = 0;
const INSIDE: u64 = 1;
const WAITING: u64 = 2;
const ELSEWHERE: u64 = 3;

/// Which steps are done correctly.
#[derive(Clone, Copy)]
struct Steps {
    /// The visitor passes a fence between announcing its visit and checking the segment.
    visitor_fences: bool,
    /// The mover passes a fence between withdrawing the segment's address and checking for
    /// visitors.
    mover_fences: bool,
    /// The mover withdraws the address before it checks for visitors.
    first_away: bool,
    /// The announcement of a visit is ordered after the thread's accesses in its previous visit.
    says_in_order: bool,
}

const SOUND: Steps = Steps {
    visitor_fences: true,
    mover_fences: true,
    first_away: true,
    says_in_order: true,
};

struct Shared {
    steps: Steps,
    home: AtomicBool,
    cell: AtomicU64,
    /// The map's lock.
    map: Mutex<()>,
    /// Loom does not explore schedules around a bare fence, so each fence touches this.
    fences: AtomicU64,
    /// The segment's bytes at its address: visitors read them, movers move them.
    bytes: UnsafeCell<u64>,
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(steps: Steps) -> Arc<Self> {
        Arc::new(Self {
            steps,
            home: AtomicBool::new(true),
            cell: AtomicU64::new(OUTSIDE),
            map: Mutex::new(()),
            fences: AtomicU64::new(0),
            bytes: UnsafeCell::new(0),
        })
    }

    fn fence(&self, passes: bool) {
        self.fences.fetch_add(1, Relaxed);
        if passes {
            fence(SeqCst);
        }
    }

    fn say(&self, what: u64) {
        let order = if self.steps.says_in_order {
            Release
        } else {
            Relaxed
        };
        self.cell.store(what, order);
        self.fence(self.steps.visitor_fences);
    }

    /// Visits the segment, moves it to its address if it is elsewhere, and ends the visit.
    fn visit(&self) {
        self.say(INSIDE);
        if !self.home.load(Acquire) {
            self.say(WAITING);
            let _map = self.map.lock().unwrap();
            if !self.home.load(Acquire) {
                // SAFETY: the protocol claims exclusive access; loom fails the model if that is
                // false.
                self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
                self.home.store(true, Release);
            }
            self.say(INSIDE);
        }
        // SAFETY: as above.
        self.bytes.with(|bytes| unsafe { *bytes });
        self.cell.store(OUTSIDE, Release);
    }

    /// Moves the segment away, unless a thread is inside it.
    fn park(&self) {
        let _map = self.map.lock().unwrap();
        if !self.home.load(Acquire) {
            return;
        }
        if self.steps.first_away {
            self.home.store(false, Release);
        }
        self.fence(self.steps.mover_fences);
        let inside = self.cell.load(Acquire) == INSIDE;
        if inside {
            self.home.store(true, Release);
        } else {
            self.home.store(false, Release);
            // SAFETY: as above.
            self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
        }
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn holds(model: impl Fn() + Send + Sync + 'static) {
    explore(model);
}

fn fails(twin: impl Fn() + Send + Sync + 'static) {
    let run = std::panic::AssertUnwindSafe(|| explore(twin));
    assert!(
        std::panic::catch_unwind(run).is_err(),
        "the broken twin passed: the model shows nothing"
    );
}

/// A visitor comes twice, the second time to another set, while another thread wants the addresses.
fn moved(steps: Steps) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new(steps);
        let visitor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.visit();
                shared.say(ELSEWHERE);
            })
        };
        shared.park();
        visitor.join().unwrap();
    }
}

/// Two visitors would need two cells; one visitor and two movers cover the remaining cases.
fn moved_twice(steps: Steps) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Shared::new(steps);
        let visitor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.visit())
        };
        let mover = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.park())
        };
        shared.park();
        visitor.join().unwrap();
        mover.join().unwrap();
    }
}

#[test]
fn a_visited_segment_is_not_moved() {
    holds(moved(SOUND));
    holds(moved_twice(SOUND));
}

#[test]
fn without_either_fence_a_visited_segment_is_moved() {
    fails(moved(Steps {
        visitor_fences: false,
        ..SOUND
    }));
    fails(moved(Steps {
        mover_fences: false,
        ..SOUND
    }));
}

#[test]
fn checking_for_visitors_before_withdrawing_moves_a_visited_segment() {
    fails(moved(Steps {
        first_away: false,
        ..SOUND
    }));
}

#[test]
fn a_visit_announced_out_of_order_hides_the_previous_visits_accesses() {
    fails(moved(Steps {
        says_in_order: false,
        ..SOUND
    }));
}

/// An attachment's member list: visitors find it; the thread that changes the attachment replaces
/// and frees it.
struct Members {
    current: AtomicU64,
    cell: AtomicU64,
    fences: AtomicU64,
    /// The first members and their replacements.
    sets: [UnsafeCell<u64>; 2],
}

// SAFETY: loom's cells report races; that is the purpose of the test.
unsafe impl Sync for Members {}
// SAFETY: as above.
unsafe impl Send for Members {}

impl Members {
    fn fence(&self) {
        self.fences.fetch_add(1, Relaxed);
        fence(SeqCst);
    }

    fn visit(&self, looks_again: bool) {
        let mut found = self.current.load(Acquire);
        loop {
            // 0 means no visit.
            self.cell.store(found + 1, Release);
            self.fence();
            let now = self.current.load(Acquire);
            if now == found || !looks_again {
                break;
            }
            found = now;
        }
        // SAFETY: the protocol claims that the set lives; loom fails the model if that is false.
        self.sets[found as usize].with(|set| unsafe { *set });
        self.cell.store(0, Release);
    }

    fn replace(&self) {
        let old = self.current.swap(1, AcqRel);
        self.fence();
        if self.cell.load(Acquire) != old + 1 {
            // SAFETY: as above. A write stands for freeing the memory.
            self.sets[old as usize].with_mut(|set| unsafe { *set += 1 });
        }
    }
}

fn replaced(looks_again: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let members = Arc::new(Members {
            current: AtomicU64::new(0),
            cell: AtomicU64::new(0),
            fences: AtomicU64::new(0),
            sets: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let visitor = {
            let members = Arc::clone(&members);
            thread::spawn(move || members.visit(looks_again))
        };
        members.replace();
        visitor.join().unwrap();
    }
}

#[test]
fn a_visited_set_is_not_freed() {
    holds(replaced(true));
}

#[test]
fn without_the_second_check_freed_memory_is_used() {
    fails(replaced(false));
}
