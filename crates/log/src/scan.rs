//! Scanning a database in the order of its keys' hashes.
//!
//! **Every record that is present from a scan's first step to its last is visited at least once**,
//! whatever is added, removed, moved, split or merged meanwhile. A cursor is a place in hash order:
//! partition and tag; a step visits whole home buckets, each an interval of tags, and ends where the
//! next interval begins. Buckets stand in hash order in every shape of the index, so a change of
//! shape between two steps moves no unvisited tag before the cursor.
//!
//! A change of shape stores its words in ascending order of tags. A step that finds the cursor's
//! word unchanged may therefore read the old segment from the cursor on, but nothing before it:
//! what lies there may long have changed in the new one, and its old records may be gone.

use mneme_sync::Slot;

use crate::core::Core;
use crate::error::{ReadError, WriteError};
use crate::index::bucket::{SLOTS, TAG_BITS};
use crate::index::{Lookup, Place, SegmentRef, prefix_tag};
use crate::record::Record;

/// A place in hash order where a scan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cursor(u64);

impl Cursor {
    /// Before the first record.
    pub const START: Cursor = Cursor(0);
    /// Behind the last record.
    pub const END: Cursor = Cursor(u64::MAX);

    /// As a number, for clients; see [`Cursor::from_u64`].
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// From a number. Any number is some place in hash order, so that a client's invented cursor
    /// does no harm.
    pub fn from_u64(cursor: u64) -> Cursor {
        Cursor(cursor)
    }

    fn new(partition: u64, tag: u64) -> Cursor {
        Cursor(partition << TAG_BITS | tag)
    }
}

impl Core {
    /// Visits at least `count` records from `cursor` on, unless the end comes first.
    pub(crate) fn scan(
        &self,
        database: u8,
        cursor: Cursor,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Cursor, ReadError> {
        let slot = self.participants.slot()?;
        let (mut partition, mut tag) = (cursor.0 >> TAG_BITS, cursor.0 & ((1 << TAG_BITS) - 1));
        let mut visited = 0;
        // Empty partitions count a little, so that a step over a sparse table is bounded too.
        let mut budget = count.saturating_mul(16).saturating_add(1024);
        while partition < self.partitions() {
            if visited >= count || budget == 0 {
                return Ok(Cursor::new(partition, tag));
            }
            budget -= 1;
            let _pin = slot.pin();
            let Some(root) = self.root(database)? else {
                return Ok(Cursor::END);
            };
            let place = Place {
                partition: partition as u32,
                tag: tag as u32,
            };
            let next = match self.mem.index_segment(&root, place)? {
                None => 1 << TAG_BITS,
                Some(segment) => {
                    visited += self.scan_bucket(&slot, place, segment, &mut visit)?;
                    next_interval(place.tag, segment)
                }
            };
            (partition, tag) = if next >> TAG_BITS == 0 {
                (partition, next)
            } else {
                (partition + 1, 0)
            };
        }
        Ok(Cursor::END)
    }

    /// Visits all records from `place` on whose home is its bucket.
    fn scan_bucket(
        &self,
        slot: &Slot<'_>,
        place: Place,
        segment: SegmentRef,
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, ReadError> {
        let home = segment.home(place.tag);
        let mut records: Vec<Record<'_>> = Vec::with_capacity(SLOTS);
        let mut wait = crate::core::Wait::new();
        loop {
            records.clear();
            let word = self.mem.bucket(segment, home)?.word();
            let mut distance = 0;
            loop {
                let bucket = self.mem.bucket(segment, segment.behind(home, distance))?;
                for entry in (0..SLOTS).map(|i| bucket.entry(i)) {
                    let tag = entry.tag();
                    if !entry.is_empty() && tag >= place.tag && segment.home(tag) == home {
                        records.push(self.mem.record(entry.loc())?);
                    }
                }
                // The reach may have grown since; what came with it is newer than this step.
                if distance >= word.reach().min(segment.max_reach()) {
                    break;
                }
                distance += 1;
            }
            let word = self.mem.bucket(segment, home)?.word();
            if !word.in_transaction() {
                break;
            }
            self.wait_for(slot, &mut wait, word.holder())
                .map_err(WriteError::while_reading)?;
        }
        for record in &records {
            visit(record.key(), record.value());
        }
        Ok(records.len())
    }
}

/// The first tag behind the interval of `tag`'s home bucket; `1 << TAG_BITS`: the partition's end.
fn next_interval(tag: u32, segment: SegmentRef) -> u64 {
    let home = segment.home(tag);
    let prefix = if segment.depth == 0 {
        0
    } else {
        tag >> (TAG_BITS - segment.depth)
    };
    if home + 1 < segment.buckets {
        u64::from(segment.first_tag(prefix, home + 1))
    } else {
        u64::from(prefix_tag(prefix, segment.depth)) + (1 << (TAG_BITS - segment.depth))
    }
}
