//! Updates: the ranges and their neighbours are locked together, read again, and changed one store
//! after the other, from the lowest address up.
//!
//! **Each store gives its addresses the new value, or leaves all values as they are**, so whoever
//! looks in between, or comes after a thread that stopped there, finds a whole partition.

use super::node::Node;
use super::partition::{self, Seen};
use super::{RangeError, RangeMap, RangeValue, whole};
use mneme_sync::{Guard, Slot};
use std::ops::Range;
use std::ptr;

/// Ranges that an update locks without an allocation for their items.
const FEW: usize = 4;

/// Nodes that an update has brought in and taken out.
#[derive(Default)]
struct Changes<'a> {
    /// A new node whose range may still grow: it is locked until the update is over.
    _growing: Option<Guard<'a>>,
    /// At most two: a new range, and the rest of the one that it begins in.
    inserted: [Option<&'a Node>; 2],
    removed: Vec<&'a Node>,
}

fn end_of(node: &Node) -> u64 {
    partition::following(node).start()
}

impl<V: RangeValue> RangeMap<V> {
    /// Gives all addresses of a range one value, if `may` allows it for each of the ranges that
    /// hold them now.
    pub(super) fn assign(
        &self,
        range: Range<u64>,
        value: u64,
        may: impl Fn(Seen) -> Result<(), RangeError>,
    ) -> Result<(), RangeError> {
        let Range { start, end } = range;
        if start >= end {
            return Err(RangeError::Empty { start, end });
        }
        self.update(start, end, |chain, slot| {
            let within = chain.iter().filter_map(|node| {
                let seen = Seen {
                    start: node.start(),
                    end: end_of(node),
                    value: node.value(),
                };
                (seen.end > start && seen.start < end).then_some(seen)
            });
            within.into_iter().try_for_each(&may)?;
            Ok(self.fill(chain, start, end, value, slot))
        })
    }

    /// Moves the boundary at `boundary` to `to`: what lies between changes from the one range to
    /// the other. One store, under the locks of both ranges.
    ///
    /// # Errors
    /// [`RangeError::NoBoundary`], [`RangeError::BeyondNeighbours`].
    pub fn shift(&self, boundary: u64, to: u64) -> Result<(), RangeError> {
        if boundary == 0 || boundary == u64::MAX {
            return Err(RangeError::NoBoundary(boundary));
        }
        self.update(boundary, boundary, |chain, _| {
            let (before, at) = match chain {
                [before, at] if at.start() == boundary => (before, at),
                _ => return Err(RangeError::NoBoundary(boundary)),
            };
            let (after, behind) = (before.start(), end_of(at));
            if to <= after || to >= behind {
                return Err(RangeError::BeyondNeighbours {
                    after,
                    before: behind,
                });
            }
            partition::move_start(*before, *at, to);
            mneme_sys::fault!("rcx.range.moved");
            Ok(Changes::default())
        })
    }

    /// Locks the ranges from the one before `start` to the one behind `end`, as they follow each
    /// other, and changes them.
    fn update<'a>(
        &'a self,
        start: u64,
        end: u64,
        change: impl Fn(&[&'a Node], &Slot<'a>) -> Result<Changes<'a>, RangeError>,
    ) -> Result<(), RangeError> {
        let slot = self.participants.slot()?;
        loop {
            // Before all guards, and so dropped after them: nodes stay.
            let _pin = slot.pin();
            let chain = self.chain(start, end);
            mneme_sys::fault!("rcx.range.gathered");
            let mut few = [chain[0].item(); FEW];
            let mut many = Vec::new();
            let items = match few.get_mut(..chain.len()) {
                Some(few) => few,
                None => {
                    many.resize(chain.len(), chain[0].item());
                    many.as_mut_slice()
                }
            };
            for (item, node) in items.iter_mut().zip(&chain) {
                *item = node.item();
            }
            let guard = whole(self.rcx.lock(items)?);
            mneme_sys::fault!("rcx.range.locked");
            if !is_chain(&chain, start, end) {
                continue;
            }
            // What one that died or unwound has removed and not unlinked.
            let mut left = Vec::new();
            for node in &chain {
                let mut next = node.next_on(0);
                while next.is_removed() {
                    left.push(next);
                    next = next.next_on(0);
                }
                if !ptr::eq(next, node.next_on(0)) {
                    partition::unlink_removed(*node);
                }
            }
            let changed = change(&chain, &slot);
            drop(guard);
            let (changes, result) = match changed {
                Ok(changes) => (changes, Ok(())),
                Err(error) => (Changes::default(), Err(error)),
            };
            let Changes {
                _growing: growing,
                inserted,
                removed,
            } = changes;
            drop(growing);
            mneme_sys::fault!("rcx.range.changed");
            left.into_iter().chain(removed).for_each(|n| self.retire(n));
            inserted.into_iter().flatten().for_each(|n| self.raise(n));
            return result;
        }
    }

    /// The nodes from the range that holds the address before `start` to the first that ends behind
    /// `end`: what changes, and the neighbours that it may join.
    fn chain(&self, start: u64, end: u64) -> Vec<&Node> {
        let mut chain = Vec::with_capacity(4);
        let mut last = self.before(start.saturating_sub(1), 0);
        chain.push(last);
        loop {
            let next = partition::following(last);
            if next.start() > end || next.is_last() {
                return chain;
            }
            chain.push(next);
            last = next;
        }
    }

    /// Gives the addresses from `start` to `end` one value. The nodes of the chain are locked.
    fn fill<'a>(
        &'a self,
        chain: &[&'a Node],
        start: u64,
        end: u64,
        value: u64,
        slot: &Slot<'a>,
    ) -> Changes<'a> {
        let mut changes = Changes::default();
        let first = chain[0];
        // The node whose range is to reach from `start`, or before, to `end`.
        let (grows, others) = if first.value() == value {
            (first, &chain[1..])
        } else if start == 0 {
            self.change_from(first, end, value, slot, &mut changes);
            (first, &chain[1..])
        } else if end_of(first) == start {
            self.change_from(chain[1], end, value, slot, &mut changes);
            (chain[1], &chain[2..])
        } else if let Some(next) = chain.get(1).filter(|next| next.value() == value) {
            partition::move_start(first, *next, start);
            mneme_sys::fault!("rcx.range.moved");
            (*next, &chain[2..])
        } else {
            self.split(first, end, slot, &mut changes);
            let new = self.insert(first, start, value, slot, &mut changes);
            (new, &chain[1..])
        };
        for node in others {
            let from = node.start();
            if node.value() == value || (from < end && end_of(node) <= end) {
                partition::remove_after(grows, *node);
                changes.removed.push(node);
                mneme_sys::fault!("rcx.range.removed");
            } else if from < end {
                partition::move_start(grows, *node, end);
                mneme_sys::fault!("rcx.range.moved");
            }
        }
        changes
    }

    /// Gives a node's range another value, up to `end`.
    fn change_from<'a>(
        &'a self,
        node: &'a Node,
        end: u64,
        value: u64,
        slot: &Slot<'a>,
        changes: &mut Changes<'a>,
    ) {
        if node.value() != value {
            self.split(node, end, slot, changes);
            partition::set_value(node, value);
            mneme_sys::fault!("rcx.range.valued");
        }
    }

    /// Makes a boundary at `at`, if the node's range goes on there. No address changes its value.
    fn split<'a>(&'a self, node: &'a Node, at: u64, slot: &Slot<'a>, changes: &mut Changes<'a>) {
        if end_of(node) > at {
            self.insert(node, at, node.value(), slot, changes);
        }
    }

    fn insert<'a>(
        &'a self,
        before: &'a Node,
        start: u64,
        value: u64,
        slot: &Slot<'a>,
        changes: &mut Changes<'a>,
    ) -> &'a Node {
        let new = self.make(start, value);
        // SAFETY: freed only after it was removed, which takes the lock that is taken below or that
        // of a neighbour, and after all pins of that time are gone; the caller is pinned.
        let new: &'a Node = unsafe { &*new };
        // Nobody has seen it, so it is free.
        let free = new.lock().try_lock_free(slot);
        changes._growing = free.map(mneme_sync::Acquired::into_inner);
        partition::insert_after(before, new);
        let free = changes.inserted.iter_mut().find(|place| place.is_none());
        free.into_iter().for_each(|place| *place = Some(new));
        mneme_sys::fault!("rcx.range.inserted");
        new
    }
}

/// Whether these nodes, which are locked, follow each other from before `start` to behind `end`.
fn is_chain(chain: &[&Node], start: u64, end: u64) -> bool {
    let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
        return false;
    };
    let follow = |pair: &[&Node]| ptr::eq(partition::following(pair[0]), pair[1]);
    let behind = partition::following(*last);
    let from = start.saturating_sub(1);
    !first.is_removed()
        && first.start() <= from
        && from < end_of(first)
        && last.start() <= end
        && chain.windows(2).all(follow)
        && (behind.start() > end || behind.is_last())
}
