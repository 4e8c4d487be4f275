//! One opening maintains a store, one serves it, and another takes over when it ends or is killed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod memory;

use std::path::Path;
use std::sync::Arc;

use memory::Memory;
use mneme_log::{Builder, Expiry, LogStore, RoleError, control_bytes};
use mneme_sys::{Access, OfdLiveness, PagePolicy, Region};
use mneme_testkit::{Process, fd_path, wait_until};

/// The maintainer of the store removes expired records.
fn is_swept(store: &LogStore, key: &[u8]) {
    let before = store.len();
    store.put_until(key, b"v", Expiry::At(1)).unwrap();
    wait_until("an expired record vanishes", || store.len() == before);
}

#[test]
fn one_opening_maintains_and_another_follows_it() {
    let (memory, creator) = Memory::new();
    assert!(!creator.maintains(), "it has no maintainer");
    let first = memory.open_maintained(2);
    let second = memory.open_maintained(3);
    assert_eq!((first.maintains(), second.maintains()), (true, false));
    is_swept(&creator, b"one");
    // It releases the lease. The next opening, or the one on standby, gets it at once.
    drop(first);
    wait_until("the other takes over", || second.maintains());
    is_swept(&creator, b"two");
    let third = memory.open_maintained(4);
    assert!(!third.maintains());
    drop(second);
    wait_until("the third takes over", || third.maintains());
    is_swept(&creator, b"three");
    drop(third);
    let fourth = memory.open_maintained(5);
    assert!(fourth.maintains(), "at once, for nobody held it");
}

#[test]
fn the_declared_dead_are_followed_too() {
    let (memory, creator) = Memory::new();
    let first = memory.open_maintained(2);
    let second = memory.open_maintained(3);
    memory.script.kill(2);
    wait_until("the other takes over", || second.maintains());
    is_swept(&creator, b"one");
    drop(first);
    assert!(second.maintains());
}

#[test]
fn a_private_store_maintains_itself() {
    let store = LogStore::builder().capacity(64 << 20);
    let store = store.open_private().unwrap();
    assert!(store.maintains());
    is_swept(&store, b"one");
    let role = store.take_server_role().unwrap();
    assert!(store.take_server_role().is_err());
    drop(role);
    store.take_server_role().map(drop).unwrap();
}

#[test]
fn one_opening_serves_and_a_second_one_learns_which() {
    let (memory, first) = Memory::new();
    let second = memory.open(2);
    let role = first.take_server_role().unwrap();
    for store in [&first, &second] {
        let refused = store.take_server_role().unwrap_err();
        let me = std::process::id();
        assert!(matches!(refused, RoleError::Taken { pid } if pid == me));
        assert!(refused.to_string().contains(&me.to_string()));
    }
    std::thread::spawn(move || drop(role)).join().unwrap();
    let role = second.take_server_role().unwrap();
    memory.script.kill(2);
    first.take_server_role().map(drop).unwrap();
    drop(role);
}

const DATA: &str = "MNEME_TEST_DATA";
const CONTROL: &str = "MNEME_TEST_CONTROL";

fn map(path: &str) -> Region {
    let file = std::fs::OpenOptions::new();
    let file = file.clone().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    Region::map(file.into(), Access::ReadWrite, len, PagePolicy::Small).unwrap()
}

fn builder(maintainer: bool) -> Builder {
    LogStore::builder().maintainer(maintainer)
}

fn liveness(control: &str) -> Arc<OfdLiveness> {
    Arc::new(OfdLiveness::open(Path::new(control), 0).unwrap())
}

/// The other process; a test that does nothing unless it was started as one.
#[test]
fn other_process() {
    let (Ok(data), Ok(control)) = (std::env::var(DATA), std::env::var(CONTROL)) else {
        return;
    };
    let store = builder(true)
        .open_in(map(&data), map(&control), liveness(&control))
        .unwrap();
    assert!(store.maintains());
    let _role = store.take_server_role().unwrap();
    println!("\nready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_is_followed_in_both_roles() {
    let control_len = control_bytes().next_multiple_of(2 << 20);
    let [data, control] = [("data", memory::CAPACITY), ("control", control_len)]
        .map(|(name, len)| Region::memfd(name, len, len, PagePolicy::Small).unwrap());
    let fds = [&data, &control].map(|r| r.duplicate_fd().unwrap().unwrap());
    let [data_path, control_path] = [fd_path(&fds[0]), fd_path(&fds[1])];
    let creator = builder(false)
        .create_in(data, control, liveness(&control_path))
        .unwrap();
    is_served_and_maintained(&creator, &data_path, &control_path);
    is_served_and_maintained(&creator, &data_path, &control_path);
}

/// By a process that is killed, and by an opening of this one afterwards.
fn is_served_and_maintained(creator: &LogStore, data: &str, control: &str) {
    let mut other = Process::start_ready("other_process", [(DATA, data), (CONTROL, control)]);
    let standby = builder(true)
        .open_in(map(data), map(control), liveness(control))
        .unwrap();
    assert!(!standby.maintains());
    is_swept(creator, b"by the other process");
    let refused = standby.take_server_role().unwrap_err();
    assert!(matches!(refused, RoleError::Taken { pid } if pid == other.id()));
    other.kill();
    standby.take_server_role().map(drop).unwrap();
    wait_until("this process takes over", || standby.maintains());
    is_swept(creator, b"by this one");
}
