//! Items that a leader lets go for its NUMA node: hand-over within a node, as cohort locks have it.
//! Simulated and not offered: it does not pay, as decision 020 shows.
//!
//! **A reservation is advice.** The word of an item that is let go for a node says that it is free,
//! and names the node where an owner's generation would be. Threads of other nodes let that one's
//! come first, for a bounded number of looks. So nothing has to be undone if none comes.

use mneme_sync::Word;
use mneme_sync::lock_word::{self, Attempt, LockState, Owner};
use mneme_sys::NodeId;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// How often a thread looks at an item that is reserved for another node, and stays so, before it
/// takes it all the same.
#[cfg(feature = "simulate")]
pub(crate) const LOOKS: u32 = 64;

/// The node that a free item is reserved for.
fn reserved_for(state: LockState) -> Option<NodeId> {
    match (state.0 as u16, (state.0 >> 16) as u16) {
        (0, node @ 1..) => Some(NodeId(node - 1)),
        _ => None,
    }
}

/// Lets an item go, and reserves it for a node.
pub(crate) fn release_for<W: Word>(item: &W, node: NodeId) {
    let free = item.load(Relaxed) & !u64::from(u32::MAX);
    let reserved = u64::from(node.0.wrapping_add(1)) << 16;
    // SYNC: as in `lock_word::release`.
    item.store(free | reserved, Release);
}

/// A thread that waits for an item which leaders hand over within their nodes.
pub(crate) struct Reserved {
    node: NodeId,
    most: u32,
    seen: u64,
    looks: u32,
}

impl Reserved {
    /// Of a thread that runs on `node`, and looks at a reservation `most` times.
    pub(crate) fn on(node: NodeId, most: u32) -> Reserved {
        Reserved {
            node,
            most,
            seen: 0,
            looks: 0,
        }
    }

    /// Takes the item if it is free, unless it should go to another node first.
    pub(crate) fn acquire<W: Word>(&mut self, item: &W, me: Owner) -> Attempt {
        let seen = LockState(item.load(Relaxed));
        if reserved_for(seen).is_none_or(|node| node == self.node) {
            return lock_word::acquire(item, me);
        }
        if seen.0 != self.seen {
            (self.seen, self.looks) = (seen.0, 0);
        }
        self.looks += 1;
        match self.looks > self.most {
            true => lock_word::acquire(item, me),
            false => Attempt::Busy(seen),
        }
    }
}
