//! Waits that end, and threads that start together.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest wait for something that is going to happen, on a machine under any load.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Panics
/// It is not so after a minute; says what.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not after a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls until it succeeds: on a busy machine another process may be off its CPU for as long as a
/// lock is waited for.
///
/// # Panics
/// It still fails after `limit`; says how.
pub fn retry_within<T, E: Display>(limit: Duration, mut call: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert!(begin.elapsed() < limit, "still after {limit:?}: {error}"),
        }
    }
}

/// Runs `work` in that many threads, each with its number, and waits for all, and for the
/// destructors of what they keep in thread-local storage: a scope alone does not wait for those.
///
/// # Panics
/// One of them panicked.
pub fn in_threads(count: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |number| scope.spawn(move || work(number));
        let threads: Vec<_> = (0..count).map(start).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeated_until_it_succeeds() {
        let mut calls = 0;
        let done = retry_within(LIMIT, || {
            calls += 1;
            if calls < 3 { Err("not yet") } else { Ok(calls) }
        });
        assert_eq!(done, 3);
        wait_until("it is so", || {
            calls += 1;
            calls > 5
        });
    }

    #[test]
    #[should_panic(expected = "never so")]
    fn a_failure_that_lasts_to_the_limit_is_reported() {
        retry_within(Duration::ZERO, || Err::<(), _>("never so"));
    }
}
