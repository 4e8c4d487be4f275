//! What a SET writes: bytes of the log, and bytes that the kernel writes to storage, logs being
//! shortened after every two turnovers of the data, on ours and on Redis alike. Values do not
//! compress: Redis' snapshots would otherwise be shorter than the data.
//!
//! Bytes written to storage are those of `/proc/PID/io` (`write_bytes`): pages that were dirtied,
//! of the server and of the children that it has waited for. What the file system adds of its own
//! is not in it.

use super::servers::{Arm, Checkpoint, EVERYSEC, REDIS_EVERYSEC, Server, present};
use super::{CONNECTIONS, cell};
use crate::error::BenchError;
use crate::generate::random::Random;
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::progress;
use crate::server::protocol::{Dialect, Kind, Protocol, Request};
use crate::server::throughput::{DEPTH, VALUE, fill};
use crate::server::{memory_for, on_load_cpu};
use crate::table::Table;
use std::path::Path;
use std::time::Instant;

/// The arms that are measured.
pub const ARMS: [Arm; 2] = [EVERYSEC, REDIS_EVERYSEC];

/// After how many turnovers of the data a log is shortened: ours does so by itself at twice the
/// bytes of the records.
const TURNOVERS: u64 = 2;

const LOGGED: &str = "bytes of the log a SET";
const DEVICE: &str = "bytes to storage a SET, checkpoints included";
const SUSTAINED: &str = "SET pipelined, checkpoints included";

/// How much is done.
pub struct Scale {
    /// Records.
    pub records: u32,
    /// How often they are overwritten, on the average.
    pub turnovers: u64,
}

/// Measures all arms, one after the other.
///
/// # Errors
/// A server does not start, or refuses; the disk is full.
pub fn run(scale: &Scale, place: &Path, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    for arm in present(&ARMS) {
        progress::show(format_args!("{}: what a SET writes", arm.name));
        on_load_cpu(|| measure(scale, arm, place, seed, ledger))?;
    }
    Ok(())
}

fn measure(
    scale: &Scale,
    arm: Arm,
    place: &Path,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let records = u64::from(scale.records);
    let memory = 2 * memory_for(records, VALUE as u64) + (64 << 20);
    let server = Server::start(arm, place, cpus(), memory)?;
    let dialect = Dialect::new(Protocol::Resp, VALUE).incompressible();
    let mut load = server.connect_as(dialect, CONNECTIONS)?;
    fill(&mut load, 0..scale.records)?;
    let mut random = Random::new(seed);
    let mut sets = |count: u64| {
        let mut ids = (0..count).map(|_| random.below(records) as u32);
        let kind = Kind::Set;
        load.closed(DEPTH, || ids.next().map(|id| Request { id, kind }))
    };
    let logged = server.logged()?;
    let many = sets(records)?.operations as f64;
    let each = (server.logged()? - logged) as f64 / many;
    ledger.add(arm.name, LOGGED, Metric::Stored, each);

    let (before, begin) = (server.device_bytes()?, Instant::now());
    let mut operations = 0;
    for _ in 0..scale.turnovers.div_ceil(TURNOVERS) {
        operations += sets(TURNOVERS * records)?.operations;
        server.checkpoint(Checkpoint::Rewrite)?;
    }
    let rate = operations as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let each = (server.device_bytes()? - before) as f64 / operations as f64;
    ledger.add(arm.name, DEVICE, Metric::Stored, each);
    ledger.add(arm.name, SUSTAINED, Metric::Throughput, rate);
    Ok(())
}

/// The goals of what was measured here.
pub fn goals(ledger: &Ledger) -> Vec<Goal> {
    let goal = |text: &str, target, case| {
        let ratios = ledger.ratios((EVERYSEC.name, case), (REDIS_EVERYSEC.name, case));
        Goal::at_most(text, target, ratios)
    };
    let stored = "bytes to storage a SET, checkpoints included / redis with rewrites";
    vec![
        goal("journal bytes for 16 + 100 B / redis AOF", 1.0, LOGGED),
        goal(stored, 1.2, DEVICE),
    ]
}

/// Prints what was measured here.
pub fn print(ledger: &Ledger) {
    let reference = REDIS_EVERYSEC.name;
    let names = ARMS.map(|arm| arm.name);
    let sustained = format!("{SUSTAINED}, thousand/s");
    let rows = [
        (LOGGED.to_owned(), (LOGGED, 1.0)),
        (DEVICE.to_owned(), (DEVICE, 1.0)),
        (sustained, (SUSTAINED, 1e-3)),
    ];
    let cell = |system: &str, row: &(&str, f64)| cell(ledger, reference, system, row.0, row.1);
    Table::grid("what", &names, rows, cell).print(format_args!(
        "what a SET of 16 + 100 B writes; in brackets over {reference}"
    ));
}
