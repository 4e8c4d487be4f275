//! A simulated machine of any shape, on which a test chooses where each thread runs.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LOCAL, NOWHERE, NodeId, REMOTE, Topology};
use crate::CpuId;

/// A topology of equal nodes. Threads run on CPU 0 until [`run_on`](Self::run_on) moves them.
///
/// ```
/// use mneme_sys::{CpuId, NodeId, SyntheticTopology, Topology};
/// let four_by_two = SyntheticTopology::new(4, 2);
/// four_by_two.run_on(CpuId(5));
/// assert_eq!(four_by_two.current_node(), NodeId(2));
/// ```
#[derive(Debug)]
pub struct SyntheticTopology {
    id: u64,
    nodes: u16,
    cpus_per_node: u32,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// For each topology on which this thread was placed: its id and the CPU.
    static PLACES: RefCell<Vec<(u64, CpuId)>> = const { RefCell::new(Vec::new()) };
}

impl SyntheticTopology {
    /// `nodes` nodes of `cpus_per_node` CPUs each, numbered node by node. Zero counts as one. Nodes
    /// form a ring: distance 10 to itself, 20 to a neighbour, 30 to the next, and so on.
    pub fn new(nodes: u16, cpus_per_node: u32) -> Self {
        Self {
            // Relaxed: only uniqueness matters.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            nodes: nodes.max(1),
            cpus_per_node: cpus_per_node.max(1),
        }
    }

    /// Moves the calling thread to `cpu`; a number beyond the last CPU wraps around.
    pub fn run_on(&self, cpu: CpuId) {
        let cpu = CpuId(cpu.0 % self.cpu_count());
        PLACES.with_borrow_mut(
            |places| match places.iter_mut().find(|(id, _)| *id == self.id) {
                Some(place) => place.1 = cpu,
                None => places.push((self.id, cpu)),
            },
        );
    }

    fn cpu_count(&self) -> u32 {
        self.cpus_per_node.saturating_mul(u32::from(self.nodes))
    }
}

impl Topology for SyntheticTopology {
    fn cpus(&self) -> usize {
        self.cpu_count() as usize
    }

    fn nodes(&self) -> usize {
        usize::from(self.nodes)
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        match u16::try_from(cpu.0 / self.cpus_per_node) {
            Ok(node) if node < self.nodes => NodeId(node),
            _ => NodeId(0),
        }
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from.0 >= self.nodes || to.0 >= self.nodes {
            return NOWHERE;
        }
        let apart = u32::from(from.0.abs_diff(to.0));
        let hops = apart.min(u32::from(self.nodes) - apart);
        LOCAL + hops * (REMOTE - LOCAL)
    }

    fn stay_on(&self, node: NodeId) {
        if node.0 < self.nodes {
            self.run_on(CpuId(u32::from(node.0) * self.cpus_per_node));
        }
    }

    fn current_cpu(&self) -> CpuId {
        PLACES.with_borrow(|places| {
            places
                .iter()
                .find(|(id, _)| *id == self.id)
                .map_or(CpuId(0), |(_, cpu)| *cpu)
        })
    }
}
