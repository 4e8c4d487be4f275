//! Races between expiry and the threads that give a key another expiry, change it, evict it or read
//! it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use memory::Memory;
use memory::stopped::Stopped;
use mneme_log::{Evict, Expiry, LogStore, UpdatePolicy};
use mneme_sys::{Clock, SystemClock};

const START: u64 = 1_000_000;

/// A calendar that the test turns.
struct Calendar(AtomicU64);

impl Clock for Calendar {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

fn made(policy: UpdatePolicy) -> (Memory, LogStore, Arc<Calendar>) {
    let clock = Arc::new(Calendar(AtomicU64::new(START)));
    let builder = LogStore::builder()
        .update_policy(policy)
        .clock(clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    (memory, store, clock)
}

/// A writer that evicts records with an expiry has chosen one, which then loses its expiry.
fn is_kept(policy: UpdatePolicy, loses_its_expiry: fn(&LogStore)) {
    let (memory, store, _) = made(policy);
    let far = Expiry::At(START + 1_000_000_000);
    store.put_until(b"precious", b"value", far).unwrap();
    store.set_eviction(Evict::ExpiringSoonest).unwrap();
    let others = memory.open(2);
    let stopped = Stopped::at("evict.chosen", 1, move || {
        // Nothing else may be evicted: the writer is refused in the end.
        (0u32..)
            .find(|i| store.put(&i.to_le_bytes(), &[7; 90_000]).is_err())
            .unwrap()
    });
    loses_its_expiry(&others);
    let before = others.get(b"precious").unwrap().unwrap().to_vec();
    assert_eq!(others.expiry(b"precious").unwrap(), Some(Expiry::Never));
    stopped.finish();
    let now = others.get(b"precious").unwrap().map(|v| v.to_vec());
    assert_eq!(now, Some(before), "{policy:?}");
}

#[test]
fn a_record_that_lost_its_expiry_after_it_was_chosen_is_not_evicted() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        is_kept(policy, |others| {
            assert!(others.set_expiry(b"precious", Expiry::Never).unwrap());
        });
        is_kept(policy, |others| others.put(b"precious", b"other").unwrap());
    }
}
