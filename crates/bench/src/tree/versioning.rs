//! `versioning`: what it costs to keep older versions readable (CDDS thesis, ch. 5).
//!
//! Puts and gets of one key a commit, each as likely as any other, on a store in memory: without
//! snapshots, while one is held for the whole round, and while sixteen are held, taken one after
//! another. The space is what the held versions keep, over the bytes of keys and values.

use super::engines::{KEY, OURS, key};
use crate::error::{BenchError, failed};
use crate::generate::random::{Random, mix};
use crate::goals::Goal;
use crate::ledger::{Ledger, Metric};
use crate::options::Common;
use crate::report::Report;
use crate::table::{Table, median};
use mneme_sys::medium::MemoryMedium;
use mneme_tree::{Batch, Durability, Snapshot, Store};
use serde_json::json;
use std::time::Instant;

/// Snapshots that are held.
const HELD: [usize; 3] = [0, 1, 16];
/// Bytes of a value.
const VALUE: usize = 100;

struct Scale {
    records: u32,
    /// Puts, and gets, of a round.
    operations: u32,
}

fn case(what: &str, held: usize) -> String {
    format!("{what}, {held} snapshots held")
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that fails.
pub fn run(options: &Common) -> Result<Report, BenchError> {
    let (records, operations) = options.pick((20_000, 40_000), (1_000_000, 1_000_000));
    let scale = Scale {
        records,
        operations,
    };
    run_at(&scale, options)
}

fn run_at(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let data = u64::from(scale.records) * (KEY + VALUE) as u64;
    let medium = MemoryMedium::new(data * 64 + (1 << 30)).map_err(failed)?;
    let builder = Store::builder().durability(Durability::Process);
    let db = builder.open_on(Box::new(medium)).map_err(failed)?;
    let ids: Vec<u32> = (0..scale.records).collect();
    for chunk in ids.chunks(1000) {
        let mut batch = Batch::new();
        for id in chunk {
            batch.put(&key(*id), &[1; VALUE]);
        }
        db.apply(&batch).map_err(failed)?;
    }
    for round in 0..options.rounds {
        let mut order = HELD;
        if round % 2 == 1 {
            order.reverse();
        }
        for held in order {
            let seed = mix(options.seed) ^ round as u64;
            measure(&db, scale, held, seed, data, &mut ledger)?;
        }
    }
    let mut table = Table::new([
        "snapshots held",
        "put ns",
        "get ns",
        "space kept, B/B of data",
    ]);
    for held in HELD {
        let cells =
            ["put", "get", "space"].map(|what| median(ledger.values(OURS, &case(what, held)), 1.0));
        table.row(std::iter::once(held.to_string()).chain(cells));
    }
    println!("{table}");
    let (none, one) = (|what| case(what, 0), |what| case(what, 1));
    let ratio = |what| ledger.ratios((OURS, &one(what)), (OURS, &none(what)));
    let goals = vec![
        Goal::at_most(
            "a put while a snapshot is held over one without",
            1.1,
            ratio("put"),
        ),
        Goal::at_most(
            "a get while a snapshot is held over one without",
            1.05,
            ratio("get"),
        ),
        // A snapshot keeps one leaf at most for each of its own.
        Goal::at_most(
            "space that one snapshot keeps over the data",
            2.2,
            ledger.values(OURS, &one("space")).to_vec(),
        ),
    ];
    Ok(Report {
        figures: Vec::new(),
        params: json!({
            "records": scale.records,
            "operations": scale.operations,
            "value_bytes": VALUE,
        }),
        goals,
        ledger,
        notes: Vec::new(),
    })
}

fn measure(
    db: &Store,
    scale: &Scale,
    held: usize,
    seed: u64,
    data: u64,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let mut random = Random::new(seed);
    let mut snapshots: Vec<Snapshot> = Vec::with_capacity(held);
    let mut took = 0;
    let parts = held.max(1) as u32;
    for _ in 0..parts {
        if snapshots.len() < held {
            snapshots.push(db.snapshot().map_err(failed)?);
        }
        let begun = Instant::now();
        for _ in 0..scale.operations / parts {
            let id = random.below(u64::from(scale.records)) as u32;
            db.put(&key(id), &[2; VALUE]).map_err(failed)?;
        }
        took += begun.elapsed().as_nanos();
    }
    let puts = f64::from(scale.operations / parts * parts);
    ledger.add(
        OURS,
        &case("put", held),
        Metric::Latency,
        took as f64 / puts,
    );
    let begun = Instant::now();
    for _ in 0..scale.operations {
        let id = random.below(u64::from(scale.records)) as u32;
        let found = db.get_with(&key(id), |value| value[0]).map_err(failed)?;
        if found.is_none() {
            return Err(super::engines::wrong("get", "keys are missing"));
        }
    }
    let each = begun.elapsed().as_nanos() as f64 / f64::from(scale.operations);
    ledger.add(OURS, &case("get", held), Metric::Latency, each);
    let kept = db.stats().map_err(failed)?.retained_leaves as u64 * (16 << 10);
    let over = kept as f64 / data as f64;
    ledger.add(OURS, &case("space", held), Metric::Overhead, over);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_keep_space() {
        let options = Common {
            rounds: 1,
            ..crate::options::tests::common()
        };
        let scale = Scale {
            records: 300,
            operations: 900,
        };
        let report = run_at(&scale, &options).unwrap();
        let kept = |held| report.ledger.values(OURS, &case("space", held))[0];
        assert!(kept(16) > kept(1), "{} > {}", kept(16), kept(1));
        let cases = HELD.map(|held| case("get", held));
        crate::report::tests::assert_well_formed(&report, &cases.each_ref().map(String::as_str));
    }
}
