//! A registered watcher misses no change.

use super::{Fences, Model, Useless, fails, holds, spawn};
use crate::atomics::{Barrier, Word};
use crate::watch;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const BIT: u64 = 1 << 5;

struct Shared {
    watched: Model,
    fences: Model,
    /// The writer's announcement.
    lock: Model,
    /// The number of changes that were counted.
    noted: Model,
    value: Model,
}

impl Shared {
    fn lock(&self) {
        let _ = self.lock.compare_exchange(0, 1, Acquire, Relaxed);
    }

    fn unlock(&self) {
        self.lock.store(0, Release);
    }

    fn note(&self) {
        self.noted.fetch_add(1, Release);
    }

    fn change(&self) {
        self.value.store(1, Release);
    }

    fn is_watched(&self, barrier: &impl Barrier) -> bool {
        watch::is_watched(&self.watched, barrier)
    }

    fn begin(&self, barrier: &impl Barrier) {
        watch::begin(&self.watched, BIT, barrier).unwrap();
    }

    /// Waits for the thread that has announced a change.
    fn settle(&self) {
        while self.lock.load(Acquire) != 0 {
            thread::yield_now();
        }
    }
}

type Write = fn(&Shared);
/// Returns the count when the watch began.
type Begin = fn(&Shared) -> u64;

/// One thread changes the value, and another begins to watch it.
fn watch(write: Write, begin: Begin) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new(Shared {
            watched: Model::new(0),
            fences: Model::new(0),
            lock: Model::new(0),
            noted: Model::new(0),
            value: Model::new(0),
        });
        let writer = spawn(&shared, write);
        let noted = begin(&shared);
        let before = shared.value.load(Acquire);
        let after = shared.value.load(Acquire);
        let unchanged = shared.noted.load(Acquire) == noted;
        assert!(before == after || !unchanged, "a change was missed");
        writer.join().unwrap();
        watch::end(&shared.watched, BIT);
        assert_eq!(shared.watched.fetch_add(0, AcqRel), 0);
    }
}

fn write(shared: &Shared) {
    shared.lock();
    if shared.is_watched(&Fences(&shared.fences)) {
        shared.note();
    }
    shared.change();
    shared.unlock();
}

fn begin(shared: &Shared) -> u64 {
    shared.begin(&Fences(&shared.fences));
    let noted = shared.noted.load(Acquire);
    shared.settle();
    noted
}

#[test]
fn no_change_is_missed() {
    holds(watch(write, begin));
}

#[test]
fn a_writer_that_checks_for_watchers_before_it_announces_is_missed() {
    fails(watch(
        |shared| {
            let watched = shared.is_watched(&Fences(&shared.fences));
            shared.lock();
            if watched {
                shared.note();
            }
            shared.change();
            shared.unlock();
        },
        begin,
    ));
}

#[test]
fn a_change_counted_after_it_is_visible_is_missed() {
    fails(watch(
        |shared| {
            shared.lock();
            let watched = shared.is_watched(&Fences(&shared.fences));
            shared.change();
            if watched {
                shared.note();
            }
            shared.unlock();
        },
        begin,
    ));
}

#[test]
fn a_watcher_that_does_not_wait_for_announced_writers_misses_changes() {
    fails(watch(write, |shared| {
        shared.begin(&Fences(&shared.fences));
        shared.noted.load(Acquire)
    }));
}

#[test]
fn a_watcher_that_waits_before_it_reads_counts_misses_changes() {
    fails(watch(write, |shared| {
        shared.begin(&Fences(&shared.fences));
        shared.settle();
        shared.noted.load(Acquire)
    }));
}

#[test]
fn without_the_barrier_neither_sees_the_other() {
    let blind: Write = |shared| {
        shared.lock();
        if shared.is_watched(&Useless) {
            shared.note();
        }
        shared.change();
        shared.unlock();
    };
    let hasty: Begin = |shared| {
        shared.begin(&Useless);
        let noted = shared.noted.load(Acquire);
        shared.settle();
        noted
    };
    fails(watch(blind, hasty));
}
