//! No follower sleeps through an entry that was completed after it had looked, even if a writer
//! stops before it has woken the follower.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loom::sync::{Arc, Mutex};
use loom::thread;
use mneme_sync::Word;

use super::{Model, Sound, fails, holds};
use crate::feed::bell::{arm, ring};

type Bell = Model<Sound>;

struct Scene {
    bell: Bell,
    /// How many entries there are.
    entries: Bell,
    /// Whether the follower sleeps, as the kernel knows it.
    asleep: Mutex<bool>,
}

impl Scene {
    /// The kernel lets it sleep only if the word is the one that it saw.
    fn sleep(&self, armed: u64) {
        let mut asleep = self.asleep.lock().unwrap();
        *asleep = self.bell.load(Relaxed) == armed;
    }

    fn wake(&self) {
        *self.asleep.lock().unwrap() = false;
    }
}

/// The word on which a follower sleeps, and whether it saw all entries.
type Look = fn(&Scene) -> (u64, bool);

fn looks(scene: &Scene) -> (u64, bool) {
    let armed = arm(&scene.bell);
    (armed, scene.entries.load(Acquire) == 1)
}

fn rings(scene: &Scene) {
    ring(&scene.bell, || scene.wake());
}

/// A writer completes an entry and rings, beside two followers and, if `stops`, another writer that
/// stops just before it wakes the sleepers.
fn sleepers(look: Look, ring_it: fn(&Scene), stops: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene {
            bell: Model::new(0),
            entries: Model::new(0),
            asleep: Mutex::new(false),
        });
        if stops {
            // The other writer had rung for an earlier entry.
            arm(&scene.bell);
            let _ = scene.bell.compare_exchange(1, 2, Relaxed, Relaxed);
        }
        let other = scene.clone();
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                scene.entries.store(1, Release);
                ring_it(&scene);
            })
        };
        let other = thread::spawn(move || look(&other).0);
        let (armed, saw) = look(&scene);
        if !saw {
            scene.sleep(armed);
        }
        writer.join().unwrap();
        other.join().unwrap();
        assert!(!*scene.asleep.lock().unwrap(), "sleeps for ever");
    }
}

#[test]
fn no_follower_sleeps_through_an_entry() {
    holds(sleepers(looks, rings, false));
    holds(sleepers(looks, rings, true));
}

#[test]
fn one_that_looks_before_it_arms_the_bell_does() {
    fails(
        "sleeps for ever",
        sleepers(
            |scene| {
                let saw = scene.entries.load(Acquire) == 1;
                (arm(&scene.bell), saw)
            },
            rings,
            false,
        ),
    );
}

#[test]
fn a_bell_that_is_armed_as_it_was_before_lets_one_sleep() {
    let to_zero: fn(&Scene) = |scene| {
        Bell::fence(SeqCst);
        if scene.bell.compare_exchange(1, 0, Relaxed, Relaxed).is_ok() {
            scene.wake();
        }
    };
    fails("sleeps for ever", sleepers(looks, to_zero, false));
}

/// A follower slept on word 1 when a writer rang and stopped before waking it; another writer
/// rings.
fn rung_by_one_that_stopped(ring_it: fn(&Scene)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Scene {
            bell: Model::new(2),
            entries: Model::new(1),
            asleep: Mutex::new(true),
        };
        ring_it(&scene);
        assert!(!*scene.asleep.lock().unwrap(), "sleeps for ever");
    }
}

#[test]
fn a_listener_that_a_stopped_writer_has_not_woken_is_woken_by_the_next() {
    holds(rung_by_one_that_stopped(rings));
    fails(
        "sleeps for ever",
        rung_by_one_that_stopped(|scene| {
            if scene.bell.load(Relaxed) & 3 == 1 {
                rings(scene);
            }
        }),
    );
}
