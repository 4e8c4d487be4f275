//! Real processes die at every fault point of serving and of upgrading a store: no record is lost,
//! and the next process can do the same under the same name. What they leave in the log when they
//! die during a change is not mistaken for damage.
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{opening, options, registry};
use mneme_log::Expiry;
use mneme_shared::{Access, Found, Registry, SharedStore, StoreOptions};
use mneme_sys::fault::{self, Action};
use mneme_testkit::{TestDir, is_killed};

const CHILD: &str = "MNEME_SHARED_DEATH";
const RECORDS: u32 = 1_000;

/// The operation during which a process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    /// Serves an existing store.
    Serve,
    /// Serves a sound store that failed to start three times.
    Check,
    /// Serves a damaged store that failed to start three times.
    Replace,
    /// Upgrades a store with or without a change feed, keeping that or asking for the other.
    Upgrade { fed: bool, asked: Option<bool> },
    /// Changes a store.
    Change,
}

const ALL: [Operation; 8] = [
    Operation::Serve,
    Operation::Check,
    Operation::Replace,
    Operation::upgrade(false, None),
    Operation::upgrade(true, None),
    Operation::upgrade(false, Some(true)),
    Operation::upgrade(true, Some(false)),
    Operation::Change,
];

/// A registry for one test, removed with it.
struct Scene(TestDir);

impl Scene {
    fn registry(&self) -> Registry {
        registry(&self.0)
    }

    /// A store with records.
    fn prepare(&self, operation: Operation) {
        let registry = self.registry();
        let fed = matches!(operation, Operation::Upgrade { fed: true, .. });
        let store = options().change_feed(fed).create(&registry, "s").unwrap();
        for i in 0..RECORDS {
            let database = store.database(i as usize % 3).unwrap();
            database.put(&i.to_le_bytes(), &i.to_be_bytes()).unwrap();
        }
        let data = store.segment().directory().join("data");
        drop(store);
        if operation == Operation::Replace {
            let file = std::fs::File::options().write(true).open(data).unwrap();
            file.write_all_at(&[0xa5; 64], 128).unwrap();
        }
        if matches!(operation, Operation::Check | Operation::Replace) {
            registry.set_note("s", "starts", Some("3\n")).unwrap();
        }
    }
}

/// The options of an upgrade.
fn larger(asked: Option<bool>) -> StoreOptions {
    let larger = options().capacity(80 << 20);
    match asked {
        Some(feed) => larger.change_feed(feed),
        None => larger,
    }
}

impl Operation {
    const fn upgrade(fed: bool, asked: Option<bool>) -> Operation {
        Operation::Upgrade { fed, asked }
    }

    fn perform(self, registry: &Registry) {
        match self {
            Self::Serve | Self::Check | Self::Replace => {
                opening().open(registry, "s").unwrap().settle().unwrap();
            }
            Self::Upgrade { asked, .. } => {
                let done = larger(asked).upgrade(registry, "s").unwrap();
                assert_eq!(done.records, u64::from(RECORDS));
            }
            Self::Change => {
                let attached = options().attach(registry, "s", Access::ReadWrite);
                change(&attached.unwrap());
            }
        }
    }

    /// Checks what the next process finds after the death, which then repeats the operation.
    fn afterwards(self, registry: &Registry, context: &str) {
        if self == Self::Replace {
            let served = opening().open(registry, "s").unwrap();
            let expected = [Found::Created, Found::Replaced("s~quarantine-1".to_owned())];
            assert!(
                expected.contains(served.found()),
                "{context}: {:?}",
                served.found()
            );
            let names: Vec<String> = registry
                .segments()
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(names, ["s", "s~quarantine-1"], "{context}");
            return;
        }
        if let Self::Upgrade { fed, asked } = self {
            // The names were changed before the death, or are yet to be changed.
            let are_changed =
                ["s~old", "s"].map(|name| SharedStore::attach(registry, name).is_ok());
            if are_changed != [true; 2] {
                self.perform(registry);
            }
            assert_eq!(registry.segments().unwrap().len(), 2, "{context}");
            let new = SharedStore::attach_writable(registry, "s").unwrap();
            assert_eq!(new.has_change_feed(), asked.unwrap_or(fed), "{context}");
            // Empty at first; later changes appear in it.
            let tail = new.feed_tail();
            assert_eq!(tail.unwrap_or(0), 0, "{context}");
            new.database(0).unwrap().put(b"new", b"").unwrap();
            assert!(new.feed_tail() > tail || tail.is_none(), "{context}");
        }
        let served = opening().open(registry, "s").unwrap();
        let expected = match self {
            Self::Check => Found::Checked,
            _ => Found::Attached,
        };
        assert_eq!(*served.found(), expected, "{context}");
        for i in 0..RECORDS {
            let database = served.database(i as usize % 3).unwrap();
            let found = database.get(&i.to_le_bytes()).unwrap();
            assert_eq!(
                found.as_deref(),
                Some(&i.to_be_bytes()[..]),
                "{context}: {i}"
            );
        }
        let report = served.check().unwrap();
        assert!(report.is_sound(), "{context}: {report:?}");
    }
}

/// Makes a store non-empty, and empty again.
fn change(store: &SharedStore) {
    for round in 0..2 {
        let database = store.database(5).unwrap();
        database.put(b"new", b"first").unwrap();
        database.put(b"new", b"second").unwrap();
        let until = Expiry::At(u64::MAX >> 1);
        database.put_until(b"new", b"third", until).unwrap();
        database.put_many(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
        let done = store.transaction(|t| {
            let mut at = t.database(6)?;
            at.put(b"c", b"3")?;
            at.put(b"d", b"4")?;
            at.remove(b"e").map(drop)
        });
        done.unwrap();
        store.swap_databases(5, 7).unwrap();
        assert!(store.database(7).unwrap().remove(b"new").unwrap());
        store.database(6).unwrap().clear().unwrap();
        if round == 0 {
            store.database(7).unwrap().clear().unwrap();
            store.compact().unwrap();
        }
    }
}

#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let mut words = order.splitn(3, ' ');
    let operation = ALL[words.next().unwrap().parse::<usize>().unwrap()];
    fault::arm(words.next().unwrap(), Action::Kill, 1);
    operation.perform(&registry(Path::new(words.next().unwrap())));
}

/// Runs the operation in a process that dies at the fault point; returns whether it did.
fn dies(operation: Operation, scene: &Scene, point: &str) -> bool {
    let index = ALL.iter().position(|other| *other == operation).unwrap();
    let order = format!("{index} {point} {}", scene.0.display());
    is_killed("child", [(CHILD, order)])
}

#[test]
fn a_death_at_any_fault_point_loses_no_record_and_the_next_process_continues() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let points = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut died_at = BTreeSet::new();
    for operation in ALL.into_iter().filter(|o| *o != Operation::Change) {
        for point in &points {
            let scene = Scene(TestDir::new("shared-death"));
            scene.prepare(operation);
            if dies(operation, &scene, point) {
                died_at.insert(point.clone());
                operation.afterwards(&scene.registry(), &format!("{operation:?} {point}"));
            }
        }
    }
    assert_eq!(died_at, points, "each point is one at which somebody dies");
}

/// A store in which a process was killed is served at once, and what that process left is repaired
/// first. That holds for an empty store, which might have lost its index, and for one that failed
/// to start three times, and is checked.
#[test]
fn a_change_interrupted_by_a_death_is_not_mistaken_for_damage() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let points = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../log/src")).unwrap();
    let mut died = 0;
    for point in &points {
        for failed in ["0\n", "3\n"] {
            let scene = Scene(TestDir::new("shared-change"));
            let registry = scene.registry();
            drop(options().create(&registry, "s").unwrap());
            if !dies(Operation::Change, &scene, point) {
                break;
            }
            died += 1;
            registry.set_note("s", "starts", Some(failed)).unwrap();
            let served = opening().open(&registry, "s");
            let served = served.unwrap_or_else(|refused| panic!("{point}: {refused}"));
            let expected = match failed {
                "3\n" => Found::Checked,
                _ => Found::Attached,
            };
            assert_eq!(*served.found(), expected, "{point}");
        }
    }
    assert!(died > 60, "{died} deaths");
}
