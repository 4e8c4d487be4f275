//! Plans a commit before its first store: which leaves take new entries in place, and which are
//! rewritten into how many new ones.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mneme_sys::fault::without;

use crate::StoreError;
use crate::committed::Committed;
use crate::index::{Located, Node};
use crate::layout::{
    FencesIn, LEAF, LeafId, MAX_INLINE, MAX_INLINE_KEY, MAX_KEY, MAX_VALUE, TreeExtent, entry_size,
    outside,
};
use crate::leaf::{Leaf, LeafFill};
use crate::leaf_entry::LeafEntry;
use crate::order::{gallop, search};
use crate::pages::TreePages;
use crate::roots::Roots;

/// One change of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedChange<'b> {
    pub(crate) tree: u32,
    pub(crate) key: &'b [u8],
    /// `None` removes the key.
    pub(crate) value: Option<&'b [u8]>,
}

impl<'b> PlannedChange<'b> {
    /// The parts of the entry that lie in an extent.
    pub(crate) fn outside(&self) -> [&'b [u8]; 2] {
        outside(self.key, self.value.unwrap_or_default())
    }

    /// The size of its entry.
    fn size(&self) -> usize {
        entry_size(self.key.len(), self.value.map_or(0, <[u8]>::len))
    }

    /// Checks that it is within the limits.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        let (key, value) = (self.key.len(), self.value.map_or(0, <[u8]>::len));
        if key > MAX_KEY {
            return Err(StoreError::KeyTooLong {
                len: key,
                max: MAX_KEY,
            });
        }
        if value > MAX_VALUE {
            return Err(StoreError::ValueTooLong {
                len: value,
                max: MAX_VALUE,
            });
        }
        Ok(())
    }
}

/// New entries for a leaf that has space for them.
#[derive(Debug)]
pub(crate) struct Append<'b> {
    pub(crate) leaf: &'b Arc<Leaf>,
    /// The range in [`CommitPlan::changes`].
    pub(crate) changes: Range<usize>,
    /// Bytes of its entries that will be live.
    pub(crate) live: usize,
    /// The change in the number of live entries.
    entries: i64,
    /// The range in [`CommitPlan::gone`] that it replaces or removes.
    gone: Range<usize>,
}

impl Append<'_> {
    /// Prefetches the places that it stores to.
    pub(crate) fn prefetch(&self, pages: &TreePages, changes: &[PlannedChange<'_>]) {
        let end = self.leaf.end();
        let new = put_bytes(&changes[self.changes.clone()]).min(2048);
        pages.prefetch_all(self.leaf.id, end..end + new);
    }
}

/// An entry of a new leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanItem<'b> {
    pub(crate) key: &'b [u8],
    pub(crate) source: ItemSource<'b>,
}

/// The source of an entry in a new leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ItemSource<'b> {
    /// The value that the key has from the version being committed.
    Value(&'b [u8]),
    /// The bytes of an entry in another leaf, padding included.
    Moved(&'b [u8]),
}

impl<'b> PlanItem<'b> {
    /// The parts of the entry that will lie in a new extent.
    pub(crate) fn outside(&self) -> [&'b [u8]; 2] {
        match self.source {
            ItemSource::Value(value) => outside(self.key, value),
            ItemSource::Moved(_) => [&[], &[]],
        }
    }

    fn size(&self) -> usize {
        match self.source {
            ItemSource::Value(value) => entry_size(self.key.len(), value.len()),
            ItemSource::Moved(entry) => entry.len(),
        }
    }
}

/// A new leaf.
#[derive(Debug)]
pub(crate) struct PlanPiece<'b> {
    pub(crate) low: &'b [u8],
    pub(crate) high: Option<&'b [u8]>,
    pub(crate) items: Vec<PlanItem<'b>>,
}

impl<'b> PlanPiece<'b> {
    /// The fences, if they lie in an extent; otherwise empty.
    pub(crate) fn outside(&self) -> [&'b [u8]; 2] {
        let (low, high) = (self.low, self.high.unwrap_or_default());
        match FencesIn::of(low.len() + high.len()) {
            FencesIn::Extent => [low, high],
            FencesIn::Header | FencesIn::Leaf => [&[], &[]],
        }
    }
}

/// Adjacent leaves that are replaced by new ones; none for a tree without leaves.
#[derive(Debug)]
pub(crate) struct Rewrite<'b> {
    pub(crate) tree: u32,
    pub(crate) old: Vec<&'b Arc<Leaf>>,
    /// At least one piece; its leaf may be empty.
    pub(crate) pieces: Vec<PlanPiece<'b>>,
}

impl Rewrite<'_> {
    /// Prefetches the entries that it moves.
    pub(crate) fn prefetch(&self) {
        let items = self.pieces.iter().flat_map(|piece| &piece.items);
        for item in items {
            if let ItemSource::Moved(entry) = item.source {
                let lines = entry.chunks(64);
                lines.for_each(|line| mneme_sys::prefetch(line.as_ptr()));
            }
        }
    }
}

/// The plan of a commit.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan<'b> {
    /// The changes to append, leaf by leaf.
    pub(crate) changes: Vec<PlannedChange<'b>>,
    pub(crate) appends: Vec<Append<'b>>,
    /// In the order of their trees and keys.
    pub(crate) rewrites: Vec<Rewrite<'b>>,
    /// Leaves of dropped trees to mark dead.
    pub(crate) dead: Vec<&'b Arc<Leaf>>,
    /// Extents of values that are replaced or removed, with the versions that wrote them.
    pub(crate) gone: Vec<(TreeExtent, u64)>,
    /// The changes in the number of live entries and in their bytes.
    pub(crate) entries: i64,
    pub(crate) live_bytes: i64,
}

impl<'b> CommitPlan<'b> {
    /// The content of new extents, in the order in which leaves and entries are stored.
    pub(crate) fn outside(&self) -> impl Iterator<Item = [&'b [u8]; 2]> {
        let appended = self.changes.iter().map(PlannedChange::outside);
        let pieces = self.rewrites.iter().flat_map(|rewrite| &rewrite.pieces);
        let rewritten = pieces.flat_map(|piece| {
            let items = piece.items.iter().map(PlanItem::outside);
            std::iter::once(piece.outside()).chain(items)
        });
        let all = appended.chain(rewritten);
        all.filter(|parts| parts.iter().any(|part| !part.is_empty()))
    }

    /// The number of new leaves.
    pub(crate) fn fresh_leaves(&self) -> usize {
        let pieces = self.rewrites.iter().map(|rewrite| rewrite.pieces.len());
        pieces.sum()
    }

    /// Plans the first leaves of a tree.
    fn found(&mut self, tree: u32, changes: &[PlannedChange<'b>]) {
        let items = changes.iter().filter_map(|change| {
            change.value.map(|value| PlanItem {
                key: change.key,
                source: ItemSource::Value(value),
            })
        });
        let items: Vec<_> = items.collect();
        if items.is_empty() {
            return;
        }
        self.entries += items.len() as i64;
        self.live_bytes += items.iter().map(PlanItem::size).sum::<usize>() as i64;
        self.rewrites.push(Rewrite {
            tree,
            old: Vec::new(),
            pieces: cut(items, &[], None),
        });
    }

    /// Plans the death of a leaf of a dropped tree, with everything in it that `version`, the
    /// newest one, shows.
    pub(crate) fn bury(
        &mut self,
        (pages, committed): (&'b TreePages, &Committed),
        leaf: &'b Arc<Leaf>,
        version: u64,
    ) -> Result<(), StoreError> {
        leaf.load(pages, committed)?;
        for offset in &leaf.order_at(pages, version).offsets {
            let entry = leaf.entry(pages, *offset);
            self.entries -= 1;
            self.live_bytes -= entry.bytes.len() as i64;
            self.lose(&entry);
        }
        self.gone
            .extend(leaf.outside().map(|fences| (fences, leaf.birth)));
        self.dead.push(leaf);
        Ok(())
    }

    /// Notes that `old` is replaced or removed.
    fn lose(&mut self, old: &LeafEntry<'_>) {
        self.gone
            .extend(old.extent().map(|extent| (extent, old.start())));
    }
}

/// If a commit takes bytes from a leaf and leaves fewer than this, the leaf is joined with a
/// neighbour or takes entries from one. See "Space" in `docs/design/tree.md`.
const FEW_BYTES: usize = LEAF / 3;
/// Up to this size the live entries stay in one leaf. Its remaining space takes appends until the
/// next rewrite: a higher limit saves space and causes more rewrites.
const ONE_LEAF: usize = LEAF / 4 * 3;
/// A larger amount is cut into leaves of about this size. With 3/5, files of records put in key
/// order take a sixteenth (1 KiB) or an eighth (100 B) more, and a put stores a twelfth (1 KiB) or
/// a seventh (100 B) less: `mneme-bench wear`.
const CUT: usize = LEAF / 16 * 11;
/// Changes whose leaves are prefetched at once.
const AHEAD: usize = 16;
/// The longest entry.
const MAX_ENTRY: usize = entry_size(MAX_INLINE_KEY, MAX_INLINE);

// A result of `cut` fits into a leaf together with the longest fences.
const _: () =
    assert!(ONE_LEAF + 2 * MAX_INLINE_KEY <= LEAF && CUT + MAX_ENTRY + 2 * MAX_INLINE_KEY <= LEAF);
// If `cut` makes more than one leaf, each holds at least `FEW_BYTES`, except for the longest entry:
// half of `ONE_LEAF`, or two thirds of `CUT`.
const _: () = assert!(ONE_LEAF / 2 > FEW_BYTES && CUT / 3 * 2 > FEW_BYTES);

struct Planner<'b> {
    pages: &'b TreePages,
    committed: &'b Committed,
    root: &'b Node,
    version: u64,
    plan: CommitPlan<'b>,
    /// The last leaf that the plan changes. Changes are in order, so a left neighbour that is
    /// changed too is this leaf.
    last: Option<LeafId>,
    /// Leaves to rewrite together with the next one, which has changes of its own.
    few: Merged<'b>,
    /// Whether leaves with few bytes are joined with neighbours even where an append would do.
    joins: bool,
}

/// Adjacent leaves and their future content.
#[derive(Debug, Default)]
struct Merged<'b> {
    old: Vec<&'b Arc<Leaf>>,
    items: Vec<PlanItem<'b>>,
}

impl<'b> Merged<'b> {
    fn bytes(&self) -> usize {
        self.items.iter().map(PlanItem::size).sum()
    }

    /// Adds the leaves to the right.
    fn add(&mut self, mut right: Self) {
        self.old.append(&mut right.old);
        self.items.append(&mut right.items);
    }
}

/// Plans the `changes`, sorted by tree and key with each key once, of the version that `roots`
/// belong to. Unless `joins` is set, no leaf is rewritten only because it holds few bytes.
pub(crate) fn plan<'b>(
    (pages, committed): (&'b TreePages, &'b Committed),
    roots: &'b Roots,
    version: u64,
    changes: &[PlannedChange<'b>],
    joins: bool,
) -> Result<CommitPlan<'b>, StoreError> {
    let mut plan = CommitPlan::default();
    for changes in changes.chunk_by(|a, b| a.tree == b.tree) {
        let tree = changes[0].tree;
        let Some(root) = roots.of(tree) else {
            plan.found(tree, changes);
            continue;
        };
        let planner = Planner {
            pages,
            committed,
            root,
            version,
            plan,
            last: None,
            few: Merged::default(),
            joins,
        };
        plan = planner.run(changes)?;
    }
    Ok(plan)
}

/// The leaf of a change, and which of its entries is the candidate for the newest one of the key.
type Found<'b> = (Located<'b>, Option<usize>);

/// Bytes of the entries of all puts among the changes.
fn put_bytes(changes: &[PlannedChange<'_>]) -> usize {
    let puts = changes.iter().filter(|change| change.value.is_some());
    puts.map(PlannedChange::size).sum()
}

/// Finds the leaves of the first of these changes and prefetches what planning them reads: the
/// memory accesses of several leaves overlap.
fn locate<'b>(
    (pages, committed): (&TreePages, &Committed),
    root: &'b Node,
    changes: &[PlannedChange<'_>],
) -> Result<[Option<Found<'b>>; AHEAD], StoreError> {
    let mut all: [Option<Found<'b>>; AHEAD] = [None; AHEAD];
    let mut last: Option<Located<'b>> = None;
    for (change, leaf) in changes.iter().zip(&mut all) {
        let found = match last.filter(|last| last.surely_has(change.key)) {
            Some(last) => last,
            None => {
                let found = root.locate(change.key);
                found.leaf().prefetch();
                found
            }
        };
        (last, *leaf) = (Some(found), Some((found, None)));
    }
    let of_one_leaf = |a: &Option<Found<'b>>, b: &Option<Found<'b>>| match (a, b) {
        (Some((a, _)), Some((b, _))) => std::ptr::eq(a.leaf(), b.leaf()),
        _ => false,
    };
    let mut appends = [false; AHEAD];
    let (mut rest, mut of_rest) = (changes, &mut appends[..]);
    for of in all.chunk_by(of_one_leaf) {
        let Some((at, _)) = of[0] else { break };
        let (leaf, mine, of_mine);
        leaf = at.leaf();
        (mine, rest) = rest.split_at(of.len());
        (of_mine, of_rest) = of_rest.split_at_mut(of.len());
        leaf.load(pages, committed)?;
        pages.prefetch(leaf.id, leaf.end());
        // Otherwise the leaf will be rewritten, and no entry is looked up.
        if put_bytes(mine) <= leaf.filled().free_bytes {
            leaf.prefetch_marks();
            of_mine.fill(true);
        }
    }
    for ((change, found), appends) in changes.iter().zip(all.iter_mut().flatten()).zip(appends) {
        if appends {
            found.1 = found.0.leaf().prefetch_entry(pages, change.key);
        }
    }
    Ok(all)
}

impl<'b> Planner<'b> {
    /// Plans the changes of one tree.
    fn run(mut self, changes: &[PlannedChange<'b>]) -> Result<CommitPlan<'b>, StoreError> {
        let (mut rest, mut from, mut ahead) = (changes, 0, [None; AHEAD]);
        while let Some(first) = rest.first() {
            let mut done = changes.len() - rest.len();
            if rest.len() > 1 && (done == 0 || done - from >= AHEAD) {
                from = done;
                ahead = locate((self.pages, self.committed), self.root, rest)?;
            }
            done -= from;
            let known = ahead.get(done..).unwrap_or_default();
            let at = match known.first() {
                Some(Some((leaf, _))) => *leaf,
                _ => self.root.locate(first.key),
            };
            let count = gallop(rest, |change| at.leaf().ends_after(change.key));
            let (mine, beyond) = rest.split_at(count);
            self.group((at, known), mine, beyond)?;
            rest = beyond;
        }
        Ok(self.plan)
    }

    /// Plans the `changes` of the leaf `at`; `known` holds what was found for the first of them and
    /// for later ones; `beyond` are the changes of later leaves.
    fn group(
        &mut self,
        (at, known): (Located<'b>, &[Option<Found<'b>>]),
        changes: &[PlannedChange<'b>],
        beyond: &[PlannedChange<'b>],
    ) -> Result<(), StoreError> {
        let leaf = at.leaf();
        leaf.load(self.pages, self.committed)?;
        if !self.few.old.is_empty() {
            return self.rewrite(leaf, changes, beyond);
        }
        if !matches!(known.first(), Some(Some(_))) {
            leaf.prefetch_marks();
        }
        let filled = leaf.filled();
        // Prefetches the places of an append while the old entry is looked up. With many changes
        // they would be evicted from the cache before the stores.
        if beyond.len() < AHEAD {
            let end = leaf.end();
            let new = put_bytes(changes).min(2048);
            self.pages.prefetch_all(leaf.id, end..end + new);
        }
        let (from, gone) = (self.plan.changes.len(), self.plan.gone.len());
        let append = self.append((leaf, known), changes, &filled);
        let append = append.filter(|append| {
            let is_few = append.live < FEW_BYTES && append.live < filled.live;
            !is_few
                || !self.joins
                || matches!(self.neighbour((leaf, leaf), beyond), Neighbour::None)
        });
        let Some(append) = append else {
            self.plan.changes.truncate(from);
            self.plan.gone.truncate(gone);
            return self.rewrite(leaf, changes, beyond);
        };
        if append.changes.is_empty() {
            return Ok(());
        }
        self.last = Some(leaf.id);
        self.plan.live_bytes += append.live as i64 - filled.live as i64;
        self.plan.entries += append.entries;
        self.plan.appends.push(append);
        Ok(())
    }

    /// The effective changes as entries after the last one, if they fit there.
    fn append(
        &mut self,
        (leaf, known): (&'b Arc<Leaf>, &[Option<Found<'b>>]),
        changes: &[PlannedChange<'b>],
        filled: &LeafFill,
    ) -> Option<Append<'b>> {
        // No key needs to be looked up if the puts alone are too large.
        if put_bytes(changes) > filled.free_bytes {
            return None;
        }
        let (from, gone) = (self.plan.changes.len(), self.plan.gone.len());
        let (mut needed, mut live, mut entries) = (0, filled.live, 0);
        let known = known.iter().map(|found| found.map(|(_, place)| place));
        let known = known.chain(std::iter::repeat(None));
        for (change, known) in changes.iter().zip(known) {
            let place = known.unwrap_or_else(|| leaf.prefetch_entry(self.pages, change.key));
            let find = |place| leaf.find_at(self.pages, change.key, self.version, place);
            let old = place.and_then(find);
            let old = old.filter(|entry| !entry.is_removal());
            if change.key.len() > MAX_INLINE_KEY && old.is_some() && !without("key.replaced") {
                // The extent of a removed entry may be reused while the leaf lives, so no entry
                // with a long key may be examined then.
                return None;
            }
            if change.value.is_none() && old.is_none() {
                continue;
            }
            needed += change.size();
            live -= old.map_or(0, |entry| entry.bytes.len());
            live += change.value.map_or(0, |_| change.size());
            entries += i64::from(change.value.is_some()) - i64::from(old.is_some());
            if let Some(old) = old {
                self.plan.lose(&old);
            }
            self.plan.changes.push(*change);
        }
        let changes = from..self.plan.changes.len();
        if needed > filled.free_bytes || changes.len() > filled.free_entries {
            return None;
        }
        Some(Append {
            leaf,
            changes,
            live,
            entries,
            gone: gone..self.plan.gone.len(),
        })
    }

    /// Plans new leaves in place of this one. If few bytes remain, they are joined with a neighbour
    /// or take entries from it; if that neighbour has changes of its own, this happens when those
    /// are planned.
    fn rewrite(
        &mut self,
        leaf: &'b Arc<Leaf>,
        changes: &[PlannedChange<'b>],
        beyond: &[PlannedChange<'b>],
    ) -> Result<(), StoreError> {
        let mut merged = std::mem::take(&mut self.few);
        merged.add(self.merged(leaf, changes)?);
        if merged.bytes() < FEW_BYTES && self.joins {
            match self.neighbour((merged.old[0], leaf), beyond) {
                Neighbour::Next => {
                    self.few = merged;
                    return Ok(());
                }
                Neighbour::Two(left, right) => {
                    left.load(self.pages, self.committed)?;
                    right.load(self.pages, self.committed)?;
                    // The emptier one: then both fit into one leaf more often.
                    match left.filled().live < right.filled().live {
                        true => merged = self.joined(left, merged)?,
                        false => merged.add(self.merged(right, &[])?),
                    }
                }
                Neighbour::Right(right) => merged.add(self.merged(right, &[])?),
                Neighbour::Left(left) => merged = self.joined(left, merged)?,
                Neighbour::Changed => {
                    let mut joined = self.take_last()?;
                    joined.add(merged);
                    merged = joined;
                }
                Neighbour::None => {}
            }
        }
        let Merged { old, items } = merged;
        self.last = old.last().map(|leaf| leaf.id);
        let (low, high) = (&*old[0].low, old[old.len() - 1].high.as_deref());
        self.plan.rewrites.push(Rewrite {
            tree: leaf.tree,
            pieces: cut(items, low, high),
            old,
        });
        Ok(())
    }

    /// The leaf with changes of its own, together with the unchanged leaf to its left.
    fn joined(
        &mut self,
        left: &'b Arc<Leaf>,
        merged: Merged<'b>,
    ) -> Result<Merged<'b>, StoreError> {
        let mut joined = self.merged(left, &[])?;
        joined.add(merged);
        Ok(joined)
    }

    /// A leaf to replace, with `changes` applied.
    fn merged(
        &mut self,
        leaf: &'b Arc<Leaf>,
        changes: &[PlannedChange<'b>],
    ) -> Result<Merged<'b>, StoreError> {
        leaf.load(self.pages, self.committed)?;
        leaf.prefetch_entries(self.pages);
        let merged = Merged {
            old: vec![leaf],
            items: self.merge(leaf, changes)?,
        };
        self.plan.live_bytes += merged.bytes() as i64 - leaf.filled().live as i64;
        let fences = leaf.outside().map(|fences| (fences, leaf.birth));
        self.plan.gone.extend(fences);
        Ok(merged)
    }

    /// Removes the plan for the last leaf that the plan changes, and returns it.
    fn take_last(&mut self) -> Result<Merged<'b>, StoreError> {
        let of_last =
            |rewrite: &mut Rewrite<'b>| rewrite.old.last().map(|leaf| leaf.id) == self.last;
        if let Some(rewrite) = self.plan.rewrites.pop_if(of_last) {
            let items = rewrite.pieces.into_iter().flat_map(|piece| piece.items);
            return Ok(Merged {
                old: rewrite.old,
                items: items.collect(),
            });
        }
        let of_last = |append: &mut Append<'b>| Some(append.leaf.id) == self.last;
        let Some(append) = self.plan.appends.pop_if(of_last) else {
            return Ok(Merged::default());
        };
        let changes = self.plan.changes.split_off(append.changes.start);
        self.plan.gone.drain(append.gone);
        self.plan.entries -= append.entries;
        self.plan.live_bytes -= append.live as i64 - append.leaf.filled().live as i64;
        self.merged(append.leaf, &changes)
    }

    /// The neighbour of adjacent leaves from `first` to `last`; `beyond` are the changes of later
    /// leaves. A neighbour may belong to another inner node.
    fn neighbour(
        &self,
        (first, last): (&Leaf, &Leaf),
        beyond: &[PlannedChange<'b>],
    ) -> Neighbour<'b> {
        let root = self.root;
        let right = last.high.as_deref().map(|high| root.find(high));
        let next = beyond.first();
        if right.is_some_and(|right| next.is_some_and(|change| right.ends_after(change.key))) {
            return Neighbour::Next;
        }
        let low = Some(&*first.low).filter(|low| !low.is_empty());
        let left = low.map(|low| root.find_before(Some(low)));
        let is_changed = left.is_some_and(|left| self.last == Some(left.id));
        match (left.filter(|_| !is_changed), right) {
            (Some(left), Some(right)) => Neighbour::Two(left, right),
            (None, Some(right)) => Neighbour::Right(right),
            (Some(left), None) => Neighbour::Left(left),
            (None, None) if is_changed => Neighbour::Changed,
            (None, None) => Neighbour::None,
        }
    }

    /// The live entries of a leaf in order, with `changes` applied.
    fn merge(
        &mut self,
        leaf: &'b Arc<Leaf>,
        changes: &[PlannedChange<'b>],
    ) -> Result<Vec<PlanItem<'b>>, StoreError> {
        let order = leaf.order_at(self.pages, self.version);
        let mut items = Vec::with_capacity(order.offsets.len() + changes.len());
        let has_long = |at: &u16| leaf.entry(self.pages, *at).has_long_key();
        let sound = match order.offsets.iter().any(has_long) {
            true => Cow::Owned(self.sound(leaf, &order.offsets, changes)?),
            false => Cow::Borrowed(&order.offsets[..]),
        };
        let mut old = &sound[..];
        let moved = |offset: &u16| {
            let entry = leaf.entry(self.pages, *offset);
            PlanItem {
                key: entry.key(self.pages),
                source: ItemSource::Moved(entry.bytes),
            }
        };
        for change in changes {
            let found = search(old, |at| {
                let entry = leaf.entry(self.pages, *at);
                entry.compare(self.pages, change.key)
            });
            let below = found.unwrap_or_else(|below| below);
            items.extend(old[..below].iter().map(moved));
            old = &old[below..];
            if found.is_ok()
                && let Some((same, after)) = old.split_first()
            {
                old = after;
                self.plan.lose(&leaf.entry(self.pages, *same));
            }
            items.extend(change.value.map(|value| PlanItem {
                key: change.key,
                source: ItemSource::Value(value),
            }));
        }
        items.extend(old.iter().map(moved));
        self.plan.entries += items.len() as i64 - order.offsets.len() as i64;
        Ok(items)
    }

    /// The entries of a leaf without those whose long key is damaged. A damaged key that one of the
    /// `changes` replaces is given up; any other is an error, because it might become a fence with
    /// a valid checksum.
    fn sound(
        &mut self,
        leaf: &Leaf,
        offsets: &[u16],
        changes: &[PlannedChange<'b>],
    ) -> Result<Vec<u16>, StoreError> {
        let mut sound = Vec::with_capacity(offsets.len());
        for offset in offsets {
            let entry = leaf.entry(self.pages, *offset);
            let is_key_of =
                |change: &PlannedChange<'_>| entry.is_of(self.pages, change.key, self.version);
            let verified = match entry.has_long_key() {
                true => leaf.verify_once(self.pages, &entry),
                false => Ok(()),
            };
            match verified {
                Ok(()) => sound.push(*offset),
                Err(_) if changes.iter().any(is_key_of) => self.plan.lose(&entry),
                Err(damage) => return Err(damage),
            }
        }
        Ok(sound)
    }
}

/// The neighbour of a group of leaves in the same tree.
enum Neighbour<'b> {
    /// The tree has no other leaf.
    None,
    /// The right one has changes of its own in this commit, which are planned next.
    Next,
    /// The left one, which has no changes in this commit.
    Left(&'b Arc<Leaf>),
    Right(&'b Arc<Leaf>),
    Two(&'b Arc<Leaf>, &'b Arc<Leaf>),
    /// Only the left one exists, and its changes are planned.
    Changed,
}

/// Cuts the items between two fences into leaves: one leaf, or the number that equal shares of
/// about [`CUT`] bytes need. Each cut is as close to its share as the entries allow.
fn cut<'b>(items: Vec<PlanItem<'b>>, low: &'b [u8], high: Option<&'b [u8]>) -> Vec<PlanPiece<'b>> {
    let total: usize = items.iter().map(PlanItem::size).sum();
    if total <= ONE_LEAF {
        return vec![PlanPiece { low, high, items }];
    }
    let count = total.div_ceil(CUT);
    let mut pieces = Vec::with_capacity(count);
    let (mut piece, mut bytes, mut low) = (Vec::<PlanItem<'b>>::new(), 0, low);
    for item in items {
        let share = total * (pieces.len() + 1) / count;
        if pieces.len() + 1 < count
            && bytes + item.size() / 2 >= share
            && let Some(below) = piece.last()
        {
            let fence = separator(below.key, item.key);
            pieces.push(PlanPiece {
                low,
                high: Some(fence),
                items: std::mem::take(&mut piece),
            });
            low = fence;
        }
        bytes += item.size();
        piece.push(item);
    }
    pieces.push(PlanPiece {
        low,
        high,
        items: piece,
    });
    pieces
}

/// The shortest key above `below` and not above `above`; `above` is larger.
fn separator<'k>(below: &[u8], above: &'k [u8]) -> &'k [u8] {
    let same = below.iter().zip(above).take_while(|(a, b)| a == b).count();
    &above[..(same + 1).min(above.len())]
}
