//! `redisjmp`: clients that attach the store, against clients that ask a server (SpaceJMP, §5.3,
//! figure 10).
//!
//! Clients are processes, and each has one request under way at a time, or one batch.
//!
//! - *attached*: the client has the store's segment attached, for reading where it only looks up,
//!   and copies the value.
//! - *attached, huge pages*: the same with another store, all of whose memory was brought there in
//!   huge pages before.
//! - *mneme, socket*: it asks our server, which serves the same segment, over a unix socket.
//! - *redis, socket*: it asks Redis the same way, with the same client.
//! - *redis, one CPU*: the same where client and Redis are kept on one CPU. A request then costs
//!   two changes of process rather than two wake-ups of an idle CPU, which in a virtual machine can
//!   take eight times as long; left alone, the kernel now does the one and now the other. Whatever
//!   is compared with Redis is compared with the faster of both.
//! - *valkey, socket* and *valkey, one CPU*: Valkey in the same two ways.
//!
//! How to read it: thousands of requests a second of all clients together. The paper's clients were
//! `redis-benchmark`, whose keys are all the same by default, and the paper says nothing of that:
//! *one key* is that, everything else is uniform over a million records. Batches (*x32*) are not in
//! the paper; they show what remains of the distance where a client has many requests at once, for
//! which a server needs one exchange of messages. The goals are of single requests; what a batch is
//! to the same batch sent to Redis in one piece, and to requests sent to Redis one by one, stands
//! in a table of its own.

pub mod crew;

use crate::options::Way;
use crew::{Crew, Task};
use mneme_bench::client::attached::{Attached, HUGE, SEGMENT};
use mneme_bench::client::socket::Socket;
use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::BenchError;
use mneme_bench::figure::Figure;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::processes::keep_on_first;
use mneme_bench::report::Report;
use mneme_bench::restart::load;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::scratch::{Scratch, space};
use mneme_bench::served::Served;
use mneme_bench::systems::BATCH;
use mneme_bench::systems::mneme::bytes_a_record;
use mneme_bench::systems::redis::{PEERS, Peer, introduce};
use mneme_bench::table::{Table, beside, median};
use mneme_shared::{MIN_CAPACITY, StoreOptions};
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;

const ATTACHED: &str = "attached";
const IN_HUGE: &str = "attached, huge pages";
const SERVER: &str = "mneme, socket";
const REDIS: &str = "redis, socket";
const ONE_CPU: &str = "redis, one CPU";
const VALKEY: &str = "valkey, socket";
const VALKEY_ONE_CPU: &str = "valkey, one CPU";
const SYSTEMS: [&str; 7] = [
    ATTACHED,
    IN_HUGE,
    SERVER,
    REDIS,
    ONE_CPU,
    VALKEY,
    VALKEY_ONE_CPU,
];

/// How the clients of a peer are named: wherever they run, and on its CPU.
fn names(peer: Peer) -> [&'static str; 2] {
    match peer {
        Peer::Redis => [REDIS, ONE_CPU],
        Peer::Valkey => [VALKEY, VALKEY_ONE_CPU],
    }
}

/// The paper's values.
const SMALL: usize = 4;

/// How much is done.
pub struct Scale {
    values: &'static [usize],
    records: u32,
    /// Requests of a hundred that store: single ones, and those in batches.
    sets: &'static [u64],
    clients: Vec<u32>,
    span: Span,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        let mut clients = options.threads.clone();
        clients.sort_unstable();
        clients.dedup();
        Self {
            values: &[SMALL, 1024],
            records: options.pick(1 << 18, 1 << 20),
            sets: &[0, 10, 50, 100],
            clients,
            span: Span::of(options.pick(15, 200), 3),
        }
    }

    fn most(&self) -> u32 {
        self.clients.last().copied().unwrap_or(1)
    }

    /// What is asked for, for values of `bytes`, but for the number of clients.
    fn requests(&self, bytes: usize) -> Vec<Request> {
        let of = |sets: u64, batch: usize, one: bool| Request {
            bytes,
            sets,
            batch,
            one,
        };
        let single = self.sets.iter().map(|&sets| of(sets, 1, false));
        let one = [0, 100].map(|sets| of(sets, 1, true));
        let one = one.into_iter().filter(|_| bytes == SMALL);
        let batched = [0, 10, 100].map(|sets| of(sets, BATCH, false));
        single.chain(one).chain(batched).collect()
    }
}

/// What clients ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    bytes: usize,
    sets: u64,
    batch: usize,
    /// Of one record only.
    one: bool,
}

impl Request {
    fn case(self, clients: u32) -> String {
        format!("{self}, {clients} client(s)")
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.sets {
            0 => write!(f, "GET")?,
            100 => write!(f, "SET")?,
            sets => write!(f, "{}/{sets}", 100 - sets)?,
        }
        write!(f, " {} B", self.bytes)?;
        if self.one {
            write!(f, ", one key")?;
        }
        match self.batch {
            1 => Ok(()),
            batch => write!(f, " x{batch}"),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a server that fails, a client that gets a wrong answer, a file that cannot be
/// written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    let mut notes = introduce(&PEERS);
    // One after the other, so that only one has its memory.
    for &bytes in scale.values {
        let pages = by_value(scale, options, bytes, &mut ledger)?;
        notes.push(format!("{bytes} B, by segment: {pages}"));
    }
    print_tables(scale, &ledger);
    notes.push(format!("uniform over {} records", scale.records));
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({ "records": scale.records, "seconds": scale.span.timed.as_secs_f64() }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

/// A system, and how its clients are started and driven.
struct Measured {
    system: &'static str,
    /// For requests that only look up, and for others.
    crews: [RefCell<Crew>; 2],
}

/// Measures everything with values of so many bytes; the pages that the store attached with.
fn by_value(
    scale: &Scale,
    options: &Common,
    bytes: usize,
    ledger: &mut Ledger,
) -> Result<String, BenchError> {
    let capacity = (u64::from(scale.records) * bytes_a_record(bytes)).max(MIN_CAPACITY);
    let scratch = Scratch::new("redisjmp", 2 * capacity)?;
    let registry = scratch.registry().root();
    let store = StoreOptions::new()
        .capacity(capacity)
        .max_capacity(capacity);
    let mut pages = Vec::new();
    let mut served = Vec::new();
    for segment in [SEGMENT, HUGE] {
        store.make(scratch.registry(), segment).map_err(space)?;
        let mut loader = Attached::new(registry, segment, true, bytes)?;
        load(&mut loader, scale.records)?;
        if segment == HUGE {
            loader.in_huge_pages()?;
        }
        pages.push(format!("{segment}: {}", loader.pages()));
        drop(loader);
        // The server maintains its store, too, and so each has one.
        let socket = scratch.root().join(format!("{segment}.socket"));
        served.push(Served::start(registry, segment, &socket, &[])?);
    }
    let clients = |way, place: &Path, segment| {
        let crew = Crew::start(way, place, segment, scale.most(), scale.records, bytes)?;
        Ok::<_, BenchError>(RefCell::new(crew))
    };
    let attached = |system, segment| {
        let of = |way| clients(way, registry, segment);
        let crews = [of(Way::Reads)?, of(Way::Writes)?];
        Ok::<_, BenchError>(Measured { system, crews })
    };
    let by_socket = |system, socket: &Path| {
        let of = || clients(Way::Socket, socket, SEGMENT);
        let crews = [of()?, of()?];
        Ok::<_, BenchError>(Measured { system, crews })
    };
    let mut measured = vec![
        attached(ATTACHED, SEGMENT)?,
        attached(IN_HUGE, HUGE)?,
        by_socket(SERVER, served[0].socket())?,
    ];
    // Ended before what they serve.
    let mut peers = Vec::new();
    for program in PEERS.into_iter().filter(|peer| peer.is_there()) {
        for system in names(program) {
            let peer = program.start()?;
            load(&mut Socket::connect(&peer.socket(), bytes)?, scale.records)?;
            let asking = by_socket(system, &peer.socket())?;
            if system == names(program)[1] {
                keep_on_first(1, peer.id())?;
                for crew in &asking.crews {
                    crew.borrow().keep_on_first_cpu()?;
                }
            }
            measured.push(asking);
            peers.push(peer);
        }
    }
    let mut jobs = Vec::new();
    for request in scale.requests(bytes) {
        for &clients in &scale.clients {
            for Measured { system, crews } in &measured {
                let crew = &crews[usize::from(request.sets > 0)];
                let case = request.case(clients);
                jobs.push(Job::new(*system, case, Metric::Throughput, move |round| {
                    let task = Task {
                        sets: request.sets,
                        batch: request.batch,
                        keys: if request.one { 1 } else { scale.records },
                        span: scale.span,
                        seed: options.seed ^ (round as u64) << 32,
                    };
                    Ok(crew.borrow_mut().run(clients, task)? / 1e6)
                }));
            }
        }
    }
    rounds::run(jobs, options.rounds, ledger)?;
    Ok(pages.join("; "))
}

/// Round by round, a system's rate over that of Redis, as it is faster in that round, at the same
/// case.
fn over_best(ledger: &Ledger, system: &str, case: &str) -> Vec<f64> {
    over_best_at(ledger, system, case, case)
}

/// As [`over_best`], at another case.
fn over_best_at(ledger: &Ledger, system: &str, case: &str, at: &str) -> Vec<f64> {
    let [apart, together] = [REDIS, ONE_CPU].map(|redis| ledger.values(redis, at));
    let best = apart.iter().zip(together).map(|(a, b)| a.max(*b));
    let rates = ledger.values(system, case).iter();
    rates.zip(best).map(|(rate, best)| rate / best).collect()
}

/// Single requests of small values.
fn small(sets: u64) -> Request {
    Request {
        bytes: SMALL,
        sets,
        batch: 1,
        one: false,
    }
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let over_redis = |text: &str, target, sets, one| {
        let case = Request { one, ..small(sets) }.case(1);
        Goal::at_least(text, target, over_best(ledger, ATTACHED, &case))
    };
    let scaling = |text: &str, target, sets| {
        let [two, one] = [2, 1].map(|clients| small(sets).case(clients));
        Goal::at_least(
            text,
            target,
            ledger.ratios((ATTACHED, &two), (ATTACHED, &one)),
        )
    };
    vec![
        over_redis("attached GET / Redis, 4 B, 1 client", 50.0, 0, false),
        over_redis("attached SET / Redis, 4 B, 1 client", 40.0, 100, false),
        over_redis("the same of one key, GET", 50.0, 0, true),
        over_redis("the same of one key, SET", 40.0, 100, true),
        scaling("attached GET 4 B, 2 clients / 1", 1.8, 0),
        scaling("attached 90/10 4 B, 2 clients / 1", 1.6, 10),
    ]
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    for &bytes in scale.values {
        let requests = scale.requests(bytes).into_iter();
        let cases = requests.flat_map(|of| scale.clients.iter().map(move |&n| of.case(n)));
        Table::by_case("requests", &SYSTEMS, cases, |system, case| {
            let over = over_best(ledger, system, case);
            beside(ledger.values(system, case), 1e-3, &over)
        })
        .print(format_args!(
            "thousand requests a second, values of {bytes} B; in brackets over the faster Redis"
        ));
        print_batches(scale, ledger, bytes);
    }
}

/// Batches of the attached client beside what Redis does with the same batch, and with single
/// requests.
fn print_batches(scale: &Scale, ledger: &Ledger, bytes: usize) {
    let pipelined = format!("redis, pipelined by {BATCH}");
    let mut table = Table::new(["requests", &pipelined, "redis, one by one"]);
    let requests = scale.requests(bytes).into_iter();
    for request in requests.filter(|request| request.batch > 1) {
        for &clients in &scale.clients {
            let case = request.case(clients);
            let single = Request {
                batch: 1,
                ..request
            };
            let cell = |at: &str| median(&over_best_at(ledger, ATTACHED, &case, at), 1.0);
            let (same, single) = (cell(&case), cell(&single.case(clients)));
            table.row([case, same, single]);
        }
    }
    table.print(format_args!(
        "batches of {BATCH}, values of {bytes} B: `{ATTACHED}` over the faster Redis"
    ));
}

fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let case = |sets, clients| small(sets).case(clients);
    let figure = |file: &str, title: String, across: &str, cases: Vec<(f64, String)>| {
        let up = Axis::log("thousand requests a second").of(1e-3);
        let curves = Curves::of(ledger, title, (Axis::linear(across), up), &SYSTEMS, &cases);
        Figure::new(file, curves)
    };
    let by_clients = |sets, name: &str, file: &str| {
        let clients = scale.clients.iter().map(|&n| (f64::from(n), case(sets, n)));
        let title = format!("{name}, values of {SMALL} B");
        figure(file, title, "clients", clients.collect())
    };
    let most = scale.most();
    let shares = scale.sets.iter();
    let shares = shares.map(|&sets| (sets as f64, case(sets, most)));
    let title = format!("GET and SET, values of {SMALL} B, {most} client(s)");
    let across = "SETs of a hundred requests";
    let mix = figure("redisjmp-mix.svg", title, across, shares.collect());
    vec![
        by_clients(0, "GET", "redisjmp-get.svg"),
        by_clients(100, "SET", "redisjmp-set.svg"),
        mix,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_system_and_leaves_nothing_behind() {
        let scale = Scale {
            values: &[SMALL],
            records: 1000,
            sets: &[0, 10, 100],
            clients: vec![1, 2],
            span: Span::of(1, 1),
        };
        let report = run(&scale, &common()).unwrap();
        let request = scale.requests(SMALL)[0];
        assert_well_formed(&report, &[&request.case(1), &request.case(2)]);
        for system in SYSTEMS {
            let of_peer = PEERS
                .into_iter()
                .find(|peer| names(*peer).contains(&system));
            if of_peer.is_some_and(|peer| !peer.is_there()) {
                continue;
            }
            for request in scale.requests(SMALL) {
                let rate = report.ledger.values(system, &request.case(2))[0];
                assert!(rate > 0.0, "{system}, {request}");
            }
        }
        let measured = report.goals.iter().filter(|goal| goal.met().is_some());
        assert_eq!(measured.count(), if Peer::Redis.is_there() { 6 } else { 2 });
        let ours = format!("mneme-bench-redisjmp-{}", std::process::id());
        let left = std::fs::read_dir("/dev/shm").unwrap();
        assert!(left.flatten().all(|entry| entry.file_name() != *ours));
    }
}
