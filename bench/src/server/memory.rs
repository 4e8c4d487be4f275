//! Resident memory: a record's by size of its value, and what is left behind by the fragmentation
//! patterns of `frag`.
//!
//! Everything resident in the server's process counts, shared memory and what it had before its
//! first record included, of a process that has done nothing else. One round: nothing here depends
//! on time.

use super::memory_for;
use super::servers::{Server, present, stores};
use super::throughput::fill;
use crate::error::{BenchError, process_failed};
use crate::frag::pattern::{Churn, Pattern};
use crate::frag::resident::by_wire;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::systems::pipeline::Pipeline;
use mneme_log::MIN_CAPACITY;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sizes of values, the one with a goal first.
pub const VALUES: [usize; 4] = [100, 8, 32, 1000];

/// Time for what servers do behind their clients, such as moving to a larger table.
const SETTLE: Duration = Duration::from_millis(200);

/// Memory of ours for a pattern, in hundredths of its keys and values: P1 needs 139, the others
/// 110.
const MEMORY_PERCENT: u64 = 150;

/// The case of a size.
pub fn size(value: usize) -> String {
    format!("record of {value} B")
}

/// The case of a pattern.
pub fn left(pattern: &Pattern) -> String {
    format!("{}, resident", pattern.name)
}

/// Loads each server with `records` of each size.
///
/// # Errors
/// A server does not start, or refuses.
pub fn sizes(records: fn(usize) -> u32, ledger: &mut Ledger) -> Result<(), BenchError> {
    for value in VALUES {
        for system in present() {
            progress::show(format_args!("{system}, memory, {value} B"));
            let records = records(value);
            let memory = memory_for(u64::from(records), value as u64);
            let server = Server::start(system, 1, memory)?;
            fill(&mut server.connect(value, 4)?, 0..records)?;
            std::thread::sleep(SETTLE);
            let each = server.resident() as f64 / f64::from(records);
            ledger.add(system, &size(value), Metric::Footprint, each);
        }
    }
    Ok(())
}

/// Runs the patterns on ours and on Redis; notes of those that refuse one.
///
/// # Errors
/// A server does not start.
pub fn patterns(
    patterns: &[Pattern],
    data: fn(&Pattern) -> u64,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<Vec<String>, BenchError> {
    let mut notes = Vec::new();
    for pattern in patterns {
        let churn = Churn::new(*pattern, data(pattern), seed);
        for system in stores() {
            progress::show(format_args!("{system}, {}", pattern.name));
            let memory = (churn.data * MEMORY_PERCENT / 100).max(MIN_CAPACITY);
            let server = Server::start(system, 1, memory)?;
            drop(server.connect(VALUES[0], 1)?);
            let connection = UnixStream::connect(server.socket());
            let connection = connection.map_err(process_failed)?;
            match by_wire(&churn, &mut Pipeline::new(connection)) {
                Ok(data) => {
                    std::thread::sleep(SETTLE);
                    let over = server.resident() as f64 / data as f64;
                    ledger.add(system, &left(pattern), Metric::Overhead, over);
                }
                Err(error) => notes.push(format!("{system}, {}: {error}", pattern.name)),
            }
        }
    }
    Ok(notes)
}
