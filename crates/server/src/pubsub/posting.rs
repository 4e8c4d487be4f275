//! Puts things into the boxes of several threads **at one instant**: any two threads that receive
//! the same two things receive them in the same order. The same holds for a thread that receives a
//! thing from a sender that had received the other one. This is the step *posted* of
//! [`pubsub`](super); the models in `models` run it under a model checker.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicBool, Mutex, MutexGuard};

/// Things that were posted to one thread and that it has not taken yet.
#[derive(Debug)]
pub(crate) struct Posted<T> {
    content: Mutex<Content<T>>,
    /// Whether there may be any.
    is_filled: AtomicBool,
}

#[derive(Debug)]
struct Content<T> {
    things: Vec<T>,
    /// Whether a poster was asked to wake the thread.
    is_woken: bool,
}

impl<T> Posted<T> {
    /// An empty box.
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
    /// thread. Calls `posted` for each of these threads. Unless a thread checks its box by itself,
    /// the caller must then wake it if [`asks_to_be_woken`](Self::asks_to_be_woken) returns true.
    pub fn post<'a>(
        boxes: impl Fn(usize) -> &'a Self,
        things: Vec<(usize, T)>,
        mut posted: impl FnMut(usize),
    ) where
        T: 'a,
    {
        // All posters lock in the order of the threads, so they cannot deadlock.
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

    /// Whether the box is not empty and nobody was asked to wake its thread yet. Then the caller
    /// must wake it.
    pub fn asks_to_be_woken(&self) -> bool {
        let mut content = self.content();
        !content.things.is_empty() && !std::mem::replace(&mut content.is_woken, true)
    }

    /// Whether the box may hold something.
    #[inline]
    pub fn is_filled(&self) -> bool {
        // SYNC: as in `take`.
        self.is_filled.load(Ordering::Acquire)
    }

    /// Takes everything out of the box.
    #[inline]
    pub fn take(&self) -> Vec<T> {
        // SYNC: pairs with the Release swap in `post`. A thread that knows of a thing learnt of it
        // after it was posted.
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
