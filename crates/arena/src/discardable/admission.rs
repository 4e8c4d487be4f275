//! Decides which misses are worth a copy. In a full cache a new copy replaces others, and copies of
//! most keys that are read once are never read. So a full cache only accepts keys that were missed
//! before: a Bloom filter of one bit a key remembers them, and is emptied as it fills up (the
//! doorkeeper of TinyLFU, Einziger et al., 2017). Each opening has its own filter.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The number of bits for each entry of the cache's index.
const BITS: u64 = 16;
/// The maximum size of the filter in bytes.
const MOST_BYTES: u64 = 8 << 20;
/// The filter is emptied when one of this many bits is set.
const FULL: u64 = 4;

/// The keys that were missed recently.
#[derive(Default)]
pub(super) struct RecentMisses {
    /// Whether the last frame that was taken contained records.
    is_full: AtomicBool,
    seen: OnceLock<Box<[AtomicU64]>>,
    noted: AtomicU64,
}

impl RecentMisses {
    /// Records whether a frame was obtained only by evicting another.
    pub fn note_frame(&self, evicted: bool) {
        // Relaxed here and below: these are only preferences.
        self.is_full.store(evicted, Relaxed);
    }

    /// Whether a missed key with this hash should be put into a cache whose index has that many
    /// entries. If not, it will be when it is missed again.
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
    #[cfg_attr(miri, ignore = "safe code that takes a minute")]
    fn a_full_cache_accepts_keys_missed_twice_and_forgets_others() {
        let admission = RecentMisses::default();
        let admits = |number: u64| admission.admits(hash(number), 1000);
        assert!(admits(0), "nothing has to go for it");
        admission.note_frame(true);
        let first = (1..500).filter(|number| admits(*number)).count();
        assert!(first < 30, "{first} were taken for others");
        assert!((1..500).all(admits));
        // As many others as the filter remembers come in between.
        for number in 1000..9000 {
            admits(number);
        }
        let kept = (1..500).filter(|number| admits(*number)).count();
        assert!(kept < 400, "{kept} are remembered for ever");
        admission.note_frame(false);
        assert!((20_000..20_100).all(admits));
    }
}
