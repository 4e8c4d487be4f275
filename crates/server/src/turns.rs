//! Whose turn it is: **all threads execute commands, or one has the server to itself.**
//!
//! A thread's turn is a lock of its own, so that taking it costs nothing that another thread would notice. Who wants
//! to be alone takes the locks of all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The turns of a server's threads.
#[derive(Debug)]
pub(crate) struct Turns {
    threads: Box<[Lane]>,
    /// Threads that want to be, or are, alone.
    wanted: AtomicUsize,
    /// Held by the one that is, so that the others queue here and not at a lane that would be theirs again at once.
    alone: Mutex<()>,
}

/// One thread's lock, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(Mutex<()>);

/// While it lives, nobody is [`Alone`].
#[derive(Debug)]
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held, not read")] MutexGuard<'a, ()>);

/// While it lives, nobody else has a [`Turn`].
#[derive(Debug)]
pub(crate) struct Alone<'a> {
    turns: &'a Turns,
    #[expect(dead_code, reason = "held, not read")]
    guards: (Vec<MutexGuard<'a, ()>>, MutexGuard<'a, ()>),
}

impl Turns {
    /// Turns of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Lane::default()).collect(),
            wanted: AtomicUsize::new(0),
            alone: Mutex::default(),
        }
    }

    /// Takes thread `thread`'s turn. Waits only for who is alone.
    #[inline]
    pub fn take(&self, thread: usize) -> Turn<'_> {
        // SYNC: pairs with nothing: what keeps the two apart is the lane's lock; this only lets the other go first.
        if self.wanted.load(Ordering::Relaxed) != 0 {
            drop(lock(&self.alone));
        }
        Turn(lock(&self.threads[thread].0))
    }

    /// Waits until every thread has ended its turn, and keeps them from taking another. The caller has none.
    pub fn alone(&self) -> Alone<'_> {
        // SYNC: as in `take`.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let first = lock(&self.alone);
        let guards = (
            self.threads.iter().map(|lane| lock(&lane.0)).collect(),
            first,
        );
        Alone {
            turns: self,
            guards,
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // SYNC: as in `Turns::take`.
        self.turns.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a lock guards here is nothing that a panic could have left half done.
fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn who_is_alone_sees_no_turn_half_done() {
        let turns = Turns::new(3);
        let halves = [(); 3].map(|()| [const { AtomicU64::new(0) }; 2]);
        std::thread::scope(|scope| {
            for (thread, [first, second]) in halves.iter().enumerate() {
                let turns = &turns;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let _turn = turns.take(thread);
                        first.fetch_add(1, Ordering::Relaxed);
                        second.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _alone = turns.alone();
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
    }
}
