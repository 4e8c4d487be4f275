//! Other commands than GET and SET, pipelined, on one CPU: what an operation costs the server in
//! CPU time.
//!
//! Records are those of `throughput.rs`, and as many counters for INCR and INCRBY. Keys are chosen
//! evenly, but for DEL, which removes all records in an order of chance, and SETNX, which brings
//! them back in it: what either costs where it does its work. A figure of DEL or SETNX is of all
//! records and takes no span.

use super::generator::Generator;
use super::memory_for;
use super::on_load_cpu;
use super::protocol::{Kind, Request, VERBS, Verb};
use super::servers::{Server, stores};
use super::throughput::{Asks, CONNECTIONS, DEPTH, Measured, VALUE, fill, measure};
use crate::error::BenchError;
use crate::generate::random::Random;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::rounds::{self, Job, Span};
use std::cell::RefCell;

/// How much is done.
pub struct Scale {
    /// Records of each server.
    pub records: u32,
    /// How long each command takes in a round.
    pub span: Span,
}

/// The case of a command's server CPU time.
pub fn case(verb: Verb) -> String {
    format!("{} pipelined, server CPU", verb.name())
}

/// A loaded server, and the load on it.
struct Subject {
    // Before the server: connections end first.
    load: Generator,
    server: Server,
}

impl Subject {
    fn new(system: &str, scale: &Scale) -> Result<Self, BenchError> {
        // Records and counters, as much again for what is overwritten, and APPEND makes longer.
        let memory = 4 * memory_for(u64::from(scale.records), VALUE as u64);
        let server = Server::start(system, 1, memory)?;
        let mut load = server.connect(VALUE, CONNECTIONS)?;
        server.keep_on(1)?;
        fill(&mut load, 0..scale.records)?;
        let kind = Kind::Other(Verb::Incr);
        let mut counters = (0..scale.records).map(|id| Request { id, kind });
        load.closed(DEPTH, || counters.next())?;
        Ok(Self { load, server })
    }

    fn evenly(&mut self, verb: Verb, scale: &Scale, seed: u64) -> Result<Measured, BenchError> {
        let asks = Asks {
            kind: Kind::Other(verb),
            depth: DEPTH,
            records: scale.records,
        };
        let Self { load, server } = self;
        measure(load, asks, scale.span, seed, || server.cpu())
    }

    /// Each of the records once, added to what was measured.
    fn each(&mut self, verb: Verb, order: &[u32], to: &mut Measured) -> Result<(), BenchError> {
        let kind = Kind::Other(verb);
        let mut requests = order.iter().map(|&id| Request { id, kind });
        let before = self.server.cpu()?;
        let done = self.load.closed(DEPTH, || requests.next())?;
        to.operations += done.operations;
        to.took += done.took;
        to.server += self.server.cpu()?.saturating_sub(before);
        Ok(())
    }

    /// All records removed and brought back.
    fn removed_and_back(&mut self, order: &[u32]) -> Result<[Measured; 2], BenchError> {
        let [mut gone, mut back] = [Measured::default(); 2];
        // The kernel counts now and then: few records may be too few for it.
        while gone.server.is_zero() || back.server.is_zero() {
            self.each(Verb::Del, order, &mut gone)?;
            self.each(Verb::SetNx, order, &mut back)?;
        }
        Ok([gone, back])
    }
}

/// All records in an order of chance.
fn shuffled(records: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut order: Vec<u32> = (0..records).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// Measures all commands, round by round.
///
/// # Errors
/// A server does not start, or answers wrongly.
pub fn run(scale: &Scale, rounds: usize, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    let mut subjects = Vec::new();
    for system in stores() {
        progress::show(format_args!("loading {system}, commands"));
        subjects.push((system, RefCell::new(Subject::new(system, scale)?)));
    }
    let mut jobs = Vec::new();
    let evenly = VERBS.into_iter().filter(|verb| *verb != Verb::SetNx);
    for verb in evenly {
        for (system, subject) in &subjects {
            let what = format!("{system} {}", verb.name());
            jobs.push(Job::of(what, move |round, ledger| {
                let seed = seed ^ (round as u64) << 32;
                let subject = &mut *subject.borrow_mut();
                let measured = on_load_cpu(|| match verb {
                    Verb::Del => {
                        let order = shuffled(scale.records, seed);
                        let [gone, back] = subject.removed_and_back(&order)?;
                        Ok(vec![(verb, gone), (Verb::SetNx, back)])
                    }
                    _ => Ok(vec![(verb, subject.evenly(verb, scale, seed)?)]),
                })?;
                for (verb, measured) in measured {
                    ledger.add(system, &case(verb), Metric::Cpu, measured.server_each());
                }
                Ok(())
            }));
        }
    }
    rounds::run(jobs, rounds, ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_chance_has_each_record_once() {
        let mut order = shuffled(1000, 7);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }

    #[test]
    fn every_command_is_measured_on_every_store_in_every_round() {
        let scale = Scale {
            records: 1000,
            span: Span::of(1, 1),
        };
        let mut ledger = Ledger::default();
        run(&scale, 2, 1, &mut ledger).unwrap();
        for system in stores() {
            for verb in VERBS {
                assert_eq!(ledger.values(system, &case(verb)).len(), 2, "{verb:?}");
            }
        }
    }
}
