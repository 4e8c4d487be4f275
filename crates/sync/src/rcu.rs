//! [`Rcu`]: a value that is read often and replaced rarely; [`Retired`]: values that have been
//! unlinked but may still be read.
//!
//! **A read costs a pin and a load, whatever writers do.** A writer creates a new value, exchanges
//! the pointer, and retires the old value, which is freed once no pin can see it. Both types are
//! for one process: a pointer has no meaning in another.

use crate::{Epoch, Participants, Pin, SlotError};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The default number of values that are collected before the epoch is advanced. Advancing is a
/// system call of some microseconds, which interrupts every CPU that runs a participant.
const BATCH: usize = 32;

/// A value behind a pointer: readers see a complete value, old or new, without waiting.
///
/// ```
/// use mneme_sync::{ControlOptions, Participants, Rcu};
///
/// let participants = Participants::private(ControlOptions::new([7; 16]))?;
/// let limits = Rcu::new(&participants, vec![10, 20]);
/// let reader = limits.read()?;
/// let before = reader.get();
/// limits.update(|limits| limits.iter().map(|limit| limit * 2).collect())?;
/// assert_eq!((before, reader.get()), (&vec![10, 20], &vec![20, 40]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rcu<T> {
    current: AtomicPtr<T>,
    retired: Retired<T>,
}

/// Pins an [`Rcu`]: the values that it has returned stay valid as long as it exists. One reader for
/// many loads costs one pin.
pub struct RcuReader<'a, T> {
    current: &'a AtomicPtr<T>,
    _pin: Pin<'a>,
}

impl<T> RcuReader<'_, T> {
    /// The current value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        // SYNC: pairs with the exchanges in `replace` and `update`: the value is seen complete.
        let current = self.current.load(Acquire);
        // SAFETY: it came from a box, was current after the pin began, and is not freed before the
        // pin ends.
        unsafe { &*current }
    }
}

impl<T: Send + Sync> Rcu<T> {
    /// A value for threads that pin these participants.
    pub fn new(participants: &Participants, value: T) -> Rcu<T> {
        Rcu {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            retired: Retired::new(participants),
        }
    }

    /// Pins for reading.
    ///
    /// # Errors
    /// The thread has no slot.
    #[inline]
    pub fn read(&self) -> Result<RcuReader<'_, T>, SlotError> {
        Ok(RcuReader {
            current: &self.current,
            _pin: self.retired.participants.pin()?,
        })
    }

    /// Makes `value` the current one.
    ///
    /// # Errors
    /// The thread has no slot; nothing has changed then.
    pub fn replace(&self, value: T) -> Result<(), SlotError> {
        // The slot proves the right to write: a forked child has none.
        let _slot = self.retired.participants.slot()?;
        // SYNC: pairs with the load in `get`.
        let old = self.current.swap(Box::into_raw(Box::new(value)), AcqRel);
        self.retire(old);
        Ok(())
    }

    /// Replaces the current value by the result of `change`. If another writer was faster, `change`
    /// is called again. It must not change this `Rcu` itself: it would then be that other writer
    /// each time, and this call would never return.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn update(&self, mut change: impl FnMut(&T) -> T) -> Result<(), SlotError> {
        let reader = self.read()?;
        loop {
            let old = self.current.load(Acquire);
            // SAFETY: as in `get`. The old value is not freed while this thread is pinned, so its
            // address is not reused, and the exchange does not mistake another value for it.
            let new = Box::into_raw(Box::new(change(unsafe { &*old })));
            // SYNC: as in `replace`.
            if self
                .current
                .compare_exchange(old, new, AcqRel, Acquire)
                .is_ok()
            {
                drop(reader);
                self.retire(old);
                return Ok(());
            }
            // SAFETY: created above, and not visible to anybody.
            drop(unsafe { Box::from_raw(new) });
        }
    }

    /// The values that wait to be freed.
    #[must_use]
    pub fn retired(&self) -> &Retired<T> {
        &self.retired
    }

    fn retire(&self, old: *mut T) {
        if let Some(old) = NonNull::new(old) {
            // SAFETY: it came from a box, and only this thread has unlinked it; readers pin these
            // participants.
            unsafe { self.retired.retire(old) };
        }
    }
}

impl<T> Drop for Rcu<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and no reader is left, because readers borrow this value.
        drop(unsafe { Box::from_raw(*self.current.get_mut()) });
    }
}

impl<T> std::fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rcu")
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}

/// Boxes that have been unlinked, each of which is freed once no pin can see it.
///
/// The epoch is advanced once for 32 of them, or for another [batch](Self::batch). So up to that
/// many wait until more are retired, or until [`flush`](Self::flush).
///
/// It has one bag, which all threads share, or [several](Self::bags).
pub struct Retired<T> {
    participants: Participants,
    bags: Box<[Padded<Mutex<Bag<T>>>]>,
    batch: usize,
    /// Dropping this drops the values.
    _owned: PhantomData<T>,
}

/// A value on cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

struct Bag<T> {
    /// Values unlinked since the last advance.
    fresh: Vec<NonNull<T>>,
    /// Values to free when the epoch is over, oldest first.
    waiting: VecDeque<(Epoch, Vec<NonNull<T>>)>,
    /// An empty list with memory for the next batch.
    spare: Vec<NonNull<T>>,
}

// SAFETY: it owns the values and gives nobody access to them; any thread may drop them.
unsafe impl<T: Send> Send for Retired<T> {}
// SAFETY: as above, behind a mutex.
unsafe impl<T: Send> Sync for Retired<T> {}

impl<T> Default for Bag<T> {
    fn default() -> Self {
        Bag {
            fresh: Vec::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

fn bags<T>(number: usize) -> Box<[Padded<Mutex<Bag<T>>>]> {
    (0..number).map(|_| Padded(Mutex::default())).collect()
}

impl<T: Send> Retired<T> {
    /// For values that readers reach while they pin these participants.
    #[must_use]
    pub fn new(participants: &Participants) -> Retired<T> {
        Retired {
            participants: participants.clone(),
            bags: bags(1),
            batch: BATCH,
            _owned: PhantomData,
        }
    }

    /// Sets how many values are collected before the epoch is advanced; at least 1. Use more for
    /// small values that are retired often, because each advance interrupts the threads of all
    /// CPUs.
    #[must_use]
    pub fn batch(mut self, values: usize) -> Self {
        self.batch = values.max(1);
        self
    }

    /// Gives threads separate bags, this many in all; at least 1. Threads then do not wait for each
    /// other here, and each frees what it has retired. Each bag collects a [batch](Self::batch).
    /// Call this before anything is retired.
    #[must_use]
    pub fn bags(mut self, bags: usize) -> Self {
        self.bags = self::bags(bags.max(1));
        self
    }

    /// Takes an unlinked value, and frees the values that no pin can see any more.
    ///
    /// # Safety
    /// `old` must come from [`Box::into_raw`], no thread that pins the participants from now on may
    /// be able to reach it, and it must be retired only once.
    pub unsafe fn retire(&self, old: NonNull<T>) {
        let own = self.own();
        let mut bag = opened(own);
        bag.fresh.push(old);
        if bag.fresh.len() >= self.batch {
            self.reclaim(own, bag);
        }
    }

    /// Frees the values that no pin can see, without waiting for more values or for a pin to end.
    /// Returns how many are left, not counting those that another thread is about to free.
    pub fn flush(&self) -> usize {
        for Padded(bag) in &self.bags {
            self.reclaim(bag, opened(bag));
        }
        self.len()
    }

    /// The number of values that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        let len = |Padded(bag): &Padded<_>| {
            let bag = opened(bag);
            let waiting = bag.waiting.iter().map(|(_, values)| values.len());
            bag.fresh.len() + waiting.sum::<usize>()
        };
        self.bags.iter().map(len).sum()
    }

    /// Whether no value waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The calling thread's bag.
    fn own(&self) -> &Mutex<Bag<T>> {
        let number = match &*self.bags {
            [_] => 0,
            // A forked child has no slot, and reclaims nothing.
            bags => self.participants.slot_number().unwrap_or(0) % bags.len(),
        };
        &self.bags[number].0
    }

    fn reclaim<'a>(&'a self, own: &'a Mutex<Bag<T>>, mut bag: MutexGuard<'a, Bag<T>>) {
        let spare = std::mem::take(&mut bag.spare);
        let fresh = std::mem::replace(&mut bag.fresh, spare);
        if !fresh.is_empty() {
            // Other threads continue to retire during the system call.
            drop(bag);
            // All of `fresh` was unlinked before this. A forked child cannot advance, and keeps it.
            let advanced = self.participants.advance();
            bag = opened(own);
            match advanced {
                // Two threads may arrive in either order; then the older batch waits for the newer
                // one.
                Ok(epoch) => bag.waiting.push_back((epoch, fresh)),
                Err(_) => bag.fresh.extend(fresh),
            }
        }
        let mut over = Vec::new();
        while let Some((epoch, _)) = bag.waiting.front()
            && self.participants.quiescent(*epoch)
        {
            over.extend(bag.waiting.pop_front().map(|(_, values)| values));
        }
        // A value's destructor may retire others.
        drop(bag);
        for mut values in over {
            // SAFETY: no pin can see them.
            unsafe { free(values.drain(..)) };
            opened(own).spare = values;
        }
    }
}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        for Padded(bag) in &mut self.bags {
            let bag = bag.get_mut().unwrap_or_else(PoisonError::into_inner);
            let waiting = bag.waiting.drain(..).flat_map(|(_, values)| values);
            let all = waiting.chain(bag.fresh.drain(..));
            // SAFETY: no reader is left, because readers borrow the structure that contains this
            // value.
            unsafe { free(all) };
        }
    }
}

fn opened<T>(bag: &Mutex<Bag<T>>) -> MutexGuard<'_, Bag<T>> {
    // Each change of the bag is one step, so a panic leaves it consistent.
    bag.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// They must come from boxes, and nobody may access or free them any more.
unsafe fn free<T>(values: impl Iterator<Item = NonNull<T>>) {
    for value in values {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(value.as_ptr()) });
    }
}

impl<T> std::fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retired").finish_non_exhaustive()
    }
}
