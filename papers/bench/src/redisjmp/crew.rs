//! Clients: processes of their own that ask for records at random, for as long as they are asked.

use crate::options::{self, Way};
use clap::ValueEnum;
use mneme_bench::client::Asks;
use mneme_bench::client::attached::Attached;
use mneme_bench::client::socket::Socket;
use mneme_bench::error::{BenchError, process_failed};
use mneme_bench::generate::random::Random;
use mneme_bench::processes::{Helper, keep_on_first, say};
use mneme_bench::rounds::{Done, Span};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

/// What is asked for, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Requests of a hundred that store; the others look up.
    pub sets: u64,
    /// Requests at once.
    pub batch: usize,
    /// Records that may be asked for, from the first on.
    pub keys: u32,
    /// How long.
    pub span: Span,
    /// Where the random stream begins.
    pub seed: u64,
}

impl Task {
    /// Does it until `end`; how many requests were answered.
    fn until<A: Asks>(
        &self,
        asks: &mut A,
        random: &mut Random,
        end: Instant,
    ) -> Result<u64, BenchError> {
        /// Requests between two looks at the clock.
        const REQUESTS: usize = 32;
        let wrong = || BenchError::Process("a request was not answered as it should be".to_owned());
        let mut drawn = || {
            let id = random.below(u64::from(self.keys)) as u32;
            (id, self.sets > 0 && random.below(100) < self.sets)
        };
        let (mut gets, mut sets) = (Vec::new(), Vec::new());
        let mut done = 0;
        loop {
            for _ in 0..REQUESTS / self.batch {
                if self.batch == 1 {
                    let right = match drawn() {
                        (id, true) => asks.set(id)?,
                        (id, false) => asks.get(id)?,
                    };
                    if !right {
                        return Err(wrong());
                    }
                    continue;
                }
                gets.clear();
                sets.clear();
                for _ in 0..self.batch {
                    match drawn() {
                        (id, true) => sets.push(id),
                        (id, false) => gets.push(id),
                    }
                }
                if asks.batch(&gets, &sets)? != self.batch {
                    return Err(wrong());
                }
            }
            done += (REQUESTS / self.batch * self.batch) as u64;
            if Instant::now() >= end {
                return Ok(done);
            }
        }
    }

    fn run<A: Asks>(&self, asks: &mut A) -> Result<Done, BenchError> {
        let mut random = Random::new(self.seed);
        self.until(asks, &mut random, Instant::now() + self.span.warm_up)?;
        let start = Instant::now();
        let operations = self.until(asks, &mut random, start + self.span.timed)?;
        Ok(Done {
            operations,
            took: start.elapsed(),
        })
    }
}

/// Does what each line asks for.
///
/// # Errors
/// The store cannot be reached, or answers wrongly.
pub fn live_here(options: &options::Client) -> Result<(), BenchError> {
    let options::Client {
        way,
        place,
        segment,
        records,
        value,
    } = options;
    if *way == Way::Socket {
        return serve(&mut Socket::connect(place, *value)?);
    }
    let mut attached = Attached::new(place, segment, *way == Way::Writes, *value)?;
    attached.visit(*records)?;
    serve(&mut attached)
}

fn serve<A: Asks>(asks: &mut A) -> Result<(), BenchError> {
    say(Ok(()))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(process_failed)?;
        let task: Task = serde_json::from_str(&line).map_err(process_failed)?;
        say(task.run(asks))?;
    }
    Ok(())
}

/// Clients of one kind.
pub struct Crew(Vec<Helper>);

impl Crew {
    /// Starts so many, and waits until each has reached the store.
    ///
    /// # Errors
    /// One cannot.
    pub fn start(
        way: Way,
        place: &Path,
        segment: &str,
        clients: u32,
        records: u32,
        value: usize,
    ) -> Result<Self, BenchError> {
        let name = way.to_possible_value();
        let name = name.as_ref().map_or("", |name| name.get_name());
        let (records, value) = (records.to_string(), value.to_string());
        let mut crew = Self(Vec::new());
        for _ in 0..clients {
            let words: &[&dyn AsRef<_>] = &[&"client", &name, &place, &segment, &records, &value];
            let mut client = Helper::start(words)?;
            client.answer::<()>()?;
            crew.0.push(client);
        }
        Ok(crew)
    }

    /// Keeps all of them on the first CPU.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keep_on_first_cpu(&self) -> Result<(), BenchError> {
        let mut crew = self.0.iter();
        crew.try_for_each(|client| keep_on_first(1, client.id()))
    }

    /// Makes the first `clients` of them do the same work at once; returns the requests a second of
    /// all together.
    ///
    /// # Errors
    /// One of them failed.
    pub fn run(&mut self, clients: u32, task: Task) -> Result<f64, BenchError> {
        let crew = &mut self.0[..clients as usize];
        for (number, client) in crew.iter_mut().enumerate() {
            let seed = task.seed ^ (number as u64) << 48;
            client.tell(&Task { seed, ..task })?;
        }
        let mut rate = 0.0;
        for client in crew {
            rate += client.answer::<Done>()?.rate();
        }
        Ok(rate)
    }
}
