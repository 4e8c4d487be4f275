//! Named trees: the roots of all of them in one version, and how they are assembled from leaves.
//!
//! A store is a collection of trees. Each has a number that no other tree ever gets, and leaves of
//! its own that tile the key space. Tree [`CATALOGUE`] records which trees have names, and which
//! were dropped and still have leaves. A tree without a leaf is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::StoreError;
use crate::catalogue::Catalogue;
use crate::committed::Committed;
use crate::index::Node;
use crate::layout::{CATALOGUE, FRAME, MAIN};
use crate::leaf::Leaf;
use crate::pages::TreePages;

/// The roots of one version.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) main: Arc<Node>,
    /// The roots of the other trees that have leaves, by number.
    others: Arc<BTreeMap<u32, Arc<Node>>>,
}

impl Roots {
    /// The root of a tree, if it has leaves.
    #[inline]
    pub(crate) fn of(&self, tree: u32) -> Option<&Arc<Node>> {
        match tree {
            MAIN => Some(&self.main),
            _ => self.others.get(&tree),
        }
    }

    /// All roots, in the order of the trees' numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Arc<Node>)> {
        let below = self.others.range(..MAIN);
        let above = self.others.range(MAIN..);
        let others = |(tree, root): (&u32, _)| (*tree, root);
        let main = std::iter::once((MAIN, &self.main));
        below.map(others).chain(main).chain(above.map(others))
    }

    /// A copy with other roots for some trees; `None`: the tree has no leaf any more.
    pub(crate) fn with(&self, changed: Vec<(u32, Option<Arc<Node>>)>) -> Self {
        let mut roots = self.clone();
        for (tree, root) in changed {
            match (tree, root) {
                (MAIN, Some(root)) => roots.main = root,
                (MAIN, None) => {}
                (_, Some(root)) => drop(Arc::make_mut(&mut roots.others).insert(tree, root)),
                (_, None) => drop(Arc::make_mut(&mut roots.others).remove(&tree)),
            }
        }
        roots
    }
}

/// The leaves below a root, in order.
pub(crate) fn leaves_of(root: &Node) -> Vec<Arc<Leaf>> {
    let mut leaves = Vec::new();
    root.each_leaf(&mut |leaf| leaves.push(leaf.clone()));
    leaves
}

/// The leaves of a dropped tree, which die a few at a time.
#[derive(Debug)]
pub(crate) struct Dropping {
    pub(crate) tree: u32,
    pub(crate) leaves: Vec<Arc<Leaf>>,
}

/// Assembles the roots of a version from all its `leaves`. Also returns the remains of dropped
/// trees.
pub(crate) fn assemble(
    pages: &TreePages,
    committed: &Committed,
    version: u64,
    leaves: Vec<Arc<Leaf>>,
) -> Result<(Roots, Vec<Dropping>), StoreError> {
    let leaves = sorted(leaves);
    let mut groups = leaves.chunk_by(|a, b| a.tree == b.tree).peekable();
    let mut others = BTreeMap::new();
    if let Some(of) = groups.next_if(|group| group[0].tree == CATALOGUE) {
        others.insert(CATALOGUE, build(of)?);
    }
    let main = build(groups.next_if(|group| group[0].tree == MAIN).unwrap_or(&[]))?;
    let catalogue = Catalogue {
        pages,
        committed,
        root: others.get(&CATALOGUE),
        version,
    };
    let listing = catalogue.list()?;
    let mut dropping = Vec::new();
    for group in groups {
        let tree = group[0].tree;
        if listing.live.contains_key(&tree) {
            others.insert(tree, build(group)?);
        } else if listing.dropped.contains(&tree) {
            let leaves = group.to_vec();
            dropping.push(Dropping { tree, leaves });
        } else {
            return Err(StoreError::Damaged {
                at: group[0].id.header_at(),
                what: "a leaf of a tree that the catalogue does not have",
            });
        }
    }
    let others = Arc::new(others);
    Ok((Roots { main, others }, dropping))
}

/// Leaves sorted by tree and smallest key. The eight bytes after the common prefix decide most
/// comparisons, and lie side by side.
fn sorted(leaves: Vec<Arc<Leaf>>) -> Vec<Arc<Leaf>> {
    // The first leaf of a tree has no smallest key.
    let lows = || {
        leaves
            .iter()
            .map(|leaf| &leaf.low[..])
            .filter(|low| !low.is_empty())
    };
    let first = lows().next().unwrap_or_default();
    let common = lows().fold(first.len(), |common, low| {
        let pairs = low.iter().zip(&first[..common]);
        pairs.take_while(|(a, b)| a == b).count()
    });
    let word = |low: &[u8]| {
        let mut word = [0; 8];
        let bytes = low.get(common..).unwrap_or_default();
        let len = bytes.len().min(word.len());
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_be_bytes(word)
    };
    let words: Vec<_> = leaves
        .iter()
        .map(|leaf| (leaf.tree, word(&leaf.low)))
        .collect();
    let mut keyed: Vec<_> = words.into_iter().zip(leaves).collect();
    keyed.sort_unstable_by(|(a, leaf), (b, other)| a.cmp(b).then_with(|| leaf.low.cmp(&other.low)));
    keyed.into_iter().map(|(_, leaf)| leaf).collect()
}

/// Builds a root above these leaves, which are in order.
pub(crate) fn build(leaves: &[Arc<Leaf>]) -> Result<Arc<Node>, StoreError> {
    tile(leaves)?;
    Ok(Node::build(leaves.to_vec()))
}

/// Checks that sorted leaves of one tree tile its key space.
pub(crate) fn tile(leaves: &[Arc<Leaf>]) -> Result<(), StoreError> {
    let mut expected: Option<&[u8]> = Some(&[]);
    for leaf in leaves {
        if expected != Some(&leaf.low) {
            return Err(StoreError::Damaged {
                at: leaf.id.header_at(),
                what: "leaves leave a gap in the key space, or overlap, before this one",
            });
        }
        expected = leaf.high.as_deref();
    }
    match expected {
        None => Ok(()),
        Some(_) => Err(StoreError::Damaged {
            at: leaves.last().map_or(FRAME, |leaf| leaf.id.header_at()),
            what: "no leaf takes the largest keys",
        }),
    }
}
