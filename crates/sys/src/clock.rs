//! Clocks, which the crates above receive as arguments, so that a test can stop time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of time.
///
/// `now_ns` never goes back, not even between threads that synchronise with each other. It is
/// comparable between processes of one boot (with the same clock), not between boots.
pub trait Clock: Send + Sync {
    /// Nanoseconds of a monotonic clock with an arbitrary origin. Takes about 20 ns.
    fn now_ns(&self) -> u64;

    /// Milliseconds since the Unix epoch. May jump when the administrator sets the clock.
    fn wall_ms(&self) -> u64;

    /// Sleeps for that long. A clock that is independent of real time need not.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// The kernel's clocks, `CLOCK_MONOTONIC` and `CLOCK_REALTIME`, read without a system call.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for one `timespec`; both clocks exist on every Linux, so the call
    // cannot fail with a valid pointer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (
        u64::try_from(time.tv_sec).unwrap_or(0),
        u64::try_from(time.tv_nsec).unwrap_or(0),
    )
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        let (seconds, nanos) = read(libc::CLOCK_MONOTONIC);
        seconds * 1_000_000_000 + nanos
    }

    fn wall_ms(&self) -> u64 {
        let (seconds, nanos) = read(libc::CLOCK_REALTIME);
        seconds * 1_000 + nanos / 1_000_000
    }
}

/// A clock that is advanced manually. Share it by reference or `Arc`.
///
/// ```
/// use mneme_sys::{Clock, ManualClock};
/// let clock = ManualClock::new(5, 1_700_000_000_000);
/// clock.advance_ms(2);
/// assert_eq!(clock.now_ns(), 2_000_005);
/// assert_eq!(clock.wall_ms(), 1_700_000_000_002);
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
    wall_ns: AtomicU64,
}

impl ManualClock {
    /// A stopped clock at `now_ns` (monotonic, nanoseconds) and `wall_ms` (milliseconds since the
    /// Unix epoch).
    pub fn new(now_ns: u64, wall_ms: u64) -> Self {
        Self {
            now_ns: AtomicU64::new(now_ns),
            wall_ns: AtomicU64::new(wall_ms.saturating_mul(1_000_000)),
        }
    }

    /// Moves both clocks forward by `ns` nanoseconds.
    pub fn advance_ns(&self, ns: u64) {
        // SYNC: pairs with the Acquire loads in `now_ns` and `wall_ms`: a thread that sees the new
        // time sees what was done before it was set.
        self.now_ns.fetch_add(ns, Ordering::Release);
        self.wall_ns.fetch_add(ns, Ordering::Release);
    }

    /// Moves both clocks forward by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        self.advance_ns(ms.saturating_mul(1_000_000));
    }

    /// Sets only the wall clock, as an administrator may, even backwards.
    pub fn set_wall_ms(&self, ms: u64) {
        // SYNC: pairs with the Acquire load in `wall_ms`.
        self.wall_ns
            .store(ms.saturating_mul(1_000_000), Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        // SYNC: pairs with the Release additions in `advance_ns`.
        self.now_ns.load(Ordering::Acquire)
    }

    fn wall_ms(&self) -> u64 {
        // SYNC: pairs with the Release stores in `advance_ns` and `set_wall_ms`.
        self.wall_ns.load(Ordering::Acquire) / 1_000_000
    }
}
