//! Connections whose next command waits for the end of a pause: **released in the order of their
//! arrival, and not visited before**.

use std::collections::BTreeMap;

use crate::pause::Pause;

/// The held connections of a thread.
#[derive(Debug, Default)]
pub(super) struct HeldConnections {
    /// Connections that any pause holds, by their arrival number: their indices in the slab.
    by_any: BTreeMap<u64, usize>,
    /// Those that only a pause of all commands holds.
    by_all: BTreeMap<u64, usize>,
    next: u64,
}

impl HeldConnections {
    /// Adds the connection `key`, which a pause as strict as `holds` holds. Returns what
    /// [`remove`](Self::remove) takes.
    pub fn add(&mut self, key: usize, holds: Pause) -> (Pause, u64) {
        let number = self.next;
        self.next += 1;
        self.queue(holds).insert(number, key);
        (holds, number)
    }

    pub fn remove(&mut self, (holds, number): (Pause, u64)) {
        self.queue(holds).remove(&number);
    }

    /// Removes the connections that `pause` does not hold, in the order of their arrival.
    pub fn release(&mut self, pause: Option<Pause>) -> Vec<usize> {
        let mut released = BTreeMap::new();
        for holds in [Pause::Writes, Pause::All] {
            if pause.is_none_or(|pause| pause < holds) {
                released.append(self.queue(holds));
            }
        }
        released.into_values().collect()
    }

    pub fn len(&self) -> usize {
        self.by_any.len() + self.by_all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        let first = held.add(7, Pause::Writes);
        held.add(3, Pause::All);
        held.add(5, Pause::Writes);
        held.add(1, Pause::All);
        assert!(held.release(Some(Pause::All)).is_empty());
        assert_eq!(held.release(Some(Pause::Writes)), [3, 1]);
        held.add(2, Pause::All);
        held.remove(first);
        assert_eq!(held.release(None), [5, 2]);
        assert!(held.is_empty());
    }
}
