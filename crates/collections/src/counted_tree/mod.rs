//! A counted B+tree: **elements in an order, found by position or by comparison, and inserted and
//! removed there, in O(log elements) records.**
//!
//! Its records are inner records of a collection, whose anchor says the root (see
//! [`mneme_log::OrderTree`]); [`node`] has their form.
//!
//! A record that would be longer than [`SPLIT`] is split in two, unless it holds one element. One
//! that is shorter than [`JOIN`] is joined with a neighbour if they fit one record of [`JOINED`]
//! bytes.

mod node;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use mneme_log::{BRANCH_HEAD, OrderTree, TREE_NUMBERS, numbers_of};

use self::node::{
    BEGIN, CHILD, Child, CountedLeaf, CountedNode, FORM, MAX_STRIDE, beyond, branch_of, damage,
    entries_of, leaf_of, parts,
};
pub(crate) use self::node::{Compare, ElementShape, Seek};
use crate::error::{CollectionError, Damage};
use crate::listpack::{self, EMPTY, Element, Listpack};
use crate::records::StoreRecords;

/// Bytes of a record above which it is split.
const SPLIT: usize = 2048;
/// Bytes of a record below which it is joined with a neighbour.
const JOIN: usize = 512;
/// Bytes of two joined records at most, and of records that are built at once.
const JOINED: usize = 1536;
/// Children of a branch that is split, at least.
const FEWEST: usize = 4;
/// Levels of a tree at most: one with more leads to itself.
const MAX_LEVELS: usize = 64;

/// How an element lies to another.
pub(crate) type CompareTwo<'c> =
    dyn FnMut(&[Element<'_>], &[Element<'_>]) -> Result<Ordering, Damage> + 'c;

/// The order of a collection's elements, within a transaction.
pub(crate) struct CountedTree<'i> {
    records: &'i mut dyn StoreRecords,
    id: u64,
    tree: &'i mut OrderTree,
    shape: ElementShape,
}

/// A record that leads to others or to elements, as its branch says it.
struct Piece {
    number: u64,
    count: u64,
    /// The bytes of its key's entries.
    key: Vec<u8>,
}

/// Elements that are put into a tree: their entries, one after the other.
struct Put<'e> {
    entries: &'e [u8],
    /// How many they are. 0: one that replaces another.
    new: usize,
}

/// Where what was put lies among what was there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before all of the tree.
    First,
    /// Behind all of it.
    Last,
    Within,
}

/// What a removal has left of a record.
#[derive(Default)]
struct Left {
    count: u64,
    bytes: usize,
    /// The number of the only child.
    only: Option<u64>,
}

impl<'i> CountedTree<'i> {
    /// The tree of collection `id` that its anchor says. The caller stores the anchor.
    pub fn new(
        records: &'i mut dyn StoreRecords,
        id: u64,
        tree: &'i mut OrderTree,
        shape: ElementShape,
    ) -> CountedTree<'i> {
        debug_assert!((1..=MAX_STRIDE).contains(&shape.stride) && shape.key <= shape.stride);
        CountedTree {
            records,
            id,
            tree,
            shape,
        }
    }

    /// How many elements lie before the place that `compare` says, and whether the next one is
    /// `Equal`.
    pub fn rank(&mut self, compare: &mut Compare<'_>) -> Result<(u64, bool), CollectionError> {
        let (mut number, mut before) = (self.tree.root, 0);
        if number == 0 {
            return Ok((0, false));
        }
        for _ in 0..MAX_LEVELS {
            let image = self.image(number)?;
            match CountedNode::read(&image, self.shape)? {
                CountedNode::Branch(branch) => {
                    let index = branch.index_by(compare)?;
                    let counts = (0..index).map(|index| branch.count(index));
                    before = counts.fold(before, u64::saturating_add);
                    number = branch.number(index);
                }
                CountedNode::Leaf(leaf) => {
                    let index = leaf.index_by(compare)?;
                    let is_equal = index < leaf.len()
                        && compare(leaf.element(index)?.values())? == Ordering::Equal;
                    return Ok((before.saturating_add(index as u64), is_equal));
                }
            }
        }
        Err(endless().into())
    }

    /// Visits the elements from the first or, backwards, from the last one on, without the first
    /// `skipped` of them, until `visit` says that it is enough.
    pub fn walk(
        &mut self,
        skipped: u64,
        is_backwards: bool,
        visit: &mut dyn FnMut(&[Element<'_>]) -> Result<bool, CollectionError>,
    ) -> Result<(), CollectionError> {
        let mut way = Way {
            skipped,
            is_backwards,
        };
        match self.tree.root {
            0 => Ok(()),
            root => self.walk_in(root, &mut way, visit, 0).map(drop),
        }
    }

    /// The entries of the element at this position.
    #[cfg(test)]
    pub fn get(&mut self, position: u64) -> Result<Option<Vec<Vec<u8>>>, CollectionError> {
        let mut found = None;
        self.walk(position, false, &mut |element| {
            found = Some(element.iter().map(Element::to_vec).collect());
            Ok(false)
        })?;
        Ok(found)
    }

    /// Inserts an element of these entries at a place. One by comparison must not be there yet.
    pub fn insert(&mut self, seek: Seek<'_>, element: &[&[u8]]) -> Result<(), CollectionError> {
        let entries = &entries_of(element);
        self.put(seek, &Put { entries, new: 1 })
    }

    /// Replaces the entries of the element at this position by others that lie there in the order.
    pub fn replace(&mut self, position: u64, element: &[&[u8]]) -> Result<(), CollectionError> {
        let entries = &entries_of(element);
        self.put(Seek::At(position), &Put { entries, new: 0 })
    }

    /// Inserts elements, in their order, before or behind all others. O(their bytes, and log
    /// elements).
    pub fn extend<const N: usize>(
        &mut self,
        is_front: bool,
        elements: &[[&[u8]; N]],
    ) -> Result<(), CollectionError> {
        debug_assert!(N == self.shape.stride);
        if self.tree.root == 0 {
            return self.build(elements.iter().copied());
        }
        let entries: Vec<&[u8]> = elements.iter().flatten().copied().collect();
        let entries = entries_of(&entries);
        let seek = if is_front { Seek::At(0) } else { Seek::Last };
        let (entries, new) = (&entries[..], elements.len());
        match new {
            0 => Ok(()),
            _ => self.put(seek, &Put { entries, new }),
        }
    }

    fn put(&mut self, mut seek: Seek<'_>, put: &Put<'_>) -> Result<(), CollectionError> {
        let root = self.tree.root;
        if root == 0 {
            let leaf = leaf_of(put.entries, self.shape.stride);
            self.tree.root = self.store_new(&leaf)?;
            return Ok(());
        }
        let pieces = self.put_in(root, &mut seek, (true, true), put, 0)?;
        if !pieces.is_empty() {
            self.tree.root = self.above(pieces)?;
        }
        Ok(())
    }

    /// Removes the elements at these positions.
    pub fn remove(&mut self, positions: Range<u64>) -> Result<(), CollectionError> {
        if self.tree.root == 0 || positions.is_empty() {
            return Ok(());
        }
        let mut left = self.remove_in(self.tree.root, positions, 0)?;
        if left.count == 0 {
            self.tree.root = 0;
        }
        // A root with one child is none.
        while let Some(only) = left.only {
            self.store(self.tree.root, left.bytes, None)?;
            self.tree.root = only;
            let image = self.image(only)?;
            left.bytes = image.len();
            left.only = match CountedNode::read(&image, self.shape)? {
                CountedNode::Branch(branch) if branch.len == 1 => Some(branch.number(0)),
                _ => None,
            };
        }
        Ok(())
    }

    /// Makes an empty tree of these elements, in their order.
    pub fn build<'e, const N: usize>(
        &mut self,
        elements: impl IntoIterator<Item = [&'e [u8]; N]>,
    ) -> Result<(), CollectionError> {
        debug_assert!(self.tree.root == 0 && N == self.shape.stride);
        let mut level: Vec<Piece> = Vec::new();
        let (mut leaf, mut count) = (Vec::new(), 0);
        let mut key = Vec::new();
        for element in elements {
            let entries = entries_of(&element);
            if count > 0 && FORM + EMPTY.len() + leaf.len() + entries.len() > JOINED {
                let key = std::mem::take(&mut key);
                level.push(self.new_leaf(&leaf, count, key)?);
                leaf.clear();
                count = 0;
            }
            if count == 0 {
                key = entries_of(&element[..self.shape.key]);
            }
            leaf.extend_from_slice(&entries);
            count += 1;
        }
        if count > 0 {
            level.push(self.new_leaf(&leaf, count, key)?);
        }
        self.tree.root = self.above(level)?;
        Ok(())
    }

    fn new_leaf(
        &mut self,
        entries: &[u8],
        count: usize,
        key: Vec<u8>,
    ) -> Result<Piece, CollectionError> {
        Ok(Piece {
            number: self.store_new(&leaf_of(entries, count * self.shape.stride))?,
            count: count as u64,
            key,
        })
    }

    /// Stores branches that lead to all records of a level, and returns the number of the highest.
    fn above(&mut self, mut level: Vec<Piece>) -> Result<u64, CollectionError> {
        while level.len() > 1 {
            let children: Vec<_> = level.iter().map(Piece::child).collect();
            let mut above = Vec::new();
            let mut rest = &children[..];
            for len in runs_of_branch(&children, JOINED, false) {
                let (these, behind) = rest.split_at(len);
                above.push(self.new_branch(these)?);
                rest = behind;
            }
            level = above;
        }
        Ok(level.first().map_or(0, |piece| piece.number))
    }

    fn new_branch(&mut self, children: &[Child<'_>]) -> Result<Piece, CollectionError> {
        let number = self.store_new(&branch_of(children, self.shape))?;
        Ok(piece_of(number, children))
    }

    /// Copies its records to collection `to`, which has none.
    pub fn copy_to(&mut self, to: u64) -> Result<OrderTree, CollectionError> {
        let mut pending = vec![(self.tree.root, 0)];
        pending.retain(|(root, _)| *root != 0);
        while let Some((number, level)) = pending.pop() {
            let image = self.image(number)?;
            if level > MAX_LEVELS {
                return Err(endless().into());
            }
            self.records.set_inner(to, number, Some(&image))?;
            pending.extend(numbers_of(&image).map(|number| (number, level + 1)));
        }
        Ok(*self.tree)
    }

    /// Compares what the tree says twice, and elements with their neighbours. `compare` says how
    /// one lies to another. Returns the number of elements.
    pub fn check(&mut self, compare: &mut CompareTwo<'_>) -> Result<u64, CollectionError> {
        let mut check = Check {
            compare,
            last: Vec::new(),
            last_entries: 0,
            is_key: false,
            bytes: 0,
        };
        let count = match self.tree.root {
            0 => 0,
            root => self.check_in(root, &mut check, 0)?,
        };
        match check.bytes == self.tree.bytes {
            true => Ok(count),
            false => Err(damage("an anchor with another number of bytes of a tree").into()),
        }
    }

    fn image(&mut self, number: u64) -> Result<Vec<u8>, CollectionError> {
        let image = self.records.inner(self.id, number)?;
        Ok(image.ok_or_else(|| damage("a tree that leads to no record"))?)
    }

    /// Stores a record that had `before` bytes; `None`: removes it.
    fn store(
        &mut self,
        number: u64,
        before: usize,
        image: Option<&[u8]>,
    ) -> Result<(), CollectionError> {
        let after = image.map_or(0, <[u8]>::len) as u64;
        let bytes = self.tree.bytes.wrapping_sub(before as u64);
        self.tree.bytes = bytes.wrapping_add(after);
        Ok(self.records.set_inner(self.id, number, image)?)
    }

    fn store_new(&mut self, image: &[u8]) -> Result<u64, CollectionError> {
        let number = TREE_NUMBERS + self.tree.numbers;
        self.tree.numbers += 1;
        self.store(number, 0, Some(image))?;
        Ok(number)
    }

    fn walk_in(
        &mut self,
        number: u64,
        way: &mut Way,
        visit: &mut dyn FnMut(&[Element<'_>]) -> Result<bool, CollectionError>,
        level: usize,
    ) -> Result<bool, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let is_backwards = way.is_backwards;
        let at = |index: usize, len: usize| match is_backwards {
            true => len - 1 - index,
            false => index,
        };
        match CountedNode::read(&image, shape)? {
            CountedNode::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            CountedNode::Branch(branch) => {
                for index in (0..branch.len).map(|index| at(index, branch.len)) {
                    let count = branch.count(index);
                    if way.skipped >= count {
                        way.skipped -= count;
                    } else if !self.walk_in(branch.number(index), way, visit, level + 1)? {
                        return Ok(false);
                    }
                }
            }
            CountedNode::Leaf(leaf) => {
                let first = usize::try_from(way.skipped).unwrap_or(usize::MAX);
                let first = first.min(leaf.len());
                way.skipped -= first as u64;
                for index in (first..leaf.len()).map(|index| at(index, leaf.len())) {
                    if !visit(leaf.element(index)?.values())? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Puts elements in or below a record, which is the first, the last of its level. Where that
    /// was split: the records that it has become, the first of which is itself.
    fn put_in(
        &mut self,
        number: u64,
        seek: &mut Seek<'_>,
        (is_first, is_last): (bool, bool),
        put: &Put<'_>,
        level: usize,
    ) -> Result<Vec<Piece>, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match CountedNode::read(&image, shape)? {
            CountedNode::Leaf(leaf) => {
                let index = leaf.index(seek)?;
                let behind = index + usize::from(put.new == 0);
                if behind > leaf.len() {
                    return Err(beyond().into());
                }
                let count = leaf.len() + put.new;
                let listpack = [
                    leaf.entries(0..index),
                    put.entries,
                    leaf.entries(behind..leaf.len()),
                ]
                .concat();
                let new = leaf_of(&listpack, count * shape.stride);
                if new.len() <= SPLIT || count == 1 {
                    self.store(number, image.len(), Some(&new))?;
                    return Ok(Vec::new());
                }
                let place = match put.new > 0 {
                    true if is_last && index + put.new == count => Place::Last,
                    true if is_first && index == 0 => Place::First,
                    _ => Place::Within,
                };
                return self.split_leaf(number, image.len(), &new, place);
            }
            CountedNode::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            CountedNode::Branch(branch) => branch,
        };
        let index = branch.index(seek, put.new > 0)?;
        let edges = (is_first && index == 0, is_last && index + 1 == branch.len);
        let pieces = self.put_in(branch.number(index), seek, edges, put, level + 1)?;
        let Some((first, more)) = pieces.split_first() else {
            if put.new > 0 {
                let mut new = image.clone();
                let count = branch.count(index).saturating_add(put.new as u64);
                branch.set_count(&mut new, index, count);
                self.store(number, image.len(), Some(&new))?;
            }
            return Ok(Vec::new());
        };
        let mut children = branch.children()?;
        children[index].count = first.count;
        drop(children.splice(index + 1..index + 1, more.iter().map(Piece::child)));
        let new = branch_of(&children, shape);
        if new.len() <= SPLIT || children.len() < FEWEST {
            self.store(number, image.len(), Some(&new))?;
            return Ok(Vec::new());
        }
        let lens = match edges {
            (_, true) => runs_of_branch(&children, SPLIT, false),
            (true, _) => runs_of_branch(&children, SPLIT, true),
            _ => vec![children.len() / 2, children.len().div_ceil(2)],
        };
        let mut pieces = Vec::with_capacity(lens.len());
        let mut rest = &children[..];
        for len in lens {
            let (these, behind) = rest.split_at(len);
            pieces.push(if pieces.is_empty() {
                self.store(number, image.len(), Some(&branch_of(these, shape)))?;
                piece_of(number, these)
            } else {
                self.new_branch(these)?
            });
            rest = behind;
        }
        Ok(pieces)
    }

    /// Leaves the first elements of a leaf in the record of `before` bytes that it was in, and
    /// stores the others in new ones.
    fn split_leaf(
        &mut self,
        number: u64,
        before: usize,
        image: &[u8],
        place: Place,
    ) -> Result<Vec<Piece>, CollectionError> {
        let (leaf, shape) = (CountedLeaf::read(image, self.shape)?, self.shape);
        // What comes at an end is followed by more there: the other leaves stay full.
        let lens = match place {
            Place::Within => vec![leaf.middle(), leaf.len() - leaf.middle()],
            at_end => {
                let sizes = leaf.sizes();
                let limit = SPLIT - FORM - EMPTY.len();
                runs(sizes, limit, 1, at_end == Place::First)
            }
        };
        let (mut pieces, mut begin) = (Vec::with_capacity(lens.len()), 0);
        for len in lens {
            let entries = leaf.entries(begin..begin + len);
            let key = leaf.key(begin)?.to_vec();
            pieces.push(if begin == 0 {
                let image = leaf_of(entries, len * shape.stride);
                self.store(number, before, Some(&image))?;
                let count = len as u64;
                Piece { number, count, key }
            } else {
                self.new_leaf(entries, len, key)?
            });
            begin += len;
        }
        Ok(pieces)
    }

    /// Removes elements in or below a record. One that is left empty is removed.
    fn remove_in(
        &mut self,
        number: u64,
        positions: Range<u64>,
        level: usize,
    ) -> Result<Left, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match CountedNode::read(&image, shape)? {
            CountedNode::Leaf(leaf) => {
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(leaf.len());
                let (begin, end) = (index(positions.start), index(positions.end));
                let count = leaf.len() - (end - begin);
                let listpack = [leaf.entries(0..begin), leaf.entries(end..leaf.len())].concat();
                let new = leaf_of(&listpack, count * shape.stride);
                let image_len = image.len();
                self.store(number, image_len, (count > 0).then_some(&new[..]))?;
                return Ok(Left {
                    count: count as u64,
                    bytes: new.len(),
                    only: None,
                });
            }
            CountedNode::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            CountedNode::Branch(branch) => branch,
        };
        let (mut children, mut short) = (Vec::new(), Vec::new());
        let mut end = 0u64;
        for child in branch.children()? {
            let begin = end;
            end = begin.saturating_add(child.count);
            let of_child = positions.start.max(begin)..positions.end.min(end);
            if of_child.is_empty() {
                children.push(child);
            } else if of_child == (begin..end) {
                self.free(child.number, level + 1)?;
            } else {
                let of_child = of_child.start - begin..of_child.end - begin;
                let left = self.remove_in(child.number, of_child, level + 1)?;
                if left.count > 0 {
                    if left.bytes < JOIN {
                        short.push(children.len());
                    }
                    children.push(Child {
                        count: left.count,
                        ..child
                    });
                }
            }
        }
        for index in short.into_iter().rev() {
            let left = index.saturating_sub(1);
            if left + 1 < children.len() && self.join(&children[left], &children[left + 1])? {
                children[left].count = total(&children[left..=left + 1]);
                children.remove(left + 1);
            }
        }
        if children.is_empty() {
            self.store(number, image.len(), None)?;
            return Ok(Left::default());
        }
        let new = branch_of(&children, shape);
        self.store(number, image.len(), Some(&new))?;
        Ok(Left {
            count: total(&children),
            bytes: new.len(),
            only: (children.len() == 1).then_some(children[0].number),
        })
    }

    /// Joins two neighbours in the record of the first one if they fit there. Whether they did.
    fn join(&mut self, left: &Child<'_>, right: &Child<'_>) -> Result<bool, CollectionError> {
        let shape = self.shape;
        let images = [self.image(left.number)?, self.image(right.number)?];
        let [one, other] = [images[0].len(), images[1].len()];
        if one + other > JOINED {
            return Ok(false);
        }
        let joined = match [
            CountedNode::read(&images[0], shape)?,
            CountedNode::read(&images[1], shape)?,
        ] {
            [CountedNode::Leaf(one), CountedNode::Leaf(other)] => {
                let entries = [one.entries(0..one.len()), other.entries(0..other.len())];
                leaf_of(&entries.concat(), (one.len() + other.len()) * shape.stride)
            }
            [CountedNode::Branch(one), CountedNode::Branch(other)] => {
                let mut children = one.children()?;
                let first = children.len();
                children.extend(other.children()?);
                children[first].key = right.key;
                branch_of(&children, shape)
            }
            _ => return Err(damage("a leaf beside a branch").into()),
        };
        self.store(right.number, other, None)?;
        self.store(left.number, one, Some(&joined))?;
        Ok(true)
    }

    /// Removes a record and all below it.
    fn free(&mut self, number: u64, level: usize) -> Result<(), CollectionError> {
        let image = self.image(number)?;
        for below in numbers_of(&image) {
            if level == MAX_LEVELS {
                return Err(endless().into());
            }
            self.free(below, level + 1)?;
        }
        self.store(number, image.len(), None)
    }

    fn check_in(
        &mut self,
        number: u64,
        check: &mut Check<'_>,
        level: usize,
    ) -> Result<u64, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        check.bytes += image.len() as u64;
        match CountedNode::read(&image, shape)? {
            CountedNode::Leaf(leaf) => {
                Listpack::read(&image[FORM..])?.check()?;
                for index in 0..leaf.len() {
                    check.next(leaf.element(index)?.values(), false)?;
                }
                match leaf.len() {
                    0 => Err(damage("a leaf without elements").into()),
                    len => Ok(len as u64),
                }
            }
            CountedNode::Branch(_) if level == MAX_LEVELS => Err(endless().into()),
            CountedNode::Branch(branch) => {
                let mut count = 0u64;
                for (index, child) in branch.children()?.into_iter().enumerate() {
                    if shape.has_keys() && index > 0 {
                        check.next(branch.key_element(index)?.values(), true)?;
                    }
                    if self.check_in(child.number, check, level + 1)? != child.count {
                        return Err(damage("a branch with another number of elements").into());
                    }
                    count = count.saturating_add(child.count);
                }
                Ok(count)
            }
        }
    }
}

/// What of a walk is to come.
struct Way {
    skipped: u64,
    is_backwards: bool,
}

struct Check<'c> {
    compare: &'c mut CompareTwo<'c>,
    /// The last element or key, as a listpack; empty: there was none.
    last: Vec<u8>,
    /// Its entries.
    last_entries: usize,
    is_key: bool,
    bytes: u64,
}

impl Check<'_> {
    fn next(&mut self, element: &[Element<'_>], is_key: bool) -> Result<(), Damage> {
        if !self.last.is_empty() {
            let entries = Listpack::read(&self.last)?.entries();
            let last = parts(entries, self.last_entries)?;
            let is_behind = match (self.compare)(last.values(), element)? {
                Ordering::Less => true,
                Ordering::Equal => self.is_key && !is_key,
                Ordering::Greater => false,
            };
            if !is_behind {
                return Err(damage("an element of a tree that is not in order"));
            }
        }
        let values: Vec<Vec<u8>> = element.iter().map(Element::to_vec).collect();
        self.last = listpack::of(values.iter().map(Vec::as_slice));
        (self.last_entries, self.is_key) = (values.len(), is_key);
        Ok(())
    }
}

impl Piece {
    fn child(&self) -> Child<'_> {
        Child {
            number: self.number,
            count: self.count,
            key: &self.key,
        }
    }
}

fn piece_of(number: u64, children: &[Child<'_>]) -> Piece {
    let key = children.first().map_or(&[][..], |child| child.key);
    Piece {
        number,
        count: total(children),
        key: key.to_vec(),
    }
}

/// How many children go into each of several branches of `bytes`.
fn runs_of_branch(children: &[Child<'_>], bytes: usize, is_back: bool) -> Vec<usize> {
    let sizes = children.iter().map(|child| CHILD + BEGIN + child.key.len());
    let limit = bytes - BRANCH_HEAD - EMPTY.len();
    runs(sizes, limit, FEWEST / 2, is_back)
}

/// Divides neighbours of these sizes: as many as fit `limit` go together, and `fewest` at least,
/// from the front on or from the back on. The number of each run's, in order.
fn runs(
    sizes: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator,
    limit: usize,
    fewest: usize,
    is_back: bool,
) -> Vec<usize> {
    let (mut runs, mut len, mut bytes) = (Vec::new(), 0, 0usize);
    let mut next = |size: usize| {
        if len >= fewest && bytes.saturating_add(size) > limit {
            runs.push(len);
            (len, bytes) = (0, 0);
        }
        len += 1;
        bytes = bytes.saturating_add(size);
    };
    match is_back {
        true => sizes.rev().for_each(&mut next),
        false => sizes.for_each(&mut next),
    }
    // What is left over are too few: they get more from their neighbours, or go to them.
    match runs.last_mut() {
        Some(last) if len < fewest && *last + len < 2 * fewest => *last += len,
        Some(last) if len < fewest => {
            *last -= fewest - len;
            runs.push(fewest);
        }
        _ => runs.push(len),
    }
    if is_back {
        runs.reverse();
    }
    runs
}

/// The elements below these. Those of a damaged tree may be too many to be counted.
fn total(children: &[Child<'_>]) -> u64 {
    let counts = children.iter().map(|child| child.count);
    counts.fold(0, u64::saturating_add)
}

#[cold]
fn endless() -> Damage {
    damage("a tree that leads to itself")
}
