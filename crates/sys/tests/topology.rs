//! One suite for every topology, the real one included.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use mneme_sys::{CpuId, NodeId, SyntheticTopology, SysfsTopology, Topology};

/// What the crates above rely on when they index tables by CPU and node.
fn conforms(topology: &dyn Topology) {
    let (cpus, nodes) = (topology.cpus(), topology.nodes());
    assert!(cpus >= 1 && nodes >= 1);
    for cpu in (0..cpus as u32).chain([cpus as u32, u32::MAX]) {
        assert!(usize::from(topology.node_of(CpuId(cpu)).0) < nodes);
    }
    assert_eq!(topology.node_of(CpuId(u32::MAX)), NodeId(0));
    for from in (0..nodes as u16).map(NodeId) {
        let order = topology.by_distance(from);
        assert_eq!(order.first(), Some(&from), "nobody is nearer than oneself");
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, (0..nodes as u16).map(NodeId).collect::<Vec<_>>());
        for pair in order[1..].windows(2) {
            assert!(topology.distance(from, pair[0]) <= topology.distance(from, pair[1]));
        }
        for to in (0..nodes as u16).map(NodeId) {
            assert!(topology.distance(from, to) >= 10);
        }
        assert_eq!(topology.distance(from, NodeId(nodes as u16)), u32::MAX);
        assert_eq!(topology.distance(NodeId(nodes as u16), from), u32::MAX);
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let cpu = topology.current_cpu();
                assert!((cpu.0 as usize) < cpus);
                assert!(usize::from(topology.current_node().0) < nodes);
            });
        }
    });
}

#[test]
fn synthetic_topologies_conform() {
    for (nodes, cpus) in [(1, 1), (1, 2), (2, 2), (4, 2), (8, 16), (0, 0)] {
        conforms(&SyntheticTopology::new(nodes, cpus));
    }
}

#[test]
fn the_machine_at_hand_conforms() {
    conforms(&SysfsTopology::detect());
}

#[test]
fn each_thread_of_a_test_runs_where_it_was_put() {
    let (a, b) = (SyntheticTopology::new(4, 2), SyntheticTopology::new(2, 1));
    assert_eq!(a.current_cpu(), CpuId(0));
    a.run_on(CpuId(7));
    b.run_on(CpuId(1));
    assert_eq!((a.current_cpu(), b.current_cpu()), (CpuId(7), CpuId(1)));
    assert_eq!((a.current_node(), b.current_node()), (NodeId(3), NodeId(1)));
    a.run_on(CpuId(8));
    assert_eq!(a.current_cpu(), CpuId(0), "wraps around");
    a.run_on(CpuId(2));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(a.current_cpu(), CpuId(0), "by thread"));
    });
    assert_eq!(a.by_distance(NodeId(1)), [1, 0, 2, 3].map(NodeId));
}

#[cfg(not(miri))]
mod described {
    use super::*;
    use std::path::{Path, PathBuf};

    /// A directory like `/sys/devices/system`, removed at the end.
    struct Described(PathBuf);

    impl Described {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("topology-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = root.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(root)
        }
        fn read(&self) -> SysfsTopology {
            SysfsTopology::read(&self.0)
        }
    }

    impl Drop for Described {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn two_sockets_with_interleaved_cpus() {
        let described = Described::new(
            "two",
            &[
                ("cpu/possible", "0-7\n"),
                ("node/online", "0-1\n"),
                ("node/node0/cpulist", "0,2,4,6\n"),
                ("node/node0/distance", "10 21\n"),
                ("node/node1/cpulist", "1,3,5,7\n"),
                ("node/node1/distance", "21 10\n"),
            ],
        );
        let topology = described.read();
        conforms(&topology);
        assert_eq!((topology.cpus(), topology.nodes()), (8, 2));
        assert_eq!(topology.node_of(CpuId(5)), NodeId(1));
        assert_eq!(topology.distance(NodeId(0), NodeId(1)), 21);
    }

    #[test]
    fn holes_in_the_numbers_and_a_node_without_cpus() {
        let described = Described::new(
            "holes",
            &[
                ("cpu/possible", "0-3\n"),
                ("node/online", "0,2-3\n"),
                ("node/node0/cpulist", "0-1\n"),
                ("node/node0/distance", "10 17 28\n"),
                ("node/node2/cpulist", "2-3\n"),
                ("node/node2/distance", "17 10 28\n"),
                ("node/node3/cpulist", "\n"),
                ("node/node3/distance", "28 28 10\n"),
            ],
        );
        let topology = described.read();
        conforms(&topology);
        assert_eq!(topology.nodes(), 4);
        assert_eq!(topology.node_of(CpuId(3)), NodeId(2));
        assert_eq!(topology.distance(NodeId(2), NodeId(3)), 28);
        assert_eq!(topology.distance(NodeId(0), NodeId(1)), u32::MAX);
        assert_eq!(topology.by_distance(NodeId(2)), [2, 0, 3, 1].map(NodeId));
    }

    #[test]
    fn a_missing_or_invalid_description_is_one_node_with_all_cpus() {
        for files in [
            &[][..],
            &[("cpu/possible", "0-3\n")],
            &[("cpu/possible", "what?"), ("node/online", "0")],
            &[("cpu/possible", "0-3"), ("node/online", "70000")],
            &[
                ("cpu/possible", "0-3"),
                ("node/online", "0"),
                ("node/node0/distance", "x y"),
            ],
        ] {
            let described = Described::new("odd", files);
            let topology = described.read();
            conforms(&topology);
            assert_eq!(topology.nodes(), 1);
        }
    }
}
