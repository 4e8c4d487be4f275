//! Views of values that a store lends. **A pin stays in the thread that took it, whichever threads
//! use the view.**
//!
//! A value that a store lends is pinned, and a pin belongs to its thread. A Python object, however,
//! may be dropped by any thread, long after the thread that made it has ended. So each view has a
//! lender thread, which takes the pin, sleeps, and releases the pin when the last view is gone; it
//! is then reused for another view. Separate threads are needed also because pins of one thread
//! nest, and would all last as long as the oldest. Waking a lender takes as long as copying some
//! hundred KiB, so shorter values are copied instead.

use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::buffer::Memory;
use crate::errors::Failure;
use crate::handle::Opened;
use crate::process::Origin;

/// The minimum length in bytes of a lent value. Shorter ones are copied, which is faster than
/// waking a thread.
pub(crate) const SHORTEST_LENT: usize = 256 << 10;

/// The maximum number of views that are lent at a time; further values are copied.
const MOST: usize = 64;

/// The owner of a view. Dropping it makes the lender thread release the value.
pub(crate) struct Lent {
    at: NonNull<u8>,
    len: usize,
    /// The lender thread waits until this is dropped.
    _held: Sender<()>,
    count: Arc<AtomicUsize>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Relaxed: only a count; the lender thread keeps the value itself.
        self.count.fetch_sub(1, Relaxed);
    }
}

// SAFETY: the address of bytes that do not change as long as the lender thread keeps the value.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// The bytes as a [`Memory`], which also keeps their store.
    pub(crate) fn into_memory(self, opened: &Arc<Opened>) -> Memory {
        Memory {
            at: self.at,
            len: self.len,
            writable: false,
            origin: Origin::here(),
            // The value must be dropped before the store.
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

/// The lender threads.
#[derive(Default)]
pub(crate) struct Lender {
    /// The idle threads.
    idle: Mutex<Vec<Sender<Wanted>>>,
    lent: Arc<AtomicUsize>,
}

impl Lender {
    /// Usable even after a panic, since every change is one step.
    fn idle(&self) -> MutexGuard<'_, Vec<Sender<Wanted>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of values lent at the moment.
    pub(crate) fn lent(&self) -> usize {
        self.lent.load(Relaxed)
    }

    /// Lends a value in place. `None` if it does not exist, or if too many values are lent.
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
        // False if there is no thread, or if one has panicked (and logged it): the value is copied
        // then.
        if begun {
            answered.recv().unwrap_or(Ok(None))
        } else {
            Ok(None)
        }
    }
}

/// Starts another thread; returns whether that succeeded.
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
        // From here on the store may be closed: the sender of this channel is dropped then, and
        // this thread ends.
        drop((opened, answer));
        match asked.recv() {
            Ok(more) => wanted = more,
            Err(_) => return,
        }
    }
}

/// Takes the value, returns its address to the requester, and keeps it until its view is dropped.
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
    // Relaxed: as in `Lent`'s `drop`.
    count.fetch_add(1, Relaxed);
    let lent = Lent {
        at: NonNull::from(&*value).cast(),
        len: value.len(),
        _held: held,
        count,
    };
    // An error means that the requester no longer waits.
    if answer.send(Ok(Some(lent))).is_ok() {
        // Nothing is ever sent: `recv` returns when the sender is dropped.
        let _ = wait.recv();
    }
    drop(value);
}
