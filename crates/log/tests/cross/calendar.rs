//! State that the participants of a scenario share beside the store: a clock, and the originals of
//! a tenant's copies.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use mneme_sys::{Clock, SystemClock};

/// Keys of tenants.
pub const COPIES: usize = 16;

/// How much faster the clock of waits runs.
const FASTER: u64 = 32;

/// Records expire when the test says so, and waits end earlier.
pub struct Calendar {
    now: AtomicU64,
    /// The current version of each tenant's key, set before copies of the earlier one are removed.
    pub changing: [AtomicU32; COPIES],
    /// As `changing`, set after they are removed: from then on no earlier version may be found.
    pub settled: [AtomicU32; COPIES],
    /// How often a tenant was at work.
    pub tenants: AtomicU32,
}

impl Calendar {
    pub fn at(now: u64) -> Calendar {
        Calendar {
            now: AtomicU64::new(now),
            changing: Default::default(),
            settled: Default::default(),
            tenants: AtomicU32::new(0),
        }
    }

    /// Another calendar that shows this one's time.
    pub fn again(&self) -> Calendar {
        let copies = |of: &[AtomicU32; COPIES]| of.each_ref().map(|n| n.load(SeqCst).into());
        Calendar {
            now: AtomicU64::new(self.wall_ms()),
            changing: copies(&self.changing),
            settled: copies(&self.settled),
            tenants: self.tenants.load(SeqCst).into(),
        }
    }

    pub fn set(&self, now: u64) {
        self.now.store(now, Relaxed);
    }

    pub fn pass(&self, ms: u64) {
        self.now.fetch_add(ms, Relaxed);
    }

    /// Changes the original of key `i`. `tell` has to ensure that no earlier copy is found.
    pub fn change(&self, i: usize, tell: impl FnOnce(u32)) {
        let version = self.changing[i].fetch_add(1, SeqCst) + 1;
        tell(version);
        self.settled[i].fetch_max(version, SeqCst);
    }
}

impl Clock for Calendar {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns() * FASTER
    }

    fn wall_ms(&self) -> u64 {
        self.now.load(Relaxed)
    }
}
