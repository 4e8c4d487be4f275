//! The topology that the kernel describes under `/sys/devices/system`.

use std::fs;
use std::path::Path;

use super::{LOCAL, NOWHERE, NodeId, REMOTE, Topology};
use crate::CpuId;

/// Larger CPU numbers are considered invalid (Linux allows 8192 on x86-64).
const MAX_CPUS: u32 = 1 << 16;
/// Larger node numbers are considered invalid (Linux allows 1024).
const MAX_NODES: u16 = 1 << 12;

/// The actual machine, at the time of [`detect`](SysfsTopology::detect).
#[derive(Debug, Clone)]
pub struct SysfsTopology {
    node_of: Vec<NodeId>,
    /// Row by row, `nodes * nodes`.
    distances: Vec<u32>,
    nodes: usize,
}

impl SysfsTopology {
    /// Reads the kernel's description. If there is none (no `/sys`, no NUMA), one node has all
    /// CPUs.
    pub fn detect() -> Self {
        #[cfg(miri)]
        return Self::flat(1);
        #[cfg(not(miri))]
        Self::read(Path::new("/sys/devices/system"))
    }

    /// Reads a description laid out as `/sys/devices/system` from `root`, for instance a copy from
    /// another machine. Missing or malformed parts are replaced as in `detect`.
    pub fn read(root: &Path) -> Self {
        let possible = fs::read_to_string(root.join("cpu/possible"))
            .ok()
            .and_then(|text| parse_list(&text))
            .and_then(|cpus| cpus.last().copied());
        let cpus = match possible {
            Some(last) => last as usize + 1,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let mut topology = Self::flat(cpus);
        let Some(online) = fs::read_to_string(root.join("node/online"))
            .ok()
            .and_then(|text| parse_list(&text))
        else {
            return topology;
        };
        let online: Vec<NodeId> = online
            .into_iter()
            .filter_map(|n| u16::try_from(n).ok())
            .filter(|n| *n < MAX_NODES)
            .map(NodeId)
            .collect();
        let Some(last) = online.last() else {
            return topology;
        };
        topology.nodes = usize::from(last.0) + 1;
        topology.distances = vec![NOWHERE; topology.nodes * topology.nodes];
        for &node in &online {
            topology.read_node(root, node, &online);
        }
        topology
    }

    fn flat(cpus: usize) -> Self {
        Self {
            node_of: vec![NodeId(0); cpus.max(1)],
            distances: vec![LOCAL],
            nodes: 1,
        }
    }

    fn read_node(&mut self, root: &Path, node: NodeId, online: &[NodeId]) {
        let directory = root.join(format!("node/node{}", node.0));
        let cpus = fs::read_to_string(directory.join("cpulist"))
            .ok()
            .and_then(|text| parse_list(&text))
            .unwrap_or_default();
        for cpu in cpus {
            if let Some(place) = self.node_of.get_mut(cpu as usize) {
                *place = node;
            }
        }
        // One number for each online node, in the order of their numbers.
        let row: Vec<u32> = fs::read_to_string(directory.join("distance"))
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        for (i, &other) in online.iter().enumerate() {
            let guess = if other == node { LOCAL } else { REMOTE };
            let distance = if row.len() == online.len() {
                row[i]
            } else {
                guess
            };
            self.distances[usize::from(node.0) * self.nodes + usize::from(other.0)] = distance;
        }
    }
}

impl Topology for SysfsTopology {
    fn cpus(&self) -> usize {
        self.node_of.len()
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        self.node_of
            .get(cpu.0 as usize)
            .copied()
            .unwrap_or(NodeId(0))
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        let (from, to) = (usize::from(from.0), usize::from(to.0));
        if from >= self.nodes || to >= self.nodes {
            return NOWHERE;
        }
        self.distances[from * self.nodes + to]
    }

    #[inline]
    fn stay_on(&self, node: NodeId) {
        if self.nodes > 1 {
            let cpus = (0..).zip(&self.node_of).filter(|(_, on)| **on == node);
            crate::cpu::stay_on(cpus.map(|(cpu, _)| cpu));
        }
    }

    fn current_cpu(&self) -> CpuId {
        let cpu = crate::current_cpu();
        if (cpu.0 as usize) < self.node_of.len() {
            cpu
        } else {
            CpuId(0)
        }
    }
}

/// Parses the kernel's list format, `0-3,8,10-11`, into ascending numbers; `None` if it is invalid
/// or contains a number of `MAX_CPUS` or more. An empty list is valid.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_format_is_parsed_and_invalid_lists_refused() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("7"), Some(vec![7]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list("a"), None);
        assert_eq!(parse_list("0-4000000000"), None);
    }
}
