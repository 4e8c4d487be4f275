//! The protocols under a model checker: [loom](https://docs.rs/loom) runs every schedule of a
//! few threads, and every value that C11 lets a load return, up to a bound on preemptions.
//!
//! The code that runs is the product's own, over [`Model`] words. Each model has twins, broken on
//! purpose: an ordering forgotten, a barrier that does nothing ([`Useless`]), two steps swapped or
//! one left out. A twin must fail; a model whose twin passes shows nothing.
//!
//! Loom knows no `membarrier`: both sides of the barrier are sequentially consistent fences here
//! ([`Fences`]), which is the contract; that the system call keeps it is the litmus' business
//! (`tests/litmus.rs`). A death is a thread that stops in the middle and sets a flag that it is
//! dead, as the kernel drops its liveness lock.

mod announced;
mod checker;
mod epochs;
mod feeds;
mod fenced;
mod holds;
mod intents;
mod locks;
mod slot_owners;
mod sums;
mod watches;

use crate::atomics::{Barrier, Word};
use checker::{Model, fails, fails_within, holds, spawn};
use loom::sync::atomic::fence;
use mneme_sys::barrier::BarrierRefused;
use std::sync::atomic::Ordering;

/// The asymmetric barrier's contract: sequentially consistent fences on both sides.
///
/// Loom tries no schedules around a fence as such, for a fence belongs to no object. Each side
/// therefore touches a word that all fences of the model share, without any ordering: so their
/// order is explored, and a thread may be stopped right before.
struct Fences<'a>(&'a Model);

impl Fences<'_> {
    fn fence(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl Barrier for Fences<'_> {
    fn light(&self) {
        self.fence();
    }

    fn heavy(&self) -> Result<(), BarrierRefused> {
        self.fence();
        Ok(())
    }
}

/// Broken: a barrier that orders nothing.
struct Useless;

impl Barrier for Useless {
    fn light(&self) {}

    fn heavy(&self) -> Result<(), BarrierRefused> {
        Ok(())
    }
}
