//! Read-log-update (Matveev, Shavit, Felber, Marlier, 2015): an update locks nodes by making copies
//! in a log of its own, commits by a step of a clock, waits for the readers of before, and writes
//! the copies back. A reader that began after the step reads the copies.

use super::Set;
#[cfg(test)]
use super::Tally;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64, fence};

const NEVER: u64 = u64::MAX;

struct Node {
    key: u64,
    next: AtomicPtr<Node>,
    /// Null: not locked.
    copy: AtomicPtr<Copied>,
    #[cfg(test)]
    tally: Tally,
}

/// A node as the thread that has locked it would have it.
struct Copied {
    next: AtomicPtr<Node>,
    owner: usize,
    of: *const Node,
}

/// What others read of a thread, and what is its own.
#[repr(align(128))]
struct Thread {
    /// Odd: it reads or updates.
    runs: AtomicU64,
    began: AtomicU64,
    /// From which time on its copies count.
    writes: AtomicU64,
    log: UnsafeCell<Log>,
}

#[derive(Default)]
struct Log {
    /// Of the update under way. From boxes, and others hold their addresses.
    copies: Vec<*mut Copied>,
    /// Of the last one. Readers may use them until the next has waited for readers.
    last: Vec<*mut Copied>,
    removed: Vec<*mut Node>,
}

impl Log {
    /// Frees the copies of the last update. The copies of this one may be used from now on.
    ///
    /// # Safety
    /// Nobody reads the former.
    unsafe fn forget_last(&mut self) {
        for copy in self.last.drain(..) {
            // SAFETY: from a box, and the caller's promise.
            drop(unsafe { Box::from_raw(copy) });
        }
        std::mem::swap(&mut self.last, &mut self.copies);
    }
}

/// Sorted lists, as the buckets of a hash table. The twin that does not wait for readers is wrong:
/// it frees what they look at.
pub struct Rlu<const WAITS: bool = true> {
    clock: AtomicU64,
    threads: Vec<Thread>,
    heads: Vec<Node>,
}

// SAFETY: a log is its thread's alone; nodes are freed when no thread reads them.
unsafe impl<const WAITS: bool> Sync for Rlu<WAITS> {}
// SAFETY: as above.
unsafe impl<const WAITS: bool> Send for Rlu<WAITS> {}

fn node(key: u64, next: *mut Node) -> Node {
    Node {
        key,
        next: AtomicPtr::new(next),
        copy: AtomicPtr::new(ptr::null_mut()),
        #[cfg(test)]
        tally: Tally::default(),
    }
}

impl<const WAITS: bool> Rlu<WAITS> {
    /// Lists for so many threads.
    pub fn new(buckets: usize, threads: usize) -> Self {
        let thread = || Thread {
            runs: AtomicU64::new(0),
            began: AtomicU64::new(0),
            writes: AtomicU64::new(NEVER),
            log: UnsafeCell::default(),
        };
        let head = || node(0, Box::into_raw(Box::new(node(u64::MAX, ptr::null_mut()))));
        Rlu {
            clock: AtomicU64::new(0),
            threads: (0..threads).map(|_| thread()).collect(),
            heads: (0..buckets).map(|_| head()).collect(),
        }
    }

    fn begin(&self, thread: usize) {
        let me = &self.threads[thread];
        me.runs.store(me.runs.load(Relaxed) + 1, Release);
        // SYNC: pairs with the fence in `commit`: its wait sees this run, or this reads its step.
        fence(SeqCst);
        me.began.store(self.clock.load(Acquire), Release);
    }

    fn end(&self, thread: usize) {
        let me = &self.threads[thread];
        // SYNC: pairs with the load in `wait_for_readers`: the reads are over.
        me.runs.store(me.runs.load(Relaxed) + 1, Release);
    }

    /// A node's next one, as this thread sees it now.
    fn next(&self, thread: usize, node: &Node) -> *mut Node {
        // SYNC: pairs with the exchange in `lock`, and the store in `commit`.
        let copy = node.copy.load(Acquire);
        if !copy.is_null() {
            // SAFETY: copies are freed after all that run now have ended.
            let copy = unsafe { &*copy };
            let theirs = self.threads[copy.owner].writes.load(Acquire);
            if theirs <= self.threads[thread].began.load(Relaxed) {
                return copy.next.load(Acquire);
            }
        }
        node.next.load(Acquire)
    }

    fn find(&self, thread: usize, key: u64) -> (&Node, &Node) {
        let mut before: &Node = &self.heads[key as usize % self.heads.len()];
        loop {
            // SAFETY: a node is freed after all that could reach it have ended. The last has the
            // greatest key.
            let next = unsafe { &*self.next(thread, before) };
            if next.key >= key {
                return (before, next);
            }
            before = next;
        }
    }

    /// # Safety
    /// `thread` is the calling one.
    #[expect(clippy::mut_from_ref, reason = "a log is its thread's alone")]
    unsafe fn log(&self, thread: usize) -> &mut Log {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.threads[thread].log.get() }
    }

    /// Locks a node; its copy, or nothing if another has it.
    fn lock(&self, thread: usize, node: &Node, log: &mut Log) -> Option<&Copied> {
        let at = Box::into_raw(Box::new(Copied {
            next: AtomicPtr::new(ptr::null_mut()),
            owner: thread,
            of: node,
        }));
        // SYNC: pairs with the load in `next`. Relaxed failure: nothing is read.
        let locked = node
            .copy
            .compare_exchange(ptr::null_mut(), at, AcqRel, Relaxed);
        if locked.is_err() {
            // SAFETY: made above, and shown to nobody.
            drop(unsafe { Box::from_raw(at) });
            return None;
        }
        log.copies.push(at);
        // SAFETY: from a box that is freed after the next update.
        let copy = unsafe { &*at };
        // Readers do not use the copy before the step of the clock.
        copy.next.store(node.next.load(Acquire), Release);
        Some(copy)
    }

    /// Gives up what was locked, to begin anew.
    fn abort(&self, thread: usize, log: &mut Log) {
        for copy in &log.copies {
            // SAFETY: locked nodes are not freed, and their copies later still.
            let of = unsafe { &*(**copy).of };
            of.copy.store(ptr::null_mut(), Release);
        }
        // Others may have found them: they go with the copies of the last update.
        log.last.append(&mut log.copies);
        self.end(thread);
        std::thread::yield_now();
    }

    fn commit(&self, thread: usize, log: &mut Log) {
        let me = &self.threads[thread];
        // The step that counts is one that nobody else takes.
        let mut time = self.clock.load(Acquire) + 1;
        loop {
            me.writes.store(time, SeqCst);
            match self.clock.compare_exchange(time - 1, time, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => time = now + 1,
            }
        }
        // Two that commit do not wait for each other.
        self.end(thread);
        // SYNC: pairs with the fence in `begin`.
        fence(SeqCst);
        if WAITS {
            self.wait_for_readers(thread, time);
        }
        for copy in &log.copies {
            // SAFETY: as in `abort`.
            let (copy, of) = unsafe { (&**copy, &*(**copy).of) };
            of.next.store(copy.next.load(Relaxed), Release);
            of.copy.store(ptr::null_mut(), Release);
        }
        me.writes.store(NEVER, Release);
        // SAFETY: those that read the copies of the last update began before this one's step.
        unsafe { log.forget_last() };
        for node in log.removed.drain(..) {
            // SAFETY: from a box; those that could reach it began before the step, and have ended.
            drop(unsafe { Box::from_raw(node) });
        }
    }

    /// Waits until all that run now and began before `time` have ended.
    fn wait_for_readers(&self, thread: usize, time: u64) {
        let others = self.threads.iter().enumerate();
        for (_, other) in others.filter(|(number, _)| *number != thread) {
            let runs = other.runs.load(Acquire);
            let mut looks = 0_u32;
            while runs % 2 == 1
                && other.runs.load(Acquire) == runs
                && other.began.load(Acquire) < time
            {
                looks += 1;
                match looks < 64 {
                    true => std::hint::spin_loop(),
                    false => std::thread::yield_now(),
                }
            }
        }
    }
}

impl<const WAITS: bool> Set for Rlu<WAITS> {
    fn contains(&self, thread: usize, key: u64) -> bool {
        self.begin(thread);
        let found = self.find(thread, key).1.key == key;
        self.end(thread);
        found
    }

    fn insert(&self, thread: usize, key: u64) -> bool {
        // SAFETY: one thread for each number, as the trait says.
        let log = unsafe { self.log(thread) };
        loop {
            self.begin(thread);
            let (before, next) = self.find(thread, key);
            if next.key == key {
                self.end(thread);
                return false;
            }
            let Some(copy) = self.lock(thread, before, log) else {
                self.abort(thread, log);
                continue;
            };
            let new = node(key, copy.next.load(Relaxed));
            copy.next.store(Box::into_raw(Box::new(new)), Release);
            self.commit(thread, log);
            return true;
        }
    }

    fn remove(&self, thread: usize, key: u64) -> bool {
        // SAFETY: as in `insert`.
        let log = unsafe { self.log(thread) };
        loop {
            self.begin(thread);
            let (before, node) = self.find(thread, key);
            if node.key != key {
                self.end(thread);
                return false;
            }
            let behind = self
                .lock(thread, node, log)
                .map(|copy| copy.next.load(Relaxed));
            let before = behind.and_then(|behind| Some((self.lock(thread, before, log)?, behind)));
            let Some((before, behind)) = before else {
                self.abort(thread, log);
                continue;
            };
            let removed = before.next.load(Relaxed);
            before.next.store(behind, Release);
            log.removed.push(removed);
            self.commit(thread, log);
            return true;
        }
    }

    #[cfg(test)]
    fn look_at(&self, thread: usize, key: u64, within: &mut dyn FnMut()) -> bool {
        self.begin(thread);
        let (_, node) = self.find(thread, key);
        let found = node.key == key;
        if found {
            node.tally.look(within);
        }
        self.end(thread);
        found
    }
}

impl<const WAITS: bool> Drop for Rlu<WAITS> {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            let log = thread.log.get_mut();
            // SAFETY: nobody else is here. Once for each of the two.
            unsafe {
                log.forget_last();
                log.forget_last();
            }
        }
        for head in &mut self.heads {
            let mut next = *head.next.get_mut();
            while !next.is_null() {
                // SAFETY: linked, from a box, and nobody else is here.
                next = *unsafe { Box::from_raw(next) }.next.get_mut();
            }
        }
    }
}
