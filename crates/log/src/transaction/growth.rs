//! Room in the index for what a transaction adds: where that is much, it is made for all of it at
//! once, between two attempts.
//!
//! **What has grown for a transaction stays so until that has happened, and no longer.** Until its
//! entries come the segments are nearly empty, and whoever removes something in one would make it
//! small again: a process keeps those that have grown for its own transactions from that. Once
//! these have happened, or will not, it does what it has kept others from.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use mneme_sync::{Holding, Slot};

use crate::core::{Core, Wait};
use crate::error::WriteError;
use crate::index::bucket::TAG_BITS;
use crate::index::resize::{LimboFull, Resized, Why};
use crate::index::root::Root;
use crate::index::{Lookup, Place, SegmentRef};
use crate::room::Room;

/// Entries for which the index grows while the attempt that adds them is under way: it replaces few
/// blocks then.
pub(super) const MANY: usize = 4096;
/// Changes of shape between two looks at what can be given back.
const STEPS: usize = 64;

/// How the index has grown for what a transaction adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// Not at all. An attempt that adds much gives way first, so that the index can give back what
    /// it replaces.
    Unprepared,
    /// For all at once.
    Prepared,
    /// There was no room for all at once: step by step, as it is filled.
    ByStep,
}

/// What an attempt to make room in the index came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grown {
    /// There is room, or another shape: look again.
    Yes,
    /// Somebody held it up, and was waited for: look again.
    Busy,
    /// Pins are to be given up first, perhaps the caller's own: blocks that were replaced wait for
    /// them.
    GiveWay,
    NoRoom,
}

/// Entries that the index is to have room for, those of one segment together.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct ToCome(Vec<(Root, Place)>);

impl ToCome {
    pub fn of(entries: impl Iterator<Item = (Root, Place)>) -> ToCome {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(root, place)| {
            (root.space().index(), place.partition, place.tag)
        });
        ToCome(entries)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The index segments in which room was made for transactions of this process that have not
/// happened yet.
#[derive(Default)]
pub(crate) struct GrownAhead {
    /// How many there are: as a rule none, and nobody need ask further.
    number: AtomicUsize,
    segments: Mutex<HashMap<u64, Kept>>,
}

#[derive(Default)]
struct Kept {
    transactions: usize,
    /// Whether somebody would have made it smaller.
    missed: bool,
}

impl GrownAhead {
    fn segments(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_segments(&self) -> Option<MutexGuard<'_, HashMap<u64, Kept>>> {
        match self.segments.try_lock() {
            Ok(segments) => Some(segments),
            Err(TryLockError::Poisoned(segments)) => Some(segments.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether this segment is to stay as large as it is.
    pub fn keeps(&self, segment: SegmentRef) -> bool {
        // Relaxed here and below: who misses it makes a segment smaller that then grows once more.
        if self.number.load(Relaxed) == 0 {
            return false;
        }
        // Others of other processes wait for the caller: it does not wait for one of its own that
        // is stopped.
        let Some(mut segments) = self.try_segments() else {
            return true;
        };
        let kept = segments.get_mut(&segment.word());
        kept.map(|kept| kept.missed = true).is_some()
    }
}

/// The segments in which room was made for one transaction: while it lives, they do not shrink on
/// this process' account.
pub(super) struct Growing<'a> {
    core: &'a Core,
    segments: Vec<(Root, Place, SegmentRef)>,
}

impl<'a> Growing<'a> {
    pub fn new(core: &'a Core) -> Self {
        let segments = Vec::new();
        Growing { core, segments }
    }

    fn keep(&mut self, root: Root, place: Place, segment: SegmentRef) {
        let grown = &self.core.grown_ahead;
        // Pinned, and so as in `keeps`: it can do without.
        let Some(mut segments) = grown.try_segments() else {
            return;
        };
        segments.entry(segment.word()).or_default().transactions += 1;
        self.segments.push((root, place, segment));
        grown.number.fetch_add(1, Relaxed);
    }

    /// Gives the segments back; those of them that should be looked at: all if the transaction did
    /// not happen.
    fn give_back(&mut self, happened: bool) -> Vec<(Root, Place)> {
        let mut due = Vec::new();
        if self.segments.is_empty() || self.core.participants.is_forked() {
            return due;
        }
        let grown = &self.core.grown_ahead;
        let mut kept_ones = grown.segments();
        for (root, place, segment) in self.segments.drain(..) {
            grown.number.fetch_sub(1, Relaxed);
            let Some(kept) = kept_ones.get_mut(&segment.word()) else {
                continue;
            };
            if kept.missed || !happened {
                due.push((root, place));
            }
            kept.transactions -= 1;
            if kept.transactions == 0 {
                kept_ones.remove(&segment.word());
            }
        }
        due
    }

    /// The transaction is over: what is too large now, because it did not happen or others have
    /// removed much meanwhile, becomes smaller, as far as nobody is in the way.
    pub fn end(mut self, slot: &Slot<'_>, happened: bool) {
        let core = self.core;
        let due = self.give_back(happened);
        // What has come of the transaction is decided, and is not made otherwise by this.
        let _ = core.shrink_all(slot, &due);
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.give_back(true);
    }
}

impl Core {
    /// Makes room in the index for entries to come, and has it give back what it replaces on the
    /// way: the caller, who is not pinned, does not wait for itself.
    #[cold]
    pub(super) fn grow_ahead(
        &self,
        slot: &Slot<'_>,
        to_come: &ToCome,
        growing: &mut Growing<'_>,
    ) -> Result<Growth, WriteError> {
        let mut room = Room::new(0);
        let (mut wait, mut rest) = (Wait::new(), &to_come.0[..]);
        // A store in which more is won than all of it holds is not one that has room for this.
        let mut refusals = 2 * self.segments().count();
        loop {
            let before = rest.len();
            let pin = self.enter_all(slot)?;
            let grown = self.grow_for(slot, &mut rest, &mut wait, STEPS, Some(growing))?;
            drop(pin);
            if rest.len() < before {
                // What was waited for before was not in vain.
                room = Room::new(0);
            }
            match grown {
                Grown::Yes => return Ok(Growth::Prepared),
                Grown::NoRoom if refusals == 0 => return Ok(Growth::ByStep),
                Grown::NoRoom => match self.win_room(slot, &mut room) {
                    Ok(won) => refusals -= usize::from(won),
                    Err(WriteError::OutOfMemory { .. }) => return Ok(Growth::ByStep),
                    // What is there may do, and nobody waits for himself.
                    Err(WriteError::Stalled(held)) if held.what == Holding::OwnPin => {
                        return Ok(Growth::ByStep);
                    }
                    Err(other) => return Err(other),
                },
                Grown::Busy | Grown::GiveWay => {}
            }
            self.collect_limbo(slot)?;
            self.await_limbo(slot, &mut room)?;
        }
    }

    /// The same within an attempt, which is pinned: as far as blocks that are replaced find a
    /// place.
    pub(super) fn grow_within(
        &self,
        slot: &Slot<'_>,
        to_come: &ToCome,
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        self.grow_for(slot, &mut &to_come.0[..], wait, usize::MAX, None)
    }

    /// Makes the index' segments as large as the entries to come ask for, by `steps` changes of
    /// shape at most: then pins are to be given up. `rest` are the entries that have no room yet;
    /// `growing` keeps the segments that have. The caller is pinned.
    fn grow_for(
        &self,
        slot: &Slot<'_>,
        rest: &mut &[(Root, Place)],
        wait: &mut Wait,
        mut steps: usize,
        mut growing: Option<&mut Growing<'_>>,
    ) -> Result<Grown, WriteError> {
        while let Some(&(root, place)) = rest.first() {
            let is_there = self.root(root.space())? == Some(root);
            let segment = match is_there {
                true => self.mem.index_segment(root, place)?,
                // The database was cleared.
                false => None,
            };
            let Some(segment) = segment else {
                *rest = &rest[1..];
                continue;
            };
            let prefix = |place: Place| {
                let unused = TAG_BITS - segment.depth();
                (place.partition, place.tag >> unused)
            };
            let is_inside = |(of, at): &(Root, Place)| *of == root && prefix(*at) == prefix(place);
            let more = rest.partition_point(is_inside);
            let why = Why::Ahead(more as u64);
            match self.grow_once(slot, root, place, Some(segment), why, wait)? {
                Grown::Yes => *wait = Wait::new(),
                Grown::Busy => continue,
                other => return Ok(other),
            }
            if self.mem.index_segment(root, place)? == Some(segment) {
                if let Some(growing) = &mut growing {
                    growing.keep(root, place, segment);
                }
                *rest = &rest[more..];
                continue;
            }
            steps -= 1;
            if steps == 0 {
                return Ok(Grown::GiveWay);
            }
        }
        Ok(Grown::Yes)
    }

    /// Has a segment change its shape once; who holds it up is waited for.
    pub(super) fn grow_once(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        seen: Option<SegmentRef>,
        why: Why,
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        match self.try_resize(slot, root, place, seen, why)? {
            Ok(Resized::Done) => Ok(Grown::Yes),
            Ok(Resized::NoRoom) => Ok(Grown::NoRoom),
            Ok(Resized::Busy(holder, what)) => {
                self.wait_on(slot, wait, holder, what)?;
                Ok(Grown::Busy)
            }
            Err(LimboFull) => Ok(Grown::GiveWay),
        }
    }

    /// Makes the segments at these places as small as what is in them allows, and waits for no
    /// reader.
    fn shrink_all(&self, slot: &Slot<'_>, places: &[(Root, Place)]) -> Result<(), WriteError> {
        let (mut rest, mut in_vain) = (places, 0);
        while !rest.is_empty() && in_vain < 2 {
            let before = rest.len();
            let pin = self.enter_all(slot)?;
            let shrunk = self.shrink_some(slot, &mut rest);
            drop(pin);
            shrunk?;
            // What was replaced can be given back now, unless others have pins.
            self.collect_limbo(slot)?;
            in_vain = if rest.len() < before { 0 } else { in_vain + 1 };
        }
        Ok(())
    }

    /// The same of the first of them, by some changes of shape, while these find places for what
    /// they replace.
    fn shrink_some(&self, slot: &Slot<'_>, rest: &mut &[(Root, Place)]) -> Result<(), WriteError> {
        let mut steps = 0;
        while let Some(&(root, place)) = rest.first() {
            let mut has_changed = false;
            if self.root(root.space())? == Some(root) {
                let seen = self.mem.index_segment(root, place)?;
                if self.try_resize(slot, root, place, seen, Why::Sparse)? == Err(LimboFull) {
                    return Ok(());
                }
                has_changed = self.mem.index_segment(root, place)? != seen;
            }
            if !has_changed {
                *rest = &rest[1..];
                continue;
            }
            steps += 1;
            if steps == STEPS {
                return Ok(());
            }
        }
        Ok(())
    }
}
