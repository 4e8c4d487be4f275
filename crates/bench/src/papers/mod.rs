//! Workloads that only repeat experiments of the papers, each with its paper's figures beside ours.
//!
//! Nothing of the product is tuned to them, and no other workload uses them.

pub mod gups;
pub mod postmark;
pub mod redisjmp;
pub mod reside;
pub mod samtools;
pub mod switch;
