//! Real processes write, and are killed at any instant. Once somebody has repaired what they left,
//! the store's server has received all their changes, or the report that changes were lost.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{opening, options, registry};
use mneme_shared::{Access, Change, ChangeKind, LogStore, Notification, Registry, Served};
use mneme_testkit::{Process, TestDir};

const PLACE: &str = "MNEME_SHARED_NOTIFICATIONS";
const NAME: &str = "listened";
const KEYS: u32 = 200;

/// A registry for one test, removed with it.
struct Place(TestDir);

impl Place {
    fn new(test: &str) -> Place {
        Place(TestDir::new(test))
    }

    fn registry(&self) -> Registry {
        registry(&self.0)
    }

    /// Starts a process that does `work` until it is killed, and waits until it has begun.
    fn start(&self, work: &str) -> Process {
        Process::start_ready(work, [(PLACE, self.0.path())])
    }
}

/// Where a process of this test finds the store; `None` in the test itself.
fn place() -> Option<Registry> {
    Some(registry(std::env::var_os(PLACE)?.as_ref()))
}

/// Writes until it is killed; does nothing unless it was started for that.
#[test]
fn writer() {
    let Some(registry) = place() else { return };
    let store = options()
        .attach(&registry, NAME, Access::ReadWrite)
        .unwrap();
    let me = std::process::id();
    println!("\nready");
    for i in 0u32.. {
        let key = |n: u32| ((i.wrapping_mul(7) ^ n) % KEYS).to_le_bytes();
        let value = [me.to_le_bytes(), i.to_le_bytes()].concat();
        match i % 6 {
            0 => drop(store.remove(&key(me)).unwrap()),
            1 => store
                .transaction(|t| {
                    t.put(&key(1), &value)?;
                    t.put(&key(2), &value)?;
                    t.remove(&key(3)).map(drop)
                })
                .unwrap(),
            2 if i % 600 == 2 => store.clear().unwrap(),
            _ => store.put(&key(me), &value).unwrap(),
        }
    }
}

/// Follows the changes until it is killed.
#[test]
fn listener() {
    let Some(registry) = place() else { return };
    let served = opening().open(&registry, NAME).unwrap();
    served.settle().unwrap();
    served.drain_changes(100, |_| {}).unwrap();
    println!("\nready");
    loop {
        served.drain_changes(100, |_| {}).unwrap();
    }
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(store: &LogStore) -> Content {
    let keys = (0..KEYS).map(u32::to_le_bytes);
    let found = keys.filter_map(|key| Some((key.to_vec(), store.get(&key).unwrap()?.to_vec())));
    found.collect()
}

/// Updates a copy of the store by notifications; returns how many changes there were.
fn drain(served: &Served, mirror: &mut Content) -> usize {
    let mut changed = Vec::new();
    let (mut all, mut count) = (false, 0);
    loop {
        let receive = |report: Notification<'_>| match report {
            Notification::Change(Change {
                kind: ChangeKind::Stored(key) | ChangeKind::Removed(key),
                ..
            }) => changed.push(key.to_vec()),
            _ => all = true,
        };
        let some = served.drain_changes(1_000, receive).unwrap();
        count += some;
        if some < 1_000 {
            break;
        }
    }
    if all {
        *mirror = content(served);
    }
    for key in changed {
        let now = served.get(&key).unwrap().map(|value| value.to_vec());
        match now {
            Some(value) => drop(mirror.insert(key, value)),
            None => drop(mirror.remove(&key)),
        }
    }
    count
}

#[test]
fn changes_of_killed_writers_are_in_the_feed() {
    let place = Place::new("changes");
    let served = opening().open(&place.registry(), NAME).unwrap();
    let mut mirror = Content::new();
    drain(&served, &mut mirror);
    let mut count = 0;
    for round in 0..8 {
        let writers = [place.start("writer"), place.start("writer")];
        for _ in 0..10 + round {
            count += drain(&served, &mut mirror);
            std::thread::sleep(Duration::from_micros(700));
        }
        drop(writers);
        served.reap().unwrap();
        // A slot that one of them was using is free now.
        count += drain(&served, &mut mirror);
        assert_eq!(mirror, content(&served), "round {round}");
    }
    assert!(count > 0);
    assert_eq!(served.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_killed_listener_is_replaced_by_another() {
    let place = Place::new("listeners");
    drop(options().create(&place.registry(), NAME).unwrap());
    let mut mirror = Content::new();
    for round in 0..3 {
        let listener = place.start("listener");
        let writer = place.start("writer");
        std::thread::sleep(Duration::from_millis(3));
        drop(listener);
        let served = opening().open(&place.registry(), NAME).unwrap();
        served.settle().unwrap();
        // The first report is that anything may have changed.
        mirror.clear();
        drain(&served, &mut mirror);
        drop(writer);
        served.reap().unwrap();
        drain(&served, &mut mirror);
        assert_eq!(mirror, content(&served), "round {round}");
    }
}
