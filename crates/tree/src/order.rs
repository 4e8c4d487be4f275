//! The entries of a leaf in key order.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::layout::LeafId;
use crate::leaf_entry::{entry, head};
use crate::pages::TreePages;

/// The offsets in key order of the entries that are live after the first `count` entries of a leaf.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) count: usize,
    pub(crate) offsets: Vec<u16>,
}

/// A key for sorting: 8 bytes of it, and a reference to the rest.
#[derive(Debug, Clone, Copy)]
struct ReservePlace {
    head: u64,
    /// Bytes of the key in the head; more than 8 if the head does not hold all.
    len: u16,
    offset: u16,
}

/// Sorts entries of one leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sorter<'p> {
    pub(crate) pages: &'p TreePages,
    pub(crate) id: LeafId,
    /// The length of the prefix common to all keys of the leaf.
    pub(crate) shared: usize,
}

impl<'p> Sorter<'p> {
    #[inline]
    fn key(&self, offset: u16) -> &'p [u8] {
        entry(self.pages, self.id, offset).key(self.pages)
    }

    #[inline]
    fn place(&self, offset: u16) -> ReservePlace {
        let entry = entry(self.pages, self.id, offset);
        let key = entry.key_from(self.pages, self.shared);
        ReservePlace {
            head: head(key),
            len: key.len().min(9) as u16,
            offset,
        }
    }

    #[inline]
    fn compare(&self, a: ReservePlace, b: ReservePlace) -> Ordering {
        match a.head.cmp(&b.head) {
            // Both keys consist only of the common prefix and the heads.
            Ordering::Equal if a.len <= 8 && b.len <= 8 => a.len.cmp(&b.len),
            Ordering::Equal => self.compare_keys(a, b),
            unequal => unequal,
        }
    }

    fn compare_keys(&self, a: ReservePlace, b: ReservePlace) -> Ordering {
        self.key(a.offset).cmp(self.key(b.offset))
    }

    /// Adds later entries, in order of arrival, to `base`, the live entries in key order.
    pub(crate) fn merge(&self, base: &[u16], later: &[u16], count: usize) -> Arc<Order> {
        let newest_first = later.iter().rev();
        let mut later: Vec<ReservePlace> = newest_first.map(|at| self.place(*at)).collect();
        // The sort is stable: of equal heads the newest stays first. The entries of a batch are in
        // order already, which takes one comparison per entry.
        later.sort_by_key(|place| place.head);
        // Usually one each. The sort is stable: of equal keys the newest stays first.
        let alike = later.chunk_by_mut(|a, b| a.head == b.head);
        alike.for_each(|places| places.sort_by(|a, b| self.compare(*a, *b)));
        later.dedup_by(|older, newer| self.compare(*older, *newer).is_eq());
        let mut offsets = Vec::with_capacity(base.len() + later.len());
        let mut rest = base;
        for new in later {
            let found = search(rest, |at| self.compare(self.place(*at), new));
            let below = found.unwrap_or_else(|below| below);
            offsets.extend_from_slice(&rest[..below]);
            rest = &rest[below + usize::from(found.is_ok())..];
            if !entry(self.pages, self.id, new.offset).is_removal() {
                offsets.push(new.offset);
            }
        }
        offsets.extend_from_slice(rest);
        Arc::new(Order { count, offsets })
    }
}

/// The number of leading elements of `sorted` that are `below`; fast if it is small.
pub(crate) fn gallop<T>(sorted: &[T], below: impl Fn(&T) -> bool) -> usize {
    let compare = |at: &T| match below(at) {
        true => Ordering::Less,
        false => Ordering::Greater,
    };
    search(sorted, compare).unwrap_or_else(|below| below)
}

/// The position in `sorted` of an element that compares equal, or how many are less; fast if that
/// is small.
pub(crate) fn search<T>(sorted: &[T], compare: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
    let mut end = 1;
    let to = loop {
        match sorted.get(end - 1).map(&compare) {
            None => break sorted.len(),
            Some(Ordering::Less) => end *= 2,
            Some(Ordering::Equal) => return Ok(end - 1),
            Some(Ordering::Greater) => break end - 1,
        }
    };
    let from = end / 2;
    let found = sorted[from..to].binary_search_by(compare);
    found.map(|i| from + i).map_err(|i| from + i)
}

#[cfg(test)]
mod tests {
    use super::{gallop, search};

    #[test]
    fn a_gallop_stops_where_a_search_does() {
        for len in 0..40 {
            let sorted: Vec<u16> = (0..len).collect();
            for stop in 0..=len {
                assert_eq!(gallop(&sorted, |at| *at < stop), usize::from(stop));
                let expected = sorted.binary_search(&stop);
                assert_eq!(search(&sorted, |at| at.cmp(&stop)), expected);
                let twice: Vec<u16> = sorted.iter().map(|n| 2 * n).collect();
                let expected = twice.binary_search(&(stop + 1));
                assert_eq!(search(&twice, |at| at.cmp(&(stop + 1))), expected);
            }
        }
    }
}
