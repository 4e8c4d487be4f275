//! The inner nodes: derived from the leaves, kept in memory, copied on write.
//!
//! A root is immutable. An edit copies the nodes on the path to the leaves that it replaces and
//! returns a new root, so each version in use has a root of its own.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::leaf::Leaf;
use crate::leaf_entry::head;

/// The most children of a node.
const FAN_OUT: usize = 32;
/// A node with fewer children is joined with a neighbour if both fit into one.
const FEW: usize = 8;

/// Children in the order of their keys.
#[derive(Debug)]
pub(crate) struct Fan<T> {
    /// The common prefix of the lower fences of all children but the first.
    prefix: Box<[u8]>,
    /// The 8 bytes after the prefix of each child's lower fence; meaningless for the first.
    heads: Vec<u64>,
    children: Vec<T>,
}

/// A node.
#[derive(Debug)]
pub(crate) enum Node {
    /// The children are leaves.
    Bottom(Fan<Arc<Leaf>>),
    /// The children are nodes.
    Inner(Fan<Arc<Node>>),
}

/// A child of a node.
pub(crate) trait Low {
    /// The lower fence; keys below it belong to earlier children.
    fn low(&self) -> &[u8];
}

impl Low for Arc<Leaf> {
    #[inline]
    fn low(&self) -> &[u8] {
        &self.low
    }
}

impl Low for Arc<Node> {
    fn low(&self) -> &[u8] {
        match &**self {
            Node::Bottom(fan) => fan.children[0].low(),
            Node::Inner(fan) => fan.children[0].low(),
        }
    }
}

impl<T: Low + Clone> Fan<T> {
    /// At least one child.
    fn new(children: Vec<T>) -> Self {
        let lows = &children[1..];
        // They ascend, so a prefix common to the first and the last is common to all.
        let prefix: Box<[u8]> = match (lows.first(), lows.last()) {
            (Some(first), Some(last)) => {
                let same = first
                    .low()
                    .iter()
                    .zip(last.low())
                    .take_while(|(a, b)| a == b);
                first.low()[..same.count()].into()
            }
            _ => Box::default(),
        };
        let heads = lows.iter().map(|child| head(&child.low()[prefix.len()..]));
        Self {
            heads: std::iter::once(0).chain(heads).collect(),
            prefix,
            children,
        }
    }

    /// Prefetches all children while their heads are searched.
    #[inline]
    fn prefetch(&self) {
        for line in self.children.chunks(64 / size_of::<T>()) {
            mneme_sys::prefetch(line.as_ptr().cast());
        }
    }

    /// The last child whose lower fence is not above `key`; the first child if there is none.
    #[inline]
    fn position(&self, key: &[u8]) -> usize {
        let heads = &self.heads[1..];
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return if key < &*self.prefix { 0 } else { heads.len() };
        };
        let wanted = head(rest);
        let mut i = heads.partition_point(|head| *head < wanted);
        while i < heads.len() && heads[i] == wanted && self.children[i + 1].low() <= key {
            i += 1;
        }
        i
    }

    /// The last child whose lower fence is below `key`.
    fn position_before(&self, key: &[u8]) -> usize {
        let i = self.position(key);
        if i > 0 && self.children[i].low() == key {
            i - 1
        } else {
            i
        }
    }

    /// Compares the lower fence of child `i`, which is not the first, with `key`. Reads the fence
    /// only if its head does not decide.
    fn compare_low(&self, i: usize, key: &[u8]) -> Ordering {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return (*self.prefix).cmp(key);
        };
        let heads = self.heads[i].cmp(&head(rest));
        heads.then_with(|| self.children[i].low().cmp(key))
    }

    /// An empty copy with space for some children.
    fn begin_copy(&self) -> Copied<'_, T> {
        let space = self.children.len() + 2;
        Copied {
            of: self,
            heads: Vec::with_capacity(space),
            children: Vec::with_capacity(space),
            keeps_prefix: true,
        }
    }

    /// Nodes of at most [`FAN_OUT`] of `children` each; no nodes for no children.
    fn split(children: Vec<T>, node: impl Fn(Self) -> Node) -> Vec<Arc<Node>> {
        if children.is_empty() {
            return Vec::new();
        }
        if children.len() <= FAN_OUT {
            return vec![Arc::new(node(Self::new(children)))];
        }
        let nodes = children.len().div_ceil(FAN_OUT);
        let each = children.len().div_ceil(nodes);
        let chunks = children.chunks(each);
        chunks
            .map(|chunk| Arc::new(node(Self::new(chunk.to_vec()))))
            .collect()
    }
}

/// Existing and new children of a node, in order. The heads of existing ones are copied, so that
/// those children need not be read.
struct Copied<'f, T> {
    of: &'f Fan<T>,
    heads: Vec<u64>,
    children: Vec<T>,
    /// The lower fences of all new children but the first begin with the prefix.
    keeps_prefix: bool,
}

impl<T: Low + Clone> Copied<'_, T> {
    /// Adds existing children.
    fn keep(&mut self, which: Range<usize>) {
        self.heads.extend_from_slice(&self.of.heads[which.clone()]);
        self.children.extend_from_slice(&self.of.children[which]);
    }

    /// Adds a child with the lower fence of child `i`, which it replaces.
    fn add_at(&mut self, i: usize, child: T) {
        self.heads.push(self.of.heads[i]);
        self.children.push(child);
    }

    fn add(&mut self, child: T) {
        let rest = child.low().strip_prefix(&*self.of.prefix);
        self.keeps_prefix &= rest.is_some() || self.children.is_empty();
        self.heads.push(rest.map_or(0, head));
        self.children.push(child);
    }

    /// The nodes for these children.
    fn nodes(self, node: impl Fn(Fan<T>) -> Node) -> Vec<Arc<Node>> {
        if !self.keeps_prefix || self.children.is_empty() || self.children.len() > FAN_OUT {
            return Fan::split(self.children, node);
        }
        vec![Arc::new(node(Fan {
            prefix: self.of.prefix.clone(),
            heads: self.heads,
            children: self.children,
        }))]
    }
}

/// Leaves that are replaced by at least one leaf for the same keys.
#[derive(Debug)]
pub(crate) struct Edit<'e> {
    /// The lower fence of the first.
    pub(crate) low: &'e [u8],
    /// The upper fence of the last.
    pub(crate) high: Option<&'e [u8]>,
    pub(crate) new: &'e [Arc<Leaf>],
}

/// A leaf and its position in its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located<'n> {
    fan: &'n Fan<Arc<Leaf>>,
    at: usize,
}

impl<'n> Located<'n> {
    #[inline]
    pub(crate) fn leaf(self) -> &'n Arc<Leaf> {
        &self.fan.children[self.at]
    }

    /// Whether the node alone shows that `key` belongs to this leaf. The key is not below one that
    /// does.
    #[inline]
    pub(crate) fn surely_has(self, key: &[u8]) -> bool {
        let next = self.fan.heads.get(self.at + 1);
        let rest = key.strip_prefix(&*self.fan.prefix);
        matches!((next, rest), (Some(next), Some(rest)) if head(rest) < *next)
    }
}

impl Node {
    /// A tree of all `leaves`, which are in order and not empty.
    pub(crate) fn build(leaves: Vec<Arc<Leaf>>) -> Arc<Self> {
        Self::grow(Fan::split(leaves, Node::Bottom))
    }

    fn grow(mut nodes: Vec<Arc<Node>>) -> Arc<Node> {
        while nodes.len() > 1 {
            nodes = Fan::split(nodes, Node::Inner);
        }
        nodes.swap_remove(0)
    }

    /// The leaf that `key` belongs to.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> &Arc<Leaf> {
        self.locate(key).leaf()
    }

    /// The leaf that `key` belongs to, and its position.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> Located<'_> {
        let mut node = self;
        loop {
            match node {
                Node::Inner(fan) => node = &fan.children[fan.position(key)],
                Node::Bottom(fan) => {
                    fan.prefetch();
                    let at = fan.position(key);
                    return Located { fan, at };
                }
            }
        }
    }

    /// The last leaf that may hold keys below `bound`; without a bound the last of all.
    pub(crate) fn find_before(&self, bound: Option<&[u8]>) -> &Arc<Leaf> {
        let mut node = self;
        loop {
            match node {
                Node::Inner(fan) => {
                    let i = bound.map_or(fan.children.len() - 1, |key| fan.position_before(key));
                    node = &fan.children[i];
                }
                Node::Bottom(fan) => {
                    let i = bound.map_or(fan.children.len() - 1, |key| fan.position_before(key));
                    return &fan.children[i];
                }
            }
        }
    }

    /// A root with all `edits`, which are in key order and do not overlap.
    pub(crate) fn replace(&self, edits: &[Edit<'_>]) -> Arc<Node> {
        let mut root = Self::grow(self.edit(edits, false));
        while let Node::Inner(fan) = &*root {
            match &fan.children[..] {
                [only] => root = only.clone(),
                _ => break,
            }
        }
        root
    }

    /// The nodes that replace this one after `edits`, each of which concerns some of its keys. The
    /// new leaves of an edit go into the node in which the edit begins; the first edit may continue
    /// from the previous node.
    fn edit(&self, edits: &[Edit<'_>], mut goes_on: bool) -> Vec<Arc<Node>> {
        match self {
            Node::Bottom(fan) => {
                let mut leaves = fan.begin_copy();
                let mut done = 0;
                for edit in edits {
                    if !goes_on {
                        let first = fan.position(edit.low);
                        leaves.keep(done..first);
                        done = first;
                        edit.new.iter().for_each(|leaf| leaves.add(leaf.clone()));
                    }
                    let ends_before = |leaf: &Arc<Leaf>| match (&leaf.high, edit.high) {
                        (Some(high), Some(end)) => **high < *end,
                        (high, _) => high.is_some(),
                    };
                    let later = fan.children[done..].iter();
                    done += later.take_while(|leaf| ends_before(leaf)).count() + 1;
                    goes_on = false;
                }
                leaves.keep(done.min(fan.children.len())..fan.children.len());
                leaves.nodes(Node::Bottom)
            }
            Node::Inner(fan) => {
                let mut nodes = fan.begin_copy();
                let (mut done, mut rest, mut changed) = (0, edits, Vec::new());
                while let Some(first) = rest.first()
                    && done < fan.children.len()
                {
                    let i = if goes_on {
                        done
                    } else {
                        fan.position(first.low)
                    };
                    nodes.keep(done..i);
                    done = i + 1;
                    let is_last = done == fan.children.len();
                    let begins =
                        |edit: &Edit<'_>| is_last || fan.compare_low(done, edit.low).is_gt();
                    let begun = rest.partition_point(begins);
                    let from = nodes.children.len();
                    let mut new = fan.children[i].edit(&rest[..begun], goes_on).into_iter();
                    if !goes_on {
                        new.next()
                            .into_iter()
                            .for_each(|node| nodes.add_at(i, node));
                    }
                    new.for_each(|node| nodes.add(node));
                    changed.extend(from..nodes.children.len());
                    // An edit that continues in the next child is handled again there.
                    let over = |edit: &Edit<'_>| {
                        let ends = |high: &[u8]| fan.compare_low(done, high).is_ge();
                        is_last || edit.high.is_some_and(ends)
                    };
                    let over = rest[..begun].partition_point(over);
                    goes_on = over < begun;
                    rest = &rest[over..];
                }
                nodes.keep(done..fan.children.len());
                changed.retain(|i| nodes.children[*i].len() < FEW);
                if changed.is_empty() {
                    return nodes.nodes(Node::Inner);
                }
                let mut nodes = nodes.children;
                changed.into_iter().rev().for_each(|i| join(&mut nodes, i));
                Fan::split(nodes, Node::Inner)
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Bottom(fan) => fan.children.len(),
            Node::Inner(fan) => fan.children.len(),
        }
    }

    /// Calls `f` with every leaf in order.
    pub(crate) fn each_leaf(&self, f: &mut impl FnMut(&Arc<Leaf>)) {
        match self {
            Node::Bottom(fan) => fan.children.iter().for_each(f),
            Node::Inner(fan) => fan.children.iter().for_each(|node| node.each_leaf(f)),
        }
    }
}

/// Joins node `i` of `nodes` with a neighbour if it has few children and both fit into one.
fn join(nodes: &mut Vec<Arc<Node>>, i: usize) {
    if nodes[i].len() >= FEW {
        return;
    }
    let fits = |a: usize, b: usize| nodes[a].len() + nodes[b].len() <= FAN_OUT;
    let first = match i {
        _ if i + 1 < nodes.len() && fits(i, i + 1) => i,
        _ if i > 0 && fits(i - 1, i) => i - 1,
        _ => return,
    };
    let joined = match (&*nodes[first], &*nodes[first + 1]) {
        (Node::Bottom(a), Node::Bottom(b)) => {
            Node::Bottom(Fan::new([&a.children[..], &b.children[..]].concat()))
        }
        (Node::Inner(a), Node::Inner(b)) => {
            Node::Inner(Fan::new([&a.children[..], &b.children[..]].concat()))
        }
        // All children of a node are of one kind.
        _ => return,
    };
    nodes[first] = Arc::new(joined);
    nodes.remove(first + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LeafId;

    /// The fences of a leaf: the bounds of its keys.
    type Fences = (u32, Option<u32>);

    fn leaf((low, high): Fences) -> Arc<Leaf> {
        let bytes = |key: u32| Box::<[u8]>::from(key.to_be_bytes());
        let low = if low == 0 { Box::default() } else { bytes(low) };
        Arc::new(Leaf::new(LeafId(0), 1, low, high.map(bytes)))
    }

    fn leaves(root: &Node) -> Vec<Arc<Leaf>> {
        let mut leaves = Vec::new();
        root.each_leaf(&mut |leaf| leaves.push(leaf.clone()));
        leaves
    }

    /// Groups of leaves of any length and position replace the leaves that held their keys.
    #[test]
    fn rows_are_replaced_wherever_nodes_begin_and_end() {
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut fences: Vec<u32> = (0..6000).map(|n| n * 1000).collect();
        let row = |fences: &[u32], end: Option<u32>| -> Vec<Arc<Leaf>> {
            let highs = fences[1..].iter().map(|high| Some(*high)).chain([end]);
            fences.iter().copied().zip(highs).map(leaf).collect()
        };
        let mut root = Node::build(row(&fences, None));
        for _ in 0..300 {
            let mut rows = Vec::new();
            let mut from = random(60);
            while from < fences.len() && rows.len() < 4 {
                let most = [2, 5, 200, 2000][random(4)];
                let to = (from + 1 + random(most)).min(fences.len());
                let end = fences.get(to).copied();
                // Some of the fences in between disappear, and others appear.
                let mut new: Vec<u32> = fences[from..to].to_vec();
                new.retain(|low| *low == fences[from] || random(3) > 0);
                let more: Vec<u32> = new.iter().map(|low| low + 1 + random(900) as u32).collect();
                new.extend(more.into_iter().filter(|_| random(3) == 0));
                new.retain(|low| end.is_none_or(|end| *low < end));
                new.sort_unstable();
                new.dedup();
                rows.push((from, to, row(&new, end), new));
                from = to + 1 + random(1500);
            }
            let edits: Vec<_> = rows
                .iter()
                .map(|(_, _, leaves, _)| Edit {
                    low: &leaves[0].low,
                    high: leaves[leaves.len() - 1].high.as_deref(),
                    new: leaves,
                })
                .collect();
            root = root.replace(&edits);
            for (from, to, _, new) in rows.iter().rev() {
                fences.splice(from..to, new.iter().copied());
            }
            let now = leaves(&root);
            crate::roots::tile(&now).unwrap();
            let lows = fences.iter().copied().map(u32::to_be_bytes);
            let expected = lows.map(|low| if low == [0; 4] { &[][..] } else { &low }.to_vec());
            assert!(now.iter().map(|leaf| leaf.low.to_vec()).eq(expected));
            for (low, leaf) in fences.iter().zip(&now) {
                assert!(Arc::ptr_eq(root.find(&low.to_be_bytes()), leaf));
            }
        }
    }
}
