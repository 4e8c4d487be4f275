//! GET and SET as fast as each server can, plain and pipelined, on one CPU and on two: operations a
//! second, and what they cost the server and its clients in CPU time.
//!
//! CPU time is the scheduler's count for all threads of the server (maintainer and all), and for
//! the one thread of the load. Both begin and end with nothing under way.

use super::generator::Generator;
use super::protocol::{Kind, Request};
use super::servers::{Server, cpu_of_this_thread, present};
use super::{memory_for, on_load_cpu};
use crate::error::BenchError;
use crate::generate::random::Random;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::rounds::{self, Job, Span};
use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, Instant};

/// Connections of every load.
pub const CONNECTIONS: usize = 32;

/// Requests on each of them at once, where they are pipelined.
pub const DEPTH: usize = 32;

/// Bytes of a value.
pub const VALUE: usize = 100;

/// What is asked for, on how many CPUs of the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// GET or SET.
    pub kind: Kind,
    /// Requests at once on a connection.
    pub depth: usize,
    /// CPUs, and threads, of the server.
    pub cpus: usize,
}

impl Case {
    /// All of them with so many CPUs at most.
    pub fn all(most: usize) -> impl Iterator<Item = Self> {
        (1..=most).flat_map(|cpus| {
            [1, DEPTH].into_iter().flat_map(move |depth| {
                [Kind::Get, Kind::Set].map(|kind| Self { kind, depth, cpus })
            })
        })
    }

    /// The case of the server's CPU time.
    pub fn server(self) -> String {
        format!("{self}, server CPU")
    }

    /// The case of the load's CPU time.
    pub fn client(self) -> String {
        format!("{self}, client CPU")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.kind == Kind::Get { "GET" } else { "SET" };
        let shape = if self.depth == 1 {
            "plain"
        } else {
            "pipelined"
        };
        write!(f, "{verb} {shape}, {} CPU(s)", self.cpus)
    }
}

/// How much is done.
pub struct Scale {
    /// Records of each server.
    pub records: u32,
    /// How long each case takes in a round.
    pub span: Span,
    /// CPUs of servers, at most.
    pub cpus: usize,
}

/// A loaded server, and the load on it.
struct Subject {
    // Before the server: connections end first.
    load: Generator,
    server: Server,
}

impl Subject {
    fn new(system: &str, cpus: usize, scale: &Scale) -> Result<Self, BenchError> {
        // As much again for what is overwritten.
        let memory = 2 * memory_for(u64::from(scale.records), VALUE as u64);
        let server = Server::start(system, cpus, memory)?;
        let mut load = server.connect(VALUE, CONNECTIONS)?;
        server.keep_on(cpus)?;
        fill(&mut load, 0..scale.records)?;
        Ok(Self { load, server })
    }

    fn measure(&mut self, case: Case, scale: &Scale, seed: u64) -> Result<Measured, BenchError> {
        let Self { load, server, .. } = self;
        let asks = Asks {
            kind: case.kind,
            depth: case.depth,
            records: scale.records,
        };
        measure(load, asks, scale.span, seed, || server.cpu())
    }
}

/// What a load asks for: records chosen evenly.
#[derive(Debug, Clone, Copy)]
pub struct Asks {
    /// What.
    pub kind: Kind,
    /// Requests at once on a connection.
    pub depth: usize,
    /// Records there are.
    pub records: u32,
}

/// Runs a closed loop of requests for `span`; `cpu` returns the server's CPU time so far.
///
/// # Errors
/// The server answers wrongly, or the kernel does not tell CPU times.
pub fn measure(
    load: &mut Generator,
    asks: Asks,
    span: Span,
    seed: u64,
    cpu: impl Fn() -> Result<Duration, BenchError>,
) -> Result<Measured, BenchError> {
    let mut random = Random::new(seed);
    let mut run = |span: Duration| {
        let until = Instant::now() + span;
        let (mut drawn, mut over) = (0_u32, false);
        load.closed(asks.depth, || {
            // The clock is looked at now and then; once the time is over, it is for all
            // connections.
            over |= drawn.is_multiple_of(32) && Instant::now() > until;
            drawn = drawn.wrapping_add(1);
            let id = random.below(u64::from(asks.records)) as u32;
            let kind = asks.kind;
            (!over).then_some(Request { id, kind })
        })
    };
    run(span.warm_up)?;
    let mut measured = Measured::default();
    // The kernel counts now and then: a span may be too short for it.
    while measured.server.is_zero() || measured.client.is_zero() {
        let before = (cpu()?, cpu_of_this_thread()?);
        let done = run(span.timed)?;
        let after = (cpu()?, cpu_of_this_thread()?);
        measured.operations += done.operations;
        measured.took += done.took;
        measured.server += after.0.saturating_sub(before.0);
        measured.client += after.1.saturating_sub(before.1);
    }
    Ok(measured)
}

/// What a load did, and what that cost.
#[derive(Debug, Default, Clone, Copy)]
pub struct Measured {
    /// Requests that were answered.
    pub operations: u64,
    /// How long they took.
    pub took: Duration,
    /// CPU time of the server.
    pub server: Duration,
    /// CPU time of the load.
    pub client: Duration,
}

impl Measured {
    /// Millions of operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64() / 1e6
    }

    /// Nanoseconds of the server's CPU time an operation.
    pub fn server_each(&self) -> f64 {
        self.server.as_nanos() as f64 / self.operations as f64
    }

    /// Nanoseconds of the load's CPU time an operation.
    pub fn client_each(&self) -> f64 {
        self.client.as_nanos() as f64 / self.operations as f64
    }
}

/// Stores these records.
///
/// # Errors
/// One is refused.
pub fn fill(load: &mut Generator, ids: std::ops::Range<u32>) -> Result<(), BenchError> {
    let kind = Kind::Set;
    let mut requests = ids.map(|id| Request { id, kind });
    load.closed(DEPTH, || requests.next()).map(|_| ())
}

/// Measures all cases, round by round.
///
/// # Errors
/// A server does not start, or answers wrongly.
pub fn run(scale: &Scale, rounds: usize, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    let mut subjects = Vec::new();
    for cpus in 1..=scale.cpus {
        for system in present() {
            progress::show(format_args!("loading {system}"));
            let subject = RefCell::new(Subject::new(system, cpus, scale)?);
            subjects.push((system, cpus, subject));
        }
    }
    let mut jobs = Vec::new();
    for case in Case::all(scale.cpus) {
        let of_case = subjects.iter().filter(|(_, cpus, _)| *cpus == case.cpus);
        for (system, _, subject) in of_case {
            jobs.push(Job::of(
                format_args!("{system} {case}"),
                move |round, ledger| {
                    let seed = seed ^ (round as u64) << 32;
                    let subject = &mut *subject.borrow_mut();
                    let measured = on_load_cpu(|| subject.measure(case, scale, seed))?;
                    let rate = measured.rate();
                    ledger.add(system, &case.to_string(), Metric::Throughput, rate);
                    let (server, client) = (measured.server_each(), measured.client_each());
                    ledger.add(system, &case.server(), Metric::Cpu, server);
                    ledger.add(system, &case.client(), Metric::Cpu, client);
                    Ok(())
                },
            ));
        }
    }
    rounds::run(jobs, rounds, ledger)
}
