//! Every protocol of this crate runs on real shared memory and, as *the same code*, inside the
//! interleaving models: it is written for [`Word`] and [`Barrier`] instead of `AtomicU64` and the
//! system call.
//!
//! A model supplies its own words (loom's atomics) and its own barrier: neither loom nor shuttle
//! supports `membarrier`, so both sides use a sequentially consistent fence. A deliberately broken
//! model supplies words that ignore their orderings or a barrier that does nothing. In the product
//! both traits are inlined and cost nothing.

use mneme_sys::barrier::BarrierRefused;
use std::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit atomic. It is an [`AtomicU64`] in the product, and a model checker's word in the models
/// of the protocols here and in the crates above.
///
/// The methods are those of [`AtomicU64`] with the same names.
pub trait Word {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`AtomicU64::compare_exchange`].
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// As [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// As [`AtomicU64::fetch_max`].
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
    /// A thread fence of the memory model that the word belongs to.
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_add(self, value, order)
    }

    #[inline(always)]
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_max(self, value, order)
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// The asymmetric barrier. `light` costs almost nothing and is passed by a thread that begins
/// something; `heavy` is expensive and is passed by a thread that must know what all others have
/// begun.
///
/// The contract is that of a sequentially consistent fence on both sides. Take a store before
/// `light` and a load after `heavy`, and a store before `heavy` and a load after `light`: at least
/// one of the two loads sees the other side's store.
pub(crate) trait Barrier {
    fn light(&self);

    /// The kernel refuses. Values that are loaded afterwards prove nothing.
    /// The kernel refuses. Values loaded afterwards prove nothing.
    fn heavy(&self) -> Result<(), BarrierRefused>;
}
