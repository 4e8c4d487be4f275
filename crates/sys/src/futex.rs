//! Waiting for a word to change, also between processes: `futex`, on words of shared memory.
//!
//! **No thread sleeps through a change that was made before it slept**: the kernel compares the
//! word with the value that the sleeper saw, under the lock under which it wakes sleepers. All
//! returns may be spurious, so a waiter loads the word again. A word outside shared mappings works
//! for the threads of one process.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until the word is woken, for at most `limit`; returns at once if the word is not `seen`.
/// Costs some 2 us of CPU together with the wake.
pub fn wait(word: &AtomicU32, seen: u32, limit: Duration) {
    #[cfg(not(miri))]
    {
        let time = libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: the word is valid during the call, and the kernel only reads it; `time` is one
        // `timespec`. Every result means the same: check again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                &raw const time,
                std::ptr::null::<u32>(),
                0,
            )
        };
    }
    #[cfg(miri)]
    {
        let _ = (word, seen, limit);
        std::thread::yield_now();
    }
}

/// Wakes at most `most` of the threads that sleep on the word. A system call of some 0.3 us, even
/// if none sleeps.
pub fn wake(word: &AtomicU32, most: u32) {
    // SAFETY: the kernel uses the word's address only as a key.
    #[cfg(not(miri))]
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            most.min(i32::MAX as u32),
        )
    };
    #[cfg(miri)]
    let _ = (word, most);
}

/// Whether this thread may run on more than one CPU, so that another can change a word while this
/// one spins on it. Asks the kernel, which takes some microseconds.
#[must_use]
pub fn is_spinning_useful() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn a_sleeper_is_woken_and_a_late_one_does_not_sleep() {
        let word = AtomicU32::new(0);
        let day = Duration::from_secs(86_400);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Acquire) == 0 {
                    wait(&word, 0, day);
                }
            });
            word.store(1, Release);
            wake(&word, 1);
            sleeper.join().unwrap();
        });
        // The word has changed already: no sleep.
        wait(&word, 0, day);
        // Nobody wakes it, but it ends all the same.
        wait(&word, 1, Duration::from_millis(1));
    }
}
