//! Which head each CPU appends to.

use mneme_sys::{CpuId, NodeId, Topology};

/// A small store has fewer heads than the machine has CPUs. **CPUs of different nodes share a head
/// only where there are more nodes than heads**: whichever CPU opens a head's segment decides in
/// whose memory the others' records lie.
pub(crate) struct CpuHeads {
    heads: u64,
    /// The head of each CPU; empty if each CPU has its own.
    shared: Vec<u32>,
}

impl CpuHeads {
    pub fn new(topology: &dyn Topology, heads: u64) -> CpuHeads {
        let cpus = topology.cpus();
        if cpus as u64 <= heads {
            let shared = Vec::new();
            return CpuHeads { heads, shared };
        }
        let mut by_node: Vec<(NodeId, usize)> = (0..cpus)
            .map(|cpu| (topology.node_of(CpuId(cpu as u32)), cpu))
            .collect();
        by_node.sort_unstable();
        let groups: Vec<_> = by_node.chunk_by(|a, b| a.0 == b.0).collect();
        let mut shared = vec![0; cpus];
        for (node, group) in groups.iter().enumerate() {
            // The node's share of the heads, at least one.
            let first = node * heads as usize / groups.len();
            let behind = (node + 1) * heads as usize / groups.len();
            for (rank, (_, cpu)) in group.iter().enumerate() {
                shared[*cpu] = (first + rank % (behind - first).max(1)) as u32;
            }
        }
        CpuHeads { heads, shared }
    }

    /// The number of the CPU's head.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> u64 {
        let number = u64::from(cpu.0);
        match self.shared.get(cpu.0 as usize) {
            Some(head) => u64::from(*head),
            None if number < self.heads => number,
            // A CPU that the machine did not have when the store was opened.
            None => number % self.heads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_sys::SyntheticTopology;
    use std::collections::BTreeMap;

    /// The nodes whose CPUs use each head.
    fn users(topology: &dyn Topology, heads: u64) -> BTreeMap<u64, Vec<u16>> {
        let of = CpuHeads::new(topology, heads);
        let mut users = BTreeMap::<u64, Vec<u16>>::new();
        for cpu in (0..topology.cpus() as u32).map(CpuId) {
            let nodes = users.entry(of.of(cpu)).or_default();
            nodes.push(topology.node_of(cpu).0);
            nodes.dedup();
        }
        users
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code that takes a minute")]
    fn nodes_share_a_head_only_where_there_are_more_of_them() {
        for (nodes, cpus) in [(1, 1), (1, 5), (2, 1), (2, 4), (3, 2), (4, 2), (8, 8)] {
            let topology = SyntheticTopology::new(nodes, cpus);
            for heads in 1..=70 {
                let users = users(&topology, heads);
                assert!(users.keys().all(|head| *head < heads), "{users:?}");
                assert!(users.len() as u64 >= heads.min(nodes.into()), "{users:?}");
                if heads >= nodes.into() {
                    assert!(users.values().all(|nodes| nodes.len() == 1), "{users:?}");
                }
                if heads >= topology.cpus() as u64 {
                    assert_eq!(users.len(), topology.cpus(), "each has its own");
                }
            }
        }
    }

    #[test]
    fn a_cpu_that_appears_later_has_a_head() {
        let of = CpuHeads::new(&SyntheticTopology::new(2, 2), 3);
        assert!(of.of(CpuId(900)) < 3);
    }
}
