//! What only a machine with a hugetlb pool and several NUMA nodes can show.
//!
//! Ignored elsewhere; run with `--ignored --test-threads=1` in a guest that has 64 free pages of
//! 2 MiB (`vm.nr_hugepages`) and at least two nodes, where the tests may use up the pool.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::atomic::{AtomicU64, Ordering};

use mneme_sys::{
    Access, FRAME, NodeId, PageKind, PagePolicy, Region, RegionError, SysfsTopology, Topology,
};

const F: u64 = FRAME as u64;

/// Pages of the pool that nobody has or has been promised.
fn free_pages() -> usize {
    let read = |name: &str| -> usize {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        std::fs::read_to_string(path)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    read("free_hugepages") - read("resv_hugepages")
}

fn word(region: &Region, offset: u64) -> &AtomicU64 {
    region.at(offset).unwrap()
}

#[test]
#[ignore = "needs a hugetlb pool"]
fn private_memory_takes_the_pool_and_goes_on_without_it() {
    let free = free_pages();
    assert!(free >= 16, "no pool");
    let region = Region::private(4 * FRAME, 4096 * FRAME, PagePolicy::Huge).unwrap();
    assert_eq!(free_pages(), free - 4, "promised at once");
    word(&region, 0).store(1, Ordering::Relaxed);
    region.prefault(0..4 * FRAME).unwrap();
    let report = region.pages();
    assert_eq!(report.kind, PageKind::HugeTlb);
    assert_eq!(
        (report.huge_bytes, report.resident_bytes),
        (4 * FRAME, 4 * FRAME)
    );
    assert_eq!(report.warning, None);
    // More than the pool has left.
    region.grow((free + 8) * FRAME).unwrap();
    assert_eq!(free_pages(), free - 4);
    assert!(
        region.pages().kind < PageKind::HugeTlb,
        "the weakest is reported"
    );
    let last = region.len() as u64 - 8;
    word(&region, last).store(2, Ordering::Relaxed);
    assert_eq!(word(&region, 0).load(Ordering::Relaxed), 1);
    drop(region);
    assert_eq!(free_pages(), free, "all of it came back");
}

#[test]
#[ignore = "needs a hugetlb pool"]
fn a_memfd_takes_the_pool_only_if_it_can_grow_there() {
    let free = free_pages();
    assert!(free >= 16, "no pool");
    let beyond = Region::memfd("pool", FRAME, (free + 1) * FRAME, PagePolicy::Huge).unwrap();
    beyond.prefault(0..FRAME).unwrap();
    assert_eq!(free_pages(), free);
    drop(beyond);

    let one = Region::memfd("pool", FRAME, free * FRAME, PagePolicy::Huge).unwrap();
    assert_eq!(free_pages(), free - 1);
    let fd = one.duplicate_fd().unwrap().unwrap();
    let two = Region::map(fd, Access::ReadWrite, one.max(), PagePolicy::Huge).unwrap();
    assert_eq!(two.len(), FRAME);
    assert_eq!(
        free_pages(),
        free - 1,
        "the second opening needs no pages of its own"
    );
    one.grow(4 * FRAME).unwrap();
    assert_eq!(two.refresh().unwrap(), 4 * FRAME);
    word(&two, 3 * F).store(7, Ordering::Release);
    assert_eq!(word(&one, 3 * F).load(Ordering::Acquire), 7);
    assert_eq!(two.pages().kind, PageKind::HugeTlb);

    // Somebody else drains the pool: growth is refused, and nothing is half done.
    let other = Region::private((free - 6) * FRAME, free * FRAME, PagePolicy::Huge).unwrap();
    assert_eq!(other.pages().kind, PageKind::HugeTlb);
    let refused = one.grow(8 * FRAME);
    assert!(
        matches!(refused, Err(RegionError::NoMemory { .. })),
        "{refused:?}"
    );
    assert_eq!((one.len(), two.refresh().unwrap()), (4 * FRAME, 4 * FRAME));
    one.grow(5 * FRAME).unwrap();
    word(&one, 5 * F - 8).store(1, Ordering::Relaxed);
    one.prefault(0..5 * FRAME).unwrap();
    drop(other);
    one.grow(8 * FRAME).unwrap();
    word(&one, 8 * F - 8).store(1, Ordering::Relaxed);
    drop((one, two));
    assert_eq!(free_pages(), free);
}

/// The node that has the page at an address.
fn node_of(address: *mut u8) -> u16 {
    const MPOL_F_NODE_AND_ADDR: libc::c_ulong = 1 | 2;
    let mut node: libc::c_int = -1;
    // SAFETY: `node` is a valid place; the address is only looked up.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &mut node,
            std::ptr::null_mut::<libc::c_ulong>(),
            0usize,
            address,
            MPOL_F_NODE_AND_ADDR,
        )
    };
    assert_eq!(result, 0);
    node.try_into().unwrap()
}

#[test]
#[ignore = "needs several NUMA nodes"]
fn memory_goes_to_the_node_it_is_bound_to() {
    let topology = SysfsTopology::detect();
    assert!(topology.nodes() >= 2, "one node only");
    for policy in [PagePolicy::Huge, PagePolicy::Thp, PagePolicy::Small] {
        let nodes = topology.nodes();
        for region in [
            Region::private(nodes * FRAME, nodes * FRAME, policy).unwrap(),
            Region::memfd("numa", nodes * FRAME, nodes * FRAME, policy).unwrap(),
        ] {
            for node in 0..nodes {
                let range = node * FRAME..(node + 1) * FRAME;
                region.bind(range, NodeId(node as u16)).unwrap();
            }
            region.prefault(0..nodes * FRAME).unwrap();
            for node in 0..nodes {
                let address = region.base().wrapping_add(node * FRAME + 4096);
                assert_eq!(usize::from(node_of(address)), node, "{policy:?}");
            }
        }
    }
}
