//! The links of the upper levels: shortcuts for searches, made and taken back one by one.
//!
//! **A node that is removed is retired only after it is linked nowhere**, so a search may follow
//! any link while it is pinned. Nothing else depends on these links: a node that lacks some makes
//! searches longer.
//!
//! Links are made upwards and taken back downwards, each under the locks of the node and the one
//! before it on that level, and [`Node::levels`] counts them. This is Pugh's concurrent skip list.

use super::node::Node;
use super::{RangeMap, RangeValue, whole};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

/// Nodes that are looked at between the place where a link should be and the place where it is.
const NEAR: usize = 64;

impl<V: RangeValue> RangeMap<V> {
    /// Links a node on the levels that it has. The caller is pinned and holds no items.
    pub(super) fn raise(&self, node: &Node) {
        for level in 1..node.links() {
            self.height.fetch_max(level + 1, Relaxed);
            loop {
                let before = self.before(node.start(), level);
                // Another update has not let go for a second, or the thread is within a guard: the
                // node stays lower than it might be.
                let Ok(guard) = self.rcx.lock([before.item(), node.item()]) else {
                    return;
                };
                let _guard = whole(guard);
                if node.is_removed() {
                    return;
                }
                let next = before.following_on(level);
                let in_order = before.start() < node.start() && node.start() < next.start();
                if before.is_removed() || before.levels() <= level || !in_order {
                    continue;
                }
                // Counted first: the count is never too small, whatever becomes of this thread.
                node.set_levels(level + 1);
                node.link_on(level, before.next_on(level));
                mneme_sys::fault!("rcx.range.counted");
                before.link_on(level, node);
                break;
            }
        }
    }

    /// Unlinks a node that this thread has removed from the upper levels, and retires it. The
    /// caller is pinned and holds no items.
    pub(super) fn retire(&self, node: &Node) {
        // Nobody else changes the levels of what is removed.
        while node.levels() > 1 {
            let level = node.levels() - 1;
            let Some(before) = self.link_to(node, level) else {
                // Counted and not linked.
                node.set_levels(level);
                continue;
            };
            let Ok(guard) = self.rcx.lock([before.item(), node.item()]) else {
                // It stays linked, searches pass it, and it is freed with the map.
                return;
            };
            let _guard = whole(guard);
            if before.levels() > level && ptr::eq(before.next_on(level), node) {
                before.link_on(level, node.next_on(level));
                mneme_sys::fault!("rcx.range.lowered");
                node.set_levels(level);
            }
        }
        // SAFETY: from a box, hence not null. The list and all levels lead past it, and the one
        // thread that unlinked it from the list is here.
        unsafe { self.retired.retire(NonNull::new_unchecked(node.own())) };
    }

    /// The node whose link on a level leads to a removed one, if there is one.
    fn link_to(&self, node: &Node, level: usize) -> Option<&Node> {
        // Boundaries may have moved over the place of what is removed, so the search may end behind
        // it. From the head each link leads to it.
        let near = self.before(node.start().saturating_sub(1), level);
        for (from, most) in [(near, NEAR), (&*self.head, usize::MAX)] {
            let mut before = from;
            for _ in 0..most {
                if before.is_last() {
                    break;
                }
                let next = before.next_on(level);
                if ptr::eq(next, node) {
                    return Some(before);
                }
                before = next;
            }
        }
        None
    }

    /// A node for a range that begins at `start`.
    pub(super) fn make(&self, start: u64, value: u64) -> *mut Node {
        let id = self.ids.fetch_add(1, Relaxed);
        let height = Node::height(id);
        Node::new(id, start, value, height, ptr::null_mut()).boxed()
    }
}
