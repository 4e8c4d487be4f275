//! Commits: the only code that stores to an open store.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use zerocopy::IntoBytes;

use mneme_sys::fault::without;

use crate::control_region::AnnouncedVersion;
use crate::index::{Edit, Node};
use crate::layout::{
    CommitRecord, ExtentHeader, LEAF, LeafHeader, Listed, MAIN, MAX_LISTED, NUMBERS, STATE_ALONE,
    STATE_CLEAN, STATE_UNCOUNTED, TreeExtent, move_entry, write_entry,
};
use crate::leaf::{FreeLeaves, Leaf};
use crate::leaf_entry::fingerprint;
use crate::names::{self, Naming};
use crate::open_store::{Core, PublishedVersion};
use crate::plan::{Append, CommitPlan, ItemSource, PlannedChange, Rewrite, plan};
use crate::reserve::{Dead, Reclaimer, ReservePlace};
use crate::roots::{Dropping, Roots, leaves_of};
use crate::space::FreeSpace;
use crate::{StoreError, Version};

/// Appends whose places are prefetched before they are stored to.
const AHEAD: usize = 2;

/// The extents of a commit, in the order in which its entries are stored.
struct Places<'e>(std::slice::Iter<'e, TreeExtent>);

impl Places<'_> {
    /// The extent for these parts, the next ones to be stored, if they need one.
    fn of(&mut self, outside: [&[u8]; 2]) -> Option<TreeExtent> {
        match outside {
            [[], []] => None,
            _ => self.0.next().copied(),
        }
    }
}

/// What a commit does in addition to its changes.
#[derive(Debug, Default)]
pub(crate) struct Also<'n> {
    pub(crate) naming: Option<Naming<'n>>,
    /// A new tree gets a number.
    pub(crate) creates: bool,
    /// Trees to drop. Their remains die with later commits.
    pub(crate) drops: &'n [u32],
    /// Leaves of dropped trees to mark dead.
    pub(crate) dead: &'n [Arc<Leaf>],
}

/// State that only the writer uses.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The last record, on which the next one is based.
    pub(crate) record: CommitRecord,
    pub(crate) reclaimer: Reclaimer,
    scratch: Vec<u8>,
    /// The fingerprints and offsets of a leaf's new entries.
    entries: Vec<(u8, u16)>,
    /// Dropped trees whose leaves die with later commits.
    pub(crate) dropping: Vec<Dropping>,
    /// A commit has begun to store and has not finished.
    storing: bool,
    /// The number of commits that may follow the last record without one.
    without_record: u64,
}

impl Writer {
    pub(crate) fn new(
        record: CommitRecord,
        space: FreeSpace,
        free: FreeLeaves,
        dead: Vec<Dead>,
    ) -> Self {
        Self {
            record,
            reclaimer: Reclaimer::new(space, free, dead),
            scratch: Vec::new(),
            entries: Vec::new(),
            dropping: Vec::new(),
            storing: false,
            without_record: 0,
        }
    }

    /// Commits `changes` as one version. They are sorted by tree and key, with one change per key.
    /// Some leaves of dropped trees die in the same commit.
    pub(crate) fn commit(
        &mut self,
        core: &Core,
        changes: &[PlannedChange<'_>],
        caller: Option<[u8; 32]>,
    ) -> Result<Version, StoreError> {
        if changes.last().is_some_and(|last| last.tree != MAIN) {
            self.know_trees(core, changes)?;
        }
        if self.dropping.is_empty() {
            return self.commit_with(core, changes, caller, Also::default());
        }
        self.commit_and_bury(core, changes, caller)
    }

    /// Checks that the trees of all changes have names.
    fn know_trees(&self, core: &Core, changes: &[PlannedChange<'_>]) -> Result<(), StoreError> {
        let (roots, version) = (&core.published(self).roots, self.record.version);
        for of in changes.chunk_by(|a, b| a.tree == b.tree) {
            let tree = of[0].tree;
            if roots.of(tree).is_none() && !core.catalogue(roots, version).has(tree)? {
                return Err(StoreError::TreeDropped { tree });
            }
        }
        Ok(())
    }

    /// As [`commit`](Self::commit); also changes names and trees in the same version.
    pub(crate) fn commit_with(
        &mut self,
        core: &Core,
        changes: &[PlannedChange<'_>],
        caller: Option<[u8; 32]>,
        also: Also<'_>,
    ) -> Result<Version, StoreError> {
        core.may_write()?;
        // SYNC: pairs with the Release store where a sync fails.
        if core.poisoned.load(Ordering::Acquire) || self.storing {
            return Err(StoreError::Poisoned);
        }
        let current = core.published(self);
        let (roots, durable) = (current.roots.clone(), self.record.version);
        let planned = self.plan(core, (&roots, durable), changes, &also, true);
        let planned = match planned {
            // A removal makes space, so it must not fail for lack of space.
            Err(StoreError::NoSpace { .. }) => {
                self.plan(core, (&roots, durable), changes, &also, false)
            }
            planned => planned,
        };
        let (plan, extents) = planned?;
        let is_empty = plan.appends.is_empty() && plan.rewrites.is_empty();
        if is_empty && caller.is_none() && also.naming.is_none() && plan.dead.is_empty() {
            return Ok(Version(durable));
        }
        let fresh = plan.fresh_leaves();

        let version = self.record.last + 1;
        self.storing = true;
        core.shared.begin(version);
        if let Some(naming) = also.naming {
            names::store(&core.pages, naming, version);
        }
        // Entries that the record lists become durable together with it; an opening after a crash
        // checks that they are there.
        let listed = list(&plan).filter(|_| {
            let has_grown = core.pages.len() != self.record.file_len;
            extents.is_empty() && also.naming.is_none() && !has_grown
        });
        // One entry needs no record: whether it was committed is seen by itself.
        let is_single = listed.is_some()
            && plan.changes.len() == 1
            && plan.gone.is_empty()
            && caller.is_none()
            && !also.creates
            && also.drops.is_empty();
        let alone = is_single && self.without_record > 0;
        let new_leaves = self.store(core, &plan, &extents, (version, alone))?;
        if listed.is_none() || alone {
            core.barrier()?;
        }
        mneme_sys::fault!("tree.commit.stored");
        let ends = also.drops.iter().map(|tree| AnnouncedVersion::End(*tree));
        let births = new_leaves
            .iter()
            .flatten()
            .map(|leaf| AnnouncedVersion::Birth(leaf.id));
        let announced: Vec<_> = ends.chain(births).collect();
        core.shared.announce(version, &announced, core.pages.len());
        mneme_sys::fault!("tree.commit.announced");
        let mut record = self.record;
        record.version = version;
        record.last = version;
        record.file_len = core.pages.len();
        record.entries = record.entries.wrapping_add_signed(plan.entries);
        record.live_bytes = record.live_bytes.wrapping_add_signed(plan.live_bytes);
        if alone {
            self.record = record;
            self.without_record -= 1;
            self.publish(core, &plan, new_leaves, version, also.drops);
            mneme_sys::fault!("tree.commit.published");
            self.storing = false;
            return Ok(Version(version));
        }
        record.state &= STATE_ALONE | STATE_UNCOUNTED;
        record.state |= core.pages.durability().code();
        record.state |= if is_single { STATE_ALONE } else { 0 };
        record.sequence += 1;
        let units =
            |extents: &[TreeExtent]| extents.iter().map(|e| e.smallest_units()).sum::<u64>();
        let gone: Vec<_> = plan.gone.iter().map(|(extent, _)| *extent).collect();
        record.extents = record.extents + extents.len() as u64 - gone.len() as u64;
        record.extent_units = record.extent_units + units(&extents) - units(&gone);
        let old = plan.rewrites.iter().map(|rewrite| rewrite.old.len());
        let gone = old.sum::<usize>() + plan.dead.len();
        record.leaves = record.leaves + fresh as u64 - gone as u64;
        record.next_tree += u64::from(also.creates);
        match also.naming {
            Some(Naming::Keep(..)) => record.names += 1,
            Some(Naming::Drop(_)) => record.names -= 1,
            None => {}
        }
        record.caller = caller.unwrap_or(record.caller);
        record.listed = listed.unwrap_or_default();
        self.write_record(core, &mut record)?;
        mneme_sys::fault!("tree.commit.recorded");

        self.publish(core, &plan, new_leaves, version, also.drops);
        mneme_sys::fault!("tree.commit.published");
        self.storing = false;
        Ok(Version(version))
    }

    /// Plans the changes of a version and reserves places for what they store.
    fn plan<'b>(
        &mut self,
        core: &'b Core,
        (roots, version): (&'b Roots, u64),
        changes: &[PlannedChange<'b>],
        also: &Also<'b>,
        joins: bool,
    ) -> Result<(CommitPlan<'b>, Vec<TreeExtent>), StoreError> {
        let mut plan = plan(
            (&core.pages, &core.committed),
            roots,
            version,
            changes,
            joins,
        )?;
        for leaf in also.dead {
            plan.bury((&core.pages, &core.committed), leaf, version)?;
        }
        // Extents first: the search may turn frames of free leaves into frames of extents.
        let extents = self.reserve_extents(core, plan.outside().map(|[a, b]| a.len() + b.len()))?;
        match self.reserve_leaves(core, plan.fresh_leaves()) {
            Ok(()) => Ok((plan, extents)),
            Err(error) => {
                self.release_extents(&extents);
                Err(error)
            }
        }
    }

    /// Writes a record and waits until it is durable.
    pub(crate) fn write_record(
        &mut self,
        core: &Core,
        record: &mut CommitRecord,
    ) -> Result<(), StoreError> {
        record.seal(core.seed);
        core.pages
            .store(CommitRecord::place(record.sequence), record.stored());
        core.barrier()?;
        self.record = *record;
        let follow = record.state & STATE_ALONE != 0;
        self.without_record = if follow { NUMBERS - 1 } else { 0 };
        Ok(())
    }

    /// Marks the store as closed.
    pub(crate) fn close(&mut self, core: &Core) -> Result<(), StoreError> {
        if core.poisoned.load(Ordering::Acquire) || self.storing {
            return Err(StoreError::Poisoned);
        }
        core.sync()?;
        let mut record = self.record;
        record.state = record.state & !STATE_ALONE | STATE_CLEAN;
        record.listed = Default::default();
        record.sequence += 1;
        self.write_record(core, &mut record)?;
        core.sync()
    }

    /// Stores everything except the record. Returns the new leaves of each rewrite.
    fn store(
        &mut self,
        core: &Core,
        plan: &CommitPlan<'_>,
        extents: &[TreeExtent],
        (version, alone): (u64, bool),
    ) -> Result<Vec<Vec<Arc<Leaf>>>, StoreError> {
        for (extent, parts) in extents.iter().zip(plan.outside()) {
            store_extent(core, *extent, version, parts);
        }
        for (extent, _) in &plan.gone {
            if !without("extent.death") {
                let at = extent.header_at() + ExtentHeader::DEATH;
                core.pages.store_word(at, extent.death_word(version));
            }
        }
        for leaf in &plan.dead {
            store_death(core, leaf, version);
        }
        let mut places = Places(extents.iter());
        for (i, append) in plan.appends.iter().enumerate() {
            // The plan has visited many other leaves since this one, so prefetch it.
            if let Some(next) = plan.appends.get(i + AHEAD) {
                next.prefetch(&core.pages, &plan.changes);
            }
            let changes = &plan.changes[append.changes.clone()];
            self.append(core, append, changes, &mut places, (version, alone));
        }
        let rewrites = plan.rewrites.iter().enumerate();
        rewrites
            .map(|(i, rewrite)| {
                if let Some(next) = plan.rewrites.get(i + 1) {
                    next.prefetch();
                }
                self.rewrite(core, rewrite, &mut places, version)
            })
            .collect()
    }

    fn append(
        &mut self,
        core: &Core,
        append: &Append<'_>,
        changes: &[PlannedChange<'_>],
        places: &mut Places<'_>,
        (version, alone): (u64, bool),
    ) {
        let leaf = append.leaf;
        let end = leaf.end();
        self.scratch.clear();
        self.entries.clear();
        for change in changes {
            let at = end + self.scratch.len();
            self.entries.push((fingerprint(change.key), at as u16));
            write_entry(
                &mut self.scratch,
                (leaf.id, at),
                (version, alone),
                change.key,
                change.value,
                places.of(change.outside()),
            );
        }
        let new_end = end + self.scratch.len();
        self.end_leaf(new_end);
        // The word that makes the first entry valid is stored last, on its own: if the process is
        // killed during the copy, the leaf ends before that entry.
        let at = leaf.id.at() + end as u64;
        if let Some((start, rest)) = self.scratch.split_first_chunk() {
            // An entry of an interrupted commit that lies there must not be taken for a whole one
            // while it is stored over: see `Leaf::is_committed`.
            let mut old = [0; 8];
            core.pages.copy(at, &mut old);
            if old != [0; 8] {
                core.pages.store_word(at, 0);
                fence(Ordering::Release);
            }
            core.pages.store(at + 8, rest);
            core.pages.store_word(at, u64::from_le_bytes(*start));
        }
        // Readers ignore the entries, because no reader has a version that is not durable.
        leaf.appended(&self.entries, new_end, append.live);
    }

    /// Stores a zero word after the entries of a leaf, which end at `end`: the bytes behind them
    /// stem from previous users of the place, or from commits that did not happen.
    fn end_leaf(&mut self, end: usize) {
        if end < LEAF && !without("leaf.end") {
            self.scratch.extend_from_slice(&[0; 8]);
        }
    }

    fn rewrite(
        &mut self,
        core: &Core,
        rewrite: &Rewrite<'_>,
        places: &mut Places<'_>,
        version: u64,
    ) -> Result<Vec<Arc<Leaf>>, StoreError> {
        let mut leaves = Vec::with_capacity(rewrite.pieces.len());
        for piece in &rewrite.pieces {
            let id = self.reclaimer.free.take().ok_or(StoreError::Unsupported {
                what: "a commit that needs more leaves than it planned",
            })?;
            let outside = places.of(piece.outside());
            let leaf = Leaf::new(id, version, piece.low.into(), piece.high.map(Box::from));
            let leaf = leaf.of(rewrite.tree, outside);
            self.scratch.clear();
            self.entries.clear();
            if leaf.first() > 0 {
                self.scratch.extend_from_slice(&leaf.low);
                self.scratch
                    .extend_from_slice(leaf.high.as_deref().unwrap_or_default());
                self.scratch.resize(leaf.first(), 0);
            }
            for item in &piece.items {
                let at = self.scratch.len();
                self.entries.push((fingerprint(item.key), at as u16));
                match item.source {
                    ItemSource::Moved(entry) => move_entry(&mut self.scratch, id, at, entry),
                    ItemSource::Value(value) => {
                        let extent = places.of(item.outside());
                        let place = (id, at);
                        write_entry(
                            &mut self.scratch,
                            place,
                            (version, false),
                            item.key,
                            Some(value),
                            extent,
                        );
                    }
                }
            }
            let end = self.scratch.len();
            self.end_leaf(end);
            core.pages.store(id.at(), &self.scratch);
            store_header(core, &leaf, version);
            leaf.fill(&self.entries, end);
            leaves.push(Arc::new(leaf));
        }
        for old in &rewrite.old {
            if without("reuse.late") {
                self.reclaimer.free.add([old.id]);
            }
            if without("rewrite.death") {
                continue;
            }
            store_death(core, old, version);
        }
        Ok(leaves)
    }

    /// Makes the version visible to readers.
    fn publish(
        &mut self,
        core: &Core,
        plan: &CommitPlan<'_>,
        new: Vec<Vec<Arc<Leaf>>>,
        version: u64,
        drops: &[u32],
    ) {
        let extents = plan.gone.iter();
        let extents = extents.map(|&(extent, birth)| (ReservePlace::Extent(extent), birth));
        let leaves = plan.rewrites.iter().flat_map(|rewrite| &rewrite.old);
        let leaves = leaves.chain(&plan.dead);
        let leaves = leaves.map(|leaf| (ReservePlace::Leaf(leaf.id), leaf.birth));
        let dead = extents.chain(leaves).map(|(place, birth)| Dead {
            place,
            birth,
            death: version,
        });
        self.reclaimer.retired.dead.extend(dead);
        let current = core.published(self);
        if plan.rewrites.is_empty() && drops.is_empty() {
            // SYNC: pairs with the Acquire load in `Core::read`: the version implies its entries.
            current.version.store(version, Ordering::Release);
            core.shared.publish(version);
            self.reclaim_some(core);
            return;
        }
        let mut changed = Vec::with_capacity(1);
        let mut new = &new[..];
        for of in plan.rewrites.chunk_by(|a, b| a.tree == b.tree) {
            let fresh;
            (fresh, new) = new.split_at(of.len());
            let root = match current.roots.of(of[0].tree) {
                Some(root) => {
                    let edits = of.iter().zip(fresh).map(|(rewrite, new)| Edit {
                        low: &rewrite.old[0].low,
                        high: rewrite.old[rewrite.old.len() - 1].high.as_deref(),
                        new,
                    });
                    root.replace(&edits.collect::<Vec<_>>())
                }
                None => Node::build(fresh.concat()),
            };
            changed.push((of[0].tree, Some(root)));
        }
        changed.extend(drops.iter().map(|tree| (*tree, None)));
        let dropped = drops.iter().filter_map(|tree| {
            let leaves = leaves_of(current.roots.of(*tree)?);
            Some(Dropping {
                tree: *tree,
                leaves,
            })
        });
        let dropped: Vec<_> = dropped.collect();
        let roots = current.roots.with(changed);
        self.dropping.extend(dropped);
        let old = core.replace_published(self, PublishedVersion::new(version, roots));
        mneme_sys::fault!("tree.publish.here");
        core.shared.publish(version);
        self.reclaimer.retired.published.push(old);
        self.reclaim_some(core);
    }
}

/// Lists everything that the plan stores into leaves, if it consists of new entries in few of them.
fn list(plan: &CommitPlan<'_>) -> Option<[Listed; MAX_LISTED]> {
    let is_more = !plan.rewrites.is_empty() || !plan.gone.is_empty() || !plan.dead.is_empty();
    if is_more || plan.appends.len() > MAX_LISTED {
        return None;
    }
    let mut listed = [Listed::default(); MAX_LISTED];
    for (listed, append) in listed.iter_mut().zip(&plan.appends) {
        *listed = Listed::new(append.leaf.id, append.leaf.end(), append.changes.len());
    }
    Some(listed)
}

/// Marks a leaf dead.
fn store_death(core: &Core, leaf: &Leaf, version: u64) {
    let death = LeafHeader::death_word(leaf.id, version);
    core.pages
        .store_word(leaf.id.header_at() + LeafHeader::DEATH, death);
}

/// Stores the header of a new leaf around the death word, which a previous user of the place may
/// have left.
fn store_header(core: &Core, leaf: &Leaf, birth: u64) {
    let fences = (&*leaf.low, leaf.high.as_deref());
    let header = LeafHeader::new((leaf.tree, leaf.id), birth, fences, leaf.outside());
    let (before, after) = header.around_death();
    if without("reuse.keep_death") {
        core.pages.store(leaf.id.header_at(), header.as_bytes());
        return;
    }
    core.pages.store(leaf.id.header_at(), before);
    core.pages
        .store(leaf.id.header_at() + LeafHeader::DEATH + 8, after);
}

/// Stores an extent's content and header around the death word of an earlier extent at this unit.
fn store_extent(core: &Core, extent: TreeExtent, birth: u64, parts: [&[u8]; 2]) {
    let [first, second] = parts;
    for (at, part) in [(0, first), (first.len() as u64, second)] {
        if !part.is_empty() {
            core.pages.store(extent.at() + at, part);
        }
    }
    let header = ExtentHeader::new(extent, birth, parts);
    if without("extent.keep_death") {
        core.pages.store(extent.header_at(), header.as_bytes());
        return;
    }
    let (before, after) = header.around_death();
    core.pages.store(extent.header_at(), before);
    core.pages
        .store(extent.header_at() + ExtentHeader::DEATH + 8, after);
}
