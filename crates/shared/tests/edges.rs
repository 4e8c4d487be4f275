//! The errors when memory, slots or permissions run out. Each is a typed error that kills nobody,
//! and disappears when the resource is available again.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{options, registry};
use mneme_log::{OpenError, ReadError, SlotError, WriteError};
use mneme_shared::{Access, AttachError, Opening, Registry, ServeError, SharedStore, StoreOptions};
use mneme_testkit::{Mount, Process, TestDir, runs_as_nobody};

/// A registry with its data beside it, removed with the test.
struct Place {
    root: TestDir,
}

impl Place {
    fn new(test: &str) -> Self {
        let root = TestDir::new(test);
        Self { root }
    }

    fn registry(&self) -> Registry {
        registry(&self.root)
    }

    /// The arguments for another process.
    fn order(&self, part: &str) -> [(&str, String); 1] {
        [(CHILD, format!("{part} {}", self.root.display()))]
    }
}

const NAME: &str = "s";
const CHILD: &str = "MNEME_SHARED_EDGE";

const OTHER: &str = "another_process";

fn wait_to_go_on() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Does nothing unless it was started as another process.
#[test]
fn another_process() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let (part, root) = order.split_once(' ').unwrap();
    let registry = registry(Path::new(root));
    let options = StoreOptions::new();
    match part {
        "fill" => {
            let store = options.attach(&registry, NAME, Access::ReadWrite).unwrap();
            fill_and_go_on(&store, std::process::id(), |done| {
                println!("\n{done}");
                wait_to_go_on();
            });
        }
        "stay" => {
            let _store = SharedStore::attach_writable(&registry, NAME).unwrap();
            println!("\nready");
            wait_to_go_on();
        }
        "serve" => {
            let refused = Opening::default().open(&registry, NAME).map(drop);
            assert!(
                matches!(&refused, Err(ServeError::NotOwner { owner: 0, .. })),
                "{refused:?}"
            );
            let store = SharedStore::attach(&registry, NAME).unwrap();
            assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
            let refused = SharedStore::attach_writable(&registry, NAME).map(drop);
            assert!(matches!(refused, Err(AttachError::Map(_))), "{refused:?}");
            let put = store.put(b"k", b"w");
            assert!(matches!(put, Err(WriteError::ReadOnly)), "{put:?}");
            let data = store.segment().directory().join("data");
            let opened = std::fs::OpenOptions::new().write(true).open(data);
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        other => panic!("{other}"),
    }
}

/// Stores until there is no memory, removes a half, and stores a quarter, waiting with `met` for
/// all processes after each step. A process that had stored little removes little, perhaps less
/// than compaction can recover at a time.
fn fill_and_go_on(store: &SharedStore, who: u32, mut met: impl FnMut(&str)) {
    let key = |i: u32| [who.to_le_bytes(), i.to_le_bytes()].concat();
    let value = [7; 10_000];
    let mut stored = 0;
    let refused = loop {
        match store.put(&key(stored), &value) {
            Ok(()) => stored += 1,
            // As in `patiently`.
            Err(WriteError::Stalled(_)) => {}
            Err(refused) => break refused,
        }
    };
    assert!(
        matches!(refused, WriteError::OutOfMemory { .. }),
        "{refused}"
    );
    met("full");
    for i in 0..stored {
        assert_eq!(store.get(&key(i)).unwrap().unwrap(), value);
    }
    for i in 0..stored / 2 {
        assert!(patiently(|| store.remove(&key(i))));
    }
    met("half gone");
    for i in 0..stored / 4 {
        patiently(|| store.put(&key(i), &value));
    }
}

/// On a busy machine another process may be off its CPU for a second while it holds what is needed;
/// that error is retried.
fn patiently<T>(mut call: impl FnMut() -> Result<T, WriteError>) -> T {
    for _ in 0..30 {
        match call() {
            Err(WriteError::Stalled(_)) => {}
            done => return done.unwrap(),
        }
    }
    call().unwrap()
}

#[test]
fn a_full_tmpfs_is_out_of_memory_to_the_server_and_to_all_writers() {
    let place = Place::new("full");
    let Some(_mount) = Mount::tmpfs(&place.root, "56m") else {
        return;
    };
    let registry = place.registry();
    // Much more than the machine has: only memory that is used is allocated.
    let opening = Opening {
        options: StoreOptions::new().capacity(256 << 20),
        ..Opening::default()
    };
    let served = opening.open(&registry, NAME).unwrap();
    let start = |_| Process::start_talking(OTHER, place.order("fill"));
    let mut others: Vec<_> = (0..3).map(start).collect();
    fill_and_go_on(&served, 0, |done| {
        others.iter_mut().for_each(|other| other.wait_for(done));
        others.iter_mut().for_each(|other| other.say(""));
    });
    others.into_iter().for_each(Process::end);
    assert!(served.stats().records > 1000);
    let report = served.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// A small store that the test's own process has created.
fn small(place: &Place) -> SharedStore {
    let store = options().create(&place.registry(), NAME).unwrap();
    store.put(b"k", b"v").unwrap();
    store
}

/// Another user of the registry may put a link in a store's place.
#[test]
fn a_name_with_a_dangling_link_is_not_free() {
    let place = Place::new("nowhere");
    let registry = place.registry();
    let link = registry.root().join("segments").join(NAME);
    std::os::unix::fs::symlink("nowhere", link).unwrap();
    let (send, opened) = channel();
    std::thread::spawn(move || send.send(Opening::default().open(&registry, NAME).is_err()));
    // It must not check and create a store again and again.
    assert!(opened.recv_timeout(Duration::from_secs(60)).unwrap());
}

#[test]
fn one_process_too_many_is_refused_and_gets_a_killed_ones_entry() {
    const MOST: usize = 64;
    let place = Place::new("processes");
    let registry = place.registry();
    let attach = |access| options().attach(&registry, NAME, access);
    let mut here = vec![small(&place)];
    let mut other = Process::start_ready(OTHER, place.order("stay"));
    here.extend((2..MOST).map(|_| attach(Access::ReadOnly).unwrap()));
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let refused = attach(access).map(drop);
        assert!(
            matches!(
                refused,
                Err(AttachError::Store(OpenError::Control(
                    mneme_sync::OpenError::Attach(mneme_sync::AttachError::Full { max: 64 })
                )))
            ),
            "{refused:?}"
        );
    }
    // Nobody was affected.
    here[0].put(b"more", b"v").unwrap();
    other.kill();
    here.push(attach(Access::ReadWrite).unwrap());
    assert_eq!(here[MOST - 1].get(b"k").unwrap().unwrap(), b"v");
    here.truncate(1);
    let again: Vec<_> = (1..MOST)
        .map(|_| attach(Access::ReadOnly).unwrap())
        .collect();
    assert!(attach(Access::ReadOnly).is_err());
    drop(again);
    assert!(here[0].check().unwrap().is_sound());
}

#[test]
fn one_thread_too_many_is_refused_and_slots_are_released() {
    // Of 1,024 slots four are reserved for threads that repair what dead threads left.
    const MOST: usize = 1020;
    let place = Place::new("threads");
    let store = small(&place);
    let reader = options()
        .attach(&place.registry(), NAME, Access::ReadOnly)
        .unwrap();
    // Twice: the first threads' slots are released when they end. The main thread has a slot
    // because it has stored.
    for round in 0..2 {
        let (taken, done) = (Barrier::new(MOST), Barrier::new(MOST));
        let refused = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let visit = |i: usize| {
                let (store, reader) = (&store, &reader);
                let (taken, done, refused) = (&taken, &done, &refused);
                let visit = move || {
                    let store = if i.is_multiple_of(2) { store } else { reader };
                    let got = store.get(b"k");
                    refused.fetch_add(usize::from(got.is_err()), Ordering::Relaxed);
                    taken.wait();
                    done.wait();
                };
                let thread = std::thread::Builder::new().stack_size(128 << 10);
                thread.spawn_scoped(scope, visit).unwrap()
            };
            let visitors: Vec<_> = (1..MOST).map(visit).collect();
            taken.wait();
            let one_more = scope.spawn(|| (reader.get(b"k").map(drop), store.put(b"k", b"w")));
            let (read, written) = one_more.join().unwrap();
            // A thread that has a slot continues.
            let found = store.get(b"k").map(|value| value.unwrap().to_vec());
            done.wait();
            // A scope by itself does not wait until its threads have released their slots.
            visitors.into_iter().for_each(|it| it.join().unwrap());
            assert!(
                matches!(
                    read,
                    Err(ReadError::Slot(SlotError::TooManyThreads { max: 1024 }))
                ),
                "{read:?}"
            );
            assert!(
                matches!(
                    written,
                    Err(WriteError::Slot(SlotError::TooManyThreads { .. }))
                ),
                "{written:?}"
            );
            assert_eq!(found.unwrap(), b"v");
        });
        assert_eq!(refused.into_inner(), 0, "round {round}");
    }
    assert!(store.check().unwrap().is_sound());
}

#[test]
fn only_a_stores_owner_can_serve_it() {
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let place = Place::new("owner");
    drop(
        options()
            .mode(0o644)
            .create(&place.registry(), NAME)
            .map(|store| {
                store.put(b"k", b"v").unwrap();
            }),
    );
    let seen = |path: &str, mode| {
        let path = place.root.join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for directory in ["", "memory", "registry", "registry/segments"] {
        seen(directory, 0o755);
    }
    seen("registry/registry", 0o644);
    runs_as_nobody(OTHER, place.order("serve"));
}
