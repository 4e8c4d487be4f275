//! [`RcxGuard`]: items that are held, and the lanes and the pin that go with them.

use super::item::{ItemLock, ItemSet, Taken};
use super::lanes::Chosen;
use super::{nesting, protocol};
use mneme_sync::Pin;
use mneme_sys::NodeId;
use std::sync::atomic::AtomicU64;

/// The lanes that made this thread a leader.
pub(crate) struct Led<'a> {
    pub(crate) lanes: Chosen<'a, AtomicU64>,
    pub(crate) node: NodeId,
    /// Generation of forks in which it was elected.
    pub(crate) fork_generation: u32,
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        mneme_sys::fault!("rcx.update.items_released");
        // A forked child leads nowhere, and the lanes may be its parent's too.
        if self.fork_generation == mneme_sys::fork::generation() {
            protocol::step_down(&self.lanes);
        }
    }
}

/// Holds items, until it is dropped. Items are released first, then lanes, then the pin.
///
/// **Read again what led here**: before the locks were taken another thread may have removed an
/// item, or put one in between. The pin keeps all that could be reached since the lock was asked
/// for; what was reached before needs a pin of the caller's from then on.
#[must_use = "dropping it unlocks at once"]
pub struct RcxGuard<'a, I: ItemSet<'a>> {
    // In this order they are dropped.
    pub(crate) taken: Taken<'a, I>,
    pub(crate) led: Option<Led<'a>>,
    pub(crate) _pin: Pin<'a>,
    pub(crate) _place: Option<nesting::Place>,
}

impl<'a, I: ItemSet<'a>> RcxGuard<'a, I> {
    /// The node on which this thread was elected, wherever it runs now. `None`: it took no lanes.
    #[must_use]
    pub fn led_on(&self) -> Option<NodeId> {
        self.led.as_ref().map(|led| led.node)
    }

    /// The ids of the items whose owner died with them, ascending: they may be half changed. None,
    /// once they are [repaired](Self::repaired).
    pub fn died(&self) -> impl Iterator<Item = u64> {
        let items = self.taken.items().iter();
        let died = items.filter(|item| item.lock.owner_died());
        died.map(|item| item.id)
    }

    /// Declares all items whole again: later owners get [`Acquired::Clean`](mneme_sync::Acquired).
    pub fn repaired(&self) {
        self.taken.repaired();
    }
}

impl<'a, I: ItemSet<'a>> std::fmt::Debug for RcxGuard<'a, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.taken.items().iter().map(|item| item.id).collect();
        f.debug_struct("RcxGuard")
            .field("items", &ids)
            .field("led_on", &self.led_on())
            .finish_non_exhaustive()
    }
}
