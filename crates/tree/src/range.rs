//! Iteration over a snapshot, a leaf at a time, from both ends.

use std::ops::Bound;
use std::sync::Arc;

use crate::StoreError;
use crate::leaf::Leaf;
use crate::snapshot::Snapshot;

/// Keys and values of a range of a snapshot.
#[derive(Debug)]
pub struct Range<'s> {
    snapshot: &'s Snapshot,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    front: Side<'s>,
    back: Side<'s>,
    is_over: bool,
}

/// One end: a leaf, and what of its live entries is still to be given.
#[derive(Debug, Default)]
struct Side<'s> {
    leaf: Option<&'s Arc<Leaf>>,
    offsets: Vec<u16>,
    /// The entries `from..to` of `offsets` are to be given.
    from: usize,
    to: usize,
}

/// A key and its value, where they lie.
type Pair<'s> = (&'s [u8], &'s [u8]);

impl<'s> Range<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Self {
        Self {
            snapshot,
            low,
            high,
            front: Side::default(),
            back: Side::default(),
            is_over: false,
        }
    }

    fn is_above_low(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Included(low) => key >= &low[..],
            Bound::Excluded(low) => key > &low[..],
            Bound::Unbounded => true,
        }
    }

    fn is_below_high(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Included(high) => key <= &high[..],
            Bound::Excluded(high) => key < &high[..],
            Bound::Unbounded => true,
        }
    }

    /// The live entries of a leaf.
    fn enter(&self, leaf: &'s Arc<Leaf>, mut offsets: Vec<u16>) -> Result<Side<'s>, StoreError> {
        let core = &self.snapshot.core;
        leaf.load(&core.pages, &core.committed)?;
        leaf.live_at(&core.pages, self.snapshot.version, &mut offsets);
        Ok(Side {
            leaf: Some(leaf),
            from: 0,
            to: offsets.len(),
            offsets,
        })
    }

    fn key(&self, leaf: &'s Leaf, offset: u16) -> &'s [u8] {
        leaf.entry(&self.snapshot.core.pages, offset).key
    }

    fn pair(&self, leaf: &'s Leaf, offset: u16) -> Pair<'s> {
        let entry = leaf.entry(&self.snapshot.core.pages, offset);
        (entry.key, entry.value.unwrap_or_default())
    }

    fn forward(&mut self) -> Result<Option<Pair<'s>>, StoreError> {
        let root = &self.snapshot.root;
        loop {
            let leaf = match self.front.leaf {
                Some(leaf) if self.front.from < self.front.to => leaf,
                done => {
                    let next = match (done, &self.low) {
                        (None, Bound::Included(low) | Bound::Excluded(low)) => root.find(low),
                        (None, Bound::Unbounded) => root.find(&[]),
                        (Some(leaf), _) => match &leaf.high {
                            Some(high) if self.is_below_high(high) => root.find(high),
                            _ => return Ok(None),
                        },
                    };
                    let offsets = std::mem::take(&mut self.front.offsets);
                    let mut side = self.enter(next, offsets)?;
                    if done.is_none() {
                        let below = |at: &u16| !self.is_above_low(self.key(next, *at));
                        side.from = side.offsets.partition_point(below);
                    }
                    self.front = side;
                    continue;
                }
            };
            let pair = self.pair(leaf, self.front.offsets[self.front.from]);
            if !self.is_below_high(pair.0) {
                return Ok(None);
            }
            self.front.from += 1;
            // The other end stops here; copied only once it has begun.
            if self.back.leaf.is_some() {
                self.low = Bound::Excluded(pair.0.to_vec());
            }
            return Ok(Some(pair));
        }
    }

    fn backward(&mut self) -> Result<Option<Pair<'s>>, StoreError> {
        let root = &self.snapshot.root;
        if self.back.leaf.is_none()
            && let Some(leaf) = self.front.leaf
            && let Some(last) = self.front.from.checked_sub(1)
            && let Some(offset) = self.front.offsets.get(last)
        {
            // What the other end has given so far.
            let given = self.key(leaf, *offset);
            if self.is_above_low(given) {
                self.low = Bound::Excluded(given.to_vec());
            }
        }
        loop {
            let leaf = match self.back.leaf {
                Some(leaf) if self.back.from < self.back.to => leaf,
                done => {
                    let next = match (done, &self.high) {
                        (None, Bound::Included(high)) => root.find(high),
                        (None, Bound::Excluded(high)) => root.find_before(Some(high)),
                        (None, Bound::Unbounded) => root.find_before(None),
                        (Some(leaf), _) if leaf.low.is_empty() => return Ok(None),
                        (Some(leaf), _) if !self.is_above_low(&leaf.low) => return Ok(None),
                        (Some(leaf), _) => root.find_before(Some(&leaf.low)),
                    };
                    let offsets = std::mem::take(&mut self.back.offsets);
                    let mut side = self.enter(next, offsets)?;
                    if done.is_none() {
                        let below = |at: &u16| self.is_below_high(self.key(next, *at));
                        side.to = side.offsets.partition_point(below);
                    }
                    self.back = side;
                    continue;
                }
            };
            let pair = self.pair(leaf, self.back.offsets[self.back.to - 1]);
            if !self.is_above_low(pair.0) {
                return Ok(None);
            }
            self.back.to -= 1;
            self.high = Bound::Excluded(pair.0.to_vec());
            return Ok(Some(pair));
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

    fn next(&mut self) -> Option<Self::Item> {
        self.give(Self::forward)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Self::backward)
    }
}
