//! A lease has one holder, and is released when the holder's process dies.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Pair, UUID, liveness, open, options, private};
use mneme_sync::{LEASES, Lease, LeaseError, Participants};
use mneme_sys::{PagePolicy, Region};
use mneme_testkit::{Process, fd_path};
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

const CONTROL: &str = "MNEME_TEST_LEASES";
const NUMBER: usize = 1;

fn holder(p: &Participants) -> Option<u32> {
    p.lease_holder(NUMBER).unwrap()
}

#[test]
fn one_opening_holds_a_lease_and_can_release_it_from_any_thread() {
    let me = Some(std::process::id());
    let pair = Pair::new();
    assert_eq!(holder(&pair.b), None);
    let lease = pair.a.try_lease(NUMBER).unwrap().unwrap();
    // Neither the other opening nor this one gets it, and all other leases are free.
    assert!(pair.b.try_lease(NUMBER).unwrap().is_none());
    assert!(pair.a.clone().try_lease(NUMBER).unwrap().is_none());
    assert_eq!((holder(&pair.a), holder(&pair.b)), (me, me));
    for other in (0..LEASES).filter(|n| *n != NUMBER) {
        assert_eq!(pair.b.lease_holder(other).unwrap(), None);
        assert!(pair.b.try_lease(other).unwrap().is_some());
    }
    std::thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!((holder(&pair.a), holder(&pair.b)), (None, None));
    let lease = pair.b.try_lease(NUMBER).unwrap().unwrap();
    assert!(pair.a.try_lease(NUMBER).unwrap().is_none());
    // It keeps its opening alive: an entry that names the holder exists as long as the lease.
    let Pair { a, b, .. } = pair;
    drop(b);
    assert_eq!(holder(&a), me);
    drop(lease);
    assert_eq!(a.stats().processes, 1);
}

#[test]
fn a_dead_processs_lease_is_free_before_anybody_reaps() {
    let pair = Pair::new();
    let theirs = pair.a.try_lease(NUMBER).unwrap().unwrap();
    pair.script.kill(1);
    assert_eq!(holder(&pair.b), None);
    let lease = pair.b.try_lease(NUMBER).unwrap().unwrap();
    // A process that was declared dead and ends late takes nothing from its successor.
    drop(theirs);
    assert_eq!(holder(&pair.b), Some(std::process::id()));
    pair.b.reap(|_| Ok::<_, Infallible>(())).unwrap();
    assert_eq!(holder(&pair.b), Some(std::process::id()));
    drop(lease);
    assert_eq!(holder(&pair.b), None);
}

#[test]
fn a_private_region_has_leases_too() {
    let p = private(options());
    let lease = p.try_lease(0).unwrap().unwrap();
    assert!(p.try_lease(0).unwrap().is_none());
    assert_eq!(p.lease_holder(0).unwrap(), Some(std::process::id()));
    drop(lease);
    assert!(p.try_lease(0).unwrap().is_some());
    let none = p.try_lease(LEASES).unwrap_err();
    assert!(matches!(none, LeaseError::NoSuchLease(LEASES)));
    assert!(p.lease_holder(LEASES).is_err());
}

/// The other process; does nothing unless it was started as such.
#[test]
fn other_process() {
    let Ok(control) = std::env::var(CONTROL) else {
        return;
    };
    let p = Participants::open(open(&control), UUID, liveness(&control)).unwrap();
    let _lease = p.try_lease(NUMBER).unwrap().unwrap();
    println!("\nready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_processs_lease_is_released_and_its_successor_is_named() {
    let control = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let fd = control.duplicate_fd().unwrap().unwrap();
    let p = Participants::create(control, options(), liveness(&fd_path(&fd))).unwrap();
    for _ in 0..3 {
        let mut other = Process::start_ready("other_process", [(CONTROL, fd_path(&fd))]);
        assert_eq!(holder(&p), Some(other.id()));
        assert!(p.try_lease(NUMBER).unwrap().is_none());
        other.kill();
        assert_eq!(holder(&p), None);
        let lease = p.try_lease(NUMBER).unwrap().unwrap();
        assert_eq!(holder(&p), Some(std::process::id()));
        drop(lease);
    }
}

struct Held {
    p: Participants,
    lease: Lease,
}

#[test]
fn a_forked_child_holds_no_lease_and_takes_none() {
    let control = Region::memfd("control", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let fd = control.duplicate_fd().unwrap().unwrap();
    let p = Participants::create(control, options(), liveness(&fd_path(&fd))).unwrap();
    let lease = p.try_lease(NUMBER).unwrap().unwrap();
    let held = Box::new(Held { p, lease });
    let address = std::ptr::from_ref(&*held).expose_provenance();
    let in_child = move || {
        // SAFETY: the child has a copy of the parent's memory, and with it of this value, which
        // nobody else in the child uses.
        let Held { p, lease } =
            unsafe { std::ptr::read(std::ptr::with_exposed_provenance::<Held>(address)) };
        drop(lease);
        let refused = matches!(p.try_lease(0), Err(LeaseError::Forked))
            && matches!(p.lease_holder(NUMBER), Err(LeaseError::Forked));
        std::mem::forget(p);
        if refused {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(1))
        }
    };
    let mut command = Command::new("true");
    // SAFETY: the closure allocates nothing and takes no lock.
    let status = unsafe { command.pre_exec(in_child) }.status();
    assert!(status.expect("the child got a lease").success());
    assert_eq!(holder(&held.p), Some(std::process::id()));
    // Others see the same: the kernel's lock is still held.
    let other = Participants::open(open(&fd_path(&fd)), UUID, liveness(&fd_path(&fd))).unwrap();
    assert!(other.try_lease(NUMBER).unwrap().is_none());
    let Held { p, lease } = *held;
    drop(lease);
    assert!(other.try_lease(NUMBER).unwrap().is_some());
    drop(p);
}
