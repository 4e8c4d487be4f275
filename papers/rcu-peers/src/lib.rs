//! Sets that are read without locks, by how their updates are kept apart: what [`mneme_rcx::Rcx`]
//! is measured beside. Peers are measured, not used: only `mneme-paper-bench` depends on this.
//!
//! - *rcx*: `Rcx` on the nodes that change (listings 3.3 to 3.7 of Park's dissertation).
//! - *rcu*: a lock a list, which is what most users of read-copy-update do.
//! - *cohort*: a lock a list that is handed over within a NUMA node first.
//! - *rlu*: read-log-update.
//!
//! All are sorted lists, as the buckets of a hash table, behind one trait, with one suite of tests:
//! against a model, by recorded histories, and with nodes that panic if they are freed while
//! somebody looks at them. RCU-HTM needs hardware transactions: it is in
//! [`simulate`] alone.

#![deny(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    missing_docs
)]

mod cohort;
mod lists;
mod rlu;
pub mod simulate;
#[cfg(test)]
mod suite;

use mneme_sync::CreateError;
use mneme_sys::Topology;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The mechanisms, ours first.
pub const MECHANISMS: [&str; 4] = ["rcx", "rcu", "cohort", "rlu"];

/// A set of keys from 1 on, which any thread may ask and change.
///
/// Threads have numbers, from 0 on, below the number that the set was made for. No two use one at a
/// time.
pub trait Set: Sync {
    /// Whether the key is in it.
    fn contains(&self, thread: usize, key: u64) -> bool;
    /// Puts a key in; whether it was not there.
    fn insert(&self, thread: usize, key: u64) -> bool;
    /// Takes a key out; whether it was there.
    fn remove(&self, thread: usize, key: u64) -> bool;
    /// Calls `within` while this thread may look at the node of a key, if there is one.
    #[cfg(test)]
    fn look_at(&self, thread: usize, key: u64, within: &mut dyn FnMut()) -> bool;
    /// Frees what may be freed now.
    #[cfg(test)]
    fn flush(&self) {}
}

/// How many look at a node; it is freed while none does.
#[cfg(test)]
#[derive(Default)]
pub struct Tally(Arc<AtomicU32>);

#[cfg(test)]
impl Tally {
    fn look(&self, within: &mut dyn FnMut()) {
        // A twin may free the node meanwhile.
        let looking = Arc::clone(&self.0);
        looking.fetch_add(1, Relaxed);
        within();
        looking.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
impl Drop for Tally {
    fn drop(&mut self) {
        assert_eq!(self.0.load(Relaxed), 0, "freed while somebody looks at it");
    }
}

/// A set by a mechanism's place in [`MECHANISMS`].
///
/// # Errors
/// No memory for the participants.
pub fn make(
    mechanism: usize,
    buckets: usize,
    threads: usize,
    topology: &Arc<dyn Topology>,
) -> Result<Box<dyn Set>, CreateError> {
    match mechanism {
        0 => lists::leaders(buckets, topology),
        1 => lists::locked(buckets),
        2 => lists::cohorts(buckets, topology),
        _ => Ok(Box::new(rlu::Rlu::<true>::new(buckets, threads))),
    }
}
