//! Puts things into the boxes of several threads **at one instant**: any two threads that get the
//! same two things get them in the same order, and so does a thread that gets one from somebody who
//! had got the other. The step *posted* of [`pubsub`](super), which the models in `models` run
//! under a model checker.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicBool, Mutex, MutexGuard};

/// What has been posted to one thread and it has not taken yet.
#[derive(Debug)]
pub(crate) struct Posted<T> {
    content: Mutex<Content<T>>,
    /// Whether there may be something.
    is_filled: AtomicBool,
}

#[derive(Debug)]
struct Content<T> {
    things: Vec<T>,
    /// Whether the thread is woken for them.
    is_woken: bool,
}

impl<T> Posted<T> {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            content: Mutex::new(Content {
                things: Vec::new(),
                is_woken: false,
            }),
            is_filled: AtomicBool::new(false),
        }
    }

    fn content(&self) -> MutexGuard<'_, Content<T>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts each of `things`, which name their threads in ascending order, into the box of its
    /// thread. Calls `posted` with each of these threads. Unless they look by themselves, each is
    /// to be woken if [`asks_to_be_woken`](Self::asks_to_be_woken) says so then.
    pub fn post<'a>(
        boxes: impl Fn(usize) -> &'a Self,
        things: Vec<(usize, T)>,
        mut posted: impl FnMut(usize),
    ) where
        T: 'a,
    {
        // All posters lock in the order of the threads, so that none waits for another that waits
        // for it.
        let mut locked: Vec<(usize, MutexGuard<'_, Content<T>>)> = Vec::new();
        for (thread, _) in &things {
            if locked.last().is_none_or(|(last, _)| last != thread) {
                locked.push((*thread, boxes(*thread).content()));
            }
        }
        let mut place = 0;
        for (thread, thing) in things {
            while locked[place].0 != thread {
                place += 1;
            }
            locked[place].1.things.push(thing);
        }
        for (thread, content) in locked {
            // SYNC: pairs with the Acquire load in `take`, and changes under the lock.
            boxes(thread).is_filled.store(true, Ordering::Release);
            drop(content);
            posted(thread);
        }
    }

    /// Whether something is there that its thread is not woken for. The caller wakes it then.
    pub fn asks_to_be_woken(&self) -> bool {
        let mut content = self.content();
        !content.things.is_empty() && !std::mem::replace(&mut content.is_woken, true)
    }

    /// Whether there may be something.
    #[inline]
    pub fn is_filled(&self) -> bool {
        // SYNC: as in `take`.
        self.is_filled.load(Ordering::Acquire)
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
        let mut content = self.content();
        // SYNC: under the lock, as in `post`.
        self.is_filled.store(false, Ordering::Relaxed);
        content.is_woken = false;
        std::mem::take(&mut content.things)
    }
}
