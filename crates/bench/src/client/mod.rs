//! A client: a process of its own that asks for records at random, for as long as it is asked to.

pub mod attached;
pub mod socket;

use crate::error::{BenchError, process_failed};
use crate::generate::random::Random;
use crate::options;
use crate::processes::{Helper, keep_on_first_cpu, say};
use crate::rounds::{Done, Span};
use crate::systems::BATCH;
use attached::Attached;
use clap::ValueEnum;
use socket::Socket;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

/// How a client reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Attached for reading.
    Reads,
    /// Attached for reading and writing.
    Writes,
    /// A server, by its unix socket.
    Socket,
}

/// What clients of every kind can be asked for. Each says how many requests were answered as they
/// should have been.
pub trait Asks {
    /// Copies out the value of a record.
    fn get(&mut self, id: u32) -> Result<bool, BenchError>;
    /// Stores the record's value anew.
    fn set(&mut self, id: u32) -> Result<bool, BenchError>;
    /// Does all of these at once.
    fn batch(&mut self, gets: &[u32], sets: &[u32]) -> Result<usize, BenchError>;
}

/// Appends the value of record `id`: its number, and as much more as it needs.
#[inline]
pub fn value_of(id: u32, bytes: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&id.to_le_bytes());
    to.resize(to.len() + bytes - size_of::<u32>(), 0x5A);
}

/// Appends another value of record `id`, one that no compression makes shorter.
#[inline]
pub fn noise_of(id: u32, bytes: usize, to: &mut Vec<u8>) {
    let end = to.len() + bytes;
    to.extend_from_slice(&id.to_le_bytes());
    let mut random = Random::new(u64::from(id));
    while to.len() < end {
        to.extend_from_slice(&random.next().to_le_bytes());
    }
    to.truncate(end);
}

/// Whether `value` is that of record `id`.
#[inline]
pub fn is_value(value: &[u8], id: u32, bytes: usize) -> bool {
    value.len() == bytes && value.starts_with(&id.to_le_bytes())
}

/// What is asked for, and for how long.
#[derive(Debug, Clone, Copy)]
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
    /// As a line.
    fn to_line(self) -> String {
        let Self {
            sets,
            batch,
            keys,
            span: Span { warm_up, timed },
            seed,
        } = self;
        let (warm_up, timed) = (warm_up.as_nanos(), timed.as_nanos());
        format!("{sets} {batch} {keys} {warm_up} {timed} {seed}")
    }

    fn of_line(line: &str) -> Option<Self> {
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let [sets, batch, keys, warm_up, timed, seed] = words?.try_into().ok()?;
        let task = Self {
            sets,
            batch: batch as usize,
            keys: u32::try_from(keys).ok()?,
            span: Span::new(Duration::from_nanos(warm_up), Duration::from_nanos(timed)),
            seed,
        };
        (sets <= 100 && (1..=BATCH).contains(&task.batch) && keys > 0).then_some(task)
    }

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
        while Instant::now() < end {
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
        }
        Ok(done)
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

fn read_done(answer: &str) -> Option<Done> {
    let (operations, took) = answer.split_once(' ')?;
    Some(Done {
        operations: operations.parse().ok()?,
        took: Duration::from_nanos(took.parse().ok()?),
    })
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
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(process_failed)?;
        let Some(task) = Task::of_line(&line) else {
            return Err(BenchError::Process(format!("it got the line `{line}`")));
        };
        let done = task.run(asks)?;
        say(&format!("{} {}", done.operations, done.took.as_nanos()))?;
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
        let words = [
            "client".as_ref(),
            name.as_ref(),
            place.as_os_str(),
            segment.as_ref(),
            records.as_ref(),
            value.as_ref(),
        ];
        let mut crew = Self(Vec::new());
        for _ in 0..clients {
            let mut client = Helper::start(&words)?;
            client.answer(|said| (said == "ready").then_some(()))?;
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
        crew.try_for_each(|client| keep_on_first_cpu(client.id()))
    }

    /// Has the first `clients` of them do the same at once; requests a second of all together.
    ///
    /// # Errors
    /// One of them failed.
    pub fn run(&mut self, clients: u32, task: Task) -> Result<f64, BenchError> {
        let crew = &mut self.0[..clients as usize];
        for (number, client) in crew.iter_mut().enumerate() {
            let seed = task.seed ^ (number as u64) << 48;
            client.tell(&Task { seed, ..task }.to_line())?;
        }
        let mut rate = 0.0;
        for client in crew {
            let done = client.answer(read_done)?;
            rate += done.operations as f64 / done.took.as_secs_f64();
        }
        Ok(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_understood_as_it_was_meant() {
        let task = Task {
            sets: 10,
            batch: 32,
            keys: 1000,
            span: Span::new(Duration::from_millis(1), Duration::from_millis(3)),
            seed: u64::MAX,
        };
        let read = Task::of_line(&task.to_line());
        assert_eq!(read.map(Task::to_line), Some(task.to_line()));
        for nonsense in ["", "1 2 3", "101 1 1 1 1 1", "0 33 1 1 1 1", "0 1 0 1 1 1"] {
            assert!(Task::of_line(nonsense).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn what_a_client_says_is_read() {
        let done = read_done("12 3000").unwrap();
        assert_eq!((done.operations, done.took), (12, Duration::from_micros(3)));
        assert!(read_done("12").is_none() && read_done("12 x").is_none());
    }

    #[test]
    fn a_value_tells_the_record_it_belongs_to() {
        let mut value = Vec::new();
        value_of(7, 4, &mut value);
        assert!(is_value(&value, 7, 4) && !is_value(&value, 8, 4) && !is_value(&value, 7, 5));
        value_of(7, 1024, &mut value);
        assert_eq!(value.len(), 4 + 1024);
    }
}
