//! The records of a [counted tree](super).
//!
//! Elements lie in *leaves*. A leaf is a byte for its form and a listpack, in which each element
//! has as many entries as the tree's shape says. If elements have positions, an element's first
//! entry is its position. Such a leaf has another first byte; the [positions](super::positions) of
//! all elements follow that byte, and the listpack holds only the other entries.
//!
//! A *branch* leads to leaves or to other branches:
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
//! A child's key consists of the entries by which elements are compared. It is the key of an
//! element that is or was in the tree: everything in or below the child is greater or equal, and
//! everything before the child is less. The first child's key is never used.

use std::cmp::Ordering;
use std::ops::Range;

use mneme_log::{BRANCH, BRANCH_HEAD};

use crate::error::Damage;
use crate::listpack::{self, EMPTY, Element, ElementWalk, Encoded, Entries, HEAD, Listpack};

use super::positions::{LONGEST_RUN, Positions, RUN};

/// The maximum number of entries of an element.
pub(super) const MAX_STRIDE: usize = 2;
/// The first byte of a leaf.
const LEAF: u8 = 2;
/// The first byte of a leaf whose elements have positions.
const LEAF_WITH_POSITIONS: u8 = 4;
/// One step backward takes as long as this many steps forward.
const STEP_BACK: usize = 3;
/// The size in bytes of the form of a leaf.
const FORM: usize = 1;
/// The size in bytes of a child in a branch, without its key.
pub(super) const CHILD: usize = 16;
/// The size in bytes of the offset of a key.
pub(super) const BEGIN: usize = 4;

/// The structure of a tree's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ElementShape {
    /// Entries of an element.
    pub stride: usize,
    /// The number of leading entries by which elements are compared; 0: elements are found by
    /// position only.
    pub key: usize,
    /// Whether the first entry is a position, an integer. Then elements are compared by it alone.
    pub has_positions: bool,
}

impl ElementShape {
    /// The number of entries of an element in the listpack of a leaf.
    fn in_leaf(self) -> usize {
        self.stride - usize::from(self.has_positions)
    }

    /// The size in bytes of a leaf without its elements, if their positions form one run.
    pub(super) fn head(self) -> usize {
        let positions = if self.has_positions { LONGEST_RUN } else { 0 };
        FORM + positions + EMPTY.len()
    }

    pub(super) fn has_keys(self) -> bool {
        self.key > 0
    }
}

/// Compares an element with the place that is sought: before it, at it, or after it. In the order
/// of the tree, elements are first `Less`, then at most one is `Equal`, and the rest are `Greater`.
pub(crate) type Compare<'c> = dyn FnMut(&[Element<'_>]) -> Result<Ordering, Damage> + 'c;

/// An element, or the end after all elements.
pub(crate) enum Seek<'c> {
    /// The element at this position.
    At(u64),
    /// The last element.
    Last,
    /// The first element that is not `Less`.
    By(&'c mut Compare<'c>),
}

/// The entries of an element, each as a value.
pub(super) struct ElementParts<'b> {
    parts: [Element<'b>; MAX_STRIDE],
    stride: usize,
}

/// A record, for reading.
pub(super) enum CountedNode<'b> {
    Leaf(CountedLeaf<'b>),
    Branch(Branch<'b>),
}

impl<'b> CountedNode<'b> {
    pub fn read(image: &'b [u8], shape: ElementShape) -> Result<CountedNode<'b>, Damage> {
        match image.first() {
            Some(&BRANCH) => Branch::read(image, shape).map(CountedNode::Branch),
            _ => CountedLeaf::read(image, shape).map(CountedNode::Leaf),
        }
    }
}

/// Elements to be inserted into a tree, in order.
#[derive(Default)]
pub(crate) struct NewElements {
    /// The entries, without positions.
    entries: Vec<u8>,
    len: usize,
    positions: Positions,
}

impl NewElements {
    /// An element without a position.
    pub fn one(element: &[&[u8]]) -> NewElements {
        NewElements {
            entries: entries_of(element),
            len: 1,
            positions: Positions::default(),
        }
    }

    /// Items whose positions begin at `first` and are `step` apart.
    pub fn at<'i>(
        first: i64,
        step: u64,
        items: impl Iterator<Item = &'i [u8]>,
    ) -> Result<NewElements, Damage> {
        let (mut entries, mut len) = (Vec::new(), 0);
        for item in items {
            Encoded::of(item).append_to(&mut entries);
            len += 1;
        }
        Ok(NewElements {
            entries,
            len,
            positions: Positions::run(first, step, len)?,
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The size of their entries in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Appends an element, by its entries.
    pub(super) fn push(&mut self, entries: &[u8]) {
        self.entries.extend_from_slice(entries);
        self.len += 1;
    }

    /// All of them, borrowed.
    pub(super) fn elements(&self) -> LeafRun<'_> {
        LeafRun {
            entries: &self.entries,
            positions: &self.positions,
            range: 0..self.len,
        }
    }
}

/// Consecutive elements, borrowed.
#[derive(Clone)]
pub(super) struct LeafRun<'p> {
    entries: &'p [u8],
    /// The positions of all elements there.
    positions: &'p Positions,
    /// The range of those meant.
    range: Range<usize>,
}

pub(super) struct CountedLeaf<'b> {
    /// The leaf's bytes.
    pub bytes: usize,
    pub listpack: Listpack<'b>,
    /// The number of elements, as the listpack's head says.
    len: usize,
    positions: Positions,
    pub shape: ElementShape,
}

/// The place where an element of a leaf begins, or the end after all elements.
#[derive(Clone, Copy)]
pub(super) struct LeafPlace {
    /// The number of elements before it.
    pub index: usize,
    /// Its offset in the listpack.
    begin: usize,
}

impl LeafPlace {
    /// Returns an error unless this place, which was reached by walking over elements, equals
    /// `other`.
    pub fn is(self, other: LeafPlace) -> Result<(), Damage> {
        match (self.index, self.begin) == (other.index, other.begin) {
            true => Ok(()),
            false => Err(other_number()),
        }
    }
}

impl LeafRun<'_> {
    pub fn len(&self) -> usize {
        self.range.len()
    }
}

impl<'b> CountedLeaf<'b> {
    /// Reads only its heads: other information is compared with them when it is accessed.
    pub fn read(image: &'b [u8], shape: ElementShape) -> Result<CountedLeaf<'b>, Damage> {
        let (positions, listpack) = match (image.split_first(), shape.has_positions) {
            (Some((&LEAF, rest)), false) => (Positions::default(), rest),
            (Some((&LEAF_WITH_POSITIONS, rest)), true) => Positions::read(rest)?,
            _ => return Err(damage("a record of a tree of an unknown form")),
        };
        let listpack = Listpack::read(listpack)?;
        let entries = listpack.said_len();
        let entries = entries.unwrap_or_else(|| listpack.entries().count());
        let len = entries / shape.in_leaf();
        let is_whole = len * shape.in_leaf() == entries;
        if !is_whole || shape.has_positions && positions.len() != len {
            return Err(other_number());
        }
        Ok(CountedLeaf {
            bytes: image.len(),
            listpack,
            len,
            positions,
            shape,
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Compares the number of its elements with the count in its parent branch, if it has a parent.
    pub fn has(&self, count: Option<u64>) -> Result<(), Damage> {
        match count.is_none_or(|count| count == self.len as u64) {
            true => Ok(()),
            false => Err(other_number()),
        }
    }

    pub fn first(&self) -> LeafPlace {
        LeafPlace {
            index: 0,
            begin: HEAD,
        }
    }

    pub fn end(&self) -> LeafPlace {
        LeafPlace {
            index: self.len,
            begin: self.listpack.bytes().len() - 1,
        }
    }

    /// The places of all elements, and the end.
    pub fn places(&self) -> Result<Vec<LeafPlace>, Damage> {
        let mut places = Vec::with_capacity(self.len + 1);
        let mut add = |begin| {
            let index = places.len();
            places.push(LeafPlace { index, begin });
        };
        match self.shape.in_leaf() {
            1 => each_begin(self.listpack.walk::<1>(HEAD), &mut add)?,
            _ => each_begin(self.listpack.walk::<MAX_STRIDE>(HEAD), &mut add)?,
        }
        add(self.end().begin);
        match places.len() == self.len + 1 {
            true => Ok(places),
            false => Err(other_number()),
        }
    }

    /// The place of element number `index`, or the end. `index` must not exceed the number of
    /// elements.
    pub fn place(&self, index: usize) -> Result<LeafPlace, Damage> {
        let behind = self.len - index;
        // A step backward takes as long as several steps forward.
        if STEP_BACK * behind < index {
            let mut place = self.end();
            for _ in 0..behind {
                place = self.before(place)?;
            }
            return Ok(place);
        }
        let mut place = self.first();
        for _ in 0..index {
            place = self.behind(place)?;
        }
        Ok(place)
    }

    /// The places at which this range of elements begins and ends. The second is reached from the
    /// first, so that exactly as many elements lie between them.
    pub fn range(&self, of: Range<usize>) -> Result<Range<LeafPlace>, Damage> {
        let start = self.place(of.start)?;
        if of.end == self.len {
            return Ok(start..self.end());
        }
        let mut end = start;
        for _ in of {
            end = self.behind(end)?;
        }
        Ok(start..end)
    }

    /// The place after an element.
    pub fn behind(&self, place: LeafPlace) -> Result<LeafPlace, Damage> {
        let mut begin = place.begin;
        for _ in 0..self.shape.in_leaf() {
            begin = self.listpack.end_of(begin)?;
        }
        let index = place.index + 1;
        Ok(LeafPlace { index, begin })
    }

    /// The place of the element before one that is not the first.
    pub fn before(&self, place: LeafPlace) -> Result<LeafPlace, Damage> {
        let mut entries = self.listpack.entries_before(place.begin);
        let entry = entries.nth(self.shape.in_leaf() - 1).transpose()?;
        Ok(LeafPlace {
            index: place.index - 1,
            begin: entry.ok_or_else(other_number)?.begin,
        })
    }

    /// The approximate size in bytes of each element in a leaf.
    pub fn sizes(&self, places: &[LeafPlace]) -> Vec<usize> {
        let sizes = places.windows(2).map(|of| of[1].begin - of[0].begin);
        let mut sizes: Vec<usize> = sizes.collect();
        self.positions
            .begins()
            .for_each(|first| sizes[first] += RUN);
        sizes
    }

    pub fn elements(&self, of: Range<LeafPlace>) -> Result<LeafRun<'_>, Damage> {
        let entries = self.listpack.bytes().get(of.start.begin..of.end.begin);
        Ok(LeafRun {
            entries: entries.ok_or_else(other_number)?,
            positions: &self.positions,
            range: of.start.index..of.end.index,
        })
    }

    /// The bytes of the entries by which an element is compared.
    pub fn key(&self, of: LeafPlace) -> Result<Vec<u8>, Damage> {
        let mut key = Vec::new();
        if self.shape.has_positions {
            Encoded::of_integer(self.positions.at(of.index)).append_to(&mut key);
            return Ok(key);
        }
        let mut end = of.begin;
        for _ in 0..self.shape.key {
            end = self.listpack.end_of(end)?;
        }
        key.extend_from_slice(&self.listpack.bytes()[of.begin..end]);
        Ok(key)
    }

    /// An element, and the place after it.
    pub fn element(&self, of: LeafPlace) -> Result<(ElementParts<'b>, LeafPlace), Damage> {
        let has_position = self.shape.has_positions;
        let position = has_position.then(|| self.positions.at(of.index));
        let mut entries = Entries::at(self.listpack.bytes(), of.begin);
        let parts = parts(position, &mut entries, self.shape.stride)?;
        let (index, begin) = (of.index + 1, entries.place());
        Ok((parts, LeafPlace { index, begin }))
    }

    pub fn find(&self, seek: &mut Seek<'_>) -> Result<LeafPlace, Damage> {
        match seek {
            Seek::At(position) => match usize::try_from(*position) {
                Ok(index) if index <= self.len => self.place(index),
                _ => Err(damage("an element that is not in its tree")),
            },
            Seek::Last => self.place(self.len.saturating_sub(1)),
            Seek::By(compare) => self.find_by(compare),
        }
    }

    pub fn find_by(&self, compare: &mut Compare<'_>) -> Result<LeafPlace, Damage> {
        let places = self.places()?;
        let index = first_without(0..self.len, |index| {
            let (element, _) = self.element(places[index])?;
            Ok(compare(element.values())? == Ordering::Less)
        })?;
        Ok(places[index])
    }
}

/// The number of elements in the first half of a leaf, by bytes. The leaf must have at least two.
pub(super) fn middle(places: &[LeafPlace]) -> usize {
    let len = places.len() - 1;
    let end = places[len].begin;
    let half = end.div_ceil(2);
    let index = places.partition_point(|place| place.begin < half);
    // The element in the middle belongs to the shorter half.
    let before = index.saturating_sub(1);
    let of_index = |index: usize| places[index].begin.max(end - places[index].begin);
    let is_before = index > len || of_index(before) < of_index(index);
    let index = if is_before { before } else { index };
    index.clamp(1, len - 1)
}

fn each_begin<const ENTRIES: usize>(
    mut walk: ElementWalk<'_, ENTRIES>,
    add: &mut impl FnMut(usize),
) -> Result<(), Damage> {
    while let Some(begin) = walk.pass()? {
        add(begin);
    }
    Ok(())
}

pub(super) struct Branch<'b> {
    pub image: &'b [u8],
    /// The number of children.
    pub len: usize,
    shape: ElementShape,
    /// The listpack of the keys.
    listpack: &'b [u8],
}

/// A child of a branch.
#[derive(Clone, Copy)]
pub(super) struct Child<'b> {
    pub number: u64,
    pub count: u64,
    /// The bytes of its key's entries.
    pub key: &'b [u8],
}

impl<'b> Branch<'b> {
    pub fn read(image: &'b [u8], shape: ElementShape) -> Result<Branch<'b>, Damage> {
        let unsound = || damage("a branch that is none");
        let [BRANCH, has_keys, low, high, ..] = *image else {
            return Err(unsound());
        };
        let len = usize::from(u16::from_le_bytes([low, high]));
        let of_child = CHILD + if shape.has_keys() { BEGIN } else { 0 };
        let Some(listpack) = image.get(BRANCH_HEAD + of_child * len..) else {
            return Err(unsound());
        };
        if len == 0 || has_keys != u8::from(shape.has_keys()) {
            return Err(unsound());
        }
        if shape.has_keys() {
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

    pub fn number(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * index)
    }

    pub fn count(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * (self.len + index))
    }

    /// The number of elements below all of its children. It must fit 63 bits.
    pub fn total(&self) -> Result<u64, Damage> {
        let mut counts = (0..self.len).map(|index| self.count(index));
        let total = counts.try_fold(0u64, u64::checked_add);
        total
            .filter(|total| i64::try_from(*total).is_ok())
            .ok_or_else(too_many)
    }

    /// Adds to the count of a child, in a copy of the branch's image.
    pub fn add_to_count(&self, image: &mut [u8], index: usize, added: i64) {
        let count = self.count(index).saturating_add_signed(added);
        let at = BRANCH_HEAD + 8 * (self.len + index);
        image[at..at + 8].copy_from_slice(&count.to_le_bytes());
    }

    /// The offset of a child's key in the listpack.
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

    pub fn key_element(&self, index: usize) -> Result<ElementParts<'b>, Damage> {
        let mut entries = Entries::at(self.listpack, self.key_begin(index)?);
        parts(None, &mut entries, self.shape.key)
    }

    pub fn children(&self) -> Result<Vec<Child<'b>>, Damage> {
        // Usually one is added.
        let mut children = Vec::with_capacity(self.len + 1);
        for index in 0..self.len {
            let key = match self.shape.has_keys() {
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

    /// The child that contains the place. A position becomes relative to that child.
    pub fn index(&self, seek: &mut Seek<'_>) -> Result<usize, Damage> {
        let position = match seek {
            Seek::By(compare) => return self.index_by(compare),
            Seek::Last => return Ok(self.len - 1),
            Seek::At(position) => position,
        };
        let last = self.len - 1;
        for index in 0..last {
            let count = self.count(index);
            if *position < count {
                return Ok(index);
            }
            *position -= count;
        }
        Ok(last)
    }

    pub fn index_by(&self, compare: &mut Compare<'_>) -> Result<usize, Damage> {
        if !self.shape.has_keys() {
            return Err(damage("a tree without keys that is looked through"));
        }
        let index = first_without(1..self.len, |index| {
            let key = self.key_element(index)?;
            Ok(compare(key.values())? != Ordering::Greater)
        })?;
        Ok(index - 1)
    }
}

/// The first of `range` for which `is_before` is false; all for which it is true must come first.
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

impl<'b> ElementParts<'b> {
    pub fn values(&self) -> &[Element<'b>] {
        &self.parts[..self.stride]
    }
}

/// An element of `stride` entries: its position, if it has one, and then the listpack's entries.
pub(super) fn parts<'b>(
    position: Option<i64>,
    entries: &mut Entries<'b>,
    stride: usize,
) -> Result<ElementParts<'b>, Damage> {
    let mut parts = [Element::Integer(position.unwrap_or_default()); MAX_STRIDE];
    for part in &mut parts[usize::from(position.is_some())..stride] {
        let entry = entries.next().transpose()?;
        *part = entry
            .ok_or_else(|| damage("an element of a tree that is not whole"))?
            .value();
    }
    Ok(ElementParts { parts, stride })
}

/// The entries of an element.
pub(super) fn entries_of(element: &[&[u8]]) -> Vec<u8> {
    let mut entries = Vec::new();
    for value in element {
        Encoded::of(value).append_to(&mut entries);
    }
    entries
}

/// The image of a leaf with these elements, and how many there are.
pub(super) fn leaf_of(
    runs: &[LeafRun<'_>],
    shape: ElementShape,
) -> Result<(Vec<u8>, usize), Damage> {
    let bytes: usize = runs.iter().map(|run| run.entries.len()).sum();
    let count = runs.iter().map(LeafRun::len).sum();
    let mut image = Vec::with_capacity(shape.head() + bytes);
    image.push(match shape.has_positions {
        true => LEAF_WITH_POSITIONS,
        false => LEAF,
    });
    if shape.has_positions {
        let mut positions = Positions::default();
        for run in runs {
            positions.extend(run.positions, run.range.clone())?;
        }
        positions.append_to(&mut image);
    }
    let listpack = image.len();
    image.extend_from_slice(&EMPTY[..HEAD]);
    (runs.iter()).for_each(|run| image.extend_from_slice(run.entries));
    image.push(EMPTY[HEAD]);
    listpack::finish(&mut image[listpack..], Some(count * shape.in_leaf()));
    Ok((image, count))
}

/// The image of a branch with these children.
pub(super) fn branch_of(children: &[Child<'_>], shape: ElementShape) -> Vec<u8> {
    let keys: usize = children.iter().map(|child| child.key.len()).sum();
    let of_child = CHILD + BEGIN;
    let mut image =
        Vec::with_capacity(BRANCH_HEAD + children.len() * of_child + EMPTY.len() + keys);
    image.extend_from_slice(&[BRANCH, u8::from(shape.has_keys())]);
    image.extend_from_slice(&(children.len() as u16).to_le_bytes());
    for child in children {
        image.extend_from_slice(&child.number.to_le_bytes());
    }
    for child in children {
        image.extend_from_slice(&child.count.to_le_bytes());
    }
    if !shape.has_keys() {
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
    listpack::finish(&mut image[listpack..], Some(children.len() * shape.key));
    image
}

#[cold]
fn other_number() -> Damage {
    damage("a leaf with another number of elements")
}

#[cold]
pub(super) fn too_many() -> Damage {
    damage("a branch with more elements than can be counted")
}

#[cold]
pub(super) fn damage(what: &'static str) -> Damage {
    Damage { at: 0, what }
}
