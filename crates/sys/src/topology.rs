//! The machine's CPUs, the NUMA node of each, and the distances between nodes.

mod synthetic;
mod sysfs;

use crate::CpuId;

pub use synthetic::SyntheticTopology;
pub use sysfs::SysfsTopology;

/// A NUMA node, by the kernel's number. `0..Topology::nodes()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NodeId(pub u16);

/// The distance of a node to itself in the firmware's tables.
pub(crate) const LOCAL: u32 = 10;
/// The assumed distance to another node if nothing better is known.
pub(crate) const REMOTE: u32 = 20;
/// The distance to a node that does not exist.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The topology of a machine. Constant for the life of the value; shared by all threads.
///
/// The kernel numbers CPUs and nodes, and the numbers may have gaps (a CPU that is off, a node
/// without memory): [`cpus`](Self::cpus) and [`nodes`](Self::nodes) are the sizes of tables indexed
/// by them, not counts of what is usable.
pub trait Topology: Send + Sync {
    /// One more than the highest CPU number; at least 1.
    fn cpus(&self) -> usize;

    /// One more than the highest node number; at least 1.
    fn nodes(&self) -> usize;

    /// The node of a CPU; node 0 for an unknown CPU.
    fn node_of(&self, cpu: CpuId) -> NodeId;

    /// The relative cost of accessing `to` from `from`: 10 within a node, more beyond (in the
    /// firmware's unit), `u32::MAX` if one of them does not exist.
    fn distance(&self, from: NodeId, to: NodeId) -> u32;

    /// The CPU that runs the calling thread: a hint, outdated as soon as it returns, always below
    /// [`cpus`](Self::cpus).
    fn current_cpu(&self) -> CpuId;

    /// All nodes, nearest first; `from` itself comes first, equal distances are ordered by number.
    fn by_distance(&self, from: NodeId) -> Vec<NodeId> {
        let count = u16::try_from(self.nodes()).unwrap_or(u16::MAX);
        let mut all: Vec<NodeId> = (0..count).map(NodeId).collect();
        all.sort_by_key(|node| (*node != from, self.distance(from, *node), *node));
        all
    }

    /// Restricts the calling thread to the CPUs of `node` from now on. Does nothing if the node has
    /// none, or the system does not allow it.
    fn stay_on(&self, node: NodeId) {
        let _ = node;
    }

    /// The node of the CPU that runs the calling thread: a hint, like
    /// [`current_cpu`](Self::current_cpu).
    fn current_node(&self) -> NodeId {
        self.node_of(self.current_cpu())
    }
}
