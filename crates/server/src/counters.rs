//! Per-thread counters, which never share a cache line with another thread's.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread increments and any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `more`. Only the owning thread may call this, which saves a locked instruction.
    #[inline]
    pub fn add(&self, more: u64) {
        // SYNC: pairs with nothing; a statistic whose reader wants some recent value.
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(more),
            Ordering::Relaxed,
        );
    }

    /// A recent value of the counter.
    pub fn get(&self) -> u64 {
        // SYNC: as above.
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One thread's counters.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters { $($(#[$doc])* pub $name: Count),* }

        /// The sums over all threads at one moment.
        #[derive(Debug, Default, Clone, Copy)]
        pub(crate) struct CounterTotals { $($(#[$doc])* pub $name: u64),* }

        impl CounterTotals {
            /// The sums over `threads`.
            pub fn of<'a>(threads: impl Iterator<Item = &'a Counters>) -> Self {
                threads.fold(Self::default(), |sums, one| Self {
                    $($name: sums.$name.wrapping_add(one.$name.get())),*
                })
            }

            /// The increase of each sum since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name)),* }
            }
        }
    };
}

counters! {
    /// Connections accepted, including those refused afterwards.
    connections,
    /// Connections refused because there were too many, or because they came from outside.
    rejected,
    /// Commands executed, including those that failed; not those that were refused, or queued by
    /// `MULTI`.
    commands,
    /// Error replies.
    errors,
    /// Bytes received.
    input,
    /// Bytes sent.
    output,
    /// Reads from sockets that returned data.
    reads,
    /// Writes to sockets.
    writes,
    /// Keys looked up and found.
    hits,
    /// Keys looked up and not found.
    misses,
    /// Keys changed by commands.
    changes,
}

impl Counters {
    /// Adds the keys that `other` has counted as looked up and changed. Only for the owning thread.
    pub fn take_keys(&self, other: &Counters) {
        self.hits.add(other.hits.get());
        self.misses.add(other.misses.get());
        self.changes.add(other.changes.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_and_differences() {
        let threads = [Counters::default(), Counters::default()];
        threads[0].commands.add(2);
        threads[1].commands.add(3);
        let before = CounterTotals::of(threads.iter());
        threads[1].hits.add(7);
        let after = CounterTotals::of(threads.iter());
        assert_eq!((before.commands, after.commands), (5, 5));
        assert_eq!(
            (after.since(&before).hits, after.since(&before).commands),
            (7, 0)
        );
    }
}
