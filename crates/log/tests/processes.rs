//! The store lists the attached processes, what each holds, and which are stopped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use memory::Memory;
use mneme_log::{Life, LogStore, Process, ProcessState};

fn of(store: &LogStore, i: usize) -> Process {
    store.processes()[i].clone()
}

#[test]
fn openings_are_listed_with_what_they_hold() {
    let (memory, one) = Memory::new();
    one.put(b"k", b"v").unwrap();
    let other = memory.open_maintained(2);
    let me = std::process::id();
    let listed = one.processes();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|p| p.pid == me && p.life == Life::Alive));
    assert!(listed.iter().all(|p| p.attached_ms > 0 && !p.is_stopped()));
    let asker =
        |store: &LogStore| -> Vec<bool> { store.processes().iter().map(|p| p.is_asker).collect() };
    assert_eq!(asker(&one), [true, false]);
    assert_eq!(asker(&other), [false, true]);
    assert_eq!(
        (of(&one, 0).maintains, of(&one, 1).maintains),
        (false, true)
    );
    assert!(!listed.iter().any(|p| p.serves));
    let role = one.take_server_role().unwrap();
    assert_eq!((of(&other, 0).serves, of(&other, 1).serves), (true, false));
    drop(role);
    assert!(!of(&other, 0).serves);

    // A value is a pin, which becomes older as others remove records.
    assert!(!of(&other, 0).may_hold_up());
    let value = one.get(b"k").unwrap().unwrap();
    let pin = of(&other, 0).oldest_pin.unwrap();
    assert!(pin.firm && of(&other, 0).may_hold_up());
    other.clear().unwrap();
    other.compact().unwrap();
    assert!(of(&other, 0).oldest_pin.unwrap().periods > pin.periods);
    drop(value);
    assert_eq!(of(&other, 0).oldest_pin, None);
    assert_eq!(of(&one, 0).threads, 1);

    // The dead stay until they are reaped.
    memory.script.kill(1);
    assert_eq!(of(&other, 0).life, Life::Dead);
    assert_eq!(of(&other, 0).state, None);
    drop(other);
    let last = memory.open(3);
    last.reap().unwrap();
    assert_eq!(last.processes().len(), 1);
    std::mem::forget(one);
}

#[test]
fn operations_under_way_are_described_in_words() {
    use memory::stopped::Stopped;
    use mneme_log::Work;

    let said = |name: &'static str, work: fn(&LogStore), expected: &[Work]| {
        let (memory, store) = Memory::new();
        store.put(b"k", b"v").unwrap();
        let theirs = memory.open(2);
        let stopped = Stopped::at(name, 1, move || work(&theirs));
        let process = of(&store, 1);
        for work in expected {
            assert!(process.work.contains(work), "{name}: {:?}", process.work);
        }
        assert!(process.may_hold_up());
        stopped.finish();
        assert_eq!(store.processes().len(), 1, "{name}");
    };
    said(
        "log.bucket.locked",
        |s| s.put(b"k", b"w").unwrap(),
        &[Work::WritesKey],
    );
    said(
        "txn.locked",
        |s| s.transaction(|t| t.put(b"k", b"w")).unwrap(),
        &[Work::Commits],
    );
    said(
        "log.swap.alone",
        |s| s.swap_databases(0, 1).unwrap(),
        &[Work::Swaps],
    );
    assert_eq!(
        Work::HoldsShard(3).to_string(),
        "holds shard 3 of the index"
    );
}

const STOPPED: &str = "MNEME_TEST_STOPPED";

/// The other process; a test that does nothing unless it was started as one.
#[test]
fn other_process() {
    if std::env::var_os(STOPPED).is_some() {
        println!("\nready");
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_stopped_process_is_known_as_such() {
    let mut other = mneme_testkit::Process::start_ready("other_process", [(STOPPED, "1")]);
    let pid = other.id();
    mneme_testkit::signal(pid, "-STOP");
    assert_eq!(mneme_sys::process_state(pid), Some(ProcessState::Stopped));
    other.kill();
    assert_eq!(mneme_sys::process_state(pid), None);
}
