//! A forked child that continues to use its parent's attachment is refused, and touches nothing of
//! it. It may attach for itself.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{options, registry};
use mneme_log::{ReadError, SlotError, WriteError};
use mneme_shared::{Access, ChangeKind, Evict, Notification, Registry};
use mneme_testkit::TestDir;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Runs `f` in a forked child, which must end successfully.
fn in_a_child(f: impl FnOnce()) {
    // SAFETY: glibc's allocator may be used after `fork`, and the child takes no lock of another
    // thread's.
    let pid = unsafe { fork() };
    if pid == 0 {
        let well = catch_unwind(AssertUnwindSafe(f)).is_ok();
        // SAFETY: ends this process.
        unsafe { _exit(i32::from(!well)) }
    }
    must_end_well(pid);
}

fn must_end_well(child: i32) {
    let mut status = -1;
    // SAFETY: the status is a local variable.
    let waited = unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child's end");
}

/// One test at a time: if a thread forked while another attaches, its child would wait for that
/// one's locks for ever.
static TURN: Mutex<()> = Mutex::new(());

/// A registry for one test, removed with it.
struct Place {
    root: TestDir,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new(test: &str) -> (Place, Registry) {
        let place = Place {
            root: TestDir::new(test),
            _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let registry = registry(&place.root);
        (place, registry)
    }
}

#[test]
fn every_operation_of_a_forked_child_is_refused() {
    let (_place, registry) = Place::new("part");
    let store = options().create(&registry, "s").unwrap();
    store.put(b"a", b"1").unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        for lending in [false, true] {
            let options = options().lending(lending);
            let store = options.attach(&registry, "s", access).unwrap();
            in_a_child(|| {
                assert!(matches!(
                    store.get(b"a"),
                    Err(ReadError::Slot(SlotError::Forked))
                ));
                assert!(store.put(b"a", b"2").is_err());
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
}

#[test]
fn a_maintainers_child_writes_through_an_attachment_of_its_own() {
    let (_place, registry) = Place::new("own");
    let store = options().maintainer(true).create(&registry, "s").unwrap();
    store.put(b"k", b"parent").unwrap();
    in_a_child(|| {
        let refused = store.put(b"k", b"child");
        assert!(matches!(refused, Err(WriteError::Slot(SlotError::Forked))));
        let own = options().attach(&registry, "s", Access::ReadWrite).unwrap();
        assert_eq!(own.get(b"k").unwrap().as_deref(), Some(&b"parent"[..]));
        own.put(b"own", b"child").unwrap();
    });
    assert_eq!(store.get(b"k").unwrap().unwrap(), b"parent");
    assert_eq!(store.get(b"own").unwrap().unwrap(), b"child");
    assert!(store.check().unwrap().is_sound());
}

/// A child does not read the change feed, whose memory it does not have.
#[test]
fn a_draining_processs_child_reads_nothing_of_the_feed() {
    let (_place, registry) = Place::new("feed");
    let store = options().change_feed(true).create(&registry, "s").unwrap();
    let mut feed = store.change_feed().unwrap();
    store.put(b"a", b"1").unwrap();
    let (tail, mut drained) = (feed.tail(), Vec::new());
    in_a_child(|| {
        assert_eq!(
            (feed.tail(), feed.durable(), feed.clean_position()),
            (0, 0, None)
        );
        assert!(!feed.is_within_group() && feed.note().is_err());
        feed.rewind();
        assert!(feed.drain(1, &mut drained).is_err());
        assert_eq!((store.feed_tail(), store.salvage_feed()), (None, None));
        assert!(store.reserve_roots(9).is_err());
        let looks = Cell::new(0);
        store.populate_ahead(&|| looks.replace(1) > 0);
    });
    assert_eq!(feed.tail(), tail);
    assert_eq!(feed.drain(usize::MAX, &mut drained).unwrap().end, tail);
}

/// A child receives no changes, and does not end its parent's listening when it drops its copy.
#[test]
fn a_following_processs_child_receives_nothing_and_ends_nothing() {
    let (_place, registry) = Place::new("follows");
    let store = options().create(&registry, "s").unwrap();
    let writer = options().attach(&registry, "s", Access::ReadWrite).unwrap();
    let mut listener = store.listen().unwrap();
    listener.drain(10, |_| {}).unwrap();
    writer.put(b"before", b"v").unwrap();
    let mut listener = Some(listener);
    in_a_child(|| {
        let mut listener = listener.take().unwrap();
        let received = listener.drain(10, |report| panic!("{report:?}"));
        assert!(matches!(received, Err(SlotError::Forked)));
        // Nor does it begin to listen.
        assert!(matches!(store.listen(), Err(SlotError::Forked)));
    });
    writer.put(b"after", b"v").unwrap();
    let mut received = Vec::new();
    let receive = |report: Notification<'_>| match report {
        Notification::Change(change) => match change.kind {
            ChangeKind::Stored(key) => received.push(key.to_vec()),
            other => panic!("{other:?}"),
        },
        Notification::Lost => panic!("nothing was lost"),
    };
    listener.as_mut().unwrap().drain(10, receive).unwrap();
    assert_eq!(received, [b"before".to_vec(), b"after".to_vec()]);
    drop((listener, writer, store));
}

/// A child neither performs nor gives up what its parent is about to do and has locked keys for.
#[test]
fn a_child_forked_in_the_body_of_a_transaction_cannot_continue_it() {
    let (_place, registry) = Place::new("transaction");
    let store = options().create(&registry, "s").unwrap();
    store.put(b"a", b"0").unwrap();
    store.put(b"other", b"0").unwrap();
    for ends_it in [false, true] {
        let (mut runs, mut is_child) = (0, false);
        let done = store.transaction(|t| {
            runs += 1;
            t.get(b"a")?;
            t.put(b"a", b"2")?;
            // Conflicts with other writers until it locks in advance.
            if runs <= 16 {
                return store.put(b"a", b"1");
            }
            // SAFETY: as in `in_a_child`.
            let child = unsafe { fork() };
            if child != 0 {
                must_end_well(child);
                return Ok(());
            }
            is_child = true;
            match ends_it {
                true => Ok(()),
                // For this, its parent would give up its locks.
                false => t.get(b"other").map(drop).and(t.put(b"a", b"3")),
            }
        });
        if is_child {
            let refused = matches!(done, Err(WriteError::Slot(SlotError::Forked)));
            // SAFETY: ends this process.
            unsafe { _exit(i32::from(!refused)) }
        }
        done.unwrap();
        assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(store.check().unwrap().is_sound());
    }
}

/// A child does not look for free space when none was found in the body.
#[test]
fn a_child_forked_in_the_body_of_a_transaction_without_free_space_cannot_continue_it() {
    let (_place, registry) = Place::new("full");
    let store = options().create(&registry, "s").unwrap();
    let (mut forked, mut is_child) = (false, false);
    let done = store.transaction(|t| {
        let refused = t.put(b"a", &vec![0; 63 << 20]);
        assert!(matches!(refused, Err(WriteError::OutOfMemory { .. })));
        if !forked {
            forked = true;
            // SAFETY: as in `in_a_child`.
            let child = unsafe { fork() };
            is_child = child == 0;
            if !is_child {
                must_end_well(child);
            }
        }
        refused
    });
    if is_child {
        let refused = matches!(done, Err(WriteError::Slot(SlotError::Forked)));
        // SAFETY: ends this process.
        unsafe { _exit(i32::from(!refused)) }
    }
    assert!(matches!(done, Err(WriteError::OutOfMemory { .. })));
}
