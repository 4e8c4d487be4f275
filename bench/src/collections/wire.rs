//! Values in servers: built, measured and removed over a unix socket, each server on the first CPU.

use super::commands::{Command, Shape};
use super::{Scale, footprint, removal};
use crate::error::BenchError;
use crate::generate::random::{Random, mix};
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::rounds::{self, Job};
use crate::server::on_load_cpu;
use crate::server::servers::{Server, stores};
use crate::systems::pipeline::{Pipeline, connected};
use std::cell::RefCell;
use std::time::Instant;

/// Commands that are sent before their replies are read.
const DEPTH: u64 = 128;

/// A server with the values of a shape.
struct Subject {
    system: &'static str,
    // Before the server: the connection ends first.
    commands: Pipeline,
    server: Server,
}

impl Subject {
    fn new(
        system: &'static str,
        shape: &Shape,
        scale: &Scale,
        ledger: &mut Ledger,
    ) -> Result<Self, BenchError> {
        let server = Server::start(system, 1, shape.memory())?;
        let mut commands = Pipeline::new(connected(&server.socket())?);
        server.keep_on(1)?;
        let before = server.resident();
        on_load_cpu(|| shape.build(&mut commands))?;
        // What was written while the values grew is given back meanwhile.
        std::thread::sleep(scale.rest);
        let bytes = server.resident().saturating_sub(before);
        let each = bytes as f64 / shape.all_elements() as f64;
        ledger.add(system, &footprint(shape), Metric::Footprint, each);
        Ok(Self {
            system,
            commands,
            server,
        })
    }

    /// CPU time of the server, in ns a command.
    fn measure(
        &mut self,
        command: Command,
        shape: &Shape,
        scale: &Scale,
        seed: u64,
    ) -> Result<f64, BenchError> {
        let elements = command.expected(shape.elements) as u64;
        let operations = (scale.operations / elements).max(DEPTH.min(scale.operations));
        let mut random = Random::new(seed);
        let before = self.server.cpu()?;
        let Self { commands, .. } = self;
        let found = on_load_cpu(|| {
            let (mut found, mut left) = (0, operations);
            while left > 0 {
                let queued = DEPTH.min(left);
                for _ in 0..queued {
                    command.queue(shape, &mut random, commands);
                }
                found += commands.drain()? as u64;
                left -= queued;
            }
            Ok(found)
        })?;
        if found != operations * elements {
            let what = format!("{found} elements and states instead of {operations} x {elements}");
            return Err(BenchError::wrong(self.system, shape.case(command), what));
        }
        let took = self.server.cpu()?.saturating_sub(before);
        Ok(took.as_nanos() as f64 / (operations * command.count()) as f64)
    }

    /// How long the removal of a value takes, in ns.
    fn remove(&mut self, shape: &Shape) -> Result<f64, BenchError> {
        self.commands.queue(&[b"DEL", &shape.key(0)]);
        let begin = Instant::now();
        self.commands.drain()?;
        Ok(begin.elapsed().as_nanos() as f64)
    }
}

/// Measures a shape.
///
/// # Errors
/// A server does not start, refuses, or answers wrongly.
pub fn run(
    shape: &Shape,
    scale: &Scale,
    seed: u64,
    rounds: usize,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let mut subjects = Vec::new();
    for system in stores() {
        progress::show(format_args!("{system}: {}", shape.name()));
        subjects.push(RefCell::new(Subject::new(system, shape, scale, ledger)?));
    }
    let jobs = shape.commands.iter().flat_map(|&command| {
        subjects.iter().map(move |subject| {
            let system = subject.borrow().system;
            Job::new(system, shape.case(command), Metric::Cpu, move |round| {
                let seed = mix(seed ^ round as u64);
                subject.borrow_mut().measure(command, shape, scale, seed)
            })
        })
    });
    rounds::run(jobs.collect(), rounds, ledger)?;
    if shape.keys == 1 {
        for subject in &subjects {
            let mut subject = subject.borrow_mut();
            let took = subject.remove(shape)?;
            ledger.add(subject.system, &removal(shape), Metric::Latency, took);
        }
    }
    Ok(())
}
