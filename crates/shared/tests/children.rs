//! A forked child that goes on using its parent's attachment is told so, and touches nothing of it.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use mneme_shared::{Access, Evict, Registry, StoreOptions};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Runs `f` in a forked child, which must end well.
fn in_a_child(f: impl FnOnce()) {
    // SAFETY: glibc's allocator may be used after `fork`, and the child takes no lock of another thread's.
    let pid = unsafe { fork() };
    if pid == 0 {
        let well = catch_unwind(AssertUnwindSafe(f)).is_ok();
        // SAFETY: ends this process.
        unsafe { _exit(i32::from(!well)) }
    }
    let mut status = -1;
    // SAFETY: the status is this function's own.
    let waited = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0), "the child's end");
}

#[test]
fn a_forked_child_is_told_that_it_has_no_part_in_the_store() {
    let root = format!("/dev/shm/mneme-shared-forks-{}", std::process::id());
    let registry = Registry::open(&root).unwrap();
    let options = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let store = options.create(&registry, "s").unwrap();
    store.put(b"a", b"1").unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        for lending in [false, true] {
            let options = options.clone().lending(lending);
            let store = options.attach(&registry, "s", access).unwrap();
            in_a_child(|| {
                assert!(store.get(b"a").is_err() && store.put(b"a", b"2").is_err());
                assert!(store.remove(b"a").is_err() && store.clear().is_err());
                assert!(store.check().is_err() && store.grow(128 << 20).is_err());
                assert!(store.watch().is_err() && store.take_server_role().is_err());
                assert!(store.compact().is_err() && store.reap().is_err());
                assert_eq!((store.len(), store.stats().capacity), (0, 0));
                assert_eq!((store.processes(), store.arrivals()), (Vec::new(), 0));
                assert!(store.set_eviction(Evict::None).is_err());
                assert_eq!(store.eviction(), Evict::None);
                let attached = options.attach(&registry, "s", access).unwrap();
                assert_eq!(attached.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
                drop(attached);
                drop(store);
            });
        }
    }
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.processes().len(), 1);
    drop(store);
    registry.remove_segment("s").unwrap();
    std::fs::remove_dir_all(root).unwrap();
}
