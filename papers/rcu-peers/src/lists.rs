//! Sorted lists that are read under a pin, with three ways to keep updates apart: a lock a list, a
//! lock a list that hands over within a node first, and `Rcx` on the nodes (listings 3.3 to 3.7).

use super::Set;
#[cfg(test)]
use super::Tally;
use super::cohort::CohortLock;
use mneme_rcx::{Item, Rcx, RcxError, RcxGuard};
use mneme_sync::{Acquired, ControlOptions, CreateError, Participants, Retired, RobustLock};
use mneme_sys::Topology;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Removed nodes that are gathered before they are freed: as for any table that changes all the
/// time.
const BATCH: usize = 256;

/// The number of threads that usually retire without meeting.
const BAGS: usize = 8;

pub struct Node {
    key: u64,
    lock: RobustLock,
    removed: AtomicBool,
    next: AtomicPtr<Node>,
    #[cfg(test)]
    tally: Tally,
}

impl Node {
    fn new(key: u64, next: *mut Node) -> Node {
        Node {
            key,
            lock: RobustLock::new(),
            removed: AtomicBool::new(false),
            next: AtomicPtr::new(next),
            #[cfg(test)]
            tally: Tally::default(),
        }
    }

    /// By its address, which no other node gets as long as somebody is pinned who has found it.
    fn item(&self) -> Item<'_> {
        Item::new(std::ptr::from_ref(self).addr() as u64, &self.lock)
    }
}

/// What keeps updates of a list apart.
pub trait Side: Sync {
    /// Holds a list.
    type List<'a>
    where
        Self: 'a;
    /// Holds so many nodes.
    type Nodes<'a, const N: usize>
    where
        Self: 'a;

    /// Before the search.
    fn list(&self, bucket: usize) -> Self::List<'_>;
    /// After it: the node that changes, and the one that is removed, if there is one.
    ///
    /// # Errors
    /// An owner that does not let go: search again.
    fn nodes<'a, const N: usize>(
        &'a self,
        nodes: [&'a Node; N],
    ) -> Result<Self::Nodes<'a, N>, RcxError>;
}

/// A lock a list.
pub struct Locks(Vec<Mutex<()>>);

impl Side for Locks {
    type List<'a> = MutexGuard<'a, ()>;
    type Nodes<'a, const N: usize> = ();

    fn list(&self, bucket: usize) -> MutexGuard<'_, ()> {
        self.0[bucket]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes<const N: usize>(&self, _: [&Node; N]) -> Result<(), RcxError> {
        Ok(())
    }
}

/// A cohort lock a list.
pub struct Cohorts(Vec<CohortLock>);

impl Side for Cohorts {
    type List<'a> = super::cohort::CohortGuard<'a>;
    type Nodes<'a, const N: usize> = ();

    fn list(&self, bucket: usize) -> Self::List<'_> {
        self.0[bucket].lock()
    }

    fn nodes<const N: usize>(&self, _: [&Node; N]) -> Result<(), RcxError> {
        Ok(())
    }
}

/// The nodes' own locks, by `Rcx`.
pub struct Leaders(Rcx);

impl Side for Leaders {
    type List<'a> = ();
    type Nodes<'a, const N: usize> = Acquired<RcxGuard<'a, [Item<'a>; N]>>;

    fn list(&self, _: usize) {}

    #[inline]
    fn nodes<'a, const N: usize>(
        &'a self,
        nodes: [&'a Node; N],
    ) -> Result<Self::Nodes<'a, N>, RcxError> {
        self.0.lock(nodes.map(Node::item))
    }
}

/// Lists, as the buckets of a hash table: a key lies in that of its remainder.
pub struct Lists<S> {
    side: S,
    heads: Vec<Node>,
    participants: Participants,
    retired: Retired<Node>,
    /// Readers of the twin that do not pin.
    #[cfg(test)]
    pins: bool,
}

/// Lists of so many buckets.
///
/// # Errors
/// No memory for the participants.
fn lists<S>(
    buckets: usize,
    side: impl FnOnce(&Participants) -> S,
) -> Result<Lists<S>, CreateError> {
    let mut options = ControlOptions::new([4; 16]);
    if cfg!(miri) {
        // Some ten megabytes less, which Miri would watch byte by byte.
        (options.max_threads, options.undo_bytes) = (16, 256);
    }
    let participants = Participants::private(options)?;
    let heads = (0..buckets).map(|_| {
        let last = Box::new(Node::new(u64::MAX, std::ptr::null_mut()));
        Node::new(0, Box::into_raw(last))
    });
    Ok(Lists {
        heads: heads.collect(),
        side: side(&participants),
        retired: Retired::new(&participants).batch(BATCH).bags(BAGS),
        participants,
        #[cfg(test)]
        pins: true,
    })
}

/// The lists of that kind.
///
/// # Errors
/// No memory for the participants.
pub fn locked(buckets: usize) -> Result<Box<dyn Set>, CreateError> {
    let locks = Locks((0..buckets).map(|_| Mutex::new(())).collect());
    Ok(Box::new(lists(buckets, |_| locks)?))
}

/// As [`locked`], with readers that do not pin what they look at.
#[cfg(test)]
pub fn unpinned(buckets: usize) -> Box<dyn Set> {
    let locks = Locks((0..buckets).map(|_| Mutex::new(())).collect());
    let mut lists = lists(buckets, |_| locks).unwrap();
    lists.pins = false;
    Box::new(lists)
}

/// As [`locked`], with hand-over within the nodes of this topology.
///
/// # Errors
/// No memory for the participants.
pub fn cohorts(buckets: usize, topology: &Arc<dyn Topology>) -> Result<Box<dyn Set>, CreateError> {
    let lock = || CohortLock::new(Arc::clone(topology));
    let locks = Cohorts((0..buckets).map(|_| lock()).collect());
    Ok(Box::new(lists(buckets, |_| locks)?))
}

/// As [`locked`], by `Rcx` on the nodes.
///
/// # Errors
/// No memory for the participants.
pub fn leaders(buckets: usize, topology: &Arc<dyn Topology>) -> Result<Box<dyn Set>, CreateError> {
    let side = |participants: &Participants| Leaders(Rcx::new(participants, Arc::clone(topology)));
    Ok(Box::new(lists(buckets, side)?))
}

impl<S: Side> Lists<S> {
    /// The last node before `key`, and the first one from it on. The caller is pinned.
    fn find(&self, key: u64) -> (&Node, &Node) {
        let mut before: &Node = &self.heads[self.bucket(key)];
        loop {
            // SYNC: pairs with the stores in `insert` and `remove`.
            // SAFETY: linked when it was loaded, so it stays while we are pinned. The last node has
            // the greatest key, and nobody looks beyond.
            let next = unsafe { &*before.next.load(Acquire) };
            if next.key >= key {
                return (before, next);
            }
            before = next;
        }
    }

    fn bucket(&self, key: u64) -> usize {
        key as usize % self.heads.len()
    }
}

/// Whether what was found is so still, now that `before` is locked. While it is, nobody removes the
/// node behind it.
fn is_so(before: &Node, node: &Node) -> bool {
    !before.removed.load(Relaxed) && std::ptr::eq(before.next.load(Relaxed), node)
}

impl<S: Side> Set for Lists<S> {
    fn contains(&self, _: usize, key: u64) -> bool {
        let _pin = self.participants.pin();
        self.find(key).1.key == key
    }

    fn insert(&self, _: usize, key: u64) -> bool {
        loop {
            let _pin = self.participants.pin();
            let _list = self.side.list(self.bucket(key));
            let (before, next) = self.find(key);
            if next.key == key {
                return false;
            }
            let nodes = self.side.nodes([before]);
            if nodes.is_err() || !is_so(before, next) {
                continue;
            }
            let new = Box::new(Node::new(key, before.next.load(Relaxed)));
            // SYNC: pairs with the load in `find`.
            before.next.store(Box::into_raw(new), Release);
            return true;
        }
    }

    fn remove(&self, _: usize, key: u64) -> bool {
        loop {
            let _pin = self.participants.pin();
            let list = self.side.list(self.bucket(key));
            let (before, node) = self.find(key);
            if node.key != key {
                return false;
            }
            let nodes = self.side.nodes([before, node]);
            if nodes.is_err() || !is_so(before, node) {
                continue;
            }
            let old = before.next.load(Relaxed);
            // SYNC: as in `insert`.
            before.next.store(node.next.load(Relaxed), Release);
            node.removed.store(true, Relaxed);
            // What waits for the list or the nodes does not wait for the reclaimer.
            drop(nodes);
            drop(list);
            if let Some(old) = NonNull::new(old) {
                // SAFETY: from a box, and unlinked just now by the one thread that may.
                unsafe { self.retired.retire(old) };
            }
            return true;
        }
    }

    #[cfg(test)]
    fn look_at(&self, _: usize, key: u64, within: &mut dyn FnMut()) -> bool {
        let _pin = self.pins.then(|| self.participants.pin());
        let (_, node) = self.find(key);
        let found = node.key == key;
        if found {
            node.tally.look(within);
        }
        found
    }

    #[cfg(test)]
    fn flush(&self) {
        self.retired.flush();
    }
}

impl<S> Drop for Lists<S> {
    fn drop(&mut self) {
        for head in &mut self.heads {
            let mut next = *head.next.get_mut();
            while !next.is_null() {
                // SAFETY: linked, from a box, and nobody else is here.
                next = *unsafe { Box::from_raw(next) }.next.get_mut();
            }
        }
    }
}
