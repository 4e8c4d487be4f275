//! Where every byte of a store is, by the table of log segments (Nibble §3.2, figure 6) and the
//! arena. The paper counts live bytes there; here dead ones are counted, see decision 003.

use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{DiscardableStats, FRAME_BYTES};
use mneme_sys::{PageKind, PageReport};

use crate::index::Index;
use crate::log::segment::State;
use crate::reclaim::fill::CompactionWait;

/// The memory of a store on one NUMA node, in bytes.
///
/// `live + stale + index + heads + free = capacity`, except for frames that change owners
/// meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Frames on the node.
    pub capacity: u64,
    /// Live records.
    pub live_bytes: u64,
    /// Dead records and unused ends of log segments.
    pub stale_bytes: u64,
    /// Frames of the index.
    pub index_bytes: u64,
    /// Space in open log segments that is not yet written.
    pub head_bytes: u64,
    /// Free frames.
    pub free_bytes: u64,
}

/// A store's memory and contents, in bytes by default.
///
/// Taken without stopping any thread: numbers that change meanwhile may not add up exactly. `live +
/// stale + index + heads + overhead + free = capacity`.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Bytes of the region.
    pub capacity: u64,
    /// Bytes that the region may grow to.
    pub max_capacity: u64,
    /// Records, in all databases.
    pub records: u64,
    /// Live records, headers and padding included. Estimated; compaction recounts.
    pub live_bytes: u64,
    /// Dead records and unused ends of log segments, which compaction reclaims.
    pub stale_bytes: u64,
    /// Frames of the index.
    pub index_bytes: u64,
    /// The part of `index_bytes` that index pages, directories and roots use.
    pub index_used_bytes: u64,
    /// Space in open log segments that is not yet written.
    pub head_bytes: u64,
    /// The store's and the arena's own tables.
    pub overhead_bytes: u64,
    /// Free frames.
    pub free_bytes: u64,
    /// The part of `free_bytes` for which the file system has no space. These bytes cannot be used
    /// until it has some.
    pub unbacked_bytes: u64,
    /// The part of `free_bytes` that only compaction may take.
    pub reserve_bytes: u64,
    /// The numbers of each NUMA node. The tables belong to no node.
    pub nodes: Vec<NodeStats>,
    /// Bytes of live records that compaction has moved since the store was created.
    pub moved_bytes: u64,
    /// Bytes of records that were appended to log segments since the store was created, without the
    /// copies that compaction made. Values overwritten in place are not counted.
    pub written_bytes: u64,
    /// The part of `free_bytes` that was in use and still has its memory.
    pub spare_bytes: u64,
    /// The live share of the log segments' bytes below which this opening compacts while it
    /// maintains; 0: only when free frames run short. See [`FillPolicy`](crate::FillPolicy).
    pub target_fill: f64,
    /// Whether the log segments that compaction may move are less full than the target. Those of
    /// large records, and those with gaps between bulk records, stay as they are, so
    /// [`fill`](Self::fill) may be below the target although this is false.
    pub below_target: bool,
    /// What compaction to reach the target waits for, if this opening maintains and has to wait.
    pub compaction_wait: Option<CompactionWait>,
    /// Log segments.
    pub segments: u64,
    /// Log segments that wait for readers to unpin.
    pub condemned: u64,
    /// Records that were evicted because the store was full, since its creation.
    pub evicted: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Records that the sweep or compaction removed because they had expired, since the store's
    /// creation. A record whose key is stored again or removed before that is not counted.
    pub expired: u64,
    /// What the store lends, if it [does](crate::Builder::lend_idle). Rented frames count as free,
    /// frames being filled as overhead.
    pub lent: Option<DiscardableStats>,
    /// The pages behind the region.
    pub pages: PageReport,
}

impl Stats {
    /// The live share of the log segments' bytes; 1 if nothing was written.
    pub fn fill(&self) -> f64 {
        match self.live_bytes + self.stale_bytes {
            0 => 1.0,
            all => self.live_bytes as f64 / all as f64,
        }
    }

    /// Bytes appended to the log for each byte that was written, since the store was created: 1,
    /// plus what compaction has moved. It is the price of the fill.
    pub fn write_amplification(&self) -> f64 {
        1.0 + self.moved_bytes as f64 / self.written_bytes.max(1) as f64
    }

    /// The statistics of a store that is not mapped here.
    pub(crate) fn unseen() -> Self {
        Self {
            capacity: 0,
            max_capacity: 0,
            records: 0,
            live_bytes: 0,
            stale_bytes: 0,
            index_bytes: 0,
            index_used_bytes: 0,
            head_bytes: 0,
            overhead_bytes: 0,
            free_bytes: 0,
            unbacked_bytes: 0,
            reserve_bytes: 0,
            nodes: Vec::new(),
            moved_bytes: 0,
            written_bytes: 0,
            spare_bytes: 0,
            target_fill: 0.0,
            below_target: false,
            compaction_wait: None,
            segments: 0,
            condemned: 0,
            evicted: 0,
            evicted_bytes: 0,
            expired: 0,
            lent: None,
            pages: PageReport {
                kind: PageKind::Small,
                resident_bytes: 0,
                huge_bytes: 0,
                warning: None,
            },
        }
    }

    /// The numbers of a store; `pages` is called last, and only if the store is mapped here.
    pub(crate) fn of(index: &Index, pages: impl FnOnce() -> PageReport) -> Stats {
        let session = index.session();
        let log = index.log();
        if session.participants.is_forked() {
            return Stats::unseen();
        }
        let arena = log.arena.stats();
        let mut nodes: Vec<NodeStats> = arena
            .nodes
            .iter()
            .map(|on| NodeStats {
                capacity: u64::from(on.frames) * FRAME_BYTES,
                free_bytes: u64::from(on.free + on.withheld) * FRAME_BYTES,
                ..NodeStats::default()
            })
            .collect();
        // The node of every frame is in the arena.
        let last = nodes.len().saturating_sub(1);
        let node_of = |frame| usize::from(log.arena.node_of(frame).0).min(last);
        let (mut segments, mut condemned, mut appended) = (0, 0, 0);
        for (frame, info, _, state) in log.segments() {
            segments += 1;
            condemned += u64::from(state == State::Condemned);
            let capacity = info.capacity();
            // Another life of the segment, of another length, may have begun in between.
            let used = info.used().min(capacity);
            appended += used;
            let dead = if state == State::Condemned {
                used
            } else {
                info.dead().min(used)
            };
            let Some(on) = nodes.get_mut(node_of(frame)) else {
                continue;
            };
            on.live_bytes += used - dead;
            on.stale_bytes += dead;
            if matches!(state, State::Opening | State::Head) {
                on.head_bytes += capacity - used;
            } else {
                on.stale_bytes += capacity - used;
            }
        }
        let mut index_used = 0;
        for frame in (0..index.session().tables.geometry.shards).flat_map(|i| index.pool_frames(i))
        {
            index_used += index.pool_frame_used(frame).unwrap_or(0);
            if let Some(on) = nodes.get_mut(node_of(frame)) {
                on.index_bytes += FRAME_BYTES;
            }
        }
        let sum = |part: fn(&NodeStats) -> u64| nodes.iter().map(part).sum::<u64>();
        let (live_bytes, stale_bytes) = (sum(|n| n.live_bytes), sum(|n| n.stale_bytes));
        let (index_bytes, head_bytes) = (sum(|n| n.index_bytes), sum(|n| n.head_bytes));
        // Those of the nodes include frames that are not part of the capacity.
        let extra = log.extra_frames() * FRAME_BYTES;
        let free_bytes = sum(|n| n.free_bytes).saturating_sub(extra);
        let withheld = arena.nodes.iter().map(|on| u64::from(on.withheld));
        let unbacked_bytes = withheld.sum::<u64>() * FRAME_BYTES;
        let all = (0..log.arena.nodes()).map(mneme_sys::NodeId);
        let spare = all.map(|node| u64::from(log.arena.spare(node).resident));
        let spare = spare.sum::<u64>();
        let capacity = log.capacity();
        let taken = live_bytes + stale_bytes + index_bytes + head_bytes + free_bytes;
        let header = session.tables.header();
        let moved_bytes = header.moved.load(Relaxed);
        appended += header.freed.load(Relaxed);
        Stats {
            capacity,
            records: index.count_records(),
            live_bytes,
            stale_bytes,
            index_bytes,
            index_used_bytes: index_used * crate::index::pool::UNIT,
            head_bytes,
            overhead_bytes: capacity.saturating_sub(taken),
            free_bytes,
            unbacked_bytes,
            reserve_bytes: (free_bytes.saturating_sub(unbacked_bytes))
                .min(u64::from(arena.reserved) * FRAME_BYTES),
            max_capacity: log.max_capacity(),
            nodes,
            moved_bytes,
            written_bytes: appended.saturating_sub(moved_bytes),
            spare_bytes: spare * FRAME_BYTES,
            target_fill: 0.0,
            below_target: false,
            compaction_wait: None,
            segments,
            condemned,
            evicted: session.tables.header().evicted.load(Relaxed),
            evicted_bytes: session.tables.header().evicted_bytes.load(Relaxed),
            expired: session.tables.header().expired.load(Relaxed),
            lent: log.lent.as_ref().and_then(|lent| lent.stats().ok()),
            pages: pages(),
        }
    }
}
