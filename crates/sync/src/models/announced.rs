//! A request is seen by every thread whose announcement is not found afterwards.

use super::{Fences, Model, Useless, fails, holds, spawn};
use crate::atomics::{Barrier, Word};
use crate::intent;
use crate::layout::INTENT_WORDS;
use loom::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Shared {
    /// The requested flag.
    wanted: Model,
    head: Model,
    words: [Model; INTENT_WORDS],
    value: Model,
    requested: Model,
    fences: Model,
}

type Write = fn(&Shared);
/// Returns the announcement that was found, and the value.
type Want = fn(&Shared) -> (Option<u64>, u64);

/// One thread changes the value and reports the change if that is requested; another begins to
/// request it, and then reads the value.
fn want(write: Write, want: Want) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            wanted: Model::new(0),
            head: Model::new(0),
            words: std::array::from_fn(|_| Model::new(0)),
            value: Model::new(0),
            requested: Model::new(0),
            fences: Model::new(0),
        });
        let writer = spawn(&shared, write);
        let (standing, mut seen) = want(&shared);
        // The announcements are read once, whenever that happens.
        if standing.is_some() && intent::standing(&shared.head) != standing {
            seen = shared.value.load(Acquire);
            writer.join().unwrap();
            assert_eq!(seen, 1, "it was over, and is not visible");
            return;
        }
        writer.join().unwrap();
        let over = standing.is_some();
        let requested = shared.requested.load(Acquire) == 1;
        assert!(seen == 1 || requested || over, "a change was missed");
    }
}

fn announce(shared: &Shared) {
    intent::begin(&shared.head, &shared.words, 1, &[0; INTENT_WORDS]);
}

/// Does what `light_barrier` does, loads the flag, and reports.
fn tell(shared: &Shared, barrier: &impl Barrier) {
    barrier.light();
    if shared.wanted.load(Relaxed) != 0 {
        shared.requested.store(1, Release);
    }
}

fn write(shared: &Shared) {
    announce(shared);
    shared.value.store(1, Release);
    tell(shared, &Fences(&shared.fences));
    intent::clear(&shared.head);
}

fn begin(shared: &Shared) -> (Option<u64>, u64) {
    shared.wanted.store(1, Release);
    Fences(&shared.fences).heavy().unwrap();
    let standing = intent::standing(&shared.head);
    (standing, shared.value.load(Acquire))
}

#[test]
fn no_change_is_missed() {
    holds(want(write, begin));
    // The flag may also be read before the change.
    holds(want(
        |shared| {
            announce(shared);
            Fences(&shared.fences).light();
            let wanted = shared.wanted.load(Relaxed) != 0;
            shared.value.store(1, Release);
            if wanted {
                shared.requested.store(1, Release);
            }
            intent::clear(&shared.head);
        },
        begin,
    ));
}

#[test]
fn a_thread_that_looks_for_requests_before_it_announces_is_missed() {
    fails(want(
        |shared| {
            Fences(&shared.fences).light();
            let wanted = shared.wanted.load(Relaxed) != 0;
            announce(shared);
            shared.value.store(1, Release);
            if wanted {
                shared.requested.store(1, Release);
            }
            intent::clear(&shared.head);
        },
        begin,
    ));
}

#[test]
fn reading_the_announcements_before_the_request_is_stored_misses_one() {
    fails(want(write, |shared| {
        let standing = intent::standing(&shared.head);
        let seen = shared.value.load(Acquire);
        shared.wanted.store(1, Release);
        Fences(&shared.fences).heavy().unwrap();
        (standing, seen)
    }));
}

#[test]
fn without_the_barrier_request_and_announcement_miss_each_other() {
    fails(want(
        |shared| {
            announce(shared);
            Useless.light();
            let wanted = shared.wanted.load(Relaxed) != 0;
            shared.value.store(1, Release);
            if wanted {
                shared.requested.store(1, Release);
            }
            intent::clear(&shared.head);
        },
        |shared| {
            shared.wanted.store(1, Release);
            Useless.heavy().unwrap();
            let standing = intent::standing(&shared.head);
            (standing, shared.value.load(Acquire))
        },
    ));
}
