//! Resident memory after a pattern, in a process that has done nothing else.
//!
//! An allocator is a binary's: DashMap is measured in this program and in two others that differ
//! only in that. A server is a process anyway.

use super::pattern::{Churn, KEY_BYTES, Target, key, of_name};
use super::store::{Ours, Refusal};
use crate::error::{BenchError, failed};
use crate::machine::{resident_bytes, resident_bytes_of};
use crate::options::Resident;
use crate::processes::Helper;
use crate::systems::daemon::Daemon;
use crate::systems::pipeline::Pipeline;
use crate::systems::redis::Peer;
use crate::systems::{Hash, hasher};
use dashmap::DashMap;
use mneme_log::LogStore;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than any run takes.
const FOREVER: Duration = Duration::from_secs(3600);

/// Bytes resident and bytes of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// What the process has grown by.
    pub resident: u64,
    /// What is stored.
    pub data: u64,
}

impl Residence {
    /// One over the other.
    pub fn overhead(&self) -> f64 {
        self.resident as f64 / self.data as f64
    }
}

/// The program that has this allocator, if it was built.
pub fn program(allocator: &str) -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    if allocator == "glibc" {
        return Some(here);
    }
    let program = here.with_file_name(format!("mneme-bench-{allocator}"));
    program.is_file().then_some(program)
}

/// Runs the pattern on `system` in a process of its own.
///
/// # Errors
/// [`BenchError::Process`].
pub fn measure_apart(
    program: &Path,
    system: &str,
    churn: &Churn,
    capacity: u64,
) -> Result<Residence, BenchError> {
    let numbers = [churn.data, capacity, churn.seed].map(|number| number.to_string());
    let ([data, capacity, seed], pattern) = (numbers, churn.pattern.name);
    let words: &[&dyn AsRef<_>] = &[
        &"resident",
        &system,
        &pattern,
        &data,
        &capacity,
        &"--seed",
        &seed,
    ];
    Helper::start_as(program, words)?.answer()
}

/// Runs the pattern in this process.
///
/// # Errors
/// A pattern or a system that nobody knows; a store that refuses.
pub fn measure_here(options: &Resident, seed: u64) -> Result<Residence, BenchError> {
    let pattern = of_name(&options.pattern)
        .ok_or_else(|| BenchError::Options(format!("no pattern `{}`", options.pattern)))?;
    let churn = Churn::new(pattern, options.data, seed);
    match options.system.as_str() {
        "mneme" => ours(&churn, options.capacity),
        "dashmap" => Ok(dashmap(&churn)),
        other => Err(BenchError::Options(format!("no system `{other}`"))),
    }
}

fn ours(churn: &Churn, capacity: u64) -> Result<Residence, BenchError> {
    let before = resident_bytes();
    let store = LogStore::builder().capacity(capacity).open_private();
    let store = store.map_err(failed)?;
    let longest = churn.pattern.first.max(churn.pattern.second);
    let ran = churn.run(&mut Ours::new(&store, longest, Instant::now() + FOREVER));
    let data = ran.map_err(|refusal| {
        BenchError::Store(match refusal {
            Refusal::Full => format!("{} bytes are too few", capacity),
            Refusal::Late => "it takes too long".to_owned(),
            Refusal::Other(what) => what,
        })
    })?;
    super::store::verify(&store, churn)?;
    Ok(Residence {
        resident: resident_bytes().saturating_sub(before),
        data,
    })
}

fn dashmap(churn: &Churn) -> Residence {
    let before = resident_bytes();
    let mut map = Map(DashMap::with_hasher(hasher()));
    let Ok(data) = churn.run(&mut map);
    Residence {
        resident: resident_bytes().saturating_sub(before),
        data,
    }
}

/// Keys where the table lies, values in boxes: what a careful program would do.
struct Map(DashMap<[u8; KEY_BYTES], Box<[u8]>, Hash>);

impl Target for Map {
    type Error = Infallible;

    fn put(&mut self, ids: &[u64], bytes: usize) -> Result<(), Infallible> {
        for &id in ids {
            self.0.insert(key(id), vec![0x5A; bytes].into());
        }
        Ok(())
    }

    fn remove(&mut self, ids: &[u64]) -> Result<(), Infallible> {
        for &id in ids {
            self.0.remove(&key(id));
        }
        Ok(())
    }
}

/// Runs the pattern on a server of its own.
///
/// # Errors
/// [`BenchError::Server`].
pub fn server(peer: Peer, churn: &Churn) -> Result<Residence, BenchError> {
    let mut server = peer.start()?;
    let resident = |server: &Daemon| resident_bytes_of(&server.id().to_string());
    let before = resident(&server);
    let data = by_wire(churn, &mut server.connect()?)?;
    Ok(Residence {
        resident: resident(&server).saturating_sub(before),
        data,
    })
}

/// Runs the pattern on a server; bytes of keys and values that are there in the end.
///
/// # Errors
/// [`BenchError::Server`].
pub fn by_wire(churn: &Churn, pipeline: &mut Pipeline) -> Result<u64, BenchError> {
    let longest = churn.pattern.first.max(churn.pattern.second);
    let mut wire = Wire {
        pipeline,
        value: vec![0x5A; longest],
    };
    let data = churn.run(&mut wire)?;
    wire.pipeline.flush(|_| {})?;
    Ok(data)
}

/// Bytes of requests that are sent at once: several batches of small records, at least one of large
/// ones.
const SENT_AT_ONCE: usize = 32 << 10;

struct Wire<'a> {
    pipeline: &'a mut Pipeline,
    value: Vec<u8>,
}

impl Wire<'_> {
    fn send_if_long(&mut self) -> Result<(), BenchError> {
        if self.pipeline.queued_bytes() < SENT_AT_ONCE {
            return Ok(());
        }
        self.pipeline.flush(|_| {})
    }
}

impl Target for Wire<'_> {
    type Error = BenchError;

    fn put(&mut self, ids: &[u64], bytes: usize) -> Result<(), BenchError> {
        for &id in ids {
            self.pipeline
                .queue(&[b"SET", &key(id), &self.value[..bytes]]);
        }
        self.send_if_long()
    }

    fn remove(&mut self, ids: &[u64]) -> Result<(), BenchError> {
        for &id in ids {
            self.pipeline.queue(&[b"DEL", &key(id)]);
        }
        self.send_if_long()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frag::pattern::PATTERNS;
    use crate::systems::redis::PEERS;

    #[test]
    fn every_system_runs_a_pattern_and_holds_at_least_its_data() {
        let churn = Churn::new(PATTERNS[1], 24 << 20, 1);
        let capacity = 64 << 20;
        assert!(ours(&churn, capacity).unwrap().data > churn.data - 4096);
        assert!(dashmap(&churn).data > churn.data - 4096);
        for peer in PEERS.into_iter().filter(|peer| peer.is_there()) {
            assert!(server(peer, &churn).unwrap().overhead() > 1.0);
        }
    }

    #[test]
    fn an_allocator_that_was_not_built_is_missing() {
        assert!(program("glibc").is_some());
        assert!(program("nobodys").is_none());
    }
}
