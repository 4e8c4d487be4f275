//! A counted B+tree: **elements in an order, found, inserted and removed by position or by
//! comparison in O(log elements) records.**
//!
//! Its records are inner records of a collection, whose anchor holds the root (see
//! [`mneme_log::OrderTree`]); [`node`] describes their form.
//!
//! A record that would be longer than [`SPLIT`] is split in two, unless it holds one element. One
//! that is shorter than [`JOIN`] is joined with a neighbour if they fit one record of [`JOINED`]
//! bytes.

mod node;
mod positions;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use mneme_log::{BRANCH, BRANCH_HEAD, OrderTree, TREE_NUMBERS, numbers_of};

use self::node::{
    BEGIN, Branch, CHILD, Child, CountedLeaf, CountedNode, ElementParts, LeafPlace, LeafRun,
    MAX_STRIDE, branch_of, damage, entries_of, leaf_of, middle, parts, too_many,
};
pub(crate) use self::node::{Compare, ElementShape, NewElements, Seek};
use crate::error::{CollectionError, Damage};
use crate::listpack::{self, EMPTY, Element, Listpack};
use crate::records::StoreRecords;

/// Bytes of a record above which it is split.
const SPLIT: usize = 2048;
/// Bytes of a record below which it is joined with a neighbour.
const JOIN: usize = 512;
/// The maximum size in bytes of a record that results from joining, or from building a tree at
/// once.
const JOINED: usize = 1536;
/// The minimum number of children of each part when a branch is split.
const FEWEST: usize = 4;
/// The maximum number of levels of a tree: a tree that seems to have more contains a cycle.
const MAX_LEVELS: usize = 64;
/// The maximum number of places that are changed at once.
const MOST_EDITS: usize = 2;

/// Compares two elements.
pub(crate) type CompareTwo<'c> =
    dyn FnMut(&[Element<'_>], &[Element<'_>]) -> Result<Ordering, Damage> + 'c;

/// The order of a collection's elements, within a transaction.
pub(crate) struct CountedTree<'i> {
    records: &'i mut dyn StoreRecords,
    id: u64,
    tree: &'i mut OrderTree,
    shape: ElementShape,
}

/// A child record, with what its parent branch records about it.
struct Piece {
    number: u64,
    count: u64,
    /// The bytes of its key's entries.
    key: Vec<u8>,
}

/// What becomes of an element, or of the end after all elements.
pub(crate) enum PlaceChange {
    /// These elements, which must fit its place in the order, replace it.
    Replace(NewElements),
    /// It is removed. If it was searched for by comparison, it must be `Equal`.
    Remove,
    /// These come before it.
    Insert(NewElements),
    /// These come after it.
    Append(NewElements),
}

/// Decides what becomes of an element; `None`: the place is the end.
pub(crate) type Decide<'d> =
    dyn FnMut(Option<&[Element<'_>]>) -> Result<PlaceChange, CollectionError> + 'd;

/// A change of one place in the order.
pub(crate) struct PlaceEdit<'s, 'd> {
    pub seek: Seek<'s>,
    pub decide: &'d mut Decide<'d>,
}

/// Where new elements lie among those already in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before all others in the tree.
    First,
    /// After all others.
    Last,
    Within,
}

/// The state of a record after a change.
struct Edited {
    /// The number of elements added, less those removed.
    added: i64,
    /// It has no elements left, and is removed.
    is_gone: bool,
    /// It should be joined with a neighbour.
    is_short: bool,
    /// If it was split: the resulting records, the first of which is the record itself.
    pieces: Vec<Piece>,
}

/// The planned change of a record.
enum Planned {
    Leaf(u64, EditedLeaf),
    Branch {
        number: u64,
        image: Vec<u8>,
        /// The children that are to be changed, in order.
        below: Vec<(usize, Planned)>,
        /// Whether the first of these is the first of its level, and whether the last is the last.
        edges: (bool, bool),
    },
}

/// A leaf to be stored.
struct EditedLeaf {
    image: Vec<u8>,
    /// The number of elements.
    len: usize,
    added: i64,
    place: Place,
    /// Its previous size in bytes.
    before: usize,
}

impl<'i> CountedTree<'i> {
    /// The tree of collection `id` whose root the anchor holds. The caller stores the anchor.
    pub fn new(
        records: &'i mut dyn StoreRecords,
        id: u64,
        tree: &'i mut OrderTree,
        shape: ElementShape,
    ) -> CountedTree<'i> {
        debug_assert!((1..=MAX_STRIDE).contains(&shape.stride) && shape.key <= shape.stride);
        debug_assert!(!shape.has_positions || (shape.key, shape.stride) == (1, 2));
        CountedTree {
            records,
            id,
            tree,
            shape,
        }
    }

    /// The number of elements before the place that `compare` seeks, and whether the next one is
    /// `Equal`.
    pub fn rank(&mut self, compare: &mut Compare<'_>) -> Result<(u64, bool), CollectionError> {
        let (mut number, mut before) = (self.tree.root, 0);
        if number == 0 {
            return Ok((0, false));
        }
        for _ in 0..MAX_LEVELS {
            let image = lent(self.records, self.id, number)?;
            match CountedNode::read(&image, self.shape)? {
                CountedNode::Branch(branch) => {
                    let index = branch.index_by(compare)?;
                    let counts = (0..index).map(|index| branch.count(index));
                    before = counts.fold(before, u64::saturating_add);
                    number = branch.number(index);
                }
                CountedNode::Leaf(leaf) => {
                    let place = leaf.find_by(compare)?;
                    let is_equal = place.index < leaf.len()
                        && compare(leaf.element(place)?.0.values())? == Ordering::Equal;
                    return Ok((before.saturating_add(place.index as u64), is_equal));
                }
            }
        }
        Err(endless().into())
    }

    /// Visits the elements from the first on (or, backwards, from the last), skipping the first
    /// `skipped`, until `visit` returns false.
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
            root => self.walk_in((root, None), &mut way, visit, 0).map(drop),
        }
    }

    /// The image of a leaf without elements, which no sound tree has.
    #[cfg(test)]
    pub fn empty_leaf(shape: ElementShape) -> Vec<u8> {
        leaf_of(&[], shape)
            .map(|(image, _)| image)
            .unwrap_or_default()
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

    /// Changes the tree at one place.
    #[cfg(test)]
    pub fn put(&mut self, seek: Seek<'_>, change: PlaceChange) -> Result<(), CollectionError> {
        let mut change = Some(change);
        let decide =
            &mut |_: Option<&[Element<'_>]>| Ok(change.take().unwrap_or(PlaceChange::Remove));
        self.edit(&mut [PlaceEdit { seek, decide }])
    }

    /// Changes the tree at these places: at most two. Two places must be found by comparison and be
    /// in order. O(log elements, and the bytes inserted).
    pub fn edit(&mut self, edits: &mut [PlaceEdit<'_, '_>]) -> Result<(), CollectionError> {
        let mut root = self.tree.root;
        let edited = match root {
            0 => {
                let (empty, _) = leaf_of(&[], self.shape)?;
                let leaf = edit_leaf(&empty, self.shape, edits, (true, true))?;
                if leaf.len == 0 {
                    return Ok(());
                }
                root = self.new_number();
                self.store_leaf(root, &EditedLeaf { before: 0, ..leaf })?
            }
            _ => {
                let planned = self.plan((root, None), edits, (true, true), 0)?;
                self.carry_out(planned)?
            }
        };
        self.set_root(root, edited)
    }

    /// Removes the elements at these positions.
    pub fn remove(&mut self, positions: Range<u64>) -> Result<(), CollectionError> {
        let root = self.tree.root;
        if root == 0 || positions.is_empty() {
            return Ok(());
        }
        let edited = self.remove_in((root, None), positions, 0)?;
        self.set_root(root, edited)
    }

    /// Stores the root that results from the changes of this record.
    fn set_root(&mut self, root: u64, edited: Edited) -> Result<(), CollectionError> {
        self.tree.root = match edited.pieces.is_empty() {
            _ if edited.is_gone => 0,
            true => root,
            false => self.above(edited.pieces)?,
        };
        // A root with only one child is replaced by the child.
        let mut may_have_one = edited.is_short;
        while may_have_one {
            let image = self.image(self.tree.root)?;
            match CountedNode::read(&image, self.shape)? {
                CountedNode::Branch(branch) if branch.len == 1 => {
                    self.store(self.tree.root, image.len(), None)?;
                    self.tree.root = branch.number(0);
                }
                _ => may_have_one = false,
            }
        }
        Ok(())
    }

    /// Creates a tree of these elements, which have no positions, in their order. The tree must be
    /// empty.
    pub fn build<'e, const N: usize>(
        &mut self,
        elements: impl IntoIterator<Item = [&'e [u8]; N]>,
    ) -> Result<(), CollectionError> {
        debug_assert!(self.tree.root == 0 && N == self.shape.stride && !self.shape.has_positions);
        let mut level: Vec<Piece> = Vec::new();
        let (mut leaf, mut key) = (NewElements::default(), Vec::new());
        for element in elements {
            let entries = entries_of(&element);
            if leaf.len() > 0 && self.shape.head() + leaf.bytes() + entries.len() > JOINED {
                let key = std::mem::take(&mut key);
                level.push(self.new_leaf(leaf.elements(), key)?);
                leaf = NewElements::default();
            }
            if leaf.len() == 0 {
                key = entries_of(&element[..self.shape.key]);
            }
            leaf.push(&entries);
        }
        if leaf.len() > 0 {
            level.push(self.new_leaf(leaf.elements(), key)?);
        }
        self.tree.root = self.above(level)?;
        Ok(())
    }

    fn new_leaf(&mut self, elements: LeafRun<'_>, key: Vec<u8>) -> Result<Piece, CollectionError> {
        let (image, count) = leaf_of(&[elements], self.shape)?;
        Ok(Piece {
            number: self.store_new(&image)?,
            count: count as u64,
            key,
        })
    }

    /// Stores branches above all records of a level, and returns the number of the topmost record.
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

    /// Copies its records to collection `to`, which has none yet.
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

    /// Checks all redundant information, and compares neighbouring elements by `compare`. Returns
    /// the number of elements.
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
        Ok(image.ok_or_else(no_record)?)
    }

    /// Stores a record that had `before` bytes; `None`: removes it.
    fn store(
        &mut self,
        number: u64,
        before: usize,
        image: Option<&[u8]>,
    ) -> Result<(), CollectionError> {
        self.records.set_inner(self.id, number, image)?;
        let after = image.map_or(0, <[u8]>::len) as u64;
        let bytes = self.tree.bytes.wrapping_sub(before as u64);
        self.tree.bytes = bytes.wrapping_add(after);
        Ok(())
    }

    fn store_new(&mut self, image: &[u8]) -> Result<u64, CollectionError> {
        let number = self.new_number();
        self.store(number, 0, Some(image))?;
        Ok(number)
    }

    fn new_number(&mut self) -> u64 {
        self.tree.numbers += 1;
        TREE_NUMBERS + self.tree.numbers - 1
    }

    fn walk_in(
        &mut self,
        (number, count): (u64, Option<u64>),
        way: &mut Way,
        visit: &mut dyn FnMut(&[Element<'_>]) -> Result<bool, CollectionError>,
        level: usize,
    ) -> Result<bool, CollectionError> {
        let shape = self.shape;
        let image = lent(self.records, self.id, number)?;
        if image.first() != Some(&BRANCH) {
            let leaf = CountedLeaf::read(&image, shape)?;
            leaf.has(count)?;
            return walk_leaf(&leaf, way, visit);
        }
        let image = image.into_owned();
        let branch = Branch::read(&image, shape)?;
        if level == MAX_LEVELS {
            return Err(endless().into());
        }
        for index in 0..branch.len {
            let index = match way.is_backwards {
                true => branch.len - 1 - index,
                false => index,
            };
            let count = branch.count(index);
            if way.skipped >= count {
                way.skipped -= count;
            } else {
                let below = (branch.number(index), Some(count));
                if !self.walk_in(below, way, visit, level + 1)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Plans the changes of a record, and of those below it, for changes at these places. `edges`
    /// tells whether the record is the first of its level, and whether it is the last. Nothing is
    /// stored before all places were found.
    fn plan(
        &mut self,
        (number, count): (u64, Option<u64>),
        edits: &mut [PlaceEdit<'_, '_>],
        (is_first, is_last): (bool, bool),
        level: usize,
    ) -> Result<Planned, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match CountedNode::read(&image, shape)? {
            CountedNode::Leaf(leaf) => {
                leaf.has(count)?;
                let leaf = edit_leaf(&image, shape, edits, (is_first, is_last))?;
                return Ok(Planned::Leaf(number, leaf));
            }
            CountedNode::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            CountedNode::Branch(branch) => branch,
        };
        let mut indices = [0; MOST_EDITS];
        for (index, edit) in indices.iter_mut().zip(&mut *edits) {
            *index = branch.index(&mut edit.seek)?;
        }
        let (mut rest, mut below) = (edits, Vec::with_capacity(MOST_EDITS));
        let mut edges = (false, false);
        for run in indices[..rest.len()].chunk_by(|one, other| one == other) {
            let (index, (these, behind)) = (run[0], rest.split_at_mut(run.len()));
            edges = (is_first && index == 0, is_last && index + 1 == branch.len);
            let child = (branch.number(index), Some(branch.count(index)));
            let planned = self.plan(child, these, edges, level + 1)?;
            below.push((index, planned));
            rest = behind;
        }
        Ok(Planned::Branch {
            number,
            image,
            below,
            edges,
        })
    }

    /// Stores what is planned.
    fn carry_out(&mut self, planned: Planned) -> Result<Edited, CollectionError> {
        match planned {
            Planned::Leaf(number, leaf) => self.store_leaf(number, &leaf),
            Planned::Branch {
                number,
                image,
                below,
                edges,
            } => {
                let mut changed = Vec::with_capacity(MOST_EDITS);
                for (index, planned) in below {
                    changed.push((index, self.carry_out(planned)?));
                }
                let branch = Branch::read(&image, self.shape)?;
                self.store_branch(number, &branch, &changed, edges)
            }
        }
    }

    /// Stores a leaf, in more than one record if it is too long.
    fn store_leaf(&mut self, number: u64, leaf: &EditedLeaf) -> Result<Edited, CollectionError> {
        let bytes = leaf.image.len();
        let mut edited = Edited::in_place(leaf.added);
        if leaf.len == 0 {
            edited.is_gone = true;
            self.store(number, leaf.before, None)?;
        } else if bytes <= SPLIT || leaf.len == 1 {
            edited.is_short = bytes < JOIN.min(leaf.before);
            self.store(number, leaf.before, Some(&leaf.image))?;
        } else {
            edited.pieces = self.split_leaf(number, leaf.before, &leaf.image, leaf.place)?;
        }
        Ok(edited)
    }

    /// Stores a branch after changes of these children, in order: short children are joined with
    /// their neighbours, and a branch that is too long is split.
    fn store_branch(
        &mut self,
        number: u64,
        branch: &Branch<'_>,
        changed: &[(usize, Edited)],
        edges: (bool, bool),
    ) -> Result<Edited, CollectionError> {
        let (before, shape) = (branch.image.len(), self.shape);
        let mut added = changed.iter().map(|(_, below)| below.added);
        let added = added.try_fold(0i64, i64::checked_add);
        let mut edited = Edited::in_place(added.ok_or_else(too_many)?);
        if changed.iter().all(|(_, below)| below.is_in_place()) {
            if changed.iter().any(|(_, below)| below.added != 0) {
                let mut new = branch.image.to_vec();
                for (index, below) in changed {
                    branch.add_to_count(&mut new, *index, below.added);
                }
                self.store(number, before, Some(&new))?;
            }
            return Ok(edited);
        }
        let (mut children, mut short) = (branch.children()?, Vec::new());
        for (index, below) in changed.iter().rev() {
            let child = &mut children[*index];
            child.count = child.count.saturating_add_signed(below.added);
            if below.is_short {
                short.push(child.number);
            }
            if below.is_gone {
                children.remove(*index);
            } else if let [first, more @ ..] = &below.pieces[..] {
                child.count = first.count;
                let behind = index + 1..index + 1;
                drop(children.splice(behind, more.iter().map(Piece::child)));
            }
        }
        for short in short {
            let index = children.iter().position(|child| child.number == short);
            let left = index.map_or(children.len(), |index| index.saturating_sub(1));
            if left + 1 < children.len() && self.join(&children[left], &children[left + 1])? {
                children[left].count = total(&children[left..=left + 1]);
                children.remove(left + 1);
            }
        }
        if children.is_empty() {
            edited.is_gone = true;
            self.store(number, before, None)?;
            return Ok(edited);
        }
        let new = branch_of(&children, shape);
        if new.len() <= SPLIT || children.len() < FEWEST {
            edited.is_short = new.len() < before && (new.len() < JOIN || children.len() == 1);
            self.store(number, before, Some(&new))?;
            return Ok(edited);
        }
        let lens = match edges {
            (_, true) => runs_of_branch(&children, SPLIT, false),
            (true, _) => runs_of_branch(&children, SPLIT, true),
            _ if new.len() > 2 * SPLIT => runs_of_branch(&children, SPLIT, false),
            _ => vec![children.len() / 2, children.len().div_ceil(2)],
        };
        let mut rest = &children[..];
        for len in lens {
            let (these, behind) = rest.split_at(len);
            edited.pieces.push(if edited.pieces.is_empty() {
                self.store(number, before, Some(&branch_of(these, shape)))?;
                piece_of(number, these)
            } else {
                self.new_branch(these)?
            });
            rest = behind;
        }
        Ok(edited)
    }

    /// Keeps the first elements of a leaf in its record, which had `before` bytes, and stores the
    /// others in new records.
    fn split_leaf(
        &mut self,
        number: u64,
        before: usize,
        image: &[u8],
        place: Place,
    ) -> Result<Vec<Piece>, CollectionError> {
        let leaf = CountedLeaf::read(image, self.shape)?;
        let places = leaf.places()?;
        // An insertion at an end is likely to continue there: the other leaves stay full.
        let lens = match place {
            Place::Within if image.len() <= 2 * SPLIT => {
                let first = middle(&places);
                vec![first, leaf.len() - first]
            }
            _ => {
                let limit = SPLIT - self.shape.head();
                runs(
                    leaf.sizes(&places).into_iter(),
                    limit,
                    1,
                    place == Place::First,
                )
            }
        };
        let (mut pieces, mut begin) = (Vec::with_capacity(lens.len()), 0);
        for len in lens {
            let (first, end) = (places[begin], places[begin + len]);
            let (elements, key) = (leaf.elements(first..end)?, leaf.key(first)?);
            pieces.push(if begin == 0 {
                let (image, _) = leaf_of(&[elements], self.shape)?;
                self.store(number, before, Some(&image))?;
                let count = len as u64;
                Piece { number, count, key }
            } else {
                self.new_leaf(elements, key)?
            });
            begin += len;
        }
        Ok(pieces)
    }

    /// Removes elements in or below a record. A record that becomes empty is removed.
    fn remove_in(
        &mut self,
        (number, count): (u64, Option<u64>),
        positions: Range<u64>,
        level: usize,
    ) -> Result<Edited, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match CountedNode::read(&image, shape)? {
            CountedNode::Leaf(leaf) => {
                leaf.has(count)?;
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(leaf.len());
                let gone = leaf.range(index(positions.start)..index(positions.end))?;
                let leaf = EditedLeaf::of(&leaf, gone, &NewElements::default(), Place::Within)?;
                return self.store_leaf(number, &leaf);
            }
            CountedNode::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            CountedNode::Branch(branch) => branch,
        };
        // An error must be found before anything is removed.
        branch.total()?;
        let (mut end, mut changed) = (0, Vec::new());
        for index in 0..branch.len {
            let (below, count, begin) = (branch.number(index), branch.count(index), end);
            end = begin + count;
            let of_child = positions.start.max(begin)..positions.end.min(end);
            if of_child.is_empty() {
                continue;
            }
            if of_child == (begin..end) {
                self.free(below, level + 1)?;
                let mut gone = Edited::in_place(0i64.saturating_sub_unsigned(count));
                gone.is_gone = true;
                changed.push((index, gone));
            } else {
                let of_child = of_child.start - begin..of_child.end - begin;
                let below = (below, Some(count));
                changed.push((index, self.remove_in(below, of_child, level + 1)?));
            }
        }
        self.store_branch(number, &branch, &changed, (false, false))
    }

    /// Joins two neighbours in the record of the first if they fit there. Returns whether they did.
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
                let elements = [
                    one.elements(one.first()..one.end())?,
                    other.elements(other.first()..other.end())?,
                ];
                leaf_of(&elements, shape)?.0
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

    /// Removes a record and everything below it.
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
                leaf.listpack.check()?;
                let mut place = leaf.first();
                while place.index < leaf.len() {
                    let (element, behind) = leaf.element(place)?;
                    check.next(element.values(), false)?;
                    place = behind;
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

/// The rest of a walk.
struct Way {
    skipped: u64,
    is_backwards: bool,
}

impl Edited {
    /// The record has `added` more elements, and nothing else about it changes.
    fn in_place(added: i64) -> Edited {
        Edited {
            added,
            is_gone: false,
            is_short: false,
            pieces: Vec::new(),
        }
    }

    fn is_in_place(&self) -> bool {
        !self.is_gone && !self.is_short && self.pieces.is_empty()
    }
}

impl EditedLeaf {
    /// The leaf with new elements instead of those in `gone`.
    fn of(
        leaf: &CountedLeaf<'_>,
        gone: Range<LeafPlace>,
        new: &NewElements,
        place: Place,
    ) -> Result<EditedLeaf, Damage> {
        let added = new.len() as i64 - (gone.end.index - gone.start.index) as i64;
        let (before, behind) = (leaf.first()..gone.start, gone.end..leaf.end());
        let elements = [
            leaf.elements(before)?,
            new.elements(),
            leaf.elements(behind)?,
        ];
        let (image, len) = leaf_of(&elements, leaf.shape)?;
        Ok(EditedLeaf {
            image,
            len,
            added,
            place,
            before: leaf.bytes,
        })
    }
}

/// A record of collection `id`, borrowed in place if possible.
fn lent(
    records: &mut dyn StoreRecords,
    id: u64,
    number: u64,
) -> Result<Cow<'_, [u8]>, CollectionError> {
    let image = records.lend_inner(id, number)?;
    Ok(image.ok_or_else(no_record)?)
}

/// See [`CountedTree::walk`]. Returns whether to continue.
fn walk_leaf(
    leaf: &CountedLeaf<'_>,
    way: &mut Way,
    visit: &mut dyn FnMut(&[Element<'_>]) -> Result<bool, CollectionError>,
) -> Result<bool, CollectionError> {
    let skipped = usize::try_from(way.skipped).unwrap_or(usize::MAX);
    let skipped = skipped.min(leaf.len());
    way.skipped -= skipped as u64;
    let mut place = leaf.place(match way.is_backwards {
        true => leaf.len() - skipped,
        false => skipped,
    })?;
    for _ in skipped..leaf.len() {
        if way.is_backwards {
            place = leaf.before(place)?;
        }
        let (element, behind) = leaf.element(place)?;
        if !visit(element.values())? {
            return Ok(false);
        }
        if !way.is_backwards {
            place = behind;
        }
    }
    let end = match way.is_backwards {
        true => leaf.first(),
        false => leaf.end(),
    };
    place.is(end)?;
    Ok(true)
}

/// Changes places of a leaf; `edges` tells whether it is the first of its level, and whether it is
/// the last.
fn edit_leaf(
    image: &[u8],
    shape: ElementShape,
    edits: &mut [PlaceEdit<'_, '_>],
    (is_first, is_last): (bool, bool),
) -> Result<EditedLeaf, CollectionError> {
    let mut edited: Option<EditedLeaf> = None;
    for edit in edits {
        let leaf = CountedLeaf::read(edited.as_ref().map_or(image, |leaf| &leaf.image), shape)?;
        let place = leaf.find(&mut edit.seek)?;
        let (element, behind) = match place.index < leaf.len() {
            true => {
                let (element, behind) = leaf.element(place)?;
                (Some(element), behind)
            }
            false => (None, place),
        };
        let values = element.as_ref().map(ElementParts::values);
        let (gone, new, has_to_be_there) = match (edit.decide)(values)? {
            PlaceChange::Insert(new) => (place..place, new, false),
            PlaceChange::Append(new) => (behind..behind, new, false),
            PlaceChange::Replace(new) => (place..behind, new, true),
            PlaceChange::Remove => (place..behind, NewElements::default(), true),
        };
        let is_there = match (&mut edit.seek, values) {
            (Seek::By(compare), Some(values)) => compare(values)? == Ordering::Equal,
            _ => values.is_some(),
        };
        if has_to_be_there && !is_there {
            return Err(damage("an element that is not in its tree").into());
        }
        let place = match new.len() > gone.end.index - gone.start.index {
            true if is_last && gone.start.index == leaf.len() => Place::Last,
            true if is_first && gone.start.index == 0 => Place::First,
            _ => Place::Within,
        };
        let more = edited.as_ref().map_or(0, |leaf| leaf.added);
        let mut leaf = EditedLeaf::of(&leaf, gone, &new, place)?;
        (leaf.added, leaf.before) = (leaf.added.saturating_add(more), image.len());
        edited = Some(leaf);
    }
    edited.ok_or_else(|| damage("a change of no place").into())
}

struct Check<'c> {
    compare: &'c mut CompareTwo<'c>,
    /// The last element or key, as a listpack; empty if there was none.
    last: Vec<u8>,
    /// The number of its entries.
    last_entries: usize,
    is_key: bool,
    bytes: u64,
}

impl Check<'_> {
    fn next(&mut self, element: &[Element<'_>], is_key: bool) -> Result<(), Damage> {
        if !self.last.is_empty() {
            let mut entries = Listpack::read(&self.last)?.entries();
            let last = parts(None, &mut entries, self.last_entries)?;
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

/// Splits the children of a branch among several branches of `bytes` each: the number of children
/// of each.
fn runs_of_branch(children: &[Child<'_>], bytes: usize, is_back: bool) -> Vec<usize> {
    let sizes = children.iter().map(|child| CHILD + BEGIN + child.key.len());
    let limit = bytes - BRANCH_HEAD - EMPTY.len();
    runs(sizes, limit, FEWEST / 2, is_back)
}

/// Divides neighbours of these sizes into runs of as many as fit `limit`, but at least `fewest`,
/// from the front or from the back. Returns the length of each run, in order.
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
    // The rest is too short for a run: it takes some from its neighbour, or joins it.
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

/// The number of elements below these children. In a damaged tree the sum may overflow.
fn total(children: &[Child<'_>]) -> u64 {
    let counts = children.iter().map(|child| child.count);
    counts.fold(0, u64::saturating_add)
}

#[cold]
fn no_record() -> Damage {
    damage("a tree that leads to no record")
}

#[cold]
fn endless() -> Damage {
    damage("a tree that leads to itself")
}
