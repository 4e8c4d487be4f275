//! The protocols under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads, and every value that C11 allows a load to return, up to a bound on preemptions.
//!
//! The product's own code runs, on [`Model`] words. Each model has deliberately broken twins: an
//! ordering is missing, a barrier does nothing ([`Useless`]), two steps are swapped or one is left
//! out. A twin must fail; otherwise its model shows nothing.
//!
//! Loom does not support `membarrier`: here both sides of the barrier are sequentially consistent
//! fences ([`Fences`]), which is the contract; the litmus test checks that the system call keeps
//! it. A death is simulated by a thread that stops in the middle and sets a flag, as the kernel
//! releases its liveness lock.

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
/// Loom does not explore schedules around a bare fence, because a fence belongs to no object. So
/// each side also touches, without any ordering, a word that all fences of the model share. Loom
/// then explores their order, and may preempt a thread right before a fence.
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
