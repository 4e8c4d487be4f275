//! `versioning`: what it costs to keep older versions readable (CDDS thesis, ch. 5).
//!
//! Puts and gets of one key a commit, each as likely as any other, on a store in memory: without
//! snapshots, while one is held for the whole round, and while sixteen are held, taken one after
//! another. The space is what the held versions keep, over the bytes of keys and values.
//!
//! Then a reader beside a writer that commits as fast as it can: the CPU time of a get, over that
//! of a get alone. Beside it a reader that copies values out of an array, while another thread
//! copies values into it: what sharing the memory costs without any store.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, joined};
use mneme_bench::table::{Table, median};
use mneme_bench::tree;
use mneme_bench::tree::engines::{KEY, key};
use mneme_bench::tree::names::OURS;
use mneme_sys::medium::MemoryMedium;
use mneme_sys::{TimeOf, cpu_time};
use mneme_tree::{Durability, Snapshot, Store, StoreError};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Snapshots that are held.
const HELD: [usize; 3] = [0, 1, 16];
/// Bytes of a value.
const VALUE: usize = 100;

/// How much is done.
pub struct Scale {
    records: u32,
    /// Puts, and gets, of a round.
    operations: u32,
    /// CPU time of a reader in a round, alone and again beside a writer.
    read: Duration,
}

fn case(what: &str, held: usize) -> String {
    format!("{what}, {held} snapshots held")
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            records: options.pick(20_000, 1_000_000),
            operations: options.pick(40_000, 1_000_000),
            read: Duration::from_millis(options.pick(100, 1000)),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that fails.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let data = u64::from(scale.records) * (KEY + VALUE) as u64;
    let medium = MemoryMedium::new(data * 64 + (1 << 30)).map_err(failed)?;
    let builder = Store::builder().durability(Durability::Process);
    let db = builder.open_on(Box::new(medium)).map_err(failed)?;
    tree::put_all(&db, scale.records, &[1; VALUE])?;
    let seed = |round: usize| mix(options.seed) ^ round as u64;
    let jobs = HELD.map(|held| {
        let (db, seed) = (&db, &seed);
        Job::of(case("puts and gets", held), move |round, ledger| {
            measure(db, scale, held, seed(round), data, ledger)
        })
    });
    rounds::run(jobs.into(), options.rounds, &mut ledger)?;
    let beside = Job::of(BESIDE, |round, ledger| {
        beside_a_writer(&db, scale, seed(round), ledger)
    });
    rounds::run(vec![beside], options.rounds, &mut ledger)?;
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
    let mut table = Table::new(["reader", "alone, ns of CPU", "beside a writer"]);
    for system in [OURS, ARRAY] {
        let cells = [ALONE, BESIDE].map(|case| median(ledger.values(system, case), 1.0));
        table.row(std::iter::once(system.to_owned()).chain(cells));
    }
    println!("{table}");
    let slower = |system| ledger.ratios((system, BESIDE), (system, ALONE));
    let pairs = slower(OURS).into_iter().zip(slower(ARRAY));
    let beside = pairs.map(|(ours, array)| ours / array).collect();
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
        Goal::at_most(
            "what a writer costs a reader, over what it costs one of an array",
            1.1,
            beside,
        ),
    ];
    Ok(Report {
        params: json!({
            "records": scale.records,
            "operations": scale.operations,
            "value_bytes": VALUE,
        }),
        goals,
        ledger,
        ..Report::default()
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
    let each = took as f64 / f64::from(scale.operations / parts * parts);
    ledger.add(OURS, &case("put", held), Metric::Latency, each);
    let begun = Instant::now();
    for _ in 0..scale.operations {
        let id = random.below(u64::from(scale.records)) as u32;
        found(db.get_with(&key(id), |value| value[0]))?;
    }
    let each = begun.elapsed().as_nanos() as f64 / f64::from(scale.operations);
    ledger.add(OURS, &case("get", held), Metric::Latency, each);
    let kept = db.stats().map_err(failed)?.retained_leaves as u64 * (16 << 10);
    let over = kept as f64 / data as f64;
    ledger.add(OURS, &case("space", held), Metric::Overhead, over);
    Ok(())
}

/// The value of a lookup that must find one.
fn found<T>(got: Result<Option<T>, StoreError>) -> Result<T, BenchError> {
    let got = got.map_err(failed)?;
    got.ok_or_else(|| tree::engines::wrong("get", "keys are missing"))
}

/// The reader of an array.
const ARRAY: &str = "array";
/// Its cases, and those of ours.
const ALONE: &str = "reader alone";
const BESIDE: &str = "reader beside a writer";

/// CPU time of one operation, in nanoseconds, measured over at least `span` of it.
fn cpu(
    span: Duration,
    mut work: impl FnMut() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let used = || {
        let time = cpu_time(TimeOf::Thread);
        time.user + time.system
    };
    // The kernel's count moves at its ticks: it begins at one, and ends soon behind one.
    let stale = used();
    let begin = loop {
        let now = used();
        if now != stale {
            break now;
        }
    };
    let mut done = 0u64;
    loop {
        for _ in 0..tree::CHUNK {
            work()?;
        }
        done += u64::from(tree::CHUNK);
        let took = used() - begin;
        if took >= span {
            return Ok(took.as_nanos() as f64 / done as f64);
        }
    }
}

/// Measures `read` alone, and while another thread does `write` again and again.
fn alone_and_beside(
    (system, span): (&str, Duration),
    ledger: &mut Ledger,
    mut read: impl FnMut() -> Result<(), BenchError>,
    mut write: impl FnMut() -> Result<(), BenchError> + Send,
) -> Result<(), BenchError> {
    ledger.add(system, ALONE, Metric::Cpu, cpu(span, &mut read)?);
    let is_over = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Relaxed: it says nothing of what was written.
            while !is_over.load(Ordering::Relaxed) {
                write()?;
            }
            Ok(())
        });
        let beside = cpu(span, &mut read);
        is_over.store(true, Ordering::Relaxed);
        joined(writer).and(beside)
    })?;
    ledger.add(system, BESIDE, Metric::Cpu, beside);
    Ok(())
}

/// One round of readers beside writers: ours, and those of an array.
fn beside_a_writer(
    db: &Store,
    scale: &Scale,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let below = u64::from(scale.records);
    let (mut reads, mut writes) = (Random::new(seed), Random::new(!seed));
    let mut out = [0; VALUE];
    let get = || {
        let id = reads.below(below) as u32;
        found(db.get_with(&key(id), |value| out.copy_from_slice(value)))
    };
    let put = || {
        let id = writes.below(below) as u32;
        db.put(&key(id), &[3; VALUE]).map_err(failed).map(drop)
    };
    alone_and_beside((OURS, scale.read), ledger, get, put)?;
    let words = VALUE / 8;
    let array: Vec<AtomicU64> = (0..scale.records as usize * words)
        .map(|_| AtomicU64::new(0))
        .collect();
    let (mut reads, mut writes) = (Random::new(seed), Random::new(!seed));
    let slot = |random: &mut Random| &array[random.below(below) as usize * words..][..words];
    // Relaxed: a copy, and no more than that.
    let copy = || {
        let words = slot(&mut reads).iter();
        let sum = words.fold(0, |sum: u64, word| sum ^ word.load(Ordering::Relaxed));
        std::hint::black_box(sum);
        Ok(())
    };
    let store = || {
        let words = slot(&mut writes).iter();
        words.for_each(|word| word.store(seed, Ordering::Relaxed));
        Ok(())
    };
    alone_and_beside((ARRAY, scale.read), ledger, copy, store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_keep_space() {
        let scale = Scale {
            records: 300,
            operations: 900,
            read: Duration::from_millis(1),
        };
        let report = run(&scale, &crate::options::tests::common()).unwrap();
        let kept = |held| report.ledger.values(OURS, &case("space", held))[0];
        assert!(kept(16) > kept(1), "{} > {}", kept(16), kept(1));
        let cases = HELD.map(|held| case("get", held));
        mneme_bench::testing::assert_well_formed(&report, &cases.each_ref().map(String::as_str));
    }
}
