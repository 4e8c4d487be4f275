//! Shared and exclusive sections: **all threads execute commands, or one thread has the server to
//! itself.**
//!
//! A shared section is a lock of the thread's own, so taking it costs nothing that another thread
//! would notice. An exclusive section takes the locks of all threads.
//!
//! Neither kind starves the other. Exclusive sections take place in the order in which they were
//! asked for. A thread that has waited for one exclusive section enters its shared section before
//! the next exclusive one begins, so that it waits for one of them at most. A thread in a shared
//! section asks [`is_wanted`](Sections::is_wanted) between commands, and leaves if so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The sections of a server's threads.
#[derive(Debug)]
pub(crate) struct Sections {
    threads: Box<[Lane]>,
    /// Exclusive sections that are asked for or entered.
    wanted: AtomicU64,
    queue: Mutex<Queue>,
    /// Notified when `queue` changes.
    changed: Condvar,
}

/// One thread's lock, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(Mutex<()>);

/// The order of exclusive sections, and of the shared ones between them.
#[derive(Debug, Default)]
struct Queue {
    /// The number of the next exclusive section that is asked for.
    next: u64,
    /// The number of the exclusive section that may begin, or has begun.
    serving: u64,
    /// Threads that wait for the end of that section.
    waiting: usize,
    /// Threads that have waited for the section before, and are not in their shared sections yet.
    admitted: usize,
}

/// A thread's shared section: no [`ExclusiveSection`] exists while it lives.
#[derive(Debug)]
pub(crate) struct SharedSection<'a>(
    #[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>,
);

/// An exclusive section: no [`SharedSection`] exists while it lives.
#[derive(Debug)]
pub(crate) struct ExclusiveSection<'a> {
    sections: &'a Sections,
    #[expect(dead_code, reason = "held, not read")]
    lanes: Vec<MutexGuard<'a, ()>>,
}

impl Sections {
    /// The sections of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Lane::default()).collect(),
            wanted: AtomicU64::new(0),
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Enters the shared section of thread `thread`. Waits for one exclusive section at most.
    #[inline]
    pub fn shared(&self, thread: usize) -> SharedSection<'_> {
        if self.is_wanted() {
            return self.shared_behind_exclusive(thread);
        }
        SharedSection(lock(&self.threads[thread].0))
    }

    #[cold]
    fn shared_behind_exclusive(&self, thread: usize) -> SharedSection<'_> {
        let mut queue = lock(&self.queue);
        if queue.serving == queue.next {
            drop(queue);
            return SharedSection(lock(&self.threads[thread].0));
        }
        let section = queue.serving;
        queue.waiting += 1;
        while queue.serving == section {
            queue = self.wait(queue);
        }
        drop(queue);
        let lane = lock(&self.threads[thread].0);
        lock(&self.queue).admitted -= 1;
        self.changed.notify_all();
        SharedSection(lane)
    }

    /// Whether a thread waits for an exclusive section, or is in one.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        // SYNC: pairs with nothing: the lanes' locks keep the sections apart; this only decides the
        // order.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Enters an exclusive section: waits until every thread has left its shared section, and keeps
    /// them from entering another. The calling thread must not be in one.
    pub fn exclusive(&self) -> ExclusiveSection<'_> {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        // SYNC: as in `is_wanted`.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        while queue.serving != number || queue.admitted > 0 {
            queue = self.wait(queue);
        }
        drop(queue);
        ExclusiveSection {
            lanes: self.threads.iter().map(|lane| lock(&lane.0)).collect(),
            sections: self,
        }
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let waited = self.changed.wait(queue);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExclusiveSection<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.sections.queue);
        queue.serving += 1;
        queue.admitted += std::mem::take(&mut queue.waiting);
        // SYNC: as in `Sections::is_wanted`.
        self.sections.wanted.fetch_sub(1, Ordering::Relaxed);
        self.sections.changed.notify_all();
    }
}

/// A panic leaves nothing half done that these locks guard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn an_exclusive_section_sees_no_shared_one_half_done() {
        let sections = Sections::new(3);
        let halves = [(); 3].map(|()| [const { AtomicU64::new(0) }; 2]);
        std::thread::scope(|scope| {
            for (thread, [first, second]) in halves.iter().enumerate() {
                let sections = &sections;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let _shared = sections.shared(thread);
                        first.fetch_add(1, Ordering::Relaxed);
                        second.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _exclusive = sections.exclusive();
                        for [first, second] in &halves {
                            assert_eq!(
                                first.load(Ordering::Relaxed),
                                second.load(Ordering::Relaxed)
                            );
                        }
                    }
                });
            }
        });
        assert!(!sections.is_wanted());
    }

    #[test]
    fn a_thread_waits_for_one_exclusive_section_at_most() {
        for _ in 0..200 {
            let sections = Sections::new(1);
            let has_entered = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let first = sections.exclusive();
                scope.spawn(|| {
                    let _shared = sections.shared(0);
                    has_entered.store(true, Ordering::Relaxed);
                });
                while lock(&sections.queue).waiting == 0 {
                    std::thread::yield_now();
                }
                drop(first);
                // Asked for at once, long before the other thread is awake.
                let _second = sections.exclusive();
                assert!(has_entered.load(Ordering::Relaxed));
            });
        }
    }
}
