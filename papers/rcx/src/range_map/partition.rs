//! **A range is read whole without waiting**: a reader gets a start, an end and a value that stood
//! together at some moment of its reading, however many updates run and wherever one is stopped.
//!
//! Ranges are the stretches between *boundaries*, which form a list. A boundary has a start, the
//! value from there on, a mark that it is removed, a link to the next one, and a version. Each
//! change of what a range is, is **one store**: of a start ([`move_start`]), a value
//! ([`set_value`]), a link ([`insert_after`]) or a mark ([`remove_after`]). Before that store the
//! version of each boundary whose range changes is counted up. A reader takes the version before
//! and after: if it is unchanged, at most one of those stores fell between, and the range is the
//! one before it or the one after it.
//!
//! A boundary with the mark counts as absent, so the store of the mark joins its range to the one
//! before. The link around it comes later and changes nothing that a reader sees: a thread that
//! stops in between keeps nobody waiting.
//!
//! Updates hold the locks of all boundaries whose range they change. Written over abstract words,
//! like every protocol of this crate; `docs/design/range-map.md` has the argument case by case.

use mneme_sync::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The words of a boundary, its links apart.
#[derive(Default)]
pub(crate) struct Words<W> {
    pub(crate) version: W,
    pub(crate) start: W,
    pub(crate) value: W,
    /// 1: removed.
    pub(crate) mark: W,
}

/// A boundary: its words, and its link to the next one.
pub(crate) trait Boundary: Sized {
    type Word: Word;

    fn words(&self) -> &Words<Self::Word>;
    /// The next boundary, removed or not. Acquire. Not asked of the last one.
    fn next(&self) -> &Self;
    /// Release.
    fn set_next(&self, next: &Self);
}

/// A range as it stood at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: u64,
}

pub(crate) fn start<B: Boundary>(boundary: &B) -> u64 {
    // SYNC: pairs with the store in `move_start`.
    boundary.words().start.load(Acquire)
}

pub(crate) fn value<B: Boundary>(boundary: &B) -> u64 {
    // SYNC: pairs with the store in `set_value`.
    boundary.words().value.load(Acquire)
}

pub(crate) fn is_removed<B: Boundary>(boundary: &B) -> bool {
    // SYNC: pairs with the store in `remove_after`.
    boundary.words().mark.load(Acquire) != 0
}

/// The next boundary that counts.
pub(crate) fn following<B: Boundary>(boundary: &B) -> &B {
    let mut next = boundary.next();
    while is_removed(next) {
        next = next.next();
    }
    next
}

/// The range that begins with this boundary. `None`: it was changed meanwhile, or is removed.
pub(crate) fn read<B: Boundary>(boundary: &B) -> Option<Seen> {
    let version = &boundary.words().version;
    // SYNC: pairs with the store in `announce`: the changes before that one are visible.
    let before = version.load(Acquire);
    let seen = Seen {
        start: start(boundary),
        value: value(boundary),
        end: start(following(boundary)),
    };
    let removed = is_removed(boundary);
    // Each load above acquires. If one has seen a change, this one sees the count before it.
    (!removed && version.load(Acquire) == before).then_some(seen)
}

/// The range of this boundary is about to change by one store. The caller holds its lock.
pub(crate) fn announce<B: Boundary>(boundary: &B) {
    let version = &boundary.words().version;
    // SYNC: pairs with the first load in `read`. Release: it says that earlier changes are over.
    version.store(version.load(Relaxed).wrapping_add(1), Release);
}

/// Changes the value. The caller holds the boundary's lock.
pub(crate) fn set_value<B: Boundary>(boundary: &B, value: u64) {
    announce(boundary);
    // SYNC: pairs with the load in `value`.
    boundary.words().value.store(value, Release);
}

/// Moves the boundary between two ranges, to a place within either. The caller holds the locks of
/// both.
pub(crate) fn move_start<B: Boundary>(before: &B, boundary: &B, to: u64) {
    announce(before);
    announce(boundary);
    // SYNC: pairs with the load in `start`.
    boundary.words().start.store(to, Release);
}

/// Splits a range: `new`, which nobody has seen, begins within it and has its value or another. The
/// caller holds the lock of `before`, whose link leads to its follower.
pub(crate) fn insert_after<B: Boundary>(before: &B, new: &B) {
    new.set_next(before.next());
    announce(before);
    before.set_next(new);
}

/// Joins the range of `removed`, the follower of `before`, to that of `before`. The caller holds
/// the locks of both, and no link but `before`'s leads past `removed` afterwards.
pub(crate) fn remove_after<B: Boundary>(before: &B, removed: &B) {
    announce(before);
    announce(removed);
    // SYNC: pairs with the load in `is_removed`.
    removed.words().mark.store(1, Release);
    mneme_sys::fault!("rcx.range.marked");
    unlink_removed(before);
}

/// Links past all that is removed behind `before`, whose lock the caller holds. Readers see the
/// same ranges as without.
pub(crate) fn unlink_removed<B: Boundary>(before: &B) {
    before.set_next(following(before));
}
