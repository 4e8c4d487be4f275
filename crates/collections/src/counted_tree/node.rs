//! The records of a [counted tree](super).
//!
//! Elements lie in *leaves*, each a listpack behind one byte, in which an element has as many
//! entries as the tree's shape says. What leads to leaves is a *branch*:
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

use std::cmp::Ordering;
use std::ops::Range;

use mneme_log::{BRANCH, BRANCH_HEAD};

use crate::error::Damage;
use crate::listpack::{self, EMPTY, Element, Encoded, Entries, Entry, HEAD, Listpack};

/// Entries of an element at most.
pub(super) const MAX_STRIDE: usize = 2;
/// The first byte of a leaf.
const LEAF: u8 = 2;
/// Bytes of a leaf before its listpack.
pub(super) const FORM: usize = 1;
/// Bytes of a branch for each child, without its key.
pub(super) const CHILD: usize = 16;
/// Bytes that say where a key begins.
pub(super) const BEGIN: usize = 4;

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

/// An element, or the end behind all of them.
pub(crate) enum Seek<'c> {
    /// The one at this position.
    At(u64),
    /// The last one.
    Last,
    /// The first one that is not `Less`.
    By(&'c mut Compare<'c>),
}

/// The entries of an element, each as a value.
pub(super) struct ElementParts<'b> {
    parts: [Element<'b>; MAX_STRIDE],
    stride: usize,
}

/// A record that is read.
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

/// Elements of which the last one is compared with a place, before those that are fewer.
const STEPS: [usize; 3] = [16, 4, 1];

pub(super) struct CountedLeaf<'b> {
    listpack: Listpack<'b>,
    /// Elements.
    pub len: usize,
    shape: ElementShape,
}

/// An element of a leaf, or the end behind them.
pub(super) struct Found<'b> {
    pub index: usize,
    /// Its bytes in the listpack.
    pub bytes: Range<usize>,
    pub element: Option<ElementParts<'b>>,
}

impl<'b> CountedLeaf<'b> {
    pub fn read(image: &'b [u8], shape: ElementShape) -> Result<CountedLeaf<'b>, Damage> {
        let Some((&LEAF, listpack)) = image.split_first() else {
            return Err(damage("a record of a tree of an unknown form"));
        };
        let listpack = Listpack::read(listpack)?;
        match listpack.said_len() {
            Some(said) if said % shape.stride == 0 => Ok(CountedLeaf {
                listpack,
                len: said / shape.stride,
                shape,
            }),
            _ => Err(damage("an element of a tree that is not whole")),
        }
    }

    /// The entries of its elements.
    pub fn entries(&self) -> &'b [u8] {
        let bytes = self.listpack.bytes();
        &bytes[HEAD..bytes.len() - 1]
    }

    /// Where the element behind the next `skipped` ones begins, of which the first begins at `at`.
    fn behind(&self, at: usize, skipped: usize) -> Result<usize, Damage> {
        let mut entries = Entries::at(self.listpack.bytes(), at);
        for _ in 0..skipped * self.shape.stride {
            next(&mut entries)?;
        }
        Ok(entries.place())
    }

    /// The element that begins at `at`.
    fn found(&self, index: usize, at: usize) -> Result<Found<'b>, Damage> {
        let mut entries = Entries::at(self.listpack.bytes(), at);
        let element = match index < self.len {
            true => Some(parts(&mut entries, self.shape.stride)?),
            false => None,
        };
        Ok(Found {
            index,
            bytes: at..entries.place(),
            element,
        })
    }

    /// Its elements from this one on.
    pub fn elements(
        &self,
        from: usize,
    ) -> Result<impl Iterator<Item = Result<ElementParts<'b>, Damage>>, Damage> {
        let from = from.min(self.len);
        let mut entries = Entries::at(self.listpack.bytes(), self.behind(HEAD, from)?);
        let stride = self.shape.stride;
        Ok((from..self.len).map(move |_| parts(&mut entries, stride)))
    }

    pub fn find(&self, seek: &mut Seek<'_>) -> Result<Found<'b>, Damage> {
        let (index, at) = match seek {
            Seek::By(compare) => return self.find_by(compare),
            Seek::At(position) => {
                let index = usize::try_from(*position).unwrap_or(usize::MAX);
                if index > self.len {
                    return Err(beyond());
                }
                (index, self.behind(HEAD, index)?)
            }
            Seek::Last => {
                let last = self.listpack.entries_back().take(self.shape.stride).last();
                let begin = last.transpose()?.map_or(HEAD, |entry| entry.begin);
                (self.len.saturating_sub(1), begin)
            }
        };
        self.found(index, at)
    }

    /// The first element that is not `Less`.
    pub fn find_by(&self, compare: &mut Compare<'_>) -> Result<Found<'b>, Damage> {
        let (mut index, mut at) = (0, HEAD);
        for step in STEPS {
            while index + step <= self.len {
                let last = self.behind(at, step - 1)?;
                let found = self.found(index + step - 1, last)?;
                if !found.is(Ordering::Less, compare)? {
                    break;
                }
                (index, at) = (index + step, found.bytes.end);
            }
        }
        self.found(index, at)
    }

    /// The image of the leaf of `len` elements that has these entries in place of `bytes`.
    pub fn with(&self, bytes: Range<usize>, entries: &[u8], len: usize) -> Vec<u8> {
        let listpack = self.listpack.bytes();
        let mut image = Vec::with_capacity(FORM + listpack.len() + entries.len());
        image.push(LEAF);
        image.extend_from_slice(&listpack[..bytes.start]);
        image.extend_from_slice(entries);
        image.extend_from_slice(&listpack[bytes.end..]);
        listpack::finish(&mut image[FORM..], Some(len * self.shape.stride));
        image
    }
}

impl Found<'_> {
    /// Whether there is an element, and how it lies to a place is `order`.
    pub fn is(&self, order: Ordering, compare: &mut Compare<'_>) -> Result<bool, Damage> {
        match &self.element {
            Some(element) => Ok(compare(element.values())? == order),
            None => Ok(false),
        }
    }
}

/// Where each element of a leaf's image begins in the image, and behind them where the last one
/// ends.
pub(super) fn begins_of(image: &[u8], shape: ElementShape) -> Result<Vec<usize>, Damage> {
    let mut begins = Vec::new();
    let mut entries = Entries::at(&image[FORM..], HEAD);
    while entries.place() + FORM + 1 < image.len() {
        begins.push(entries.place() + FORM);
        for _ in 0..shape.stride {
            next(&mut entries)?;
        }
    }
    begins.push(image.len() - 1);
    Ok(begins)
}

/// The number of elements of the first half, by bytes. There are two elements at least.
pub(super) fn middle(begins: &[usize]) -> usize {
    let (len, end) = (begins.len() - 1, begins[begins.len() - 1]);
    let half = end.div_ceil(2);
    let index = begins.partition_point(|begin| *begin < half);
    // Where the longer half is the shorter one.
    let before = index.saturating_sub(1);
    let of_index = |index: usize| begins[index].max(end - begins[index]);
    let is_before = index > len || of_index(before) < of_index(index);
    let index = if is_before { before } else { index };
    index.clamp(1, len - 1)
}

pub(super) struct Branch<'b> {
    image: &'b [u8],
    /// Children.
    pub len: usize,
    shape: ElementShape,
    /// Of the keys.
    listpack: &'b [u8],
}

/// A child of a branch.
#[derive(Clone, Copy)]
pub(super) struct Child<'b> {
    pub number: u64,
    pub count: u64,
    /// The bytes of its entries.
    pub key: &'b [u8],
}

impl<'b> Branch<'b> {
    pub fn read(image: &'b [u8], shape: ElementShape) -> Result<Branch<'b>, Damage> {
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

    pub fn number(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * index)
    }

    pub fn count(&self, index: usize) -> u64 {
        self.word(BRANCH_HEAD + 8 * (self.len + index))
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

    pub fn key_element(&self, index: usize) -> Result<ElementParts<'b>, Damage> {
        let mut entries = Entries::at(self.listpack, self.key_begin(index)?);
        parts(&mut entries, self.shape.stride)
    }

    pub fn children(&self) -> Result<Vec<Child<'b>>, Damage> {
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

    /// The child in or below which an element is. A position becomes one of the child's.
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

impl<'b> ElementParts<'b> {
    pub fn values(&self) -> &[Element<'b>] {
        &self.parts[..self.stride]
    }
}

/// The next entry. There is one.
#[inline]
fn next<'b>(entries: &mut Entries<'b>) -> Result<Entry<'b>, Damage> {
    let entry = entries.next().transpose()?;
    entry.ok_or_else(|| damage("an element of a tree that is not whole"))
}

/// The next `stride` entries.
#[inline]
pub(super) fn parts<'b>(
    entries: &mut Entries<'b>,
    stride: usize,
) -> Result<ElementParts<'b>, Damage> {
    let mut parts = [Element::Integer(0); MAX_STRIDE];
    for part in &mut parts[..stride] {
        *part = next(entries)?.value();
    }
    Ok(ElementParts { parts, stride })
}

/// The entries of an element.
pub(crate) fn entries_of(element: &[&[u8]]) -> Vec<u8> {
    let mut entries = Vec::new();
    for value in element {
        Encoded::of(value).append_to(&mut entries);
    }
    entries
}

/// The image of a leaf with these entries.
pub(super) fn leaf_of(entries: &[u8], count: usize) -> Vec<u8> {
    let mut image = Vec::with_capacity(FORM + EMPTY.len() + entries.len());
    image.push(LEAF);
    image.extend_from_slice(&EMPTY[..HEAD]);
    image.extend_from_slice(entries);
    image.push(EMPTY[HEAD]);
    listpack::finish(&mut image[FORM..], Some(count));
    image
}

/// Adds to the elements in or below a child, in the image of a branch.
pub(super) fn add_to_count(image: &mut [u8], index: usize, added: i64) {
    let len = usize::from(u16::from_le_bytes([image[2], image[3]]));
    let at = BRANCH_HEAD + 8 * (len + index);
    let (words, _) = image[at..].as_chunks_mut::<8>();
    let count = u64::from_le_bytes(words[0]).saturating_add_signed(added);
    words[0] = count.to_le_bytes();
}

/// The image of a branch with these children.
pub(super) fn branch_of(children: &[Child<'_>], shape: ElementShape) -> Vec<u8> {
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
pub(super) fn damage(what: &'static str) -> Damage {
    Damage { at: 0, what }
}

#[cold]
pub(super) fn beyond() -> Damage {
    damage("a position beyond the tree")
}
