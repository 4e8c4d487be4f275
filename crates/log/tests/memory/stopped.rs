//! Live threads that are stopped in the middle of something, and a clock for those that wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use mneme_sys::Clock;
use mneme_sys::fault::{self, Action};

/// A clock that advances by a millisecond each time it is read, and counts the reads.
#[derive(Default)]
pub struct Looked(pub AtomicU64);

impl Clock for Looked {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) * 1_000_000
    }

    fn wall_ms(&self) -> u64 {
        1 << 30
    }
}

/// How it continues.
#[derive(PartialEq, Eq)]
enum GoOn {
    AsBefore,
    Panics,
}

/// A live thread that is stopped at a named place until [`Stopped::finish`] lets it continue.
pub struct Stopped<T> {
    go_on: mpsc::Sender<GoOn>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Stopped<T> {
    /// Runs `work` in a thread of its own up to its `nth` passage of `name`, and stops it there.
    pub fn at(name: &'static str, nth: u64, work: impl FnOnce() -> T + Send + 'static) -> Self {
        Stopped::try_at(name, nth, work)
            .unwrap_or_else(|| panic!("the place {name} is never reached"))
    }

    /// As [`Stopped::at`]; `None` if the work ended before, and everything that it had is dropped.
    pub fn try_at(
        name: &'static str,
        nth: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Self> {
        let (arrived, at_place) = mpsc::channel();
        let (go_on, released) = mpsc::channel();
        let released = Mutex::new(released);
        let thread = std::thread::spawn(move || {
            let stop = move || {
                arrived.send(()).unwrap();
                let goes_on = released.lock().unwrap().recv();
                assert!(goes_on != Ok(GoOn::Panics), "it panics here");
            };
            fault::arm(name, Action::Call(Arc::new(stop)), nth);
            let result = work();
            fault::disarm();
            result
        });
        match at_place.recv() {
            Ok(()) => Some(Stopped { go_on, thread }),
            Err(_) => {
                drop(thread.join());
                None
            }
        }
    }

    /// Lets it continue, and waits for its result.
    pub fn finish(self) -> T {
        self.go_on.send(GoOn::AsBefore).unwrap();
        self.thread.join().unwrap()
    }

    /// Makes it panic there, and waits for the result of the code that catches the panic.
    pub fn panic(self) -> T {
        self.go_on.send(GoOn::Panics).unwrap();
        self.thread.join().unwrap()
    }
}
