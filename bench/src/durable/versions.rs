//! Durable changes in place beside a log, as *Consistent and Durable Data Structures* compares them
//! (figures 5.5 to 5.7): our tree (Tembo), our journal and Redis' log of writes, durable before
//! they answer, with their files on tmpfs.
//!
//! - *SET*: by the size of values, from all connections (figure 5.5).
//! - *session store*: half reads and half updates of 1000 B, by the number of clients (figure 5.6).
//! - *status updates*: 95 % reads and 5 % inserts of 1000 B, by the number of clients (figure 5.7).
//!
//! Records are chosen evenly, where the thesis' load prefers some. Its other system was Cassandra.

use super::servers::{ALWAYS, Arm, REDIS_ALWAYS, Server, TREE_ALWAYS, present};
use super::{CONNECTIONS, cell};
use crate::curves::{Axis, Curves};
use crate::error::BenchError;
use crate::figure::{Bars, Figure};
use crate::generate::random::Random;
use crate::ledger::{Ledger, Metric};
use crate::machine::cpus;
use crate::progress;
use crate::rounds::{self, Job};
use crate::server::generator::Generator;
use crate::server::protocol::{Kind, Request};
use crate::server::throughput::fill;
use crate::server::{memory_for, on_load_cpu};
use crate::table::Table;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

const ARMS: [Arm; 3] = [TREE_ALWAYS, ALWAYS, REDIS_ALWAYS];

/// Bytes of the values of the first part, and of the others.
const SIZES: [usize; 3] = [256, 1024, 4096];
const COLUMNS: usize = 1000;

/// Clients of the other parts.
const CLIENTS: [usize; 3] = [1, 10, 30];

/// How much is done.
pub struct Scale {
    /// Records that are there at the beginning.
    pub records: u32,
    /// How long each case takes in a round.
    pub timed: Duration,
}

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Set,
    Session,
    Status,
}

impl Work {
    fn case(self, number: usize) -> String {
        match self {
            Self::Set => format!("SET {number} B, tmpfs"),
            Self::Session => format!("session store, {number} clients"),
            Self::Status => format!("status updates, {number} clients"),
        }
    }

    /// Reads and changes one of the first `there` records, or inserts the record `next`.
    fn request(self, random: &mut Random, there: u32, next: &mut u32) -> Request {
        let evenly = random.below(u64::from(there)) as u32;
        let (kind, id) = match self {
            Self::Set => (Kind::Set, evenly),
            Self::Session if random.below(2) == 0 => (Kind::Set, evenly),
            Self::Status if random.below(20) == 0 => {
                *next += 1;
                (Kind::Set, *next - 1)
            }
            Self::Session | Self::Status => (Kind::Get, evenly),
        };
        Request { id, kind }
    }
}

/// A loaded server.
struct Subject {
    server: Server,
    size: usize,
    records: u32,
}

impl Subject {
    fn new(arm: Arm, size: usize, records: u32) -> Result<Self, BenchError> {
        // As much again for what is overwritten or inserted.
        let memory = 2 * memory_for(u64::from(records), size as u64) + (64 << 20);
        let place = Path::new(mneme_sys::files::SHARED_MEMORY);
        let server = Server::start(arm, place, cpus(), memory)?;
        fill(&mut server.connect(size, CONNECTIONS)?, 0..records)?;
        Ok(Self {
            server,
            size,
            records,
        })
    }

    /// Millions of operations a second.
    fn rate(
        &mut self,
        work: Work,
        clients: usize,
        timed: Duration,
        seed: u64,
    ) -> Result<f64, BenchError> {
        let mut random = Random::new(seed);
        let mut load: Generator = self.server.connect(self.size, clients)?;
        let until = Instant::now() + timed;
        // Inserts of one client are under way while another reads: what was there before is read.
        let there = self.records;
        let mut asked = 0;
        let done = on_load_cpu(|| {
            load.closed(1, || {
                // One of each client at least, however late the load gets its CPU.
                let goes_on = asked < clients || Instant::now() < until;
                asked += 1;
                goes_on.then(|| work.request(&mut random, there, &mut self.records))
            })
        })?;
        Ok(done.rate() / 1e6)
    }
}

/// Measures all of them, round by round.
///
/// # Errors
/// A server that does not start, refuses, or mixes up records.
pub fn run(scale: &Scale, rounds: usize, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    let by_size = SIZES.map(|size| (size, vec![(Work::Set, size, CONNECTIONS)]));
    let by_clients = [Work::Session, Work::Status]
        .into_iter()
        .flat_map(|work| CLIENTS.map(|clients| (work, clients, clients)));
    let parts = by_size.into_iter().chain([(COLUMNS, by_clients.collect())]);
    for (size, cases) in parts {
        let mut subjects = Vec::new();
        for arm in present(&ARMS) {
            progress::show(format_args!("loading {}", arm.name));
            let subject = Subject::new(arm, size, scale.records)?;
            subjects.push((arm.name, RefCell::new(subject)));
        }
        let mut jobs = Vec::new();
        for (work, number, clients) in cases {
            for (name, subject) in &subjects {
                let case = work.case(number);
                jobs.push(Job::new(*name, case, Metric::Throughput, move |round| {
                    let seed = seed ^ (round as u64) << 32;
                    subject.borrow_mut().rate(work, clients, scale.timed, seed)
                }));
            }
        }
        rounds::run(jobs, rounds, ledger)?;
    }
    Ok(())
}

/// All cases.
fn cases() -> Vec<String> {
    let sizes = SIZES.map(|size| Work::Set.case(size));
    let others = [Work::Session, Work::Status];
    let others = others.map(|work| CLIENTS.map(|clients| work.case(clients)));
    [sizes, others[0].clone(), others[1].clone()].concat()
}

/// What is measured on this machine.
#[cfg(test)]
pub fn all() -> impl Iterator<Item = (Arm, String)> {
    let arms = present(&ARMS).into_iter();
    arms.flat_map(|arm| cases().into_iter().map(move |case| (arm, case)))
}

/// Prints what was measured here.
pub fn print(ledger: &Ledger) {
    let reference = REDIS_ALWAYS.name;
    let cell = |system: &str, case: &str| cell(ledger, reference, system, case, 1e-3);
    Table::by_case("case", &ARMS.map(|arm| arm.name), cases(), cell).print(format_args!(
        "files on tmpfs: thousand operations a second; in brackets over {reference}"
    ));
}

/// The thesis' figures 5.5 to 5.7.
pub fn figures(ledger: &Ledger) -> Vec<Figure> {
    let names = ARMS.map(|arm| arm.name);
    let sizes = SIZES.map(|size| (format!("{size} B"), Work::Set.case(size)));
    let title = "Durable SET on tmpfs: changes in place beside logs";
    let bars = Bars::of(ledger, title, Metric::Throughput, &names, sizes);
    let by_clients = |work: Work, title: &str| {
        let points = CLIENTS.map(|clients| (clients as f64, work.case(clients)));
        let axes = (
            Axis::log("clients"),
            Axis::log("million operations a second"),
        );
        Curves::of(ledger, title, axes, &names, &points)
    };
    let session = by_clients(Work::Session, "Session store: half reads, half updates");
    let status = by_clients(Work::Status, "Status updates: 95 % reads, 5 % inserts");
    vec![
        Figure::new("durable-sizes.svg", bars),
        Figure::new("durable-session.svg", session),
        Figure::new("durable-status.svg", status),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_that_were_there_before_any_insert() {
        let (mut random, mut next) = (Random::new(1), 100);
        for _ in 0..1000 {
            let request = Work::Status.request(&mut random, 100, &mut next);
            assert_eq!(request.id < 100, request.kind == Kind::Get);
        }
        assert!(next > 110, "{next}");
    }
}
