//! What one PUT costs, by policy, kind and size of value (dissertation, fig. 32 and 33).
//!
//! One thread, and a store with four times the memory it needs. It has been written once from end
//! to end, so that no memory is touched for the first time while the clock runs. The clock is read
//! once a PUT, and what that costs is shown as the system `clock`.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::keys::{key, stamp};
use mneme_bench::generate::operations::scatter;
use mneme_bench::latency::Latencies;
use mneme_bench::ledger::Ledger;
use mneme_bench::systems::{BATCH, bare};
use mneme_log::{LogStore, MIN_CAPACITY, UpdatePolicy};
use std::time::Instant;

/// The loop without a PUT.
pub const CLOCK: &str = "clock";

/// What a PUT finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No such record.
    Insert,
    /// An older value, as long.
    Update,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Insert, Kind::Update];
}

/// The case's name in reports; percentiles follow.
pub fn case(kind: Kind, value: usize) -> String {
    let kind = match kind {
        Kind::Insert => "insert",
        Kind::Update => "update",
    };
    format!("{kind} {value}B")
}

/// A store for one policy and size.
pub struct Store {
    policy: &'static str,
    store: LogStore,
    records: u64,
    value: usize,
}

impl Store {
    /// With memory for `records` of this size, four times over.
    ///
    /// # Errors
    /// [`BenchError::Store`].
    pub fn new(
        policy: (&'static str, UpdatePolicy),
        records: u64,
        value: usize,
    ) -> Result<Self, BenchError> {
        let capacity = (4 * records * (bare::stride(value) as u64 + 14)).max(MIN_CAPACITY);
        let store = LogStore::builder()
            .capacity(capacity)
            .update_policy(policy.1)
            .open_private()
            .map_err(failed)?;
        let filler = vec![0x5A; value];
        let pairs: Vec<_> = (0..BATCH as u32).map(|id| (key(id), &filler[..])).collect();
        for _ in 0..capacity / (bare::stride(value) * BATCH) as u64 {
            store.put_many(&pairs).map_err(failed)?;
            if policy.1 != UpdatePolicy::Append {
                // A policy that writes in place appends only what is new.
                let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
                store.remove_many(&keys).map_err(failed)?;
            }
        }
        let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
        store.remove_many(&keys).map_err(failed)?;
        Ok(Self {
            policy: policy.0,
            store,
            records,
            value,
        })
    }

    /// Inserts all records, updates all of them, removes them again; the first two timed.
    ///
    /// # Errors
    /// [`BenchError::Store`].
    pub fn round(&self, ledger: &mut Ledger) -> Result<(), BenchError> {
        for kind in Kind::ALL {
            let latencies = self.timed(kind)?;
            latencies.report(ledger, self.policy, &case(kind, self.value));
        }
        let left = self.store.len();
        for id in 0..self.records as u32 {
            self.store.remove(&key(id)).map_err(failed)?;
        }
        if left == self.records && self.store.is_empty() {
            return Ok(());
        }
        Err(BenchError::wrong(
            self.policy,
            case(Kind::Insert, self.value),
            format!("{left} of {} records are there", self.records),
        ))
    }

    fn timed(&self, kind: Kind) -> Result<Latencies, BenchError> {
        let mut latencies = Latencies::default();
        let mut value = vec![0x5A; self.value];
        let mut last = Instant::now();
        for place in 0..self.records {
            let id = match kind {
                Kind::Insert => place as u32,
                Kind::Update => scatter(place, self.records) as u32,
            };
            stamp(&mut value, id);
            self.store.put(&key(id), &value).map_err(failed)?;
            let now = Instant::now();
            latencies.record(now - last);
            last = now;
        }
        Ok(latencies)
    }
}

/// What reading the clock and making a key costs.
pub fn clock(records: u64, ledger: &mut Ledger) {
    let mut latencies = Latencies::default();
    let mut last = Instant::now();
    for id in 0..records as u32 {
        std::hint::black_box(key(id));
        let now = Instant::now();
        latencies.record(now - last);
        last = now;
    }
    latencies.report(ledger, CLOCK, "nothing");
}
