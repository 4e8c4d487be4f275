//! `growth`: latencies of PUT while the index grows from 1 to 64 Mi records.
//!
//! One thread inserts records of 8-byte keys and 16-byte values as fast as it can, and every insertion is timed. A
//! table that doubles stops everybody for its copy once in a while, which a mean hides and a maximum shows. The
//! percentiles cover the whole way, not its end. What the machine does by itself is measured beside it: `hiccup` is a
//! loop on an otherwise idle process that does nothing but read the clock, for as long as our growth took, one turn
//! just before each round's. It is the floor of any maximum, and our maximum is judged by its distance from that.
//!
//! Peers hold keys and values in their tables or nodes, without boxes, which is kinder to them than byte strings would
//! be. Redis is asked one command at a time through a Unix socket: its figures are round trips, for fewer records.
//!
//! How to read it: nanoseconds by percentile; the figure shows them against the share of slower operations.

use crate::curves::{Axis, Curves, Scale as AxisScale};
use crate::error::BenchError;
use crate::generate::random::mix;
use crate::goals::Goal;
use crate::latency::{Latencies, PERCENTILES, percentile_case};
use crate::ledger::{Ledger, Summary};
use crate::machine::Machine;
use crate::options::{self, Growth};
use crate::progress;
use crate::report::Report;
use crate::systems::redis::{self, Redis};
use crate::systems::{Hash, hasher};
use crate::table::{Table, figure};
use dashmap::DashMap;
use mneme_log::{LogStore, MIN_CAPACITY};
use papaya::HashMap;
use serde_json::{Map, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Peers that can be asked for.
pub const PEERS: [&str; 3] = ["dashmap", "papaya", "redis"];

const OURS: &str = "mneme";
const HICCUP: &str = "hiccup";

type Key = [u8; 8];
type Bytes = [u8; 16];

/// Bytes of the store for each record: twice what log and index need, so that nothing but growth is measured.
const ROOM: u64 = 2 * (8 + 8 + 16 + 14);

struct Scale {
    records: u64,
    /// Records of Redis, which needs a round trip for each.
    redis: u64,
    /// Peers are measured in no further round once this is over.
    budget: Duration,
    rounds: usize,
}

impl Scale {
    fn of(options: &Growth) -> Self {
        let quick = options.common.quick;
        let records = options
            .records
            .unwrap_or(if quick { 4 << 20 } else { 64 << 20 });
        Self {
            records,
            redis: (records / 64).max(1000),
            budget: Duration::from_secs(if quick { 14 } else { 300 }),
            rounds: options.common.rounds,
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that refuses, a file that cannot be written.
pub fn run(options: &Growth) -> Result<Report, BenchError> {
    options.common.validate()?;
    if options
        .records
        .is_some_and(|records| !(1000..1 << 32).contains(&records))
    {
        return Err(BenchError::Options(
            "--records is from 1000 to 4294967295".to_owned(),
        ));
    }
    run_at(&Scale::of(options), options)
}

fn run_at(scale: &Scale, options: &Growth) -> Result<Report, BenchError> {
    let peers = options::chosen(&options.peers, &PEERS, "peer")?;
    let machine = Machine::here();
    println!("{machine}\n");
    let began = Instant::now();
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    let bar = progress::bar(scale.rounds * (2 + peers.len()));
    // The first hiccups are as long as a guess; later ones as our own growth was.
    let mut ours_took = Duration::from_nanos(300 * scale.records);
    for round in 0..scale.rounds {
        bar.set_message(HICCUP);
        add(&mut ledger, HICCUP, &hiccups(ours_took));
        bar.inc(1);
        bar.set_message(OURS);
        let start = Instant::now();
        add(&mut ledger, OURS, &ours(scale.records)?);
        ours_took = start.elapsed();
        bar.inc(1);
        for peer in &peers {
            if round > 0 && began.elapsed() > scale.budget {
                let note = format!("{peer}: {round} round(s), for want of time");
                if !notes.iter().any(|n: &String| n.starts_with(peer)) {
                    notes.push(note);
                }
                continue;
            }
            bar.set_message(peer.clone());
            match peer.as_str() {
                "dashmap" => add(&mut ledger, peer, &of_dashmap(scale.records)),
                "papaya" => add(&mut ledger, peer, &of_papaya(scale.records)),
                _ if redis::is_there() => add(&mut ledger, peer, &of_redis(scale.redis)?),
                _ if round == 0 => {
                    notes.push("redis is missing: no redis-server on the PATH".to_owned());
                }
                _ => {}
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    notes.push(format!(
        "redis: {} records, one round trip each",
        scale.redis
    ));
    print_table(&ledger);
    if let Some(directory) = &options.common.svg {
        draw(&ledger, directory)?;
    }
    let params = Map::from_iter([
        ("quick".to_owned(), json!(options.common.quick)),
        ("records".to_owned(), json!(scale.records)),
        ("redis_records".to_owned(), json!(scale.redis)),
        ("key_bytes".to_owned(), json!(size_of::<Key>())),
        ("value_bytes".to_owned(), json!(size_of::<Bytes>())),
    ]);
    Ok(Report {
        bench: "growth",
        machine,
        params,
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

const CASE: &str = "insert while growing";

fn add(ledger: &mut Ledger, system: &str, latencies: &Latencies) {
    latencies.report(ledger, system, CASE);
}

/// Times `put` for each record, one after the other. The clock is read once an operation: the end of one is the
/// beginning of the next.
fn timed<E>(
    records: u64,
    mut put: impl FnMut(Key, Bytes) -> Result<(), E>,
) -> Result<Latencies, E> {
    let mut latencies = Latencies::new();
    let mut last = Instant::now();
    for id in 0..records {
        let mut value = [0; size_of::<Bytes>()];
        value[..8].copy_from_slice(&id.to_le_bytes());
        put(mix(id).to_le_bytes(), value)?;
        let now = Instant::now();
        latencies.record(now - last);
        last = now;
    }
    Ok(latencies)
}

/// What the machine does to a loop that only reads the clock.
fn hiccups(during: Duration) -> Latencies {
    let mut latencies = Latencies::new();
    let start = Instant::now();
    let mut last = start;
    while last - start < during {
        let now = Instant::now();
        latencies.record(now - last);
        last = now;
    }
    latencies
}

fn ours(records: u64) -> Result<Latencies, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Store(error.to_string());
    let store = LogStore::builder()
        .capacity((records * ROOM).max(MIN_CAPACITY))
        .open_private()
        .map_err(|error| failed(&error))?;
    let latencies = timed(records, |key, value| store.put(&key, &value));
    let latencies = latencies.map_err(|error| failed(&error))?;
    let found = store.len();
    if found == records {
        Ok(latencies)
    } else {
        Err(BenchError::Wrong {
            system: OURS.to_owned(),
            case: CASE.to_owned(),
            what: format!("{found} of {records} records are there"),
        })
    }
}

fn of_dashmap(records: u64) -> Latencies {
    let map: DashMap<Key, Bytes, Hash> = DashMap::with_hasher(hasher());
    sure(timed(records, |key, value| {
        map.insert(key, value);
        Ok(())
    }))
}

fn of_papaya(records: u64) -> Latencies {
    let map: HashMap<Key, Bytes, Hash> = HashMap::with_hasher(hasher());
    sure(timed(records, |key, value| {
        map.pin().insert(key, value);
        Ok(())
    }))
}

fn sure(latencies: Result<Latencies, std::convert::Infallible>) -> Latencies {
    let Ok(latencies) = latencies;
    latencies
}

fn of_redis(records: u64) -> Result<Latencies, BenchError> {
    let mut server = Redis::start()?;
    timed(records, |key, value| {
        server.queue(&[b"SET", &key, &value]);
        server.flush(|_| {})
    })
}

fn values<'l>(ledger: &'l Ledger, system: &str, percentile: &str) -> &'l [f64] {
    ledger.values(system, &percentile_case(CASE, percentile))
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let tail = values(ledger, OURS, "p99.9").iter().map(|ns| ns / 1e3);
    // Nobody finishes sooner than the machine lets him.
    let ours = values(ledger, OURS, "max").iter();
    let beyond = ours
        .zip(values(ledger, HICCUP, "max"))
        .map(|(ours, hiccup)| (ours - hiccup) / 1e6);
    vec![
        Goal::at_most(
            "PUT while the index grows: p99.9, microseconds",
            50.0,
            tail.collect(),
        ),
        Goal::at_most(
            "PUT while the index grows: max beyond the hiccup loop's, milliseconds",
            2.0,
            beyond.collect(),
        ),
    ]
}

fn systems() -> impl Iterator<Item = &'static str> {
    [HICCUP, OURS].into_iter().chain(PEERS)
}

fn print_table(ledger: &Ledger) {
    println!("microseconds a PUT while the index grows, median (min-max) of the rounds");
    let names = PERCENTILES.map(|(name, _)| name);
    let mut table = Table::new(["system"].into_iter().chain(names));
    for system in systems() {
        let cells = names.map(|name| match Summary::of(values(ledger, system, name)) {
            Some(s) => {
                let [median, min, max] = [s.median, s.min, s.max].map(|ns| figure(ns / 1e3));
                format!("{median} ({min}-{max})")
            }
            None => "-".to_owned(),
        });
        table.row([system.to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}

fn draw(ledger: &Ledger, directory: &Path) -> Result<(), BenchError> {
    let points = |system: &str| {
        let all = PERCENTILES.iter().filter_map(|(name, percent)| {
            let slower = 1.0 / (1.0 - percent / 100.0).max(1e-6);
            let of = Summary::of(
                &values(ledger, system, name)
                    .iter()
                    .map(|ns| ns / 1e3)
                    .collect::<Vec<_>>(),
            )?;
            Some((slower, of))
        });
        all.collect::<Vec<_>>()
    };
    let axis = |name: &str| Axis {
        name: name.to_owned(),
        scale: AxisScale::Log,
    };
    Curves {
        title: "PUT while the index grows".to_owned(),
        across: axis("one operation in so many is slower; at the right the slowest"),
        up: axis("microseconds"),
        curves: systems()
            .map(|system| (system.to_owned(), points(system)))
            .filter(|(_, points)| !points.is_empty())
            .collect(),
    }
    .write(&directory.join("growth.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use crate::report::tests::assert_well_formed;

    #[test]
    fn a_tiny_run_has_every_system_and_both_goals() {
        let scale = Scale {
            records: 50_000,
            redis: 500,
            budget: Duration::from_secs(1000),
            rounds: 1,
        };
        let options = Growth {
            common: common(),
            peers: PEERS.map(str::to_owned).to_vec(),
            records: None,
        };
        let report = run_at(&scale, &options).unwrap();
        assert_well_formed(&report, &[&percentile_case(CASE, "p99.9")]);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
        for system in [HICCUP, OURS, "dashmap", "papaya"] {
            assert!(values(&report.ledger, system, "max")[0] > 0.0, "{system}");
        }
    }
}
