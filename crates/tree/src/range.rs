//! Double-ended iteration over a snapshot, one leaf at a time.

use std::ops::Bound;
use std::sync::Arc;

use crate::StoreError;
use crate::leaf::Leaf;
use crate::leaf_entry::LeafEntry;
use crate::order::Order;
use crate::pages::TreePages;
use crate::snapshot::View;

/// Keys and values of a range of one tree of a snapshot.
#[derive(Debug)]
pub struct Range<'s> {
    view: View<'s>,
    reads: Reads,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    front: Option<Side<'s>>,
    back: Option<Side<'s>>,
    /// The last key that each end has returned.
    front_key: Option<&'s [u8]>,
    back_key: Option<&'s [u8]>,
    is_over: bool,
}

/// What a range reads of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Keys and values.
    Pairs,
    /// As `Pairs`, comparing all checksums again.
    Verified,
    /// Keys only; values are empty.
    Keys,
}

/// One end: a leaf, and the live entries of it that remain.
#[derive(Debug)]
struct Side<'s> {
    leaf: &'s Arc<Leaf>,
    reads: Reads,
    order: Arc<Order>,
    /// The entries `from..to` of `order` remain.
    from: usize,
    to: usize,
}

/// A key and its value in place.
type Pair<'s> = (&'s [u8], &'s [u8]);

/// The keys of a range in one tree of a snapshot. Values are not read.
#[derive(Debug)]
pub struct Keys<'s>(pub(crate) Range<'s>);

impl<'s> Iterator for Keys<'s> {
    type Item = Result<&'s [u8], StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|(key, _)| key))
    }
}

/// Entries whose first lines are prefetched before they are returned.
const AHEAD: usize = 4;
/// Longer entries are prefetched completely, one entry ahead.
const LONG: usize = 256;

fn is_above(low: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match low {
        Bound::Included(low) => key >= &low[..],
        Bound::Excluded(low) => key > &low[..],
        Bound::Unbounded => true,
    }
}

fn is_below(high: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match high {
        Bound::Included(high) => key <= &high[..],
        Bound::Excluded(high) => key < &high[..],
        Bound::Unbounded => true,
    }
}

impl<'s> Side<'s> {
    /// The live entries of a leaf between two bounds.
    fn enter(range: &Range<'s>, leaf: &'s Arc<Leaf>) -> Result<Self, StoreError> {
        let View { core, version, .. } = range.view;
        leaf.load(&core.pages, &core.committed)?;
        let order = leaf.order_at(&core.pages, version);
        let compare = |at: &u16, other: &[u8]| {
            let entry = leaf.entry(&core.pages, *at);
            entry.compare(&core.pages, other)
        };
        let above = |at: &u16| match &range.low {
            Bound::Included(low) => compare(at, low).is_ge(),
            Bound::Excluded(low) => compare(at, low).is_gt(),
            Bound::Unbounded => true,
        };
        let below = |at: &u16| match &range.high {
            Bound::Included(high) => compare(at, high).is_le(),
            Bound::Excluded(high) => compare(at, high).is_lt(),
            Bound::Unbounded => true,
        };
        let offsets = &order.offsets[..];
        let from = if is_above(&range.low, &leaf.low) {
            0
        } else {
            offsets.partition_point(|at| !above(at))
        };
        let to = match &leaf.high {
            Some(high) if is_below(&range.high, high) => offsets.len(),
            _ => offsets.partition_point(below),
        };
        Ok(Self {
            leaf,
            reads: range.reads,
            from,
            to: to.max(from),
            order,
        })
    }

    #[inline]
    fn entry(&self, pages: &'s TreePages, i: usize) -> Option<LeafEntry<'s>> {
        let offset = self.order.offsets.get(i)?;
        Some(self.leaf.entry(pages, *offset))
    }

    /// Prefetches the first lines of an entry.
    #[inline]
    fn prefetch(&self, pages: &TreePages, i: usize) {
        if let Some(offset) = self.order.offsets.get(i) {
            self.leaf.prefetch_at(pages, *offset);
        }
    }

    /// Returns the first pair.
    #[inline]
    fn next(&mut self, pages: &'s TreePages) -> Option<Result<Pair<'s>, StoreError>> {
        if self.from >= self.to {
            return None;
        }
        let given = self.entry(pages, self.from)?;
        self.prefetch(pages, self.from + AHEAD);
        self.from += 1;
        // Its first lines have arrived.
        if given.bytes.len() > LONG
            && let Some(next) = self.entry(pages, self.from)
        {
            let rest = next.bytes.chunks(64).skip(2);
            rest.for_each(|line| mneme_sys::prefetch(line.as_ptr()));
        }
        Some(self.give(given, pages))
    }

    #[inline]
    fn give(&self, entry: LeafEntry<'s>, pages: &'s TreePages) -> Result<Pair<'s>, StoreError> {
        let value = match self.reads {
            Reads::Keys if !entry.has_long_key() => None,
            Reads::Verified => {
                entry.verify(pages)?;
                entry.value(pages)
            }
            Reads::Keys | Reads::Pairs => self.leaf.value_of(pages, &entry)?,
        };
        Ok((entry.key(pages), value.unwrap_or_default()))
    }

    /// Returns the last pair.
    fn next_back(&mut self, pages: &'s TreePages) -> Option<Result<Pair<'s>, StoreError>> {
        if self.from >= self.to {
            return None;
        }
        self.to -= 1;
        self.prefetch(pages, self.to.wrapping_sub(AHEAD));
        let given = self.entry(pages, self.to)?;
        Some(self.give(given, pages))
    }
}

impl<'s> Range<'s> {
    pub(crate) fn new(view: View<'s>, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Self {
        Self {
            view,
            reads: Reads::Pairs,
            low,
            high,
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            is_over: false,
        }
    }

    /// Compares the checksum of each entry and value again, even if it was verified before. Needed
    /// if the data will be copied and get a new checksum.
    #[must_use]
    pub fn verified(mut self) -> Self {
        self.reads = Reads::Verified;
        self
    }

    /// Only the keys.
    pub(crate) fn keys(mut self) -> Keys<'s> {
        self.reads = Reads::Keys;
        Keys(self)
    }

    /// The next leaf at the front.
    fn next_leaf(&self) -> Option<&'s Arc<Leaf>> {
        let root = self.view.root?;
        match (&self.front, &self.low) {
            (Some(side), _) => match &side.leaf.high {
                Some(high) if is_below(&self.high, high) => Some(root.find(high)),
                _ => None,
            },
            (None, Bound::Included(low) | Bound::Excluded(low)) => Some(root.find(low)),
            (None, Bound::Unbounded) => Some(root.find(&[])),
        }
    }

    /// The next leaf at the back.
    fn leaf_before(&self) -> Option<&'s Arc<Leaf>> {
        let root = self.view.root?;
        match (&self.back, &self.high) {
            (Some(side), _) => {
                let low = &side.leaf.low;
                let is_first = low.is_empty() || !is_above(&self.low, low);
                (!is_first).then(|| root.find_before(Some(low)))
            }
            (None, Bound::Included(high)) => Some(root.find(high)),
            (None, Bound::Excluded(high)) => Some(root.find_before(Some(high))),
            (None, Bound::Unbounded) => Some(root.find_before(None)),
        }
    }

    fn forward(&mut self) -> Result<Option<Pair<'s>>, StoreError> {
        let pages = &self.view.core.pages;
        loop {
            if let Some(pair) = self.front.as_mut().and_then(|side| side.next(pages)) {
                let pair = pair?;
                // The other end may have returned it.
                if self.back_key.is_some_and(|given| pair.0 >= given) {
                    return Ok(None);
                }
                self.front_key = Some(pair.0);
                return Ok(Some(pair));
            }
            let Some(leaf) = self.next_leaf() else {
                return Ok(None);
            };
            let side = Side::enter(self, leaf)?;
            (side.from..(side.from + AHEAD).min(side.to)).for_each(|i| side.prefetch(pages, i));
            self.front = Some(side);
        }
    }

    fn backward(&mut self) -> Result<Option<Pair<'s>>, StoreError> {
        let pages = &self.view.core.pages;
        loop {
            if let Some(pair) = self.back.as_mut().and_then(|side| side.next_back(pages)) {
                let pair = pair?;
                // The other end may have returned it.
                if self.front_key.is_some_and(|given| pair.0 <= given) {
                    return Ok(None);
                }
                self.back_key = Some(pair.0);
                return Ok(Some(pair));
            }
            let Some(leaf) = self.leaf_before() else {
                return Ok(None);
            };
            self.back = Some(Side::enter(self, leaf)?);
        }
    }

    fn give(
        &mut self,
        next: impl FnOnce(&mut Self) -> Result<Option<Pair<'s>>, StoreError>,
    ) -> Option<Result<Pair<'s>, StoreError>> {
        if self.is_over {
            return None;
        }
        let given = next(self).transpose();
        self.is_over = !matches!(given, Some(Ok(_)));
        given
    }
}

impl<'s> Iterator for Range<'s> {
    type Item = Result<Pair<'s>, StoreError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The usual case: the leaf has more entries, and the other end has not been used.
        if self.back_key.is_none()
            && !self.is_over
            && let Some(side) = &mut self.front
            && let Some(pair) = side.next(&self.view.core.pages)
        {
            match &pair {
                Ok((key, _)) => self.front_key = Some(key),
                Err(_) => self.is_over = true,
            }
            return Some(pair);
        }
        self.give(Self::forward)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Self::backward)
    }
}
