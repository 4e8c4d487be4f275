//! Reserves the places of a commit's leaves and extents before its first store, so that a lack of
//! space changes nothing.

use std::sync::atomic::Ordering;

use mneme_sync::Epoch;
use mneme_sys::fault::without;
use mneme_sys::medium::MediumError;
use zerocopy::IntoBytes;

use crate::StoreError;
use crate::commit::Writer;
use crate::layout::{FRAME, FrameHeader, FrameKind, LEAVES, LeafId, TABLE, TreeExtent};
use crate::leaf::FreeLeaves;
use crate::open_store::{Core, Replaced};
use crate::space::FreeSpace;

/// Replaced places are freed in batches of this size: checking every reader costs a system call of
/// some microseconds.
const RETIRED: usize = 64;

/// If this many batches wait for readers, the writer checks whether the readers live.
const WAITING: usize = 2;

/// What commits have replaced and readers may still use.
#[derive(Debug, Default)]
pub(crate) struct RetiredSpace {
    pub(crate) published: Vec<Replaced>,
    pub(crate) dead: Vec<Dead>,
}

impl RetiredSpace {
    fn len(&self) -> usize {
        self.published.len() + self.dead.len()
    }
}

/// A place with a birth and a death of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReservePlace {
    Leaf(LeafId),
    Extent(TreeExtent),
}

/// A place used by versions from `birth` to before `death`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dead {
    pub(crate) place: ReservePlace,
    pub(crate) birth: u64,
    pub(crate) death: u64,
}

/// The writer's side of free space.
#[derive(Debug, Default)]
pub(crate) struct Reclaimer {
    pub(crate) space: FreeSpace,
    pub(crate) free: FreeLeaves,
    /// Replaced places that no epoch has been begun for.
    pub(crate) retired: RetiredSpace,
    /// Replaced places that readers of an epoch may still use.
    waiting: Vec<(Epoch, RetiredSpace)>,
    /// Replaced places that held versions use.
    held: Vec<Dead>,
    /// The count of released versions when `held` was last examined.
    held_at: u64,
}

impl Reclaimer {
    /// Starts with places that are dead but may be in use.
    pub(crate) fn new(space: FreeSpace, free: FreeLeaves, dead: Vec<Dead>) -> Self {
        let retired = RetiredSpace {
            dead,
            ..RetiredSpace::default()
        };
        Self {
            space,
            free,
            retired,
            ..Self::default()
        }
    }
}

impl Writer {
    /// Ensures that there are `count` free leaves.
    pub(crate) fn reserve_leaves(&mut self, core: &Core, count: usize) -> Result<(), StoreError> {
        if self.reclaimer.free.len() < count {
            self.reclaim(core, true);
        }
        while self.reclaimer.free.len() < count {
            let frame = match self.reclaimer.space.take_frame() {
                Some(frame) => frame,
                None => {
                    if !self.recycle(core, false)? {
                        self.grow(core, 1)?;
                    }
                    continue;
                }
            };
            format(core, frame, FrameKind::Leaves);
            self.reclaimer
                .free
                .add((0..LEAVES).rev().map(|slot| LeafId::new(frame, slot)));
        }
        Ok(())
    }

    /// Finds places for values of these lengths: for all or for none.
    pub(crate) fn reserve_extents(
        &mut self,
        core: &Core,
        lengths: impl Iterator<Item = usize>,
    ) -> Result<Vec<TreeExtent>, StoreError> {
        let mut found = Vec::new();
        for len in lengths {
            match self.reserve_extent(core, len as u32) {
                Ok(extent) => found.push(extent),
                Err(error) => {
                    self.release_extents(&found);
                    return Err(error);
                }
            }
        }
        Ok(found)
    }

    /// Returns places in which nothing was stored.
    pub(crate) fn release_extents(&mut self, extents: &[TreeExtent]) {
        for extent in extents {
            self.reclaimer.space.mark(*extent, false);
        }
    }

    fn reserve_extent(&mut self, core: &Core, len: u32) -> Result<TreeExtent, StoreError> {
        // In a store that is large enough, the rest of a run can take further values of this size.
        let least = TreeExtent::least_run(len);
        let many = (core.pages.len() / FRAME / 4).min(u64::from(least) * 8) as u32;
        let mut wanted = if least == 1 { 1 } else { least.max(many) };
        let mut reclaimed = false;
        loop {
            if let Some(extent) = self.reclaimer.space.allocate(len) {
                return Ok(extent);
            }
            if !reclaimed {
                self.reclaim(core, true);
                reclaimed = true;
                continue;
            }
            let space = &mut self.reclaimer.space;
            let found = [wanted, least]
                .into_iter()
                .find_map(|run| Some((space.take_run(run)?, run)));
            let Some((frame, run)) = found else {
                if !self.recycle(core, true)? {
                    let end = (core.pages.len() / FRAME) as u32;
                    let there = self.reclaimer.space.unused_before(end).min(wanted - 1);
                    match self.grow(core, wanted - there) {
                        Err(StoreError::NoSpace { .. }) if wanted > least => wanted = least,
                        grown => grown?,
                    }
                }
                continue;
            };
            format(core, frame, FrameKind::Extents { run });
            // Values will overwrite the tables of the run's frames: it must be durable before that
            // these are no longer tables.
            if run > 1 && !without("run.barrier") {
                core.barrier()?;
            }
            self.reclaimer.space.add_map(frame, run);
        }
    }

    /// Grows by a sixteenth, or by `least` frames if that is more or if there is no space for a
    /// sixteenth.
    fn grow(&mut self, core: &Core, least: u32) -> Result<(), StoreError> {
        let frames = core.pages.len() / FRAME;
        let least = u64::from(least);
        let many = (frames / 16).clamp(1, 32).max(least);
        let grown = match core.pages.grow((frames + many) * FRAME) {
            Err(MediumError::NoSpace { .. }) if many > least => {
                core.pages.grow((frames + least) * FRAME)
            }
            other => other,
        };
        match grown {
            Ok(()) => {}
            Err(error @ (MediumError::Sync(_) | MediumError::Poisoned)) => {
                core.poisoned.store(true, Ordering::Release);
                core.shared.poison();
                return Err(StoreError::OutcomeUnknown(error));
            }
            Err(other) => return Err(other.into()),
        }
        let now = core.pages.len() / FRAME;
        let fresh = (frames..now).map(|frame| frame as u32);
        self.reclaimer.space.add_unused(fresh);
        Ok(())
    }

    /// Makes frames without content unused again, with `leaves` also those of leaves. Returns
    /// whether there were any. See "Frames change their kind" in `docs/design/tree.md`.
    fn recycle(&mut self, core: &Core, leaves: bool) -> Result<bool, StoreError> {
        let mut empty = self.reclaimer.space.take_empty();
        if leaves {
            empty.extend(
                self.reclaimer
                    .free
                    .take_frames()
                    .into_iter()
                    .map(|frame| (frame, 1)),
            );
        }
        if empty.is_empty() {
            return Ok(false);
        }
        let table = [0; TABLE];
        let header = size_of::<FrameHeader>();
        let at = |frame: u32| u64::from(frame) * FRAME;
        let behind = empty.iter().flat_map(|(first, run)| first + 1..first + run);
        if behind.clone().next().is_some() {
            // Bytes of values: the frame has no table, as the run's first frame says.
            for frame in behind {
                core.pages.store(at(frame), &table);
            }
            if !without("recycle.runs") {
                core.barrier()?;
            }
        }
        for (first, _) in &empty {
            core.pages.store(at(*first), &table[..header]);
        }
        if !without("recycle.headers") {
            core.barrier()?;
        }
        for (first, _) in &empty {
            core.pages
                .store(at(*first) + header as u64, &table[header..]);
        }
        if !without("recycle.tables") {
            core.barrier()?;
        }
        for (first, run) in empty {
            self.reclaimer.space.add_unused(first..first + run);
        }
        Ok(true)
    }

    /// Frees places that no reader uses any more; with `now` also those replaced since the last
    /// time.
    pub(crate) fn reclaim(&mut self, core: &Core, now: bool) {
        let own = &mut self.reclaimer;
        let due = if now { 1 } else { RETIRED };
        if own.retired.len() >= due && !own.held.is_empty() {
            // At most once per epoch: it takes a system call for each process with a snapshot.
            core.shared.held.reap();
        }
        let released = core.registered.released(&core.shared);
        if released != own.held_at {
            own.held_at = released;
            // They must wait for another epoch: a reader that has found a version by a name dropped
            // since may be about to hold it.
            own.retired.dead.append(&mut own.held);
        }
        // Without an epoch they stay until the next time.
        if own.retired.len() >= due
            && let Ok(epoch) = core.shared.participants.advance()
        {
            own.waiting.push((epoch, std::mem::take(&mut own.retired)));
        }
        let waiting = std::mem::take(&mut own.waiting);
        let (over, waiting): (Vec<_>, _) = waiting
            .into_iter()
            .partition(|(epoch, _)| core.shared.participants.quiescent(*epoch));
        own.waiting = waiting;
        if own.waiting.len() > WAITING {
            // Dead readers stay pinned for ever, or hold versions.
            core.shared.reap();
        }
        if over.is_empty() {
            return;
        }
        // A version that is held later than this uses none of the dead places.
        let held = core.registered.versions(&core.shared);
        for dead in over.into_iter().flat_map(|(_, retired)| retired.dead) {
            let first = held.partition_point(|version| *version < dead.birth);
            let is_held = held.get(first).is_some_and(|version| *version < dead.death);
            match dead.place {
                _ if is_held && !without("held.look") => own.held.push(dead),
                ReservePlace::Leaf(leaf) => own.free.add([leaf]),
                ReservePlace::Extent(extent) => own.space.mark(extent, false),
            }
        }
    }

    /// As [`reclaim`](Self::reclaim), if enough has been replaced to be worth it.
    pub(crate) fn reclaim_some(&mut self, core: &Core) {
        if self.reclaimer.retired.len() >= RETIRED {
            self.reclaim(core, false);
        }
    }
}

/// Stores the header of an unused frame.
fn format(core: &Core, frame: u32, kind: FrameKind) {
    // The values of a run are long, so a commit would wait for all its frames.
    if !matches!(kind, FrameKind::Extents { run: 2.. }) {
        core.pages.settle(frame);
    }
    let header = FrameHeader::new(frame, kind, core.seed);
    core.pages
        .store(u64::from(frame) * FRAME, header.as_bytes());
}
