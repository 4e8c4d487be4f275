//! Where every byte of a store is.

use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::FRAME_BYTES;
use mneme_sys::PageReport;

use crate::core::Core;
use crate::layout::DATABASES;
use crate::segment::State;

/// A store's memory and contents, in bytes unless said otherwise.
///
/// Taken without stopping anybody: numbers that change meanwhile may not add up exactly.
/// `live + stale + index + heads + overhead + free = capacity`.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Bytes of the region.
    pub capacity: u64,
    /// Records, in all databases.
    pub records: u64,
    /// Live records, headers and padding included. Estimated; compaction recounts.
    pub live_bytes: u64,
    /// Dead records and unused ends of log segments, which compaction wins back.
    pub stale_bytes: u64,
    /// Frames of the index.
    pub index_bytes: u64,
    /// Of `index_bytes`, those in use by index segments, directories and roots.
    pub index_used_bytes: u64,
    /// Space in open log segments that is not yet written.
    pub head_bytes: u64,
    /// The store's and the arena's own tables.
    pub overhead_bytes: u64,
    /// Frames that nobody has.
    pub free_bytes: u64,
    /// Of `free_bytes`, those that only compaction may take.
    pub reserve_bytes: u64,
    /// Log segments.
    pub segments: u64,
    /// Log segments that wait for readers to leave.
    pub condemned: u64,
    /// The pages behind the region.
    pub pages: PageReport,
}

impl Core {
    pub(crate) fn stats(&self) -> Stats {
        let mut live = 0;
        let mut stale = 0;
        let mut heads = 0;
        let (mut segments, mut condemned) = (0, 0);
        for (_, info, _, state) in self.segments() {
            segments += 1;
            condemned += u64::from(state == State::Condemned);
            let capacity = info.capacity();
            // Another life, of another length, may have begun in between.
            let used = info.used().min(capacity);
            let dead = if state == State::Condemned {
                used
            } else {
                info.dead.load(Relaxed).min(used)
            };
            live += used - dead;
            stale += dead;
            if matches!(state, State::Opening | State::Head) {
                heads += capacity - used;
            } else {
                stale += capacity - used;
            }
        }
        let frames: Vec<_> = (0..self.tables.geometry.shards)
            .flat_map(|i| self.pool_frames(i))
            .collect();
        let index_bytes = frames.len() as u64 * FRAME_BYTES;
        let used_units: u64 = frames
            .iter()
            .filter_map(|&f| self.pool_frame_used(f).ok())
            .sum();
        let arena = self.arena.stats();
        let capacity = self.mem.region().len() as u64;
        let free = u64::from(arena.free) * FRAME_BYTES;
        let taken = live + stale + heads + index_bytes + free;
        Stats {
            capacity,
            records: (0..DATABASES as u8)
                .filter_map(|db| self.len(db).ok())
                .sum(),
            live_bytes: live,
            stale_bytes: stale,
            index_bytes,
            index_used_bytes: used_units * crate::index::pool::UNIT,
            head_bytes: heads,
            overhead_bytes: capacity.saturating_sub(taken),
            free_bytes: free,
            reserve_bytes: free.min(self.tables.geometry.reserve_frames * FRAME_BYTES),
            segments,
            condemned,
            pages: self.mem.region().pages(),
        }
    }
}
