//! The sections of a server's threads. See the [parent](super).

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};

use super::primitives::{AtomicU64, Condvar, Mutex, MutexGuard};

/// The sections of a server's threads.
#[derive(Debug)]
pub(crate) struct Sections {
    threads: Box<[Lane]>,
    /// The number of exclusive sections that are requested or entered.
    wanted: AtomicU64,
    /// Counts announcements.
    epoch: AtomicU64,
    queue: Mutex<Queue>,
    /// Notified when `queue` changes.
    changed: Condvar,
}

/// One thread's lock, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    section: Mutex<()>,
    /// The epoch when the thread last entered its shared section.
    seen: AtomicU64,
}

/// The order of exclusive sections, and of the shared ones between them.
#[derive(Debug, Default)]
struct Queue {
    /// The number of the next exclusive section to be requested.
    next: u64,
    /// The number of the exclusive section that may begin, or has begun.
    serving: u64,
    /// The number of threads that wait for the end of that section.
    waiting: usize,
    /// The number of threads that have waited for the previous section and have not entered their
    /// shared sections yet.
    admitted: usize,
}

/// A thread's shared section: no [`ExclusiveSection`] exists at the same time.
#[derive(Debug)]
pub(crate) struct SharedSection<'a>(
    #[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>,
);

/// An exclusive section: no [`SharedSection`] exists at the same time.
#[derive(Debug)]
pub(crate) struct ExclusiveSection<'a> {
    sections: &'a Sections,
    lanes: Vec<MutexGuard<'a, ()>>,
}

/// The shared sections of some threads that had begun before an announcement.
#[derive(Debug)]
pub(crate) struct Earlier {
    epoch: u64,
    threads: Vec<usize>,
}

impl Sections {
    /// The sections of `threads` threads.
    pub fn new(threads: usize) -> Self {
        let lane = |_| Lane {
            section: Mutex::new(()),
            seen: AtomicU64::new(0),
        };
        Self {
            threads: (0..threads).map(lane).collect(),
            wanted: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        }
    }

    /// Enters the shared section of thread `thread`. Waits for at most one exclusive section.
    #[inline]
    pub fn shared(&self, thread: usize) -> SharedSection<'_> {
        if self.is_wanted() {
            return self.shared_behind_exclusive(thread);
        }
        self.enter(thread)
    }

    #[inline]
    fn enter(&self, thread: usize) -> SharedSection<'_> {
        let lane = &self.threads[thread];
        let section = lock(&lane.section);
        // SYNC: pairs with the Release addition in `earlier`: a section that has seen an
        // announcement sees what was done before it.
        let epoch = self.epoch.load(Ordering::Acquire);
        // SYNC: only this thread accesses it while it has the lock.
        if lane.seen.load(Ordering::Relaxed) != epoch {
            // SYNC: pairs with the Acquire load in `is_over`: the thread's sections before this one
            // are over.
            lane.seen.store(epoch, Ordering::Release);
        }
        SharedSection(section)
    }

    #[cold]
    fn shared_behind_exclusive(&self, thread: usize) -> SharedSection<'_> {
        let mut queue = lock(&self.queue);
        if queue.serving == queue.next {
            drop(queue);
            return self.enter(thread);
        }
        let section = queue.serving;
        queue.waiting += 1;
        while queue.serving == section {
            queue = self.wait(queue);
        }
        drop(queue);
        let entered = self.enter(thread);
        lock(&self.queue).admitted -= 1;
        self.changed.notify_all();
        entered
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
    ///
    /// `goes_on` is called while a thread is in its shared section, and should wait for a moment.
    ///
    /// # Errors
    /// The section that was in the way when `goes_on` returned false.
    pub fn exclusive(
        &self,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<ExclusiveSection<'_>, Earlier> {
        let mut queue = lock(&self.queue);
        let number = queue.next;
        queue.next += 1;
        // SYNC: as in `is_wanted`.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        while queue.serving != number || queue.admitted > 0 {
            queue = self.wait(queue);
        }
        drop(queue);
        let mut exclusive = ExclusiveSection {
            lanes: Vec::with_capacity(self.threads.len()),
            sections: self,
        };
        for (thread, lane) in self.threads.iter().enumerate() {
            exclusive.lanes.push(loop {
                if let Some(section) = try_lock(&lane.section) {
                    break section;
                }
                if !goes_on() {
                    return Err(self.earlier([thread]));
                }
            });
        }
        Ok(exclusive)
    }

    /// Announces what the caller has done to the sections that begin later. Returns those of
    /// `threads` that may have begun earlier and not have seen it.
    pub fn earlier(&self, threads: impl IntoIterator<Item = usize>) -> Earlier {
        Earlier {
            // SYNC: pairs with the Acquire load in `enter`.
            epoch: self.epoch.fetch_add(1, Ordering::Release) + 1,
            threads: threads.into_iter().collect(),
        }
    }

    /// Whether these sections are over, so that their threads' next sections see the announcement.
    pub fn are_over(&self, earlier: &mut Earlier) -> bool {
        let Earlier { epoch, threads } = earlier;
        threads.retain(|thread| !self.is_over(*thread, *epoch));
        threads.is_empty()
    }

    fn is_over(&self, thread: usize, epoch: u64) -> bool {
        let lane = &self.threads[thread];
        // SYNC: pairs with the Release store in `enter`. If the lock can be taken, the thread is in
        // no section, and its next one sees everything before that.
        lane.seen.load(Ordering::Acquire) >= epoch || try_lock(&lane.section).is_some()
    }

    /// The number of threads that wait for the end of an exclusive section.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        lock(&self.queue).waiting
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let waited = self.changed.wait(queue);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExclusiveSection<'_> {
    fn drop(&mut self) {
        // First, so that an admitted thread finds its lock free.
        self.lanes.clear();
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

/// `None` if another thread has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
