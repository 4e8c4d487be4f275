//! A large list: **items in the order of their positions, in a
//! [counted tree](crate::counted_tree)**, so that an index or a position leads to
//! an item in O(log items) records.
//!
//! Each element of the tree is an item, preceded by its position. A position is stored as a signed
//! distance from 2^63, which is short for most items. A list that becomes large keeps the positions
//! of its items. Items that are pushed later get positions some distance apart, so that `LINSERT`
//! finds a free one between two items. If there is none, as few of the surrounding items as
//! possible get new positions.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

use mneme_log::{Anchor, MAX_VALUE};

use crate::LIST;
use crate::collection_type::{Finish, LargeEdit};
use crate::counted_tree::{
    CountedTree, Decide, ElementShape, NewElements, PlaceChange, PlaceEdit, Seek,
};
use crate::error::{CollectionError, Damage, EditError};
use crate::hash::OwnedPair;
use crate::list_edit::ListEdit;
use crate::list_ends::ListEnds;
use crate::listpack::Element;
use crate::packed_list::{End, MIDDLE, PackedList, no_position, position_of};
use crate::records::StoreRecords;

/// The distance between the positions of pushed items.
const STEP: i64 = 8;
/// The longest item, in bytes: alone in its record, with its position.
const MAX_ITEM: usize = MAX_VALUE - 4096;
/// The number of bytes of items that are encoded at once.
const AT_ONCE: usize = 1 << 20;
/// The number of items on each side of a place that get new positions at first.
const AROUND: u64 = 8;
/// Items that are read together where one is popped and others are likely to follow, and their
/// bytes, at most.
const NEXT: (u64, usize) = (32, 4096);

/// A position and its item. Branches hold only positions, because an item may be long.
const SHAPE: ElementShape = ElementShape {
    stride: 2,
    key: 1,
    has_positions: true,
};

/// A large list, within a transaction.
pub struct LargeList<'r> {
    records: &'r mut dyn StoreRecords,
    id: u64,
    anchor: Anchor,
    is_changed: bool,
    /// Whether changes are reported to the feed: not during a replay.
    says: bool,
}

/// An item and its position.
type Placed = (i64, Vec<u8>);

/// The stored form of a position, whose order is that of the positions.
fn signed(position: u64) -> i64 {
    position.wrapping_sub(MIDDLE).cast_signed()
}

fn position(signed: i64) -> u64 {
    signed.cast_unsigned().wrapping_add(MIDDLE)
}

/// The position and the item of an element.
fn parts<'e, 'b>(element: &'e [Element<'b>]) -> Result<(i64, &'e Element<'b>), Damage> {
    match element {
        [Element::Integer(position), item] => Ok((*position, item)),
        _ => Err(no_position()),
    }
}

/// The position in an element or a key.
fn position_in(element: &[Element<'_>]) -> Result<i64, Damage> {
    match element.first() {
        Some(Element::Integer(position)) => Ok(*position),
        _ => Err(no_position()),
    }
}

/// Compares an element's position with `at`.
fn compare(at: i64) -> impl FnMut(&[Element<'_>]) -> Result<Ordering, Damage> {
    move |element| Ok(position_in(element)?.cmp(&at))
}

/// An item at a position.
fn placed_at(at: i64, item: &[u8]) -> Result<NewElements, Damage> {
    NewElements::at(at, 1, std::iter::once(item))
}

/// Whether an item is encoded together with the next one; `len` returns an item's length.
fn at_once<T>(len: impl Fn(&T) -> usize) -> impl FnMut(&T, &T) -> bool {
    let mut bytes = 0;
    move |item, _| {
        bytes = match bytes > AT_ONCE {
            true => 0,
            false => bytes + len(item) + 16,
        };
        bytes <= AT_ONCE
    }
}

/// To be called before anything is stored, because a transaction may continue after an error.
fn check_len(item: &[u8]) -> Result<(), EditError> {
    match item.len() <= MAX_ITEM {
        true => Ok(()),
        false => Err(EditError::TooLong(item.len())),
    }
}

impl<'r> LargeList<'r> {
    /// The list stored as collection `id`. O(1).
    ///
    /// # Errors
    /// There is no such collection, or it is of another type; the store cannot be read.
    pub fn open(records: &'r mut dyn StoreRecords, id: u64) -> Result<Self, CollectionError> {
        let anchor = records.anchor(id)?.filter(|anchor| anchor.kind == LIST);
        let what = "a large list whose anchor is none of a list";
        Ok(LargeList {
            anchor: anchor.ok_or(Damage { at: 0, what })?,
            records,
            id,
            is_changed: false,
            says: true,
        })
    }

    /// As [`open`](Self::open), for a replay: a list that does not exist yet begins empty, and no
    /// change is reported.
    pub(crate) fn replay(
        records: &'r mut dyn StoreRecords,
        id: u64,
    ) -> Result<Self, CollectionError> {
        let anchor = records.anchor(id)?.unwrap_or(Anchor::new(LIST));
        Ok(LargeList {
            anchor,
            records,
            id,
            is_changed: false,
            says: false,
        })
    }

    /// Creates collection `id` with what `image`, a packed list, holds.
    ///
    /// # Errors
    /// The image is damaged; there is no space.
    pub(crate) fn build(
        records: &'r mut dyn StoreRecords,
        id: u64,
        image: &[u8],
    ) -> Result<(), CollectionError> {
        let list = PackedList::read(image)?;
        let items = list.items().map(|item| Ok(item?.to_vec()));
        let items: Vec<Vec<u8>> = items.collect::<Result<_, Damage>>()?;
        let behind = list.first().checked_add(items.len() as u64);
        behind.ok_or(no_position())?;
        let first = signed(list.first());
        let mut large = LargeList {
            anchor: Anchor::new(LIST),
            records,
            id,
            is_changed: true,
            says: true,
        };
        let all = NewElements::at(first, 1, items.iter().map(Vec::as_slice));
        let mut all = Some(PlaceChange::Append(all?));
        let mut append = |_: Option<&[Element<'_>]>| Ok(all.take().unwrap_or(PlaceChange::Remove));
        large.edit(Seek::Last, &mut append)?;
        large.anchor.count = items.len() as u64;
        for (item, at) in items.iter().zip(first..) {
            large.say(at, Some(item));
        }
        large.finish().map(drop)
    }

    /// The tree, with all items in it.
    fn tree(&mut self) -> Result<CountedTree<'_>, CollectionError> {
        self.store_ends()?;
        Ok(self.tree_within_ends())
    }

    /// The tree without what was pushed, and with what was popped.
    fn tree_within_ends(&mut self) -> CountedTree<'_> {
        CountedTree::new(self.records, self.id, &mut self.anchor.tree, SHAPE)
    }

    /// What was done to the ends and the tree does not have yet, if the list is
    /// [open](crate::open_value).
    fn ends(&mut self) -> Option<&mut ListEnds> {
        self.records.list_ends(self.id)
    }

    /// Removes from the tree what was popped, and puts there what was pushed.
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub(crate) fn store_ends(&mut self) -> Result<(), CollectionError> {
        let Some(ends) = self.ends().filter(|ends| ends.waits_for().is_some()) else {
            return Ok(());
        };
        let mut ends = std::mem::take(ends);
        let len = self.len() + ends.gone();
        self.anchor.count = len.saturating_sub(ends.pushed());
        for end in [End::Back, End::Front] {
            let gone = std::mem::take(&mut ends.end(end).gone);
            let indices = self.indices(end, gone.len() as u64);
            self.remove_at(indices, &gone)?;
        }
        for end in [End::Front, End::Back] {
            self.push_in_tree(end, &ends.end(end).pushed())?;
        }
        Ok(())
    }

    /// The indices of so many items at an end.
    fn indices(&self, end: End, count: u64) -> Range<u64> {
        match end {
            End::Front => 0..count,
            End::Back => self.len().saturating_sub(count)..self.len(),
        }
    }

    fn say(&mut self, at: i64, item: Option<&[u8]>) {
        self.is_changed = true;
        if self.says {
            let element = position(at).to_be_bytes();
            self.records.say(self.id, LIST, &element, item);
        }
    }

    /// Stores the anchor, if anything was changed. An empty list has no anchor, unless it is being
    /// replayed. Returns whether it has items.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn finish(mut self) -> Result<bool, CollectionError> {
        let is_there = self.anchor.count > 0;
        if !is_there {
            self.store_ends()?;
        }
        if self.is_changed {
            let anchor = Some(&self.anchor).filter(|_| is_there || !self.says);
            self.records.set_anchor(self.id, anchor)?;
        }
        Ok(is_there)
    }

    /// Whether something was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The number of items. O(1).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.anchor.count
    }

    /// Whether there is no item. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchor.count == 0
    }

    /// Visits the items and their positions from an end on, skipping the first `skipped`, until
    /// `visit` returns false.
    fn walk(
        &mut self,
        from: End,
        skipped: u64,
        mut visit: impl FnMut(i64, &Element<'_>) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        self.tree()?
            .walk(skipped, from == End::Back, &mut |element| {
                let (at, item) = parts(element)?;
                visit(at, item)
            })
    }

    /// Calls `visit` with the items at these indices and their positions, until it returns false.
    fn walk_range(
        &mut self,
        range: Range<u64>,
        mut visit: impl FnMut(i64, &Element<'_>) -> bool,
    ) -> Result<(), CollectionError> {
        let mut left = range.end.saturating_sub(range.start);
        // A walk over few items reads few records, which are unlikely to change meanwhile.
        if left > self.len() / 2 {
            self.records.reads_all(self.id)?;
        }
        if left > 0 {
            self.walk(End::Front, range.start, |at, item| {
                left -= 1;
                Ok(visit(at, item) && left > 0)
            })?;
        }
        Ok(())
    }

    /// The items at these indices, with their positions.
    fn placed(&mut self, range: Range<u64>) -> Result<Vec<Placed>, CollectionError> {
        let mut items = Vec::new();
        self.walk_range(range, |at, item| {
            items.push((at, item.to_vec()));
            true
        })?;
        Ok(items)
    }

    /// Calls `visit` with the items at these indices, as far as they exist, until it returns false.
    /// O(log items, and their bytes).
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn visit_range(
        &mut self,
        range: Range<usize>,
        mut visit: impl FnMut(&Element<'_>) -> bool,
    ) -> Result<(), CollectionError> {
        self.walk_range(range.start as u64..range.end as u64, |_, item| visit(item))
    }

    /// The items at these indices, as far as they exist. O(log items, and their bytes).
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn range(&mut self, range: Range<usize>) -> Result<Vec<Vec<u8>>, CollectionError> {
        let placed = self.placed(range.start as u64..range.end as u64)?;
        Ok(placed.into_iter().map(|(_, item)| item).collect())
    }

    /// The item at `index`, counted from 0. O(log items).
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn get(&mut self, index: usize) -> Result<Option<Vec<u8>>, CollectionError> {
        Ok(self.range(index..index.saturating_add(1))?.pop())
    }

    /// Calls `visit` with the index of each item that equals `value`, starting from the end `from`,
    /// until it returns false or `most` items have been compared. O(items).
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn positions(
        &mut self,
        value: &[u8],
        from: End,
        most: usize,
        mut visit: impl FnMut(usize) -> bool,
    ) -> Result<(), CollectionError> {
        let (len, mut number) = (self.len() as usize, 0);
        if most == 0 {
            return Ok(());
        }
        self.walk(from, 0, |_, item| {
            let index = match from {
                End::Front => number,
                End::Back => len.saturating_sub(number + 1),
            };
            number += 1;
            let goes_on = !item.with_bytes(|item| item == value) || visit(index);
            Ok(goes_on && number < most)
        })
    }

    fn insert_at(&mut self, at: i64, item: &[u8]) -> Result<(), CollectionError> {
        let mut insert = |_: Option<&[Element<'_>]>| Ok(PlaceChange::Insert(placed_at(at, item)?));
        self.edit(Seek::By(&mut compare(at)), &mut insert)?;
        self.anchor.count = self.anchor.count.saturating_add(1);
        self.say(at, Some(item));
        Ok(())
    }

    /// Inserts items whose positions begin at `first` and are `step` apart. No other item and no
    /// key of a branch may lie between those positions.
    fn insert_run(
        &mut self,
        first: i64,
        step: i64,
        items: &[Placed],
    ) -> Result<(), CollectionError> {
        let mut insert = |_: Option<&[Element<'_>]>| {
            let items = items.iter().map(|(_, item)| &item[..]);
            let new = NewElements::at(first, step.unsigned_abs(), items)?;
            Ok(PlaceChange::Insert(new))
        };
        self.edit(Seek::By(&mut compare(first)), &mut insert)?;
        self.anchor.count = self.anchor.count.saturating_add(items.len() as u64);
        for (number, (_, item)) in items.iter().enumerate() {
            self.say(first + step * number as i64, Some(item));
        }
        Ok(())
    }

    /// Removes the items at these indices, which have these positions.
    fn remove_at(&mut self, indices: Range<u64>, positions: &[i64]) -> Result<(), CollectionError> {
        self.tree()?.remove(indices)?;
        self.anchor.count = self.anchor.count.saturating_sub(positions.len() as u64);
        positions.iter().for_each(|at| self.say(*at, None));
        Ok(())
    }

    /// Changes one place in the order.
    fn edit(&mut self, seek: Seek<'_>, decide: &mut Decide<'_>) -> Result<(), CollectionError> {
        self.tree()?.edit(&mut [PlaceEdit { seek, decide }])
    }

    /// Adds an item at an end. O(log items).
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn push(&mut self, end: End, item: &[u8]) -> Result<(), CollectionError> {
        self.push_many(end, &[item])
    }

    /// Adds items at an end, one after the other. O(log items, and their bytes).
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_many(&mut self, end: End, items: &[&[u8]]) -> Result<(), CollectionError> {
        // Before anything is stored.
        items.iter().try_for_each(|item| check_len(item))?;
        if self.ends().is_some_and(|ends| ends.end(end).push(items)) {
            self.anchor.count = self.anchor.count.saturating_add(items.len() as u64);
            self.is_changed |= !items.is_empty();
            return Ok(());
        }
        self.push_in_tree(end, items)
    }

    fn push_in_tree(&mut self, end: End, items: &[&[u8]]) -> Result<(), CollectionError> {
        let step = match end {
            End::Front => -STEP,
            End::Back => STEP,
        };
        let runs = items.chunk_by(at_once(|item: &&[u8]| item.len()));
        let mut left = items.len() as i64;
        for run in runs {
            let (mut first, is_new) = (0i64, self.anchor.tree.root == 0);
            let mut put = |edge: Option<&[Element<'_>]>| {
                if !is_new {
                    let edge = position_in(edge.unwrap_or_default())?;
                    first = edge.checked_add(step).ok_or(no_position())?;
                }
                // Positions are checked for overflow before anything is stored.
                let all = step.checked_mul(left);
                (all.and_then(|all| first.checked_add(all))).ok_or(no_position())?;
                let (items, distance) = (run.iter().copied(), step.unsigned_abs());
                Ok(match end {
                    End::Front => {
                        let lowest = first + step * (run.len() as i64 - 1);
                        PlaceChange::Insert(NewElements::at(lowest, distance, items.rev())?)
                    }
                    End::Back => PlaceChange::Append(NewElements::at(first, distance, items)?),
                })
            };
            let seek = match end {
                End::Front => Seek::At(0),
                End::Back => Seek::Last,
            };
            self.edit(seek, &mut put)?;
            self.anchor.count = self.anchor.count.saturating_add(run.len() as u64);
            for (number, item) in run.iter().enumerate() {
                self.say(first + step * number as i64, Some(item));
            }
            left -= run.len() as i64;
        }
        Ok(())
    }

    /// Removes up to `count` items from an end and calls `visit` with each, in the order of
    /// removal. Returns how many were removed. O(log items, and their bytes).
    ///
    /// # Errors
    /// The list is damaged; then `visit` may have been called.
    pub fn pop(
        &mut self,
        end: End,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<usize, CollectionError> {
        let mut popped = 0;
        if count as u64 <= NEXT.0 {
            while popped < count && self.pop_open(end, &mut visit)? {
                popped += 1;
            }
        }
        if popped == count {
            return Ok(popped);
        }
        let mut positions = Vec::new();
        self.walk(end, 0, |at, item| {
            item.with_bytes(&mut visit);
            positions.push(at);
            Ok(popped + positions.len() < count)
        })?;
        let indices = self.indices(end, positions.len() as u64);
        self.remove_at(indices, &positions)?;
        Ok(popped + positions.len())
    }

    /// Pops an item of a list that is open. False: it is not, or the tree does not have one.
    fn pop_open(
        &mut self,
        end: End,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, CollectionError> {
        let len = self.len();
        let Some(ends) = self.ends() else {
            return Ok(false);
        };
        let of_tree = len.saturating_sub(ends.pushed());
        if !ends.end(end).pop_pushed(&mut *visit) {
            if of_tree > 0 && ends.end(end).next.is_empty() {
                self.read_next(end, of_tree)?;
            }
            let of_end = self.ends().map(|ends| ends.end(end));
            let Some(of_end) = of_end.filter(|_| of_tree > 0) else {
                return Ok(false);
            };
            let Some((at, item)) = of_end.next.pop_front() else {
                return Ok(false);
            };
            visit(&item);
            of_end.gone.push(at);
        }
        self.anchor.count = len.saturating_sub(1);
        self.is_changed = true;
        Ok(true)
    }

    /// Reads items of the tree, which has `left` that were not popped, ahead.
    fn read_next(&mut self, end: End, left: u64) -> Result<(), CollectionError> {
        let gone = self.ends().map_or(0, |ends| ends.end(end).gone.len());
        let (mut next, mut bytes) = (VecDeque::new(), 0);
        let (most, most_bytes) = (NEXT.0.min(left), NEXT.1);
        let mut tree = self.tree_within_ends();
        tree.walk(gone as u64, end == End::Back, &mut |element| {
            let (at, item) = parts(element)?;
            let item = item.to_vec();
            bytes += item.len();
            next.push_back((at, item));
            Ok((next.len() as u64) < most && bytes < most_bytes)
        })?;
        if let Some(ends) = self.ends() {
            ends.end(end).next = next;
        }
        Ok(())
    }

    /// Replaces the item at `index`. Returns whether there is such an item. O(log items).
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn set(&mut self, index: usize, item: &[u8]) -> Result<bool, CollectionError> {
        check_len(item)?;
        if index as u64 >= self.len() {
            return Ok(false);
        }
        let mut at = 0;
        let mut replace = |found: Option<&[Element<'_>]>| {
            at = position_in(found.unwrap_or_default())?;
            Ok(PlaceChange::Replace(placed_at(at, item)?))
        };
        self.edit(Seek::At(index as u64), &mut replace)?;
        self.say(at, Some(item));
        Ok(true)
    }

    /// Inserts an item before or after the first one that equals `pivot`, and returns its index;
    /// `None`: there is no such item. O(items before it).
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn insert(
        &mut self,
        pivot: &[u8],
        is_before: bool,
        item: &[u8],
    ) -> Result<Option<usize>, CollectionError> {
        check_len(item)?;
        let mut found = None;
        self.positions(pivot, End::Front, usize::MAX, |index| {
            found = Some(index + usize::from(!is_before));
            false
        })?;
        let Some(index) = found else {
            return Ok(None);
        };
        let place = index as u64;
        let at = match self.between(place)? {
            Some(at) => at,
            None => {
                self.spread(place)?;
                self.between(place)?.ok_or(no_position())?
            }
        };
        self.insert_at(at, item)?;
        Ok(Some(index))
    }

    /// A free position before the item at `index` and after the one before it. `None`: there is
    /// none.
    fn between(&mut self, index: u64) -> Result<Option<i64>, CollectionError> {
        let around = self.placed(index.saturating_sub(1)..index + 1)?;
        Ok(match (index, &around[..]) {
            (0, [(first, _), ..]) => first.checked_sub(STEP),
            (_, [(last, _)]) => last.checked_add(STEP),
            (_, [(before, _), (behind, _)]) => {
                let middle = i64::midpoint(*before, *behind);
                (middle > *before && middle < *behind).then_some(middle)
            }
            _ => Some(0),
        })
    }

    /// Gives the items around `index` new positions, so that there is a free one between any two of
    /// them.
    fn spread(&mut self, index: u64) -> Result<(), CollectionError> {
        let mut around = AROUND;
        loop {
            let indices =
                index.saturating_sub(around)..index.saturating_add(around).min(self.len());
            let items = self.placed(indices.clone())?;
            let count = items.len() as i64;
            let before = match indices.start {
                0 => None,
                start => self.placed(start - 1..start)?.pop().map(|(at, _)| at),
            };
            let behind = self.placed(indices.end..indices.end + 1)?.pop();
            let behind = behind.map(|(at, _)| at);
            let space = (count + 1).saturating_mul(STEP);
            let (low, high) = match (before, behind) {
                (Some(low), Some(high)) => (low, high),
                (Some(low), None) => (low, low.checked_add(space).ok_or(no_position())?),
                (None, Some(high)) => (high.checked_sub(space).ok_or(no_position())?, high),
                (None, None) => (-space / 2, space - space / 2),
            };
            let step = high.saturating_sub(low) / (count + 1);
            if step < 2 {
                around = around.saturating_mul(2);
                continue;
            }
            let old: Vec<i64> = items.iter().map(|(at, _)| *at).collect();
            self.remove_at(indices, &old)?;
            let mut first = low + step;
            // Between two other items, removed ones may have left keys in the branches that
            // separate the two.
            let is_at_end = before.is_none() || behind.is_none();
            let mut at_once = at_once(|(_, item): &Placed| item.len());
            for run in items.chunk_by(|one, other| is_at_end && at_once(one, other)) {
                self.insert_run(first, step, run)?;
                first += step * run.len() as i64;
            }
            return Ok(());
        }
    }

    /// Removes items that equal `value`: the first `count` of them from that end; 0: all. Returns
    /// how many were removed. O(items).
    ///
    /// # Errors
    /// The list is damaged.
    pub fn remove(
        &mut self,
        from: End,
        count: usize,
        value: &[u8],
    ) -> Result<usize, CollectionError> {
        let most = if count == 0 { usize::MAX } else { count };
        let (mut gone, mut number, len) = (Vec::new(), 0, self.len());
        self.walk(from, 0, |at, item| {
            let index = match from {
                End::Front => number,
                End::Back => len.saturating_sub(number + 1),
            };
            number += 1;
            if item.with_bytes(|item| item == value) {
                gone.push((index, at));
            }
            Ok(gone.len() < most)
        })?;
        // From the back, so that the other indices stay valid.
        gone.sort_unstable_by(|one, other| other.cmp(one));
        for (index, at) in &gone {
            self.remove_at(*index..*index + 1, &[*at])?;
        }
        Ok(gone.len())
    }

    /// Removes all items but those at these indices. O(items that are removed).
    ///
    /// # Errors
    /// The list is damaged.
    pub fn trim(&mut self, range: Range<usize>) -> Result<(), CollectionError> {
        let len = self.len() as usize;
        let (start, end) = (range.start.min(len), range.end.min(len));
        if start >= end {
            self.pop(End::Front, len, |_| ())?;
            return Ok(());
        }
        self.pop(End::Back, len - end, |_| ())?;
        self.pop(End::Front, start, |_| ())?;
        Ok(())
    }

    /// The image of a packed list with its items. O(bytes).
    ///
    /// # Errors
    /// The list is damaged, cannot be read, or is too long for an image.
    pub fn view(&mut self) -> Result<Vec<u8>, CollectionError> {
        let items = self.range(0..usize::MAX)?;
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let mut view = ListEdit::new();
        view.push_many(End::Back, &items)?;
        Ok(view.into_image())
    }

    /// For a replay: gives the item at the position in `element` a value; `None`: removes it.
    pub(crate) fn replay_item(
        &mut self,
        element: &[u8],
        item: Option<&[u8]>,
    ) -> Result<(), CollectionError> {
        let at = signed(position_of(element)?);
        let (index, is_there) = self.tree()?.rank(&mut compare(at))?;
        match (item, is_there) {
            (Some(item), true) => self.set(index as usize, item).map(drop),
            (Some(item), false) => self.insert_at(at, item),
            (None, true) => self.remove_at(index..index + 1, &[at]),
            (None, false) => Ok(()),
        }
    }

    /// The item at the position in `element`.
    pub(crate) fn element(&mut self, element: &[u8]) -> Result<Option<Vec<u8>>, CollectionError> {
        let at = signed(position_of(element)?);
        let (index, is_there) = self.tree()?.rank(&mut compare(at))?;
        match is_there {
            true => self.get(index as usize),
            false => Ok(None),
        }
    }

    /// Visits `count` items from `cursor` on, which is 0 at first, each with its position as an
    /// element. Returns the next cursor; 0: that was all.
    pub(crate) fn scan(
        &mut self,
        cursor: u64,
        count: usize,
    ) -> Result<(Vec<OwnedPair>, u64), CollectionError> {
        let from = match cursor {
            0 => i64::MIN,
            cursor => signed(cursor),
        };
        let (index, _) = self.tree()?.rank(&mut compare(from))?;
        let items = self.placed(index..index.saturating_add(count.max(1) as u64))?;
        let is_over = index + items.len() as u64 >= self.len();
        let next = match items.last() {
            // A list has no item at the last position.
            Some((last, _)) if !is_over => position(*last).wrapping_add(1),
            _ => 0,
        };
        let each = items.into_iter();
        let elements = each.map(|(at, item)| (position(at).to_be_bytes().to_vec(), item));
        Ok((elements.collect(), next))
    }

    /// Makes collection `to` a copy of this one.
    pub(crate) fn copy_to(&mut self, to: u64) -> Result<(), CollectionError> {
        let tree = self.tree()?.copy_to(to)?;
        let mut anchor = Anchor::new(LIST);
        (anchor.count, anchor.tree) = (self.anchor.count, tree);
        for (at, item) in self.placed(0..self.len())? {
            let element = position(at).to_be_bytes();
            self.records.say(to, LIST, &element, Some(&item));
        }
        Ok(self.records.set_anchor(to, Some(&anchor))?)
    }

    /// Checks everything. O(items).
    ///
    /// # Errors
    /// The first problem found; also if the store cannot be read.
    pub fn check(&mut self) -> Result<(), CollectionError> {
        let mut order = |one: &[Element<'_>], other: &[Element<'_>]| {
            Ok(position_in(one)?.cmp(&position_in(other)?))
        };
        self.records.reads_all(self.id)?;
        let count = self.tree()?.check(&mut order)?;
        match count == self.anchor.count {
            true => Ok(()),
            false => {
                let what = "an anchor with another number of items";
                Err(Damage { at: 0, what }.into())
            }
        }
    }
}

impl Finish for LargeList<'_> {
    fn finish_changed(self) -> Result<LargeEdit, CollectionError> {
        Ok(match self.finish()? {
            true => LargeEdit::Changed,
            false => LargeEdit::Emptied,
        })
    }

    fn finish_failed(mut self) -> Result<(), CollectionError> {
        // What was popped is said.
        if self.is_empty() {
            self.store_ends()?;
        }
        self.says = false;
        self.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use mneme_log::BRANCH;

    use super::*;
    use crate::model::Model;

    #[derive(Clone, Debug)]
    enum Change {
        Push(End, Vec<u8>),
        PushMany(End, Vec<Vec<u8>>),
        Pop(End, usize),
        Set(prop::sample::Index, Vec<u8>),
        Insert(Vec<u8>, bool, Vec<u8>),
        Remove(End, usize, Vec<u8>),
        Trim(usize, usize),
    }

    fn item() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => "[a-h]".prop_map(String::into_bytes),
            2 => any::<i16>().prop_map(|number| number.to_string().into_bytes()),
            2 => (0..200usize).prop_map(|len| vec![b'x'; len]),
            1 => (1000..5000usize).prop_map(|len| vec![b'y'; len]),
        ]
    }

    fn end() -> impl Strategy<Value = End> {
        prop_oneof![Just(End::Front), Just(End::Back)]
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            10 => (end(), item()).prop_map(|(end, item)| Change::Push(end, item)),
            2 => (end(), vec(item(), 0..50)).prop_map(|(end, i)| Change::PushMany(end, i)),
            4 => (end(), 0..4usize).prop_map(|(end, count)| Change::Pop(end, count)),
            4 => (any::<prop::sample::Index>(), item()).prop_map(|(at, item)| Change::Set(at, item)),
            // Often before the same item, so that free positions run out.
            12 => (item(), any::<bool>(), item()).prop_map(|(p, b, item)| Change::Insert(p, b, item)),
            2 => (end(), 0..4usize, item()).prop_map(|(end, n, item)| Change::Remove(end, n, item)),
            1 => (0..4usize, 100..400usize).prop_map(|(start, end)| Change::Trim(start, end)),
        ]
    }

    /// Changes of a list of short items, each of which occurs several times, some distance apart.
    fn change_within() -> impl Strategy<Value = Change> {
        let item = || (0..300u16).prop_map(|number| number.to_string().into_bytes());
        prop_oneof![
            2 => (end(), item()).prop_map(|(end, item)| Change::Push(end, item)),
            2 => (end(), vec(item(), 0..400)).prop_map(|(end, i)| Change::PushMany(end, i)),
            2 => (end(), 0..200usize).prop_map(|(end, count)| Change::Pop(end, count)),
            4 => (any::<prop::sample::Index>(), item()).prop_map(|(at, item)| Change::Set(at, item)),
            8 => (item(), any::<bool>(), item()).prop_map(|(p, b, item)| Change::Insert(p, b, item)),
            20 => (end(), 0..20usize, item()).prop_map(|(end, n, item)| Change::Remove(end, n, item)),
            1 => (0..100usize, 500..2000usize).prop_map(|(start, end)| Change::Trim(start, end)),
        ]
    }

    fn make(change: &Change, list: &mut LargeList<'_>, model: &mut VecDeque<Vec<u8>>) {
        match change {
            Change::Push(end, item) => {
                match end {
                    End::Front => model.push_front(item.clone()),
                    End::Back => model.push_back(item.clone()),
                }
                list.push(*end, item).unwrap();
            }
            Change::PushMany(end, items) => {
                for item in items {
                    match end {
                        End::Front => model.push_front(item.clone()),
                        End::Back => model.push_back(item.clone()),
                    }
                }
                let items: Vec<_> = items.iter().map(Vec::as_slice).collect();
                list.push_many(*end, &items).unwrap();
            }
            Change::Pop(end, count) => {
                let pop = || match end {
                    End::Front => model.pop_front(),
                    End::Back => model.pop_back(),
                };
                let expected: Vec<_> = std::iter::from_fn(pop).take(*count).collect();
                let mut popped = Vec::new();
                list.pop(*end, *count, |item| popped.push(item.to_vec()))
                    .unwrap();
                assert_eq!(popped, expected);
            }
            Change::Set(index, item) => {
                let index = index.index(model.len() + 1);
                let is_there = index < model.len();
                if is_there {
                    model[index] = item.clone();
                }
                assert_eq!(list.set(index, item).unwrap(), is_there);
            }
            Change::Insert(pivot, is_before, item) => {
                let at = model.iter().position(|item| item == pivot);
                let at = at.map(|at| at + usize::from(!is_before));
                if let Some(at) = at {
                    model.insert(at, item.clone());
                }
                assert_eq!(list.insert(pivot, *is_before, item).unwrap(), at);
            }
            Change::Remove(from, count, value) => {
                let mut gone: Vec<_> = (0..model.len()).filter(|at| model[*at] == *value).collect();
                if *from == End::Back {
                    gone.reverse();
                }
                if *count > 0 {
                    gone.truncate(*count);
                }
                assert_eq!(list.remove(*from, *count, value).unwrap(), gone.len());
                gone.sort_unstable();
                gone.iter().rev().for_each(|at| drop(model.remove(*at)));
            }
            Change::Trim(start, end) => {
                list.trim(*start..*end).unwrap();
                model.truncate(*end);
                model.drain(..*start.min(&model.len()));
            }
        }
    }

    /// Applies these changes to a list of these items, and checks it.
    fn lives(first: Vec<Vec<u8>>, changes: &[Change]) -> Result<(), TestCaseError> {
        let mut packed = ListEdit::new();
        first
            .iter()
            .for_each(|item| packed.push(End::Back, item).unwrap());
        let (mut store, mut model) = (Model::default(), VecDeque::from(first));
        LargeList::build(&mut store, 1, &packed.into_image()).unwrap();
        for (number, change) in changes.iter().enumerate() {
            if store.anchor.is_none() {
                break;
            }
            // Ten changes of an open list come after ten of one that is not.
            if number % 20 == 10 {
                store.ends = Some(ListEnds::default());
            }
            let mut list = LargeList::open(&mut store, 1).unwrap();
            make(change, &mut list, &mut model);
            prop_assert_eq!(list.len(), model.len() as u64);
            let is_closed = number % 20 == 19 || number + 1 == changes.len();
            if is_closed {
                list.store_ends().unwrap();
            }
            if is_closed || number % 20 < 10 {
                list.check().unwrap();
            }
            prop_assert_eq!(list.finish().unwrap(), !model.is_empty());
            if is_closed {
                store.ends = None;
            }
        }
        prop_assert_eq!(store.anchor.is_none(), model.is_empty());
        prop_assert_eq!(store.inner.is_empty(), model.is_empty());
        // The reported elements are the list, in the order of the positions.
        prop_assert!(store.said.values().eq(&model));
        if model.is_empty() {
            return Ok(());
        }
        let said = store.said.clone();
        let mut list = LargeList::open(&mut store, 1).unwrap();
        prop_assert!(list.range(0..model.len()).unwrap().iter().eq(&model));
        let (mut scanned, mut cursor) = (Vec::new(), 0);
        loop {
            let (elements, next) = list.scan(cursor, 7).unwrap();
            scanned.extend(elements);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        prop_assert!(scanned.iter().map(|(at, item)| (at, item)).eq(&said));
        for (index, item) in model.iter().enumerate().step_by(11) {
            let found = list.get(index).unwrap();
            prop_assert_eq!(found.as_ref(), Some(item));
        }
        // In any order, and twice.
        let mut copy = Model::default();
        for (element, item) in said.iter().rev().chain(&said) {
            let mut list = LargeList::replay(&mut copy, 1).unwrap();
            list.replay_item(element, Some(item)).unwrap();
            list.finish().unwrap();
        }
        let mut list = LargeList::open(&mut copy, 1).unwrap();
        list.check().unwrap();
        prop_assert!(list.range(0..model.len()).unwrap().iter().eq(&model));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_large_list_holds_what_a_deque_holds(
            first in vec(item(), 1..120), changes in vec(change(), 1..120),
        ) {
            lives(first, &changes)?;
        }

        /// Positions have gaps where items were removed from the middle, and are dense where others
        /// were inserted.
        #[test]
        fn a_list_with_gaps_holds_what_a_deque_holds(
            first in 1..1500u32, changes in vec(change_within(), 1..60),
        ) {
            let first = (0..first).map(|number| (number % 300).to_string().into_bytes());
            lives(first.collect(), &changes)?;
        }
    }

    #[test]
    fn the_ends_of_an_open_list_meet() {
        for (first, other) in [(End::Front, End::Back), (End::Back, End::Front)] {
            let mut store = short();
            let mut model = VecDeque::from([b"0".to_vec()]);
            for round in 0..40u32 {
                store.ends = Some(ListEnds::default());
                let before = store.stored;
                for number in 0..30 + round {
                    let item = format!("{round}:{number}").into_bytes();
                    let mut list = LargeList::open(&mut store, 1).unwrap();
                    make(&Change::Push(first, item), &mut list, &mut model);
                    assert!(list.finish().unwrap());
                }
                assert_eq!(store.stored, before, "they wait");
                // From the other end, all but one, through what was pushed in this round.
                for end in [other, first, other] {
                    let mut list = LargeList::open(&mut store, 1).unwrap();
                    let count = model.len() / 2;
                    for _ in 0..count {
                        make(&Change::Pop(end, 1), &mut list, &mut model);
                    }
                    assert_eq!(list.len(), model.len() as u64);
                    assert!(list.finish().unwrap());
                }
                let mut list = LargeList::open(&mut store, 1).unwrap();
                list.store_ends().unwrap();
                assert!(list.finish().unwrap());
                store.ends = None;
                let mut list = LargeList::open(&mut store, 1).unwrap();
                list.check().unwrap();
                assert!(list.range(0..usize::MAX).unwrap().iter().eq(&model));
            }
            assert!(store.said.values().eq(&model));
        }
    }

    /// A list with one item.
    fn short() -> Model {
        let mut store = Model::default();
        let mut packed = ListEdit::new();
        packed.push(End::Back, b"0").unwrap();
        LargeList::build(&mut store, 1, &packed.into_image()).unwrap();
        store
    }

    #[test]
    fn items_that_are_pushed_in_order_fill_their_records() {
        for end in [End::Front, End::Back] {
            let mut store = short();
            let mut list = LargeList::open(&mut store, 1).unwrap();
            for number in 1..20_000u32 {
                list.push(end, format!("item-{number}").as_bytes()).unwrap();
            }
            list.finish().unwrap();
            let bytes: usize = store.inner.values().map(Vec::len).sum();
            assert!(bytes < 20_000 * 24, "{bytes}");
            let mut list = LargeList::open(&mut store, 1).unwrap();
            list.check().unwrap();
            // Removing items removes their records too.
            let other = match end {
                End::Front => End::Back,
                End::Back => End::Front,
            };
            list.pop(other, 19_900, |_| ()).unwrap();
            list.finish().unwrap();
            assert!(store.inner.len() <= 4, "{}", store.inner.len());
        }
    }

    #[test]
    fn items_that_are_pushed_together_are_stored_together() {
        for end in [End::Front, End::Back] {
            let mut store = short();
            let items: Vec<_> = (0..120_000u32).map(|number| number.to_string()).collect();
            let items: Vec<&[u8]> = items.iter().map(String::as_bytes).collect();
            let before = store.stored;
            let mut list = LargeList::open(&mut store, 1).unwrap();
            list.push_many(end, &items).unwrap();
            list.check().unwrap();
            assert_eq!(list.len(), 120_001);
            list.finish().unwrap();
            let (stored, records) = (store.stored - before, store.inner.len());
            assert!(stored < 2 * records, "{stored} for {records}");
            assert!(records < 120_000 / 100, "{records}");
        }
    }

    #[test]
    fn long_items_are_stored_once_and_their_branches_lead_to_many() {
        for end in [End::Front, End::Back] {
            let mut store = short();
            let mut list = LargeList::open(&mut store, 1).unwrap();
            let item = [b'x'; 4000];
            for _ in 0..2_000 {
                list.push(end, &item).unwrap();
            }
            assert!(list.insert(b"0", true, &item).unwrap().is_some());
            list.check().unwrap();
            list.finish().unwrap();
            let bytes: usize = store.inner.values().map(Vec::len).sum();
            assert!(bytes < 2_001 * 4_100, "{bytes}");
            let longest = store.inner.values().map(Vec::len).max();
            assert!(longest < Some(4_100), "{longest:?}");
            let mut list = LargeList::open(&mut store, 1).unwrap();
            list.pop(End::Front, 1_990, |_| ()).unwrap();
            list.check().unwrap();
        }
    }

    #[test]
    fn an_item_that_is_too_long_changes_nothing() {
        let mut store = short();
        let mut list = LargeList::open(&mut store, 1).unwrap();
        let long = vec![0; MAX_ITEM + 1];
        assert!(list.push_many(End::Back, &[b"a", &long]).is_err());
        assert!(list.set(0, &long).is_err());
        assert!(list.insert(b"0", true, &long).is_err());
        assert!(!list.is_changed());
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_last_leaf_without_items_is_damage_to_what_is_pushed() {
        for end in [End::Front, End::Back] {
            let mut store = short();
            let items: Vec<_> = (0..1_000u32).map(|number| number.to_string()).collect();
            let items: Vec<&[u8]> = items.iter().map(String::as_bytes).collect();
            let mut list = LargeList::open(&mut store, 1).unwrap();
            list.push_many(End::Back, &items).unwrap();
            list.finish().unwrap();
            let empty = CountedTree::empty_leaf(SHAPE);
            for image in store.inner.values_mut() {
                if image[0] != BRANCH {
                    image.clone_from(&empty);
                }
            }
            let (records, said) = (store.inner.clone(), store.said.clone());
            let mut list = LargeList::open(&mut store, 1).unwrap();
            assert!(list.push(end, b"item").is_err());
            assert!(store.inner == records && store.said == said);
        }
    }

    #[test]
    fn the_positions_of_a_leaf_take_few_bytes() {
        let mut store = short();
        let items: Vec<_> = (0..20_000u32).map(|i| format!("item{i:06}")).collect();
        let mut list = LargeList::open(&mut store, 1).unwrap();
        for item in &items {
            list.push(End::Back, item.as_bytes()).unwrap();
        }
        list.finish().unwrap();
        // An item's own bytes, and its length twice.
        let bytes: usize = store.inner.values().map(Vec::len).sum();
        assert!(bytes < 20_000 * 25 / 2, "{bytes}");
        // With every other item removed, each needs at most a run of its own.
        let mut list = LargeList::open(&mut store, 1).unwrap();
        for item in items.iter().step_by(2) {
            assert_eq!(list.remove(End::Front, 1, item.as_bytes()).unwrap(), 1);
        }
        list.check().unwrap();
        list.finish().unwrap();
        let bytes: usize = store.inner.values().map(Vec::len).sum();
        assert!(bytes < 10_000 * 16, "{bytes}");
    }

    #[test]
    fn forged_positions_are_damage() {
        let mut store = short();
        let mut list = LargeList::open(&mut store, 1).unwrap();
        for number in 0..2_000u32 {
            list.push(End::Back, format!("item{number}").as_bytes())
                .unwrap();
        }
        list.finish().unwrap();
        let leaves = store.inner.iter().filter(|(_, image)| image[0] != BRANCH);
        let leaf = *leaves.map(|(number, _)| number).nth(3).unwrap();
        let sound = store.inner[&leaf].clone();
        // One run: the first position and the number of positions, in two bytes each, and the step.
        assert!(sound[1] == 1 && sound[3] < 0x80 && sound[5] < 0x80 && sound[6] == 8);
        for (at, bits, is_read) in [
            (0, 6, false),   // another form
            (1, 3, false),   // two runs
            (3, 0x40, true), // another first position
            (4, 1, false),   // another number of them
            (6, 1, true),    // another step
            (6, 8, false),   // no step
            (7, 1, false),   // another length
        ] {
            let image = store.inner.get_mut(&leaf).unwrap();
            image[at] ^= bits;
            let mut list = LargeList::open(&mut store, 1).unwrap();
            assert!(list.check().is_err(), "{at}");
            assert_eq!(list.range(0..2_000).is_ok(), is_read, "{at}");
            store.inner.insert(leaf, sound.clone());
        }
        LargeList::open(&mut store, 1).unwrap().check().unwrap();
    }

    #[test]
    fn positions_that_run_out_in_a_long_list_are_given_anew_together() {
        for (place, len) in [(150_000, 300_000), (10, 300_000), (299_990, 300_000)] {
            let items: Vec<String> = (0..len).map(|number: u32| number.to_string()).collect();
            let items: Vec<&[u8]> = items.iter().map(String::as_bytes).collect();
            let mut packed = ListEdit::new();
            packed.push_many(End::Back, &items).unwrap();
            let mut store = Model::default();
            LargeList::build(&mut store, 1, &packed.into_image()).unwrap();
            let (stored, records) = (store.stored, store.inner.len());
            let mut list = LargeList::open(&mut store, 1).unwrap();
            let pivot = place.to_string();
            let index = list.insert(pivot.as_bytes(), true, b"x").unwrap();
            assert_eq!(index, Some(place));
            list.check().unwrap();
            let mut expected = items.clone();
            expected.insert(place, b"x");
            assert!(list.range(0..usize::MAX).unwrap().iter().eq(&expected));
            list.finish().unwrap();
            let stored = store.stored - stored;
            assert!(stored < 4 * records, "{stored} for {records}");
            let longest = store.inner.values().map(Vec::len).max();
            assert!(longest < Some(2 * 2048), "{longest:?}");
        }
    }
}
