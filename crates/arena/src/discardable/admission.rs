//! Which misses are worth a copy. A copy that is made in a full cache takes the place of others,
//! and of most keys that are read once nobody reads a copy. So a full cache is offered only what
//! was missed before: a Bloom filter of one bit a key remembers that, and is emptied as it fills up
//! (the doorkeeper of TinyLFU, Einziger et al., 2017). It is this opening's own.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Bits for each entry of the cache's index.
const BITS: u64 = 16;
/// Bytes of the filter at most.
const MOST_BYTES: u64 = 8 << 20;
/// One bit of so many is set when the filter is emptied.
const FULL: u64 = 4;

/// What was missed lately.
#[derive(Default)]
pub(super) struct RecentMisses {
    /// Whether the last frame that was taken had records in it.
    is_full: AtomicBool,
    seen: OnceLock<Box<[AtomicU64]>>,
    noted: AtomicU64,
}

impl RecentMisses {
    /// Notes whether a frame was had only in place of another.
    pub fn note_frame(&self, evicted: bool) {
        // Relaxed here and below: preferences.
        self.is_full.store(evicted, Relaxed);
    }

    /// Whether a key of this hash, which was missed, is to be put into a cache whose index has so
    /// many entries. It is if it is asked again.
    pub fn admits(&self, hash: u64, entries: u64) -> bool {
        if !self.is_full.load(Relaxed) {
            return true;
        }
        let seen = self.seen.get_or_init(|| {
            let bytes = (entries.saturating_mul(BITS) / 8).clamp(8, MOST_BYTES);
            (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
        });
        let bits = seen.len() as u64 * 64;
        let bit = ((u128::from(hash) * u128::from(bits)) >> 64) as usize;
        let mask = 1 << (bit % 64);
        if seen[bit / 64].fetch_or(mask, Relaxed) & mask != 0 {
            return true;
        }
        if self.noted.fetch_add(1, Relaxed) >= bits / FULL {
            self.noted.store(0, Relaxed);
            seen.iter().for_each(|word| word.store(0, Relaxed));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_full_cache_takes_what_is_missed_twice_and_forgets_what_is_not() {
        let admission = RecentMisses::default();
        let admits = |number: u64| admission.admits(hash(number), 1000);
        assert!(admits(0), "nothing has to go for it");
        admission.note_frame(true);
        let first = (1..500).filter(|number| admits(*number)).count();
        assert!(first < 30, "{first} were taken for others");
        assert!((1..500).all(admits));
        // As many as it remembers come between.
        for number in 1000..9000 {
            admits(number);
        }
        let kept = (1..500).filter(|number| admits(*number)).count();
        assert!(kept < 400, "{kept} are remembered for ever");
        admission.note_frame(false);
        assert!((20_000..20_100).all(admits));
    }
}
