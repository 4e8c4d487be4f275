//! Connections whose next command waits for the end of a pause: **released in the order of their
//! arrival, and not visited before**.

use std::collections::{BTreeMap, BTreeSet};

use crate::pause::Pause;

/// The held connections of a thread.
#[derive(Debug, Default)]
pub(super) struct HeldConnections {
    /// Connections that any pause holds, by their arrival number: their indices in the slab.
    by_any: BTreeMap<u64, usize>,
    /// Those that only a pause of all commands holds.
    by_all: BTreeMap<u64, usize>,
    /// Arrival numbers of those whose command has waited for a key.
    waiting: BTreeSet<u64>,
    next: u64,
}

impl HeldConnections {
    /// Adds the connection `key`, which a pause at least as strict as `holds` holds. `has_waited`:
    /// whether its command has waited for a key. Returns the argument for [`remove`](Self::remove).
    pub fn add(&mut self, key: usize, holds: Pause, has_waited: bool) -> (Pause, u64) {
        let number = self.next;
        self.next += 1;
        self.queue(holds).insert(number, key);
        if has_waited {
            self.waiting.insert(number);
        }
        (holds, number)
    }

    pub fn remove(&mut self, (holds, number): (Pause, u64)) {
        self.queue(holds).remove(&number);
        self.waiting.remove(&number);
    }

    /// Removes the connections that `pause` does not hold, in the order of their arrival.
    pub fn release(&mut self, pause: Option<Pause>) -> Vec<usize> {
        let mut released = BTreeMap::new();
        for holds in [Pause::Writes, Pause::All] {
            if pause.is_none_or(|pause| pause < holds) {
                released.append(self.queue(holds));
            }
        }
        self.waiting.retain(|number| !released.contains_key(number));
        released.into_values().collect()
    }

    /// The number of those that wait only for the end of the pause.
    pub fn waiting_for_nothing_else(&self) -> usize {
        self.by_any.len() + self.by_all.len() - self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_any.is_empty() && self.by_all.is_empty()
    }

    fn queue(&mut self, holds: Pause) -> &mut BTreeMap<u64, usize> {
        match holds {
            Pause::Writes => &mut self.by_any,
            Pause::All => &mut self.by_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_released_in_order_once_nothing_holds_them() {
        let mut held = HeldConnections::default();
        let first = held.add(7, Pause::Writes, false);
        held.add(3, Pause::All, false);
        held.add(5, Pause::Writes, true);
        held.add(1, Pause::All, true);
        assert_eq!(held.waiting_for_nothing_else(), 2);
        assert!(held.release(Some(Pause::All)).is_empty());
        assert_eq!(held.release(Some(Pause::Writes)), [3, 1]);
        held.add(2, Pause::All, false);
        held.remove(first);
        assert_eq!(held.release(None), [5, 2]);
        assert!(held.is_empty() && held.waiting_for_nothing_else() == 0);
    }
}
