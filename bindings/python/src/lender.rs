//! Values that are lent: **a pin stays in the thread that took it, whatever threads use the view.**
//!
//! A value that a store lends is pinned, and a pin belongs to its thread. A Python object may be
//! given up by any thread, long after the one that made it has ended. So a view has a thread of its
//! own, which takes the pin, sleeps, and lets go of it when the last view is gone. Pins of one
//! thread nest, and would be as old as the oldest; these do not. A thread that is done takes the
//! next. A hand-over takes as long as a copy of some hundred KiB, so that shorter values are
//! copied.

use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::buffer::Memory;
use crate::errors::Failure;
use crate::process::Origin;
use crate::store::Opened;

/// Shorter values are copied: that takes less time than to wake a thread.
pub(crate) const SHORTEST_LENT: usize = 256 << 10;

/// Views at a time that are lent; values beyond are copied.
const MOST: usize = 64;

/// What a view keeps. The thread that lends lets go when it is dropped.
pub(crate) struct Lent {
    at: NonNull<u8>,
    len: usize,
    /// The other end waits for it to go.
    _held: Sender<()>,
    count: Arc<AtomicUsize>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Relaxed: a number; what is lent is kept by its thread.
        self.count.fetch_sub(1, Relaxed);
    }
}

// SAFETY: the address of bytes that do not change while the value is kept, by a thread of its own.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// The bytes, and the store that has them.
    pub(crate) fn into_memory(self, opened: &Arc<Opened>) -> Memory {
        Memory {
            at: self.at,
            len: self.len,
            writable: false,
            origin: Origin::here(),
            // The value goes before the store.
            owner: Box::new((self, Arc::clone(opened))),
        }
    }
}

struct Wanted {
    opened: Arc<Opened>,
    number: usize,
    key: Vec<u8>,
    answer: Sender<Result<Option<Lent>, Failure>>,
}

/// Threads that lend.
#[derive(Default)]
pub(crate) struct Lender {
    /// Those that have nothing to do.
    idle: Mutex<Vec<Sender<Wanted>>>,
    lent: Arc<AtomicUsize>,
}

impl Lender {
    /// Every change is whole before anything can panic.
    fn idle(&self) -> MutexGuard<'_, Vec<Sender<Wanted>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values that are lent at the moment.
    pub(crate) fn lent(&self) -> usize {
        self.lent.load(Relaxed)
    }

    /// Lends a value where it lies; `None`: it is absent, or too many are lent.
    pub(crate) fn lend(
        opened: &Arc<Opened>,
        number: usize,
        key: Vec<u8>,
    ) -> Result<Option<Lent>, Failure> {
        if opened.lender.lent() >= MOST {
            return Ok(None);
        }
        let idle = opened.lender.idle().pop();
        let (answer, answered) = channel();
        let wanted = Wanted {
            opened: Arc::clone(opened),
            number,
            key,
            answer,
        };
        let begun = match idle {
            Some(thread) => thread.send(wanted).is_ok(),
            None => start(wanted),
        };
        // No thread, or one that has panicked, and said so: the value is copied.
        if begun {
            answered.recv().unwrap_or(Ok(None))
        } else {
            Ok(None)
        }
    }
}

/// Starts one more thread; says whether it could.
fn start(first: Wanted) -> bool {
    let new = thread::Builder::new().name("mneme-lender".to_owned());
    new.spawn(move || serve(first)).is_ok()
}

fn serve(first: Wanted) {
    let mut wanted = first;
    loop {
        let Wanted {
            opened,
            number,
            key,
            answer,
        } = wanted;
        keep(&opened, number, &key, &answer);
        let (next, asked): (_, Receiver<Wanted>) = channel();
        opened.lender.idle().push(next);
        // From here on the store may be closed: it drops its end then, and this thread ends.
        drop((opened, answer));
        match asked.recv() {
            Ok(more) => wanted = more,
            Err(_) => return,
        }
    }
}

/// Takes the value, says where it lies, and keeps it until nobody looks at it.
fn keep(
    opened: &Opened,
    number: usize,
    key: &[u8],
    answer: &Sender<Result<Option<Lent>, Failure>>,
) {
    let found = opened.store.database(number);
    let found = found.and_then(|database| database.get(key));
    let value = match found {
        Ok(Some(value)) => value,
        Ok(None) => {
            let _ = answer.send(Ok(None));
            return;
        }
        Err(refused) => {
            let _ = answer.send(Err(refused.into()));
            return;
        }
    };
    let (held, wait) = channel();
    let count = Arc::clone(&opened.lender.lent);
    // Relaxed: as in `Lent`'s drop.
    count.fetch_add(1, Relaxed);
    let lent = Lent {
        at: NonNull::from(&*value).cast(),
        len: value.len(),
        _held: held,
        count,
    };
    // An error: nobody waits for it any more.
    if answer.send(Ok(Some(lent))).is_ok() {
        // Nothing is ever sent: the end of the sender is awaited.
        let _ = wait.recv();
    }
    drop(value);
}
