//! Reclaiming space: compaction, eviction, the removal of expired records, and the search of a
//! writer that found no free space.
//!
//! [`Reclaim`] is built on the [records](Records): what it moves or removes it publishes as any
//! writer does.

pub(crate) mod compact;
pub(crate) mod evict;
pub(crate) mod expiry_sweep;
pub(crate) mod fill;
pub(crate) mod free_space;
pub(crate) mod gaps;
pub(crate) mod lost_records;
pub(crate) mod read_samples;
pub(crate) mod sparse;
pub(crate) mod survivors;
pub(crate) mod vacate;

use std::sync::Mutex;
use std::sync::atomic::AtomicU8;

use crate::index::Index;
use crate::log::Log;
use crate::records::Records;
use crate::session::Session;
use compact::Candidates;
use evict::ExpiringWalk;
use fill::FillPolicy;
use free_space::Named;

/// The component that frees an open store's space.
pub(crate) struct Reclaim {
    records: Records,
    /// Compaction victims that this process has selected, by node.
    candidates: Vec<Mutex<Candidates>>,
    /// The position of the search for records with an expiry to evict.
    expiring_walk: Mutex<ExpiringWalk>,
    /// Condemned segments that wait for sweeps.
    named: Mutex<Option<Named>>,
    /// How full this opening keeps the log segments, if it maintains.
    fill_policy: Mutex<FillPolicy>,
    /// What compaction to save memory waits for, by node.
    fill_waits: Vec<AtomicU8>,
}

impl Reclaim {
    pub fn new(records: Records) -> Reclaim {
        Reclaim {
            candidates: (0..records.log().arena.nodes())
                .map(|_| Mutex::default())
                .collect(),
            expiring_walk: Mutex::default(),
            named: Mutex::default(),
            fill_policy: Mutex::default(),
            fill_waits: (0..records.log().arena.nodes())
                .map(|_| AtomicU8::new(0))
                .collect(),
            records,
        }
    }

    #[inline(always)]
    pub fn records(&self) -> &Records {
        &self.records
    }

    #[inline(always)]
    pub fn index(&self) -> &Index {
        self.records.index()
    }

    #[inline(always)]
    pub fn log(&self) -> &Log {
        self.records.log()
    }

    #[inline(always)]
    pub fn session(&self) -> &Session {
        self.records.session()
    }
}
