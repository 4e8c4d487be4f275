//! A sorted list that is read without locks, its ends included.

use crate::{LONG, UPDATES, participants, topology};
use mneme_rcx::{Item, Rcx, TakeLanes};
use mneme_sync::{Participants, Retired, RobustLock};
use mneme_sys::NodeId;
use mneme_testkit::{Random, in_threads};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// The sorted list of the paper's listings 3.3 to 3.7, its ends included.
struct List {
    head: Box<Node>,
    retired: Retired<Node>,
    ids: AtomicU64,
}

struct Node {
    value: u64,
    /// Given out upwards, from behind the values: immutable, and unlike them never one's again.
    id: u64,
    lock: RobustLock,
    removed: AtomicBool,
    next: AtomicPtr<Node>,
}

impl Node {
    fn new(id: u64, value: u64, next: *mut Node) -> Box<Node> {
        Box::new(Node {
            value,
            id,
            lock: RobustLock::new(),
            removed: AtomicBool::new(false),
            next: AtomicPtr::new(next),
        })
    }

    fn item(&self) -> Item<'_> {
        Item::new(self.id, &self.lock)
    }

    fn is_followed_by(&self, next: &Node) -> bool {
        !self.removed.load(Relaxed) && std::ptr::eq(self.next.load(Relaxed), next)
    }
}

impl List {
    fn new(p: &Participants) -> List {
        let last = Box::into_raw(Node::new(1, u64::MAX, std::ptr::null_mut()));
        List {
            head: Node::new(0, 0, last),
            retired: Retired::new(p),
            ids: AtomicU64::new(2),
        }
    }

    /// The last node before `value`, and the first one from it on. The caller is pinned.
    fn find(&self, value: u64) -> (&Node, &Node) {
        let mut before: &Node = &self.head;
        loop {
            // SAFETY: linked when it was loaded, so it stays while we are pinned; the last node has
            // the greatest value, which nobody looks beyond.
            let next = unsafe { &*before.next.load(Acquire) };
            if next.value >= value {
                return (before, next);
            }
            before = next;
        }
    }

    fn insert(&self, p: &Participants, rcx: &Rcx, value: u64) -> bool {
        loop {
            let _pin = p.pin().unwrap();
            let (before, next) = self.find(value);
            if next.value == value {
                return false;
            }
            let _guard = rcx.lock([before.item(), next.item()]).unwrap();
            if next.removed.load(Relaxed) || !before.is_followed_by(next) {
                continue;
            }
            let id = self.ids.fetch_add(1, Relaxed);
            let new = Node::new(id, value, before.next.load(Relaxed));
            before.next.store(Box::into_raw(new), Release);
            return true;
        }
    }

    fn remove(&self, p: &Participants, rcx: &Rcx, value: u64) -> bool {
        loop {
            let _pin = p.pin().unwrap();
            let (before, node) = self.find(value);
            if node.value != value {
                return false;
            }
            let _guard = rcx.lock([before.item(), node.item()]).unwrap();
            if node.removed.load(Relaxed) || !before.is_followed_by(node) {
                continue;
            }
            let old = NonNull::new(before.next.load(Relaxed)).unwrap();
            before.next.store(node.next.load(Relaxed), Release);
            node.removed.store(true, Relaxed);
            // SAFETY: from a box, unlinked just now by the one thread that holds its lock.
            unsafe { self.retired.retire(old) };
            return true;
        }
    }

    fn values(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let (_, mut node) = self.find(1);
        while node.value != u64::MAX {
            found.push(node.value);
            node = self.find(node.value + 1).1;
        }
        found
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let mut next = *self.head.next.get_mut();
        while !next.is_null() {
            // SAFETY: linked, from a box, and nobody reads any more.
            next = *unsafe { Box::from_raw(next) }.next.get_mut();
        }
    }
}

/// Each thread knows which of its own values are in the list; neighbours are the others'.
#[test]
fn a_sorted_list_loses_nothing_and_keeps_its_order() {
    let p = participants();
    let topology = topology();
    for when in [TakeLanes::WhenBusy, TakeLanes::Always] {
        let rcx = Rcx::new(&p, topology.clone())
            .take_lanes(when)
            .timeout(LONG);
        let list = List::new(&p);
        let kept = Mutex::new(Vec::new());
        in_threads(4, |thread| {
            topology.stay_on(NodeId((thread % topology.nodes()) as u16));
            let mut random = Random::new(thread as u64 + 77);
            let mut mine = BTreeSet::new();
            for _ in 0..UPDATES {
                let value = 1 + random.below(8) * 4 + thread as u64;
                match random.below(4) {
                    0 | 1 => assert_eq!(list.insert(&p, &rcx, value), mine.insert(value)),
                    2 => assert_eq!(list.remove(&p, &rcx, value), mine.remove(&value)),
                    _ => {
                        let _pin = p.pin().unwrap();
                        assert!(list.values().is_sorted());
                        assert_eq!(list.find(value).1.value == value, mine.contains(&value));
                    }
                }
            }
            kept.lock().unwrap().extend(mine);
        });
        let mut expected = kept.into_inner().unwrap();
        expected.sort_unstable();
        assert_eq!(list.values(), expected);
        let stats = rcx.stats();
        println!(
            "@count list, {when:?}: elections {}, bypasses {}",
            stats.elections, stats.bypasses
        );
        assert_eq!(list.retired.flush(), 0);
    }
}

/// Why the links are read again: what was found may be gone when its lock is had.
#[test]
fn a_node_removed_before_it_is_locked_is_detected() {
    let p = participants();
    let rcx = Rcx::new(&p, topology());
    let list = List::new(&p);
    for value in [10, 20, 30] {
        assert!(list.insert(&p, &rcx, value));
    }
    let pin = p.pin().unwrap();
    let (before, next) = list.find(25);
    assert_eq!((before.value, next.value), (20, 30));
    assert!(list.remove(&p, &rcx, 20));
    let guard = rcx.lock([before.item(), next.item()]).unwrap();
    assert!(
        !before.is_followed_by(next),
        "a node put here would be lost"
    );
    drop((guard, pin));
    assert!(list.insert(&p, &rcx, 25));
    assert_eq!(list.values(), [10, 25, 30]);
}
