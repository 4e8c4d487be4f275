//! Workloads, peers and figures.

fn main() {}
