//! A watch of a key misses no change of it, and reports none that its thread had already seen.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::fence;
use loom::thread;
use mneme_sync::{SlotId, Word};

use super::buckets::{KEY, KEY_IN_FRONT, PLACE, root, version};
use super::{KeyspaceId, LooseLoads, Model, Orders, Sound, fails, holds};
use crate::index::bucket::{Entry, Held, TryLock};
use crate::index::lookup::Lookup;
use crate::records::watched::count;
use crate::region::mem::Loc;

const WRITER: SlotId = SlotId(3);
const WATCHER: SlotId = SlotId(4);
/// The place of the new record.
const NEW: usize = 1;

struct Scene<O> {
    space: Arc<KeyspaceId<O>>,
    watched: Model<O>,
    counter: Model<O>,
    /// A word for which the checker tries all orders, which it does not do for fences.
    turns: Model<O>,
}

impl<O: Orders> Scene<O> {
    fn barrier(&self) {
        self.turns.fetch_add(1, Relaxed);
        fence(SeqCst);
    }

    fn lock(&self, me: SlotId) -> Held<'_, Model<O>> {
        let segment = self.space.index_segment(root(), PLACE).unwrap().unwrap();
        let home = (self.space)
            .bucket(segment, segment.home(PLACE.tag))
            .unwrap();
        loop {
            match home.try_lock(me) {
                TryLock::Held(held) => return held,
                TryLock::Busy(_) => thread::yield_now(),
                TryLock::Retired => panic!("no segment is replaced here"),
            }
        }
    }

    /// As `Participants::is_watched`.
    fn is_watched(&self) -> bool {
        self.barrier();
        self.watched.load(Relaxed) != 0
    }

    fn note(&self) {
        if self.is_watched() {
            count(&self.counter);
        }
    }

    fn publish(&self, loc: Loc) {
        let segment = self.space.index_segment(root(), PLACE).unwrap().unwrap();
        let found = self.space.find_in(segment, PLACE.tag, &[KEY]).unwrap();
        let found = found.expect("a key that is there");
        found.bucket.replace(found.slot, Entry::new(PLACE.tag, loc));
    }

    /// As `Records::begin_watching`; returns what was noted.
    fn begin(&self) -> u64 {
        self.watched.store(1, Relaxed);
        self.barrier();
        let noted = self.counter.load(Acquire);
        self.await_home();
        noted
    }

    fn await_home(&self) {
        let segment = self.space.index_segment(root(), PLACE).unwrap().unwrap();
        let home = (self.space)
            .bucket(segment, segment.home(PLACE.tag))
            .unwrap();
        while home.word().locked() {
            thread::yield_now();
        }
    }

    /// The version that a reader finds.
    fn read(&self) -> u64 {
        let segment = self.space.index_segment(root(), PLACE).unwrap().unwrap();
        let found = self.space.find_in(segment, PLACE.tag, &[KEY]).unwrap();
        found.expect("a key that is there").record.version
    }
}

/// How a writer publishes a record.
type Write<O> = fn(&Scene<O>, Loc);

fn write<O: Orders>(scene: &Scene<O>, loc: Loc) {
    let held = scene.lock(WRITER);
    scene.note();
    scene.publish(loc);
    held.unlock();
}

/// A thread that watches the key, and then checks whether it has changed: at any time, or, as a
/// transaction does, when it holds the key's home.
fn watch<O: Orders>(
    write: Write<O>,
    begin: fn(&Scene<O>) -> u64,
    holding: bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene {
            space: KEY_IN_FRONT.build::<O>(),
            watched: Model::new(0),
            counter: Model::new(0),
            turns: Model::new(0),
        });
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let loc = scene.space.write(NEW, version(KEY, 2));
                write(&scene, loc);
            })
        };
        let noted = begin(&scene);
        let before = scene.read();
        let held = holding.then(|| scene.lock(WATCHER));
        let after = scene.read();
        if scene.counter.load(Acquire) == noted {
            assert_eq!(before, after, "a missed change");
        }
        if let Some(held) = held {
            held.unlock();
        }
        writer.join().unwrap();
        assert_eq!(scene.read(), 2);
    }
}

#[test]
fn no_change_of_a_watched_key_is_missed() {
    holds(watch::<Sound>(write, Scene::begin, false));
    holds(watch::<Sound>(write, Scene::begin, true));
}

#[test]
fn a_change_that_is_counted_when_it_is_published_is_missed() {
    let late: Write<Sound> = |scene, loc| {
        let held = scene.lock(WRITER);
        scene.publish(loc);
        scene.note();
        held.unlock();
    };
    fails("a missed change", watch(late, Scene::begin, false));
}

#[test]
fn one_that_is_counted_after_the_unlocking_is_missed_by_transactions_too() {
    let late: Write<Sound> = |scene, loc| {
        let held = scene.lock(WRITER);
        scene.publish(loc);
        held.unlock();
        scene.note();
    };
    fails("a missed change", watch(late, Scene::begin, true));
}

#[test]
fn a_writer_that_asks_before_it_locks_is_missed() {
    let early: Write<Sound> = |scene, loc| {
        let watched = scene.is_watched();
        let held = scene.lock(WRITER);
        if watched {
            count(&scene.counter);
        }
        scene.publish(loc);
        held.unlock();
    };
    fails("a missed change", watch(early, Scene::begin, true));
}

#[test]
fn a_watcher_that_does_not_wait_for_the_home_bucket_misses_its_holder() {
    let hasty = |scene: &Scene<Sound>| {
        scene.watched.store(1, Relaxed);
        scene.barrier();
        scene.counter.load(Acquire)
    };
    fails("a missed change", watch(write, hasty, true));
}

#[test]
fn a_watcher_that_notes_after_waiting_misses_a_change_under_way() {
    let late = |scene: &Scene<Sound>| {
        scene.watched.store(1, Relaxed);
        scene.barrier();
        scene.await_home();
        scene.counter.load(Acquire)
    };
    fails("a missed change", watch(write, late, true));
}

#[test]
fn relaxed_loads_miss_a_change() {
    fails("", watch::<LooseLoads>(write, Scene::begin, false));
}
