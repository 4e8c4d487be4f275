//! A process that has attached a store for reading watches its keys as writers do: it sees every
//! change by the server and by other processes, and changes nothing itself.
#![cfg(not(miri))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::Path;

use common::{options, registry};
use mneme_log::{Decision, Expiry, UpdatePolicy, Watch, WriteError};
use mneme_shared::{Access, Opening, Registry, SharedStore};
use mneme_testkit::{Process, TestDir};

/// A registry with its data beside it, removed with the test.
struct Place(TestDir);

impl Place {
    fn new(test: &str) -> Self {
        Self(TestDir::new(test))
    }

    fn registry(&self) -> Registry {
        registry(&self.0)
    }
}

const NAME: &str = "s";
const CHILD: &str = "MNEME_SHARED_WATCHED";
const KEY: &[u8] = b"watched";
/// An expiry that is never reached.
const LATE: Expiry = Expiry::At(1 << 50);

type Change = (&'static str, fn(&SharedStore) -> Result<(), WriteError>);

/// All changes of an existing key, and of one that does not exist.
const CHANGES: [Change; 9] = [
    ("put", |store| store.put(KEY, b"as long")),
    ("longer", |store| store.put(KEY, &[7; 5000])),
    ("update", |store| {
        let longer = |old: Option<&[u8]>| Decision::Replace(old.unwrap_or(b"").to_vec());
        store.update(KEY, longer).map(drop)
    }),
    ("expire", |store| store.put_until(KEY, b"v", LATE)),
    ("transaction", |store| {
        store.transaction(|t| t.put(KEY, b"in a transaction"))
    }),
    ("batch", |store| {
        let pairs = [(b"another".as_slice(), b"v"), (KEY, b"w")];
        store.put_many(&pairs).map_err(|error| error.source)
    }),
    ("swap", |store| store.swap_databases(0, 1)),
    ("back", |store| store.swap_databases(0, 1)),
    ("remove", |store| store.remove(KEY).map(drop)),
];

/// Starts another process, which changes the store on request.
fn start(part: &str, place: &Place) -> Process {
    let order = format!("{part} {}", place.0.display());
    let mut process = Process::start_talking("another_process", [(CHILD, order)]);
    process.wait_for("done");
    process
}

/// Does nothing unless it was started as another process.
#[test]
fn another_process() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let (part, root) = order.split_once(' ').unwrap();
    let registry = registry(Path::new(root));
    let (served, attached);
    let store: &SharedStore = match part {
        "server" => {
            served = Opening::default().open(&registry, NAME).unwrap();
            &served
        }
        _ => {
            attached = SharedStore::attach_writable(&registry, NAME).unwrap();
            &attached
        }
    };
    println!("\ndone");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (_, change) = CHANGES.iter().find(|(name, _)| *name == line).unwrap();
        change(store).unwrap();
        println!("\ndone");
    }
}

fn watch(store: &SharedStore, key: &[u8]) -> Watch {
    let mut watch = store.watch().unwrap();
    watch.add(0, key).unwrap();
    watch
}

/// A key's value, if it has one.
type Value = Option<Vec<u8>>;

/// A read that the watch guards, by an opening for reading only: the value of the key, unless
/// something has changed.
fn read(watch: &Watch) -> Option<Value> {
    watch.transaction(|t| t.get(KEY)).unwrap()
}

#[test]
fn a_reader_sees_every_change_by_the_server_and_by_other_writers() {
    for (policy, test) in [
        (UpdatePolicy::Append, "append"),
        (UpdatePolicy::InPlace, "in-place"),
    ] {
        let place = Place::new(test);
        let options = options().update_policy(policy);
        let store = options.create(&place.registry(), NAME).unwrap();
        store.put(KEY, b"at first").unwrap();
        drop(store);
        let others = ["server", "writer"].map(|part| start(part, &place));
        let reader = options
            .attach(&place.registry(), NAME, Access::ReadOnly)
            .unwrap();
        for mut other in others {
            for (change, _) in CHANGES {
                let before = reader.get(KEY).unwrap().map(|value| value.to_vec());
                let (watch, bystander) = (watch(&reader, KEY), watch(&reader, b"not there"));
                assert!(watch.is_unchanged(), "{policy:?}: before {change}");
                assert_eq!(read(&watch), Some(before), "{policy:?}: before {change}");
                assert!(bystander.is_unchanged());
                other.say(change);
                other.wait_for("done");
                assert!(!watch.is_unchanged(), "{policy:?}: {change}");
                assert_eq!(read(&watch), None, "{policy:?}: {change}");
                let refused = watch.transaction(|t| t.put(KEY, b"reader"));
                assert!(
                    matches!(refused, Ok(None) | Err(WriteError::ReadOnly)),
                    "{refused:?}"
                );
            }
        }
        let unchanged = watch(&reader, KEY);
        let refused = unchanged.transaction(|t| t.put(KEY, b"reader"));
        assert!(matches!(refused, Err(WriteError::ReadOnly)), "{refused:?}");
        assert!(unchanged.is_unchanged());
    }
}
