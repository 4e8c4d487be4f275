//! What keeps the ranges: ours, and an ordered map behind one lock of either kind.

use mneme_bench::error::{BenchError, failed};
use mneme_rcx::RangeMap;
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{SysfsTopology, Topology};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The names in reports, ours first.
pub const SYSTEMS: [&str; 3] = ["ours", "one lock", "rw lock"];

/// What an address space is asked. Values are not zero, which means a gap.
pub trait Ranges: Sync {
    /// What lies at an address.
    fn find(&self, address: u64) -> u32;
    /// Maps a gap; whether it was one.
    fn map(&self, range: Range<u64>, value: u32) -> bool;
    /// Changes what is mapped; whether all was.
    fn protect(&self, range: Range<u64>, value: u32) -> bool;
    /// Unmaps.
    fn unmap(&self, range: Range<u64>) -> bool;
}

/// A system by its place in [`SYSTEMS`].
///
/// # Errors
/// [`BenchError::Store`].
pub fn make(system: usize) -> Result<Box<dyn Ranges>, BenchError> {
    Ok(match system {
        0 => {
            let participants =
                Participants::private(ControlOptions::new([3; 16])).map_err(failed)?;
            let topology: Arc<dyn Topology> = Arc::new(SysfsTopology::detect());
            Box::new(RangeMap::<u32>::new(&participants, topology))
        }
        1 => Box::new(Mutex::new(Ordered::default())),
        _ => Box::new(RwLock::new(Ordered::default())),
    })
}

impl Ranges for RangeMap<u32> {
    fn find(&self, address: u64) -> u32 {
        self.get(address).ok().flatten().unwrap_or(0)
    }

    fn map(&self, range: Range<u64>, value: u32) -> bool {
        RangeMap::map(self, range, value).is_ok()
    }

    fn protect(&self, range: Range<u64>, value: u32) -> bool {
        RangeMap::protect(self, range, value).is_ok()
    }

    fn unmap(&self, range: Range<u64>) -> bool {
        RangeMap::unmap(self, range).is_ok()
    }
}

/// Ranges by their starts; each reaches to the next.
#[derive(Debug)]
struct Ordered(BTreeMap<u64, u32>);

impl Default for Ordered {
    fn default() -> Self {
        Self(BTreeMap::from([(0, 0)]))
    }
}

impl Ordered {
    fn find(&self, address: u64) -> u32 {
        self.0.range(..=address).next_back().map_or(0, |(_, v)| *v)
    }

    /// Gives a range one value, if `may` holds for all that it has; ranges that touch and are equal
    /// become one.
    fn assign(&mut self, range: Range<u64>, value: u32, may: impl Fn(u32) -> bool) -> bool {
        let Range { start, end } = range;
        let within = self.0.range(start..end);
        if !may(self.find(start)) || !within.clone().all(|(_, value)| may(*value)) {
            return false;
        }
        let behind = self.find(end);
        let starts: Vec<u64> = within.map(|(start, _)| *start).collect();
        for start in starts {
            self.0.remove(&start);
        }
        let before = (start > 0).then(|| self.find(start - 1));
        if before != Some(value) {
            self.0.insert(start, value);
        }
        match behind == value {
            true => self.0.remove(&end),
            false => self.0.insert(end, behind),
        };
        true
    }

    fn map(&mut self, range: Range<u64>, value: u32) -> bool {
        self.assign(range, value, |found| found == 0)
    }

    fn protect(&mut self, range: Range<u64>, value: u32) -> bool {
        self.assign(range, value, |found| found != 0)
    }

    fn unmap(&mut self, range: Range<u64>) -> bool {
        self.assign(range, 0, |_| true)
    }
}

/// An [`Ordered`] behind a lock: how it is read, and how it is written.
macro_rules! behind_lock {
    ($lock:ident, $read:ident, $write:ident) => {
        impl Ranges for $lock<Ordered> {
            fn find(&self, address: u64) -> u32 {
                unpoisoned(self.$read()).find(address)
            }

            fn map(&self, range: Range<u64>, value: u32) -> bool {
                unpoisoned(self.$write()).map(range, value)
            }

            fn protect(&self, range: Range<u64>, value: u32) -> bool {
                unpoisoned(self.$write()).protect(range, value)
            }

            fn unmap(&self, range: Range<u64>) -> bool {
                unpoisoned(self.$write()).unmap(range)
            }
        }
    };
}

fn unpoisoned<G>(guard: Result<G, PoisonError<G>>) -> G {
    guard.unwrap_or_else(PoisonError::into_inner)
}

behind_lock!(Mutex, lock, lock);
behind_lock!(RwLock, read, write);

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_bench::generate::random::Random;

    #[test]
    fn all_range_maps_give_the_same_answers() {
        let systems: Vec<_> = (0..SYSTEMS.len()).map(|n| make(n).unwrap()).collect();
        let mut random = Random::new(7);
        for _ in 0..2_000 {
            let start = random.below(60);
            let range = start..start + 1 + random.below(20);
            let (what, value) = (random.below(3), 1 + random.below(3) as u32);
            let done = systems.iter().map(|system| match what {
                0 => system.map(range.clone(), value),
                1 => system.protect(range.clone(), value),
                _ => system.unmap(range.clone()),
            });
            let done: Vec<bool> = done.collect();
            assert!(done.iter().all(|one| *one == done[0]), "{done:?}");
            for address in 0..90 {
                let found: Vec<u32> = systems.iter().map(|s| s.find(address)).collect();
                assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
            }
        }
    }
}
