//! `growth`: latencies of PUT while the index grows from 1 to 64 Mi records.
//!
//! One thread inserts records of 8-byte keys and 16-byte values as fast as it can, and every
//! insertion is timed. A table that doubles stops everybody for its copy once in a while, which a
//! mean hides and a maximum shows. The percentiles cover the whole way, not its end. What the
//! machine does by itself is measured beside it: `hiccup` is a loop on an otherwise idle process
//! that does nothing but read the clock, for as long as our growth took, one turn just before each
//! round's. It is the floor of any maximum, and our maximum is judged by its distance from that. On
//! a machine that others use, both are the length of their turns; `max, kept CPU` therefore leaves
//! out the operations during which the kernel gave the CPU to somebody else, by its count of
//! involuntary switches. An operation that waits of its own accord stays in.
//!
//! Peers hold keys and values in their tables or nodes, without boxes, which is kinder to them than
//! byte strings would be. Redis is asked one command at a time through a Unix socket: its figures
//! are round trips, for fewer records.
//!
//! How to read it: nanoseconds by percentile; the figure shows them against the share of slower
//! operations.

use crate::curves::{Axis, Curves};
use crate::error::{BenchError, failed};
use crate::figure::Figure;
use crate::generate::random::mix;
use crate::goals::Goal;
use crate::latency::{Latencies, PERCENTILES, percentile_case};
use crate::ledger::{Ledger, Metric};
use crate::options::{Common, Growth, chosen};
use crate::progress;
use crate::report::Report;
use crate::systems::redis::Peer;
use crate::systems::{Hash, hasher};
use crate::table::{Table, range};
use dashmap::DashMap;
use mneme_log::{LogStore, MIN_CAPACITY};
use papaya::HashMap;
use serde_json::json;
use std::time::{Duration, Instant};

const OURS: &str = "mneme";
const HICCUP: &str = "hiccup";

type Key = [u8; 8];
type Bytes = [u8; 16];

/// Bytes of the store for each record: twice what log and index need, so that nothing but growth is
/// measured.
const BYTES_A_RECORD: u64 = 2 * (8 + 8 + 16 + 14);

/// Time between a store's opening and the first record, as between a server's start and its first
/// client: the maintainer has fresh memory in stock then.
const STOCK: Duration = Duration::from_millis(300);

/// How much is done.
pub struct Scale {
    records: u64,
    /// Records of Redis, which needs a round trip for each.
    redis: u64,
    /// Peers are measured in no further round once this is over.
    budget: Duration,
    /// No further round is begun once this is over.
    limit: Duration,
    peers: Vec<String>,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &Growth) -> Self {
        let records = options.records.unwrap_or(common.pick(4 << 20, 64 << 20));
        Self {
            records,
            redis: (records / 64).max(1000),
            budget: Duration::from_secs(common.pick(14, 300)),
            limit: Duration::from_secs(common.pick(24, 500)),
            peers: chosen(&options.peers),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that refuses, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let began = Instant::now();
    let mut ledger = Ledger::default();
    let mut notes = Vec::new();
    // The first hiccups are as long as a guess; later ones as our own growth was.
    let mut ours_took = Duration::from_nanos(300 * scale.records);
    for round in 0..options.rounds {
        if round > 0 && began.elapsed() > scale.limit {
            notes.push(format!("{round} round(s), for want of time"));
            break;
        }
        progress::show(HICCUP);
        add(&mut ledger, HICCUP, &hiccups(ours_took));
        progress::show(OURS);
        let start = Instant::now();
        add(&mut ledger, OURS, &ours(scale.records)?);
        ours_took = start.elapsed();
        for peer in &scale.peers {
            if round > 0 && began.elapsed() > scale.budget {
                let note = format!("{peer}: {round} round(s), for want of time");
                if !notes.iter().any(|n: &String| n.starts_with(peer)) {
                    notes.push(note);
                }
                continue;
            }
            progress::show(peer);
            match peer.as_str() {
                "dashmap" => add(&mut ledger, peer, &of_dashmap(scale.records)),
                "papaya" => add(&mut ledger, peer, &of_papaya(scale.records)),
                _ if Peer::Redis.is_there() => add(&mut ledger, peer, &of_redis(scale.redis)?),
                _ if round == 0 => notes.extend(Peer::Redis.missing()),
                _ => {}
            }
        }
    }
    progress::clear();
    notes.push(format!(
        "redis: {} records, one round trip each",
        scale.redis
    ));
    print_table(&ledger);
    Ok(Report {
        figures: vec![curves(&ledger)],
        params: json!({
            "records": scale.records,
            "redis_records": scale.redis,
            "key_bytes": size_of::<Key>(),
            "value_bytes": size_of::<Bytes>(),
        }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

const CASE: &str = "insert while growing";

fn add(ledger: &mut Ledger, system: &str, taken: &Taken) {
    taken.all.report(ledger, system, CASE);
    let kept = taken.longest_kept.as_nanos() as f64;
    let case = percentile_case(CASE, KEPT);
    ledger.add(system, &case, Metric::Latency, kept);
}

/// The maximum without the operations during which the CPU was taken away.
const KEPT: &str = "max, kept CPU";

/// Below this nobody had the CPU in between, for the shortest turn is longer.
const TURN: Duration = Duration::from_micros(100);

/// The latencies of a way, and the longest of them that was the operation's own doing.
struct Taken {
    all: Latencies,
    longest_kept: Duration,
    switches: u64,
    last: Instant,
}

impl Taken {
    fn new() -> Self {
        Self {
            all: Latencies::default(),
            longest_kept: Duration::ZERO,
            switches: involuntary_switches(),
            last: Instant::now(),
        }
    }

    /// An operation ends now, which began when the one before ended.
    #[inline]
    fn end_of_one(&mut self) {
        let now = Instant::now();
        let took = now - self.last;
        self.all.record(took);
        self.last = now;
        if took > TURN {
            self.outlier(took);
        } else if took > self.longest_kept {
            self.longest_kept = took;
        }
    }

    /// Looks whether the CPU was taken away during an operation that took long.
    #[cold]
    fn outlier(&mut self, took: Duration) {
        let switches = involuntary_switches();
        if switches == self.switches {
            self.longest_kept = self.longest_kept.max(took);
        }
        self.switches = switches;
        // Looking takes a while, which is nobody's operation.
        self.last = Instant::now();
    }
}

/// How often the kernel took the CPU away from this thread; 0 where it does not say.
fn involuntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Times `put` for each record, one after the other. The clock is read once an operation: the end
/// of one is the beginning of the next.
fn timed<E>(records: u64, mut put: impl FnMut(Key, Bytes) -> Result<(), E>) -> Result<Taken, E> {
    let mut taken = Taken::new();
    for id in 0..records {
        let mut value = [0; size_of::<Bytes>()];
        value[..8].copy_from_slice(&id.to_le_bytes());
        put(mix(id).to_le_bytes(), value)?;
        taken.end_of_one();
    }
    Ok(taken)
}

/// What the machine does to a loop that only reads the clock.
fn hiccups(during: Duration) -> Taken {
    let mut taken = Taken::new();
    let start = Instant::now();
    while taken.last - start < during {
        taken.end_of_one();
    }
    taken
}

fn ours(records: u64) -> Result<Taken, BenchError> {
    let store = LogStore::builder()
        .capacity((records * BYTES_A_RECORD).max(MIN_CAPACITY))
        .open_private()
        .map_err(failed)?;
    std::thread::sleep(STOCK);
    let taken = timed(records, |key, value| store.put(&key, &value));
    let taken = taken.map_err(failed)?;
    let found = store.len();
    if found == records {
        Ok(taken)
    } else {
        Err(BenchError::wrong(
            OURS,
            CASE,
            format!("{found} of {records} records are there"),
        ))
    }
}

fn of_dashmap(records: u64) -> Taken {
    let map: DashMap<Key, Bytes, Hash> = DashMap::with_hasher(hasher());
    sure(timed(records, |key, value| {
        map.insert(key, value);
        Ok(())
    }))
}

fn of_papaya(records: u64) -> Taken {
    let map: HashMap<Key, Bytes, Hash> = HashMap::with_hasher(hasher());
    sure(timed(records, |key, value| {
        map.pin().insert(key, value);
        Ok(())
    }))
}

fn sure(taken: Result<Taken, std::convert::Infallible>) -> Taken {
    let Ok(taken) = taken;
    taken
}

fn of_redis(records: u64) -> Result<Taken, BenchError> {
    let mut server = Peer::Redis.start()?;
    let mut connection = server.connect()?;
    timed(records, |key, value| {
        connection.queue(&[b"SET", &key, &value]);
        connection.flush(|_| {})
    })
}

fn values<'l>(ledger: &'l Ledger, system: &str, percentile: &str) -> &'l [f64] {
    ledger.values(system, &percentile_case(CASE, percentile))
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let tail = values(ledger, OURS, "p99.9").iter().map(|ns| ns / 1e3);
    // Nobody finishes sooner than the machine lets it.
    let beyond = |percentile: &str| {
        let ours = values(ledger, OURS, percentile).iter();
        ours.zip(values(ledger, HICCUP, percentile))
            .map(|(ours, hiccup)| (ours - hiccup) / 1e6)
            .collect()
    };
    vec![
        Goal::at_most(
            "PUT while the index grows: p99.9, microseconds",
            50.0,
            tail.collect(),
        ),
        Goal::at_most(
            "PUT while the index grows: max beyond the hiccup loop's, milliseconds",
            2.0,
            beyond("max"),
        ),
        Goal::at_most(
            "the same of operations that kept the CPU",
            2.0,
            beyond(KEPT),
        ),
    ]
}

fn systems() -> impl Iterator<Item = &'static str> {
    [HICCUP, OURS].into_iter().chain(Growth::PEERS)
}

fn print_table(ledger: &Ledger) {
    let names = PERCENTILES.iter().map(|(name, _)| *name).chain([KEPT]);
    let names: Vec<_> = names.collect();
    let rows = systems().map(str::to_owned);
    Table::by_case("system", &names, rows, |name, system| {
        range(values(ledger, system, name), 1e3)
    })
    .print("microseconds a PUT while the index grows, median (min-max) of the rounds");
}

/// The whole of the latencies, from the median to the slowest, over how rare they are.
fn curves(ledger: &Ledger) -> Figure {
    let points = PERCENTILES.map(|(name, percent)| {
        let slower = 1.0 / (1.0 - percent / 100.0).max(1e-6);
        (slower, percentile_case(CASE, name))
    });
    let axes = (
        Axis::log("one operation in so many is slower; at the right the slowest"),
        Axis::log("microseconds").of(1e3),
    );
    let systems: Vec<_> = systems().collect();
    let curves = Curves::of(ledger, "PUT while the index grows", axes, &systems, &points);
    Figure::new("growth.svg", curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    #[test]
    fn a_tiny_run_has_every_system_and_both_goals() {
        let scale = Scale {
            records: 50_000,
            redis: 500,
            budget: Duration::from_secs(1000),
            limit: Duration::from_secs(1000),
            peers: Growth::PEERS.map(str::to_owned).to_vec(),
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &[&percentile_case(CASE, "p99.9")]);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
        for system in [HICCUP, OURS, "dashmap", "papaya"] {
            let longest = |percentile| values(&report.ledger, system, percentile)[0];
            assert!(longest(KEPT) > 0.0, "{system}");
            // The histogram keeps three figures.
            assert!(longest(KEPT) <= longest("max") * 1.001, "{system}");
        }
    }
}
