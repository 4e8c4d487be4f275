//! Entries of the feed that have not taken effect yet: pieces of a change that is not complete, and
//! entries of an open group.
//!
//! **A commit keeps them beside the records, under keys of their own.** A segment that outlives its
//! server will supply the remaining entries. In a store that is rebuilt they never take effect.

use std::collections::HashMap;

use mneme_log::feed::{Assembly, Entry, FeedDamage, Item, entries};
use mneme_tree::Batch;

use super::layout::pending_key;

/// An entry as it was in the feed.
#[derive(Debug, Clone)]
pub(super) struct RawEntry {
    position: u64,
    bytes: Vec<u8>,
    /// A commit contains it.
    is_kept: bool,
}

impl RawEntry {
    pub fn new(position: u64, bytes: &[u8]) -> Self {
        Self {
            position,
            bytes: bytes.to_vec(),
            is_kept: false,
        }
    }
}

#[derive(Default)]
pub(super) struct Pending {
    /// The bytes of the pieces.
    pub assembly: Assembly,
    /// The entries with pieces, by the ids of the changes.
    pieces: HashMap<u64, Vec<RawEntry>>,
    /// The entries of the open group, from the one that opened it.
    group: Option<Vec<RawEntry>>,
    /// Entries that commits have kept and that have taken effect since.
    gone: Vec<u64>,
}

/// What to do with an entry.
pub(super) enum Turn {
    /// It takes effect.
    Now,
    /// It belongs to an open group.
    Later,
    /// A group is closed: its entries take effect, this one last.
    Group(Vec<RawEntry>),
}

impl Pending {
    /// Adds a kept entry again. They arrive in order.
    pub fn restore(&mut self, position: u64, bytes: &[u8]) -> Result<(), FeedDamage> {
        let raw = || RawEntry {
            is_kept: true,
            ..RawEntry::new(position, bytes)
        };
        for entry in entries(position, bytes) {
            let entry = entry?;
            let first = entry.items().next().transpose()?;
            match (&mut self.group, first) {
                (Some(group), _) => group.push(raw()),
                (None, Some(Item::Open)) => self.group = Some(vec![raw()]),
                (None, _) => {
                    self.assembly.collect(&entry)?;
                    self.note_pieces(&entry, raw)?;
                }
            }
        }
        Ok(())
    }

    /// Decides what to do with the next entry; `raw` is its bytes.
    pub fn turn(&mut self, entry: &Entry<'_>, raw: &[u8]) -> Result<Turn, FeedDamage> {
        let first = entry.items().next().transpose()?;
        match (&mut self.group, first) {
            (None, Some(Item::Open)) => {
                self.group = Some(vec![RawEntry::new(entry.position, raw)]);
                Ok(Turn::Later)
            }
            (Some(group), Some(Item::Close)) => {
                let group = std::mem::take(group);
                self.group = None;
                self.forget(&group);
                Ok(Turn::Group(group))
            }
            (Some(group), _) => {
                group.push(RawEntry::new(entry.position, raw));
                Ok(Turn::Later)
            }
            (None, _) => Ok(Turn::Now),
        }
    }

    /// Notes the pieces of an entry that takes effect, and those that are no longer needed.
    pub fn note(&mut self, entry: &Entry<'_>, bytes: &[u8]) -> Result<(), FeedDamage> {
        self.note_pieces(entry, || RawEntry::new(entry.position, bytes))
    }

    fn note_pieces(
        &mut self,
        entry: &Entry<'_>,
        raw: impl Fn() -> RawEntry,
    ) -> Result<(), FeedDamage> {
        for item in entry.items() {
            match item? {
                Item::Piece { id, .. } => self.pieces.entry(id).or_default().push(raw()),
                Item::Pieces { id, .. } => {
                    let gone = self.pieces.remove(&id).unwrap_or_default();
                    self.forget(&gone);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn forget(&mut self, gone: &[RawEntry]) {
        let kept = gone.iter().filter(|raw| raw.is_kept);
        self.gone.extend(kept.map(|raw| raw.position));
    }

    /// Adds to a commit what is not kept yet, and removes what has taken effect.
    pub fn enter(&self, batch: &mut Batch) {
        for position in &self.gone {
            batch.remove(&pending_key(*position));
        }
        // After the removals: an entry of a closed group may be a piece.
        for raw in self.all().filter(|raw| !raw.is_kept) {
            batch.put(&pending_key(raw.position), &raw.bytes);
        }
    }

    /// Notes that the commit is durable.
    pub fn entered(&mut self) {
        self.gone.clear();
        for raw in self.pieces.values_mut().flatten() {
            // The assembly holds its bytes.
            (raw.is_kept, raw.bytes) = (true, Vec::new());
        }
        for raw in self.group.iter_mut().flatten() {
            raw.is_kept = true;
        }
    }

    /// Discards all of them: none will take effect. Returns whether commits have kept any.
    pub fn give_up(&mut self) -> bool {
        let all: Vec<_> = self.all().cloned().collect();
        *self = Self {
            gone: std::mem::take(&mut self.gone),
            ..Self::default()
        };
        self.forget(&all);
        !self.gone.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &RawEntry> {
        let pieces = self.pieces.values().flatten();
        pieces.chain(self.group.iter().flatten())
    }
}

/// The entries of a closed group.
pub(super) fn each(
    group: &[RawEntry],
) -> impl Iterator<Item = Result<(Entry<'_>, &[u8]), FeedDamage>> {
    let each = group.iter().map(|raw| (raw.position, &raw.bytes[..]));
    each.flat_map(|(position, bytes)| {
        entries(position, bytes).map(move |entry| Ok((entry?, bytes)))
    })
}
