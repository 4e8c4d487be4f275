//! A counted B+tree: **elements in an order, found by position or by comparison, and inserted and
//! removed there, in O(log elements) records.**
//!
//! Its records are inner records of a collection, whose anchor says the root (see
//! [`mneme_log::OrderTree`]). Elements lie in *leaves*, each a listpack behind one byte, in which
//! an element has as many entries as the tree's shape says. What leads to leaves is a *branch*:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | [`BRANCH`] |
//! | 1 | 1: the tree has keys; 0: none |
//! | 2..4 | children |
//! | 8 each | their numbers |
//! | 8 each | the elements in or below each |
//! | 4 each, with keys | where its key begins in the listpack |
//! | with keys | a listpack of the keys |
//!
//! A child's key is an element that is or was in the tree: what lies in or below the child is not
//! less, and what lies before it is. The key of a first child is not looked at.
//!
//! A record that would be longer than [`SPLIT`] is split in two, unless it holds one element. One
//! that is shorter than [`JOIN`] is joined with a neighbour if they fit one record of [`JOINED`]
//! bytes.

use std::cmp::Ordering;
use std::ops::Range;

use mneme_log::{BRANCH, BRANCH_HEAD, OrderTree, TREE_NUMBERS, numbers_of};

use crate::error::{CollectionError, Damage};
use crate::listpack::{self, EMPTY, Element, Encoded, Entries, HEAD, Listpack};
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
/// Entries of an element at most.
const MAX_STRIDE: usize = 2;
/// The first byte of a leaf.
const LEAF: u8 = 2;
/// Bytes of a leaf before its listpack.
const FORM: usize = 1;
/// Bytes of a branch for each child, without its key.
const CHILD: usize = 16;
/// Bytes that say where a key begins.
const BEGIN: usize = 4;

/// What the elements of a tree are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElementShape {
    /// Entries of each.
    pub stride: usize,
    /// Whether they are found by comparison too.
    pub has_keys: bool,
}

/// How an element lies to the place that is looked for: before it, there, or behind. In the order
/// of the tree, elements are `Less`, then one at most is `Equal`, then they are `Greater`.
pub(crate) type Compare<'c> = dyn FnMut(&[Element<'_>]) -> Result<Ordering, Damage> + 'c;

/// How an element lies to another.
pub(crate) type CompareTwo<'c> =
    dyn FnMut(&[Element<'_>], &[Element<'_>]) -> Result<Ordering, Damage> + 'c;

/// A place in the order.
pub(crate) enum Seek<'c> {
    /// By its position.
    At(u64),
    /// Before the first element that is not `Less`.
    By(&'c mut Compare<'c>),
}

/// The order of a collection's elements, within a transaction.
pub(crate) struct CountedTree<'i> {
    records: &'i mut dyn StoreRecords,
    id: u64,
    tree: &'i mut OrderTree,
    shape: ElementShape,
}

/// The entries of an element, each as a value.
struct Parts<'b> {
    parts: [Element<'b>; MAX_STRIDE],
    stride: usize,
}

/// A record that was split: what is left in it, and the new one behind it.
struct Halves {
    left_count: u64,
    left_key: Vec<u8>,
    number: u64,
    count: u64,
    key: Vec<u8>,
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
        debug_assert!((1..=MAX_STRIDE).contains(&shape.stride));
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
            match Node::read(&image, self.shape)? {
                Node::Branch(branch) => {
                    let index = branch.index_by(compare)?;
                    before += (0..index).map(|index| branch.count(index)).sum::<u64>();
                    number = branch.number(index);
                }
                Node::Leaf(leaf) => {
                    let index = leaf.index_by(compare)?;
                    let is_equal = index < leaf.len()
                        && compare(leaf.element(index)?.values())? == Ordering::Equal;
                    return Ok((before + index as u64, is_equal));
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
        self.put(seek, element, true)
    }

    /// Replaces the entries of the element at this position.
    pub fn replace(&mut self, position: u64, element: &[&[u8]]) -> Result<(), CollectionError> {
        debug_assert!(!self.shape.has_keys, "its place would be another");
        self.put(Seek::At(position), element, false)
    }

    fn put(
        &mut self,
        mut seek: Seek<'_>,
        element: &[&[u8]],
        is_new: bool,
    ) -> Result<(), CollectionError> {
        let entries = entries_of(element);
        let root = self.tree.root;
        if root == 0 {
            let leaf = leaf_of(&entries, self.shape.stride);
            self.tree.root = self.store_new(&leaf)?;
            return Ok(());
        }
        let put = (&entries[..], is_new);
        if let Some(halves) = self.put_in(root, &mut seek, (true, true), put, 0)? {
            let children = [
                Child {
                    number: root,
                    count: halves.left_count,
                    key: &halves.left_key,
                },
                halves.child(),
            ];
            let image = branch_of(&children, self.shape);
            self.tree.root = self.store_new(&image)?;
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
            left.only = match Node::read(&image, self.shape)? {
                Node::Branch(branch) if branch.len == 1 => Some(branch.number(0)),
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
        let mut level: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        let (mut leaf, mut count) = (Vec::new(), 0);
        let mut key = Vec::new();
        for element in elements {
            let entries = entries_of(&element);
            if count > 0 && FORM + EMPTY.len() + leaf.len() + entries.len() > JOINED {
                let number = self.store_new(&leaf_of(&leaf, count * N))?;
                level.push((number, count as u64, std::mem::take(&mut key)));
                leaf.clear();
                count = 0;
            }
            if count == 0 && self.shape.has_keys {
                key.clone_from(&entries);
            }
            leaf.extend_from_slice(&entries);
            count += 1;
        }
        if count > 0 {
            let number = self.store_new(&leaf_of(&leaf, count * N))?;
            level.push((number, count as u64, key));
        }
        while level.len() > 1 {
            let (mut above, mut rest) = (Vec::new(), &level[..]);
            while !rest.is_empty() {
                let (mut bytes, mut len) = (BRANCH_HEAD + EMPTY.len(), 0);
                while len < rest.len() && (bytes <= JOINED || len < FEWEST) {
                    bytes += CHILD + BEGIN + rest[len].2.len();
                    len += 1;
                }
                // None is left alone.
                if rest.len() - len == 1 {
                    len += 1;
                }
                let (these, behind) = rest.split_at(len);
                let children = these.iter().map(|(number, count, key)| Child {
                    number: *number,
                    count: *count,
                    key,
                });
                let children: Vec<_> = children.collect();
                let number = self.store_new(&branch_of(&children, self.shape))?;
                let count = children.iter().map(|child| child.count).sum();
                above.push((number, count, these[0].2.clone()));
                rest = behind;
            }
            level = above;
        }
        self.tree.root = level.first().map_or(0, |(number, ..)| *number);
        Ok(())
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
        match Node::read(&image, shape)? {
            Node::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            Node::Branch(branch) => {
                for index in (0..branch.len).map(|index| at(index, branch.len)) {
                    let count = branch.count(index);
                    if way.skipped >= count {
                        way.skipped -= count;
                    } else if !self.walk_in(branch.number(index), way, visit, level + 1)? {
                        return Ok(false);
                    }
                }
            }
            Node::Leaf(leaf) => {
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

    /// Puts an element in or below a record, which is the first, the last of its level.
    fn put_in(
        &mut self,
        number: u64,
        seek: &mut Seek<'_>,
        (is_first, is_last): (bool, bool),
        (entries, is_new): (&[u8], bool),
        level: usize,
    ) -> Result<Option<Halves>, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match Node::read(&image, shape)? {
            Node::Leaf(leaf) => {
                let index = leaf.index(seek)?;
                let behind = index + usize::from(!is_new);
                if behind > leaf.len() {
                    return Err(beyond().into());
                }
                let count = leaf.len() + usize::from(is_new);
                let listpack = [
                    leaf.entries(0..index),
                    entries,
                    leaf.entries(behind..leaf.len()),
                ]
                .concat();
                let new = leaf_of(&listpack, count * shape.stride);
                if new.len() <= SPLIT || count == 1 {
                    self.store(number, image.len(), Some(&new))?;
                    return Ok(None);
                }
                // What comes at an end is followed by more there: the other leaf stays full.
                let left = match is_new {
                    true if is_last && index + 1 == count => index,
                    true if is_first && index == 0 => 1,
                    _ => Leaf::read(&new, shape)?.middle(),
                };
                return self.split_leaf(number, image.len(), &new, left).map(Some);
            }
            Node::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            Node::Branch(branch) => branch,
        };
        let index = branch.index(seek, is_new)?;
        let edges = (is_first && index == 0, is_last && index + 1 == branch.len);
        let put = (entries, is_new);
        let halves = self.put_in(branch.number(index), seek, edges, put, level + 1)?;
        let Some(halves) = halves else {
            if is_new {
                let mut new = image.clone();
                branch.set_count(&mut new, index, branch.count(index) + 1);
                self.store(number, image.len(), Some(&new))?;
            }
            return Ok(None);
        };
        let mut children = branch.children()?;
        children[index].count = halves.left_count;
        children.insert(index + 1, halves.child());
        let new = branch_of(&children, shape);
        if new.len() <= SPLIT || children.len() < FEWEST {
            self.store(number, image.len(), Some(&new))?;
            return Ok(None);
        }
        let left = match edges {
            (_, true) => children.len() - 2,
            (true, _) => 2,
            _ => children.len() / 2,
        };
        let (left, right) = children.split_at(left);
        self.store(number, image.len(), Some(&branch_of(left, shape)))?;
        let count = |children: &[Child<'_>]| children.iter().map(|child| child.count).sum();
        Ok(Some(Halves {
            left_count: count(left),
            left_key: left[0].key.to_vec(),
            number: self.store_new(&branch_of(right, shape))?,
            count: count(right),
            key: right[0].key.to_vec(),
        }))
    }

    /// Leaves the first `left` elements of a leaf in the record of `before` bytes that it was in.
    fn split_leaf(
        &mut self,
        number: u64,
        before: usize,
        image: &[u8],
        left: usize,
    ) -> Result<Halves, CollectionError> {
        let (leaf, shape) = (Leaf::read(image, self.shape)?, self.shape);
        let half = |of: Range<usize>| leaf_of(leaf.entries(of.clone()), of.len() * shape.stride);
        let key = |index: usize| match shape.has_keys {
            true => leaf.entries(index..index + 1).to_vec(),
            false => Vec::new(),
        };
        self.store(number, before, Some(&half(0..left)))?;
        Ok(Halves {
            left_count: left as u64,
            left_key: key(0),
            number: self.store_new(&half(left..leaf.len()))?,
            count: (leaf.len() - left) as u64,
            key: key(left),
        })
    }

    /// Removes elements in or below a record. One that is left empty is removed.
    fn remove_in(
        &mut self,
        number: u64,
        positions: Range<u64>,
        level: usize,
    ) -> Result<Left, CollectionError> {
        let (image, shape) = (self.image(number)?, self.shape);
        let branch = match Node::read(&image, shape)? {
            Node::Leaf(leaf) => {
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
            Node::Branch(_) if level == MAX_LEVELS => return Err(endless().into()),
            Node::Branch(branch) => branch,
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
                children[left].count += children[left + 1].count;
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
            count: children.iter().map(|child| child.count).sum(),
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
            Node::read(&images[0], shape)?,
            Node::read(&images[1], shape)?,
        ] {
            [Node::Leaf(one), Node::Leaf(other)] => {
                let entries = [one.entries(0..one.len()), other.entries(0..other.len())];
                leaf_of(&entries.concat(), (one.len() + other.len()) * shape.stride)
            }
            [Node::Branch(one), Node::Branch(other)] => {
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
        match Node::read(&image, shape)? {
            Node::Leaf(leaf) => {
                Listpack::read(&image[FORM..])?.check()?;
                for index in 0..leaf.len() {
                    check.next(leaf.element(index)?.values(), false)?;
                }
                match leaf.len() {
                    0 => Err(damage("a leaf without elements").into()),
                    len => Ok(len as u64),
                }
            }
            Node::Branch(_) if level == MAX_LEVELS => Err(endless().into()),
            Node::Branch(branch) => {
                let mut count = 0;
                for (index, child) in branch.children()?.into_iter().enumerate() {
                    if shape.has_keys && index > 0 {
                        check.next(branch.key_element(index)?.values(), true)?;
                    }
                    if self.check_in(child.number, check, level + 1)? != child.count {
                        return Err(damage("a branch with another number of elements").into());
                    }
                    count += child.count;
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
    is_key: bool,
    bytes: u64,
}

impl Check<'_> {
    fn next(&mut self, element: &[Element<'_>], is_key: bool) -> Result<(), Damage> {
        if !self.last.is_empty() {
            let entries = Listpack::read(&self.last)?.entries();
            let last = parts(entries, element.len())?;
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
        self.is_key = is_key;
        Ok(())
    }
}

/// A record that is read.
enum Node<'b> {
    Leaf(Leaf<'b>),
    Branch(Branch<'b>),
}

impl<'b> Node<'b> {
    fn read(image: &'b [u8], shape: ElementShape) -> Result<Node<'b>, Damage> {
        match image.first() {
            Some(&BRANCH) => Branch::read(image, shape).map(Node::Branch),
            _ => Leaf::read(image, shape).map(Node::Leaf),
        }
    }
}

struct Leaf<'b> {
    image: &'b [u8],
    /// Where each element begins, and behind them where the last one ends.
    begins: Vec<usize>,
    shape: ElementShape,
}

impl<'b> Leaf<'b> {
    fn read(image: &'b [u8], shape: ElementShape) -> Result<Leaf<'b>, Damage> {
        let Some((&LEAF, listpack)) = image.split_first() else {
            return Err(damage("a record of a tree of an unknown form"));
        };
        let listpack = Listpack::read(listpack)?;
        let many = listpack.said_len().unwrap_or_default() / shape.stride + 1;
        let mut begins = Vec::with_capacity(many);
        let mut entry_of_element = 0;
        for entry in listpack.entries() {
            let entry = entry?;
            if entry_of_element == 0 {
                begins.push(entry.begin + FORM);
            }
            entry_of_element = (entry_of_element + 1) % shape.stride;
        }
        begins.push(image.len() - 1);
        match entry_of_element {
            0 => Ok(Leaf {
                image,
                begins,
                shape,
            }),
            _ => Err(damage("an element of a tree that is not whole")),
        }
    }

    fn len(&self) -> usize {
        self.begins.len() - 1
    }

    /// The bytes of these elements' entries.
    fn entries(&self, of: Range<usize>) -> &'b [u8] {
        &self.image[self.begins[of.start]..self.begins[of.end]]
    }

    fn element(&self, index: usize) -> Result<Parts<'b>, Damage> {
        let at = self.begins[index] - FORM;
        parts(Entries::at(&self.image[FORM..], at), self.shape.stride)
    }

    fn index(&self, seek: &mut Seek<'_>) -> Result<usize, Damage> {
        match seek {
            Seek::At(position) => Ok(usize::try_from(*position).unwrap_or(usize::MAX)),
            Seek::By(compare) => self.index_by(compare),
        }
    }

    fn index_by(&self, compare: &mut Compare<'_>) -> Result<usize, Damage> {
        first_without(0..self.len(), |index| {
            let element = self.element(index)?;
            Ok(compare(element.values())? == Ordering::Less)
        })
    }

    /// The number of elements of the first half, by bytes. There are two elements at least.
    fn middle(&self) -> usize {
        let half = self.image.len().div_ceil(2);
        let index = self.begins.partition_point(|begin| *begin < half);
        index.clamp(1, self.len() - 1)
    }
}

struct Branch<'b> {
    image: &'b [u8],
    len: usize,
    shape: ElementShape,
    /// Of the keys.
    listpack: &'b [u8],
}

/// A child of a branch.
#[derive(Clone, Copy)]
struct Child<'b> {
    number: u64,
    count: u64,
    /// The bytes of its entries.
    key: &'b [u8],
}

impl Halves {
    /// The new one, as a child.
    fn child(&self) -> Child<'_> {
        Child {
            number: self.number,
            count: self.count,
            key: &self.key,
        }
    }
}

impl<'b> Branch<'b> {
    fn read(image: &'b [u8], shape: ElementShape) -> Result<Branch<'b>, Damage> {
        let unsound = || damage("a branch that is none");
        let [BRANCH, has_keys, low, high, ..] = *image else {
            return Err(unsound());
        };
        let len = usize::from(u16::from_le_bytes([low, high]));
        let of_child = CHILD + if shape.has_keys { BEGIN } else { 0 };
        let Some(listpack) = image.get(BRANCH_HEAD + of_child * len..) else {
            return Err(unsound());
        };
        if len == 0 || has_keys != u8::from(shape.has_keys) {
            return Err(unsound());
        }
        if shape.has_keys {
            Listpack::read(listpack)?;
        }
        Ok(Branch {
            image,
            len,
            shape,
            listpack,
        })
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.image[at..at + 8]);
        u64::from_le_bytes(word)
    }

    fn number(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * index)
    }

    fn count(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * (self.len + index))
    }

    fn set_count(&self, image: &mut [u8], index: usize, count: u64) {
        let at = BRANCH_HEAD + 8 * (self.len + index);
        image[at..at + 8].copy_from_slice(&count.to_le_bytes());
    }

    /// Where the key of a child begins in the listpack.
    fn key_begin(&self, index: usize) -> Result<usize, Damage> {
        let end = self.listpack.len() - 1;
        if index == self.len {
            return Ok(end);
        }
        let at = BRANCH_HEAD + CHILD * self.len + BEGIN * index;
        let mut begin = [0; BEGIN];
        begin.copy_from_slice(&self.image[at..at + BEGIN]);
        let begin = u32::from_le_bytes(begin) as usize;
        match (HEAD..=end).contains(&begin) {
            true => Ok(begin),
            false => Err(damage("a key beyond its branch")),
        }
    }

    fn key_element(&self, index: usize) -> Result<Parts<'b>, Damage> {
        let entries = Entries::at(self.listpack, self.key_begin(index)?);
        parts(entries, self.shape.stride)
    }

    fn children(&self) -> Result<Vec<Child<'b>>, Damage> {
        // One more usually comes.
        let mut children = Vec::with_capacity(self.len + 1);
        for index in 0..self.len {
            let key = match self.shape.has_keys {
                true => {
                    let key = self.key_begin(index)?..self.key_begin(index + 1)?;
                    let key = self.listpack.get(key);
                    key.ok_or_else(|| damage("keys that are not in order"))?
                }
                false => &[],
            };
            children.push(Child {
                number: self.number(index),
                count: self.count(index),
                key,
            });
        }
        Ok(children)
    }

    /// The child in or below which a place is. A position becomes one of the child's.
    fn index(&self, seek: &mut Seek<'_>, is_new: bool) -> Result<usize, Damage> {
        let position = match seek {
            Seek::By(compare) => return self.index_by(compare),
            Seek::At(position) => position,
        };
        for index in 0..self.len {
            let count = self.count(index);
            if *position < count || is_new && *position == count {
                return Ok(index);
            }
            *position -= count;
        }
        Err(beyond())
    }

    fn index_by(&self, compare: &mut Compare<'_>) -> Result<usize, Damage> {
        if !self.shape.has_keys {
            return Err(damage("a tree without keys that is looked through"));
        }
        let index = first_without(1..self.len, |index| {
            let key = self.key_element(index)?;
            Ok(compare(key.values())? != Ordering::Greater)
        })?;
        Ok(index - 1)
    }
}

/// The first of `range` for which `is_before` is not so, if those for which it is come first.
fn first_without(
    range: Range<usize>,
    mut is_before: impl FnMut(usize) -> Result<bool, Damage>,
) -> Result<usize, Damage> {
    let (mut begin, mut end) = (range.start, range.end);
    while begin < end {
        let middle = begin + (end - begin) / 2;
        match is_before(middle)? {
            true => begin = middle + 1,
            false => end = middle,
        }
    }
    Ok(begin)
}

impl<'b> Parts<'b> {
    fn values(&self) -> &[Element<'b>] {
        &self.parts[..self.stride]
    }
}

/// The next `stride` entries.
fn parts(mut entries: Entries<'_>, stride: usize) -> Result<Parts<'_>, Damage> {
    let mut parts = [Element::Integer(0); MAX_STRIDE];
    for part in &mut parts[..stride] {
        let entry = entries.next().transpose()?;
        *part = entry
            .ok_or_else(|| damage("an element of a tree that is not whole"))?
            .value();
    }
    Ok(Parts { parts, stride })
}

fn entries_of(element: &[&[u8]]) -> Vec<u8> {
    let mut entries = Vec::new();
    for value in element {
        Encoded::of(value).append_to(&mut entries);
    }
    entries
}

/// The image of a leaf with these entries.
fn leaf_of(entries: &[u8], count: usize) -> Vec<u8> {
    let mut image = Vec::with_capacity(FORM + EMPTY.len() + entries.len());
    image.push(LEAF);
    image.extend_from_slice(&EMPTY[..HEAD]);
    image.extend_from_slice(entries);
    image.push(EMPTY[HEAD]);
    listpack::finish(&mut image[FORM..], Some(count));
    image
}

/// The image of a branch with these children.
fn branch_of(children: &[Child<'_>], shape: ElementShape) -> Vec<u8> {
    let keys: usize = children.iter().map(|child| child.key.len()).sum();
    let of_child = CHILD + BEGIN;
    let mut image =
        Vec::with_capacity(BRANCH_HEAD + children.len() * of_child + EMPTY.len() + keys);
    image.extend_from_slice(&[BRANCH, u8::from(shape.has_keys)]);
    image.extend_from_slice(&(children.len() as u16).to_le_bytes());
    for child in children {
        image.extend_from_slice(&child.number.to_le_bytes());
    }
    for child in children {
        image.extend_from_slice(&child.count.to_le_bytes());
    }
    if !shape.has_keys {
        return image;
    }
    let mut begin = HEAD;
    for child in children {
        image.extend_from_slice(&(begin as u32).to_le_bytes());
        begin += child.key.len();
    }
    let listpack = image.len();
    image.extend_from_slice(&EMPTY[..HEAD]);
    for child in children {
        image.extend_from_slice(child.key);
    }
    image.push(EMPTY[HEAD]);
    listpack::finish(&mut image[listpack..], Some(children.len() * shape.stride));
    image
}

#[cold]
fn damage(what: &'static str) -> Damage {
    Damage { at: 0, what }
}

#[cold]
fn endless() -> Damage {
    damage("a tree that leads to itself")
}

#[cold]
fn beyond() -> Damage {
    damage("a position beyond the tree")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::model::Model;

    const LIST: ElementShape = ElementShape {
        stride: 1,
        has_keys: false,
    };
    const ORDERED: ElementShape = ElementShape {
        stride: 2,
        has_keys: true,
    };

    type Pair = (i64, Vec<u8>);

    fn order(one: &[Element<'_>], other: (i64, &[u8])) -> Result<Ordering, Damage> {
        let Element::Integer(number) = one[1] else {
            return Err(damage("no number"));
        };
        let of_bytes = one[0].with_bytes(|bytes| bytes.cmp(other.1));
        Ok(number.cmp(&other.0).then(of_bytes))
    }

    fn of_two(one: &[Element<'_>], other: &[Element<'_>]) -> Result<Ordering, Damage> {
        let Element::Integer(number) = other[1] else {
            return Err(damage("no number"));
        };
        other[0].with_bytes(|bytes| order(one, (number, bytes)))
    }

    fn all(tree: &mut CountedTree<'_>, skipped: u64, is_backwards: bool) -> Vec<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        tree.walk(skipped, is_backwards, &mut |element| {
            found.push(element.iter().map(Element::to_vec).collect());
            Ok(true)
        })
        .unwrap();
        found
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u16, usize),
        Append(usize, u16),
        Prepend(usize, u16),
        Remove(u16),
        RemoveRange(u16, u16),
        Replace(u16, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let len = prop_oneof![20 => 0..60usize, 2 => 60..700usize, 1 => Just(5000usize)];
        prop_oneof![
            20 => (any::<u16>(), len.clone()).prop_map(|(at, len)| Op::Insert(at, len)),
            2 => (0..60usize, 1..120u16).prop_map(|(len, times)| Op::Append(len, times)),
            2 => (0..60usize, 1..120u16).prop_map(|(len, times)| Op::Prepend(len, times)),
            12 => any::<u16>().prop_map(Op::Remove),
            1 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Op::RemoveRange(a, b)),
            4 => (any::<u16>(), len).prop_map(|(at, len)| Op::Replace(at, len)),
        ]
    }

    /// A position from a number of 16 bits.
    fn position(number: u16, len: usize) -> usize {
        usize::from(number) * len / 65_536
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_tree_by_position_holds_what_a_vector_holds(
            built in 0..400usize,
            ops in proptest::collection::vec(op(), 1..250),
        ) {
            let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
            let mut list: Vec<Vec<u8>> = (0..built).map(|i| i.to_string().into_bytes()).collect();
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
            tree.build(list.iter().map(|value| [&value[..]])).unwrap();
            for (number, op) in ops.into_iter().enumerate() {
                let value = |len| [number.to_string().as_bytes(), &vec![b'x'; len]].concat();
                match op {
                    Op::Insert(at, len) => {
                        let at = position(at, list.len() + 1);
                        tree.insert(Seek::At(at as u64), &[&value(len)]).unwrap();
                        list.insert(at, value(len));
                    }
                    Op::Append(len, times) => for _ in 0..times {
                        tree.insert(Seek::At(list.len() as u64), &[&value(len)]).unwrap();
                        list.push(value(len));
                    },
                    Op::Prepend(len, times) => for _ in 0..times {
                        tree.insert(Seek::At(0), &[&value(len)]).unwrap();
                        list.insert(0, value(len));
                    },
                    Op::Remove(at) => {
                        let at = position(at, list.len().max(1));
                        tree.remove(at as u64..at as u64 + 1).unwrap();
                        drop(list.drain(at..(at + 1).min(list.len())));
                    }
                    Op::RemoveRange(one, other) => {
                        let (one, other) = (position(one, list.len()), position(other, list.len()));
                        let range = one.min(other)..one.max(other);
                        tree.remove(range.start as u64..range.end as u64).unwrap();
                        drop(list.drain(range));
                    }
                    Op::Replace(at, len) => if !list.is_empty() {
                        let at = position(at, list.len());
                        tree.replace(at as u64, &[&value(len)]).unwrap();
                        list[at] = value(len);
                    },
                }
                let count = tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap();
                prop_assert_eq!(count, list.len() as u64);
                let at = list.len() / 3;
                let found = tree.get(at as u64).unwrap();
                prop_assert_eq!(found.as_ref().map(|f| &f[0]), list.get(at));
            }
            let found = all(&mut tree, 0, false);
            prop_assert!(found.iter().map(|found| &found[0]).eq(&list));
            let skipped = list.len() / 2;
            let found = all(&mut tree, skipped as u64, true);
            prop_assert!(found.iter().map(|found| &found[0]).eq(list.iter().rev().skip(skipped)));
            prop_assert_eq!(tree.get(list.len() as u64).unwrap(), None);
            tree.copy_to(2).unwrap();
            tree.remove(0..u64::MAX).unwrap();
            prop_assert_eq!(tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap(), 0);
            prop_assert_eq!(model.inner.len(), 0);
            prop_assert_eq!(model.copies.is_empty(), list.is_empty());
        }

        #[test]
        fn a_tree_by_comparison_holds_what_a_set_holds(
            built in 0..400i64,
            ops in proptest::collection::vec((0..40u8, -50..50i64, 0..90u16), 1..1000),
        ) {
            let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
            let mut set = std::collections::BTreeSet::<Pair>::new();
            let member = |number: u16| match number {
                80.. => vec![b'm'; 100 * usize::from(number)],
                _ => format!("member {number}").into_bytes(),
            };
            set.extend((0..built).map(|number| (number % 50, member(number as u16 % 90))));
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
            let numbers: Vec<_> = set.iter().map(|(number, _)| number.to_string()).collect();
            let each = set.iter().zip(&numbers);
            tree.build(each.map(|((_, member), number)| [&member[..], number.as_bytes()])).unwrap();
            for (what, number, name) in ops {
                let name = member(name);
                let pair = (number, name.clone());
                let mut by = |element: &[Element<'_>]| order(element, (number, &name));
                let (before, is_there) = tree.rank(&mut by).unwrap();
                prop_assert_eq!(before, set.range(..pair.clone()).count() as u64);
                prop_assert_eq!(is_there, set.contains(&pair));
                match (is_there, what) {
                    (false, _) => {
                        let text = number.to_string();
                        tree.insert(Seek::By(&mut by), &[&name, text.as_bytes()]).unwrap();
                        set.insert(pair);
                    }
                    (true, 1..) => {
                        tree.remove(before..before + 1).unwrap();
                        set.remove(&pair);
                    }
                    (true, 0) => {
                        tree.remove(before..before + 100).unwrap();
                        let gone: Vec<Pair> = set.range(pair..).take(100).cloned().collect();
                        set.retain(|pair| !gone.contains(pair));
                    }
                }
                // All elements of a number, none of which is `Equal`.
                let mut less = |element: &[Element<'_>]| Ok(match order(element, (number, b""))? {
                    Ordering::Less => Ordering::Less,
                    _ => Ordering::Greater,
                });
                let before = set.range(..(number, Vec::new())).count() as u64;
                prop_assert_eq!(tree.rank(&mut less).unwrap(), (before, false));
            }
            prop_assert_eq!(tree.check(&mut of_two).unwrap(), set.len() as u64);
            let found = all(&mut tree, 3, false).into_iter();
            let found = found.map(|found| (listpack::integer(&found[1]).unwrap(), found[0].clone()));
            prop_assert!(found.eq(set.iter().skip(3).cloned()));
        }

        #[test]
        fn a_damaged_record_is_an_error_and_never_a_panic(
            at in any::<prop::sample::Index>(),
            byte in any::<prop::sample::Index>(),
            value in any::<u8>(),
            position in 0..700u64,
        ) {
            for shape in [LIST, ORDERED] {
                let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
                let names: Vec<String> = (0..600).map(|i| format!("member {i:04}")).collect();
                let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, shape);
                let each = names.iter().map(|name| name.as_bytes());
                match shape.stride {
                    1 => tree.build(each.map(|name| [name])).unwrap(),
                    _ => tree.build(each.map(|name| [name, b"7"])).unwrap(),
                }
                let numbers: Vec<u64> = model.inner.keys().copied().collect();
                let record = model.inner.get_mut(&numbers[at.index(numbers.len())]).unwrap();
                let byte = byte.index(record.len());
                record[byte] = value;
                let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, shape);
                let mut by = |element: &[Element<'_>]| order(element, (7, b"member 0301"));
                if shape.has_keys {
                    let _ = (tree.check(&mut of_two), tree.rank(&mut by));
                }
                let _ = tree.check(&mut |_, _| Ok(Ordering::Less));
                let _ = tree.get(position);
                let _ = tree.walk(position, true, &mut |_| Ok(true));
                let element: [&[u8]; 2] = [b"member 0301 and more", b"7"];
                let _ = match shape.has_keys {
                    true => tree.insert(Seek::By(&mut by), &element),
                    false => tree.insert(Seek::At(position), &element[..1]),
                };
            }
        }
    }

    #[test]
    fn leaves_of_what_only_grows_at_an_end_are_full_and_the_tree_is_low() {
        for is_front in [false, true] {
            let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
            for i in 0..50_000u64 {
                let at = if is_front { 0 } else { i };
                tree.insert(Seek::At(at), &[b"0123456789abcdef"]).unwrap();
            }
            let (bytes, records) = (anchor_tree.bytes, model.inner.len() as u64);
            assert!(
                bytes / records > SPLIT as u64 * 9 / 10,
                "{bytes} / {records}"
            );
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
            // What is removed one by one leaves no record that is nearly empty.
            for i in 0..49_000u64 {
                let at = (i * 7_919) % (50_000 - i);
                tree.remove(at..at + 1).unwrap();
            }
            let count = tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap();
            assert_eq!(count, 1000);
            let (bytes, records) = (anchor_tree.bytes, model.inner.len() as u64);
            assert!(bytes / records > JOIN as u64, "{bytes} / {records}");
        }
    }
}
