//! What a commit will store, decided before its first store: which leaves take new entries where
//! they are, and which are rewritten into how many fresh ones.

use std::sync::Arc;

use crate::StoreError;
use crate::index::Node;
use crate::layout::{LEAF, LeafId, MAX_KEY, MAX_VALUE, entry_size};
use crate::leaf::{Committed, Leaf};
use crate::pages::Pages;

/// One change of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'b> {
    pub(crate) key: &'b [u8],
    /// `None` removes the key.
    pub(crate) value: Option<&'b [u8]>,
}

impl Change<'_> {
    /// Whether it keeps to the limits.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let (key, value) = (self.key.len(), self.value.map_or(0, <[u8]>::len));
        if key > MAX_KEY {
            return Err(StoreError::KeyTooLong {
                len: key,
                max: MAX_KEY,
            });
        }
        if value > MAX_VALUE {
            return Err(StoreError::ValueTooLong {
                len: value,
                max: MAX_VALUE,
            });
        }
        Ok(())
    }
}

/// New entries for a leaf that has space for them.
#[derive(Debug)]
pub(crate) struct Append<'b> {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) changes: Vec<Change<'b>>,
    /// Bytes of its entries that will be live.
    pub(crate) live: usize,
}

/// An entry of a fresh leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'b> {
    /// The version that wrote it; 0 for the one that is being committed.
    pub(crate) start: u64,
    pub(crate) key: &'b [u8],
    pub(crate) value: &'b [u8],
}

impl Item<'_> {
    fn size(&self) -> usize {
        entry_size(self.key.len(), self.value.len())
    }
}

/// One or two leaves, side by side, that are replaced by fresh ones.
#[derive(Debug)]
pub(crate) struct Rewrite<'b> {
    pub(crate) old: Vec<Arc<Leaf>>,
    /// What each fresh leaf holds; at least one, which may be empty.
    pub(crate) pieces: Vec<Vec<Item<'b>>>,
}

/// A commit.
#[derive(Debug, Default)]
pub(crate) struct Plan<'b> {
    pub(crate) appends: Vec<Append<'b>>,
    pub(crate) rewrites: Vec<Rewrite<'b>>,
    /// By how much the numbers of live entries and of their bytes change.
    pub(crate) entries: i64,
    pub(crate) live_bytes: i64,
}

/// A leaf below this many live bytes is joined with a neighbour if both fit into one.
const FEW_BYTES: usize = LEAF / 5;
/// Live entries up to this size stay in one leaf. The rest of it takes appends until the next
/// rewrite: a higher bound saves space and rewrites more often.
const ONE_LEAF: usize = LEAF / 4 * 3;
/// More than that is cut into leaves of about this size.
const CUT: usize = LEAF / 5 * 3;
/// Two neighbours are joined if their live bytes do not exceed this.
const JOINED: usize = LEAF / 2;

struct Planner<'b> {
    pages: &'b Pages,
    committed: &'b Committed,
    root: &'b Node,
    version: u64,
    plan: Plan<'b>,
    /// The last leaf that the plan changes: changes are in order, so a left neighbour that is
    /// changed too is this one.
    last: Option<LeafId>,
}

/// Plans the `changes`, sorted by key and each key once, of the version that `root` belongs to.
pub(crate) fn plan<'b>(
    pages: &'b Pages,
    committed: &'b Committed,
    root: &'b Node,
    version: u64,
    changes: &[Change<'b>],
) -> Result<Plan<'b>, StoreError> {
    let mut planner = Planner {
        pages,
        committed,
        root,
        version,
        plan: Plan::default(),
        last: None,
    };
    let mut rest = changes;
    while let Some(first) = rest.first() {
        let leaf = root.find(first.key);
        let count = rest.partition_point(|change| leaf.ends_after(change.key));
        rest = &rest[planner.group(leaf, &rest[..count], &rest[count..])?..];
    }
    Ok(planner.plan)
}

impl<'b> Planner<'b> {
    /// Plans the `changes` of one leaf; `beyond` are those of the leaves after it. Gives how many it
    /// has planned.
    fn group(
        &mut self,
        leaf: &'b Arc<Leaf>,
        changes: &[Change<'b>],
        beyond: &[Change<'b>],
    ) -> Result<usize, StoreError> {
        leaf.load(self.pages, self.committed)?;
        let filled = leaf.filled();
        let (mut needed, mut live, mut removed) = (0, filled.live, false);
        let mut effective = Vec::with_capacity(changes.len());
        for change in changes {
            let old = leaf.find(self.pages, change.key, self.version);
            let old = old.filter(|entry| entry.value.is_some());
            if change.value.is_none() && old.is_none() {
                continue;
            }
            let new = entry_size(change.key.len(), change.value.map_or(0, <[u8]>::len));
            needed += new;
            live -= old.map_or(0, |entry| entry.size);
            live += change.value.map_or(0, |_| new);
            removed |= change.value.is_none();
            self.plan.entries += i64::from(change.value.is_some()) - i64::from(old.is_some());
            effective.push(*change);
        }
        if effective.is_empty() {
            return Ok(changes.len());
        }
        self.plan.live_bytes += live as i64 - filled.live as i64;
        let fits = needed <= filled.free_bytes && effective.len() <= filled.free_entries;
        if (removed || !fits) && live < FEW_BYTES && self.join(leaf, live, &effective, beyond)? {
            return Ok(changes.len());
        }
        self.last = Some(leaf.id);
        if fits {
            self.plan.appends.push(Append {
                leaf: leaf.clone(),
                changes: effective,
                live,
            });
        } else {
            let items = self.merge(leaf, &effective);
            self.plan.rewrites.push(Rewrite {
                old: vec![leaf.clone()],
                pieces: cut(items),
            });
        }
        Ok(changes.len())
    }

    /// Joins a leaf with a neighbour without changes of its own, if there is one with which it fits
    /// into one leaf.
    fn join(
        &mut self,
        leaf: &'b Arc<Leaf>,
        live: usize,
        changes: &[Change<'b>],
        beyond: &[Change<'b>],
    ) -> Result<bool, StoreError> {
        let siblings = self.root.siblings(&leaf.low);
        let right = siblings.right;
        if let Some(right) = right.filter(|r| beyond.first().is_none_or(|c| !r.ends_after(c.key))) {
            right.load(self.pages, self.committed)?;
            if live + right.filled().live <= JOINED {
                let mut items = self.merge(leaf, changes);
                items.extend(self.merge(right, &[]));
                self.joined(vec![leaf.clone(), right.clone()], items);
                return Ok(true);
            }
        }
        if let Some(left) = siblings.left.filter(|left| self.last != Some(left.id)) {
            left.load(self.pages, self.committed)?;
            if live + left.filled().live <= JOINED {
                let mut items = self.merge(left, &[]);
                items.extend(self.merge(leaf, changes));
                self.joined(vec![left.clone(), leaf.clone()], items);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn joined(&mut self, old: Vec<Arc<Leaf>>, items: Vec<Item<'b>>) {
        self.last = old.last().map(|leaf| leaf.id);
        self.plan.rewrites.push(Rewrite {
            old,
            pieces: vec![items],
        });
    }

    /// The live entries of a leaf with `changes` made, in order.
    fn merge(&self, leaf: &'b Arc<Leaf>, changes: &[Change<'b>]) -> Vec<Item<'b>> {
        let mut offsets = Vec::new();
        leaf.live_at(self.pages, self.version, &mut offsets);
        let mut items = Vec::with_capacity(offsets.len() + changes.len());
        let mut changes = changes.iter().peekable();
        let new = |change: &Change<'b>| {
            change.value.map(|value| Item {
                start: 0,
                key: change.key,
                value,
            })
        };
        for offset in offsets {
            let entry = leaf.entry(self.pages, offset);
            while let Some(change) = changes.next_if(|change| change.key < entry.key) {
                items.extend(new(change));
            }
            match changes.next_if(|change| change.key == entry.key) {
                Some(change) => items.extend(new(change)),
                None => items.extend(entry.value.map(|value| Item {
                    start: entry.start,
                    key: entry.key,
                    value,
                })),
            }
        }
        items.extend(changes.filter_map(new));
        items
    }
}

/// Cuts items into leaves.
fn cut(items: Vec<Item<'_>>) -> Vec<Vec<Item<'_>>> {
    let total: usize = items.iter().map(Item::size).sum();
    if total <= ONE_LEAF {
        return vec![items];
    }
    let target = total / total.div_ceil(CUT);
    let mut pieces = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), 0);
    for item in items {
        if bytes >= target {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += item.size();
        piece.push(item);
    }
    pieces.push(piece);
    pieces
}

/// The shortest key above `below` and not above `above`, which is the larger.
pub(crate) fn separator<'k>(below: &[u8], above: &'k [u8]) -> &'k [u8] {
    let same = below.iter().zip(above).take_while(|(a, b)| a == b).count();
    &above[..(same + 1).min(above.len())]
}
