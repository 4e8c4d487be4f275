//! Puts things into the boxes of several threads **at one instant**: any two threads that get the
//! same two things get them in the same order, and so does a thread that gets one from somebody who
//! had got the other. The step *posted* of [`pubsub`](super), which the models in `models` run
//! under a model checker.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicBool, Mutex, MutexGuard};

/// What has been posted to one thread and it has not taken yet.
#[derive(Debug)]
pub(super) struct Posted<T> {
    things: Mutex<Vec<T>>,
    /// Whether there may be something.
    is_filled: AtomicBool,
}

impl<T> Posted<T> {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            things: Mutex::new(Vec::new()),
            is_filled: AtomicBool::new(false),
        }
    }

    fn things(&self) -> MutexGuard<'_, Vec<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts each of `things`, which name their threads in ascending order, into the box of its
    /// thread. Calls `wake` with each thread whose box was empty.
    pub fn post<'a>(
        boxes: impl Fn(usize) -> &'a Self,
        things: Vec<(usize, T)>,
        mut wake: impl FnMut(usize),
    ) where
        T: 'a,
    {
        // All posters lock in the order of the threads, so that none waits for another that waits
        // for it.
        let mut locked: Vec<(usize, MutexGuard<'_, Vec<T>>)> = Vec::new();
        for (thread, _) in &things {
            if locked.last().is_none_or(|(last, _)| last != thread) {
                locked.push((*thread, boxes(*thread).things()));
            }
        }
        let mut place = 0;
        for (thread, thing) in things {
            while locked[place].0 != thread {
                place += 1;
            }
            locked[place].1.push(thing);
        }
        for (thread, things) in locked {
            // SYNC: pairs with the Acquire load in `take`, and changes under the lock.
            let was_filled = boxes(thread).is_filled.swap(true, Ordering::Release);
            drop(things);
            if !was_filled {
                wake(thread);
            }
        }
    }

    /// Takes out what there is.
    #[inline]
    pub fn take(&self) -> Vec<T> {
        // SYNC: pairs with the Release swap in `post`. A thread that knows of a thing has learnt of
        // it after it was posted.
        match self.is_filled.load(Ordering::Acquire) {
            true => self.take_filled(),
            false => Vec::new(),
        }
    }

    #[cold]
    fn take_filled(&self) -> Vec<T> {
        let mut things = self.things();
        // SYNC: under the lock, as in `post`.
        self.is_filled.store(false, Ordering::Relaxed);
        std::mem::take(&mut *things)
    }
}
