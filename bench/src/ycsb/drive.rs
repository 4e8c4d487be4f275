//! Driving a system through a stream of operations, and checking what it says.

use crate::generate::keys::stamp;
use crate::generate::operations::{Kind, Operation, scatter};
use crate::latency::Latencies;
use crate::rounds::{Span, rate};
use crate::systems::{BATCH, Entry, Load, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Operations between two looks at the clock.
const CHUNK: usize = 256;

/// A thread's stream and how far it has come.
#[derive(Debug)]
pub struct Lane<'a> {
    stream: &'a [Operation],
    start: usize,
    next: AtomicUsize,
    around: bool,
    refused: AtomicU64,
}

impl<'a> Lane<'a> {
    /// Begins at `start`; goes on from the beginning at the end if `around`, else stops there.
    pub fn new(stream: &'a [Operation], start: usize, around: bool) -> Self {
        Self {
            stream,
            start,
            next: AtomicUsize::new(start),
            around,
            refused: AtomicU64::new(0),
        }
    }

    /// The operations done so far, of a lane that does not go around.
    pub fn executed(&self) -> &'a [Operation] {
        &self.stream[self.start..self.next.load(Ordering::Relaxed)]
    }

    /// Whether every operation did what it should.
    ///
    /// # Errors
    /// How many did not, in words.
    pub fn verdict(&self) -> Result<(), String> {
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            refused => Err(format!(
                "{refused} operations were refused, missed, or got another record's value"
            )),
        }
    }

    /// The next operations, at most `CHUNK`.
    fn chunk(&self, at: &mut usize) -> &'a [Operation] {
        if *at == self.stream.len() && self.around {
            *at = 0;
        }
        let chunk = &self.stream[*at..self.stream.len().min(*at + CHUNK)];
        *at += chunk.len();
        chunk
    }
}

/// In which order records are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By number: a first load.
    Numbered,
    /// All over the set: what a store looks like after a while.
    Scattered,
}

impl Order {
    fn record(self, place: u64, records: u64) -> u32 {
        match self {
            Order::Numbered => place as u32,
            Order::Scattered => scatter(place, records) as u32,
        }
    }
}

/// A system whose inner loop is compiled for it, behind a call that is made once a measurement.
pub trait Subject: Sync {
    /// Runs a thread a lane for the span; operations a second.
    fn rate(&self, lanes: &[Lane<'_>], batch: usize, value: usize, span: Span) -> f64;

    /// Runs a thread a lane for the span, one record a call, and times every call.
    fn latencies(&self, lanes: &[Lane<'_>], value: usize, span: Span) -> Latencies;

    /// Stores records `0..load.records` in this order.
    ///
    /// # Errors
    /// What was not stored or not found again, in words.
    fn load(&self, load: Load, order: Order) -> Result<(), String>;

    /// Removes a record.
    fn forget(&self, id: u32);

    /// What the system complained about.
    fn trouble(&self) -> Option<String>;
}

impl<S: System> Subject for S {
    fn rate(&self, lanes: &[Lane<'_>], batch: usize, value: usize, span: Span) -> f64 {
        let writers = any_writers(lanes);
        rate(lanes.len() as u32, span, |thread, until| {
            let lane = &lanes[thread as usize];
            let threads = lanes.len() as u32;
            self.enter(Entry {
                thread,
                threads,
                writers,
            });
            let mut buffers = Buffers::new(value);
            if batch == 1 {
                go_on(lane, until, |operations| {
                    single(self, operations, &mut buffers)
                })
            } else {
                go_on(lane, until, |operations| {
                    batched(self, operations, &mut buffers)
                })
            }
        })
    }

    fn latencies(&self, lanes: &[Lane<'_>], value: usize, span: Span) -> Latencies {
        let writers = any_writers(lanes);
        let each: Vec<_> = lanes
            .iter()
            .map(|_| Mutex::new(Latencies::default()))
            .collect();
        rate(lanes.len() as u32, span, |thread, until| {
            self.enter(Entry {
                thread,
                threads: lanes.len() as u32,
                writers,
            });
            let mut buffers = Buffers::new(value);
            let mut latencies = Latencies::default();
            let done = go_on(&lanes[thread as usize], until, |operations| {
                timed(self, operations, &mut buffers, &mut latencies)
            });
            // The warm-up comes first, and what it leaves here is overwritten.
            if let Ok(mut place) = each[thread as usize].lock() {
                *place = latencies;
            }
            done
        });
        let mut all = Latencies::default();
        for latencies in each.iter().flat_map(Mutex::lock) {
            all.merge(&latencies);
        }
        all
    }

    fn load(&self, load: Load, order: Order) -> Result<(), String> {
        let mut buffers = Buffers::new(load.value);
        self.enter(Entry {
            thread: 0,
            threads: 1,
            writers: true,
        });
        let looked_at = load.records as usize / 1000 + 1;
        for first in (0..load.records).step_by(BATCH) {
            let batch = first..load.records.min(first + BATCH as u64);
            let ids: Vec<u32> = batch.map(|id| order.record(id, load.records)).collect();
            let stored = self.write_many(&ids, buffers.values_of(&ids));
            let lost = ids.iter().any(|&id| {
                (id as usize).is_multiple_of(looked_at) && !self.read(id, &mut buffers.into)
            });
            if stored != ids.len() || lost {
                let why = System::trouble(self).unwrap_or_else(|| "it does not say why".to_owned());
                return Err(format!("records {ids:?} were not all stored: {why}"));
            }
        }
        Ok(())
    }

    fn forget(&self, id: u32) {
        self.remove(id);
    }

    fn trouble(&self) -> Option<String> {
        System::trouble(self)
    }
}

/// What a thread reads to and writes from.
struct Buffers {
    value: usize,
    into: Vec<u8>,
    from: Vec<u8>,
}

impl Buffers {
    fn new(value: usize) -> Self {
        Self {
            value,
            into: vec![0; value],
            from: vec![0x5A; value * BATCH],
        }
    }

    /// One record's value.
    #[inline]
    fn value_of(&mut self, id: u32) -> &[u8] {
        stamp(&mut self.from[..self.value], id);
        &self.from[..self.value]
    }

    /// At most a batch of values, one after the other.
    #[inline]
    fn values_of(&mut self, ids: &[u32]) -> &[u8] {
        let values = &mut self.from[..ids.len() * self.value];
        for (value, &id) in values.chunks_exact_mut(self.value).zip(ids) {
            stamp(value, id);
        }
        values
    }
}

/// Does chunk after chunk until the time has come; `work` says how many operations went wrong.
fn go_on(lane: &Lane<'_>, until: Instant, mut work: impl FnMut(&[Operation]) -> usize) -> u64 {
    let mut at = lane.next.load(Ordering::Relaxed);
    let (mut done, mut refused) = (0, 0);
    loop {
        let chunk = lane.chunk(&mut at);
        refused += work(chunk);
        done += chunk.len() as u64;
        if chunk.is_empty() || Instant::now() >= until {
            break;
        }
    }
    lane.next.store(at, Ordering::Relaxed);
    lane.refused.fetch_add(refused as u64, Ordering::Relaxed);
    done
}

/// Whether any of the threads will write.
fn any_writers(lanes: &[Lane<'_>]) -> bool {
    let writes = |operation: &Operation| operation.kind() != Kind::Read;
    lanes.iter().any(|lane| lane.stream.iter().any(writes))
}

#[inline]
fn one<S: System>(system: &S, operation: Operation, buffers: &mut Buffers) -> bool {
    let id = operation.record();
    match operation.kind() {
        Kind::Read => system.read(id, &mut buffers.into),
        Kind::Update | Kind::Insert => system.write(id, buffers.value_of(id)),
        Kind::Modify => system.modify(id, &mut buffers.into),
    }
}

#[inline]
fn single<S: System>(system: &S, operations: &[Operation], buffers: &mut Buffers) -> usize {
    let bad = |operation: &&Operation| !one(system, **operation, buffers);
    operations.iter().filter(bad).count()
}

/// As [`single`]; the clock is read once an operation, the end of one being the beginning of the
/// next.
#[inline]
fn timed<S: System>(
    system: &S,
    operations: &[Operation],
    buffers: &mut Buffers,
    latencies: &mut Latencies,
) -> usize {
    let mut refused = 0;
    let mut last = Instant::now();
    for &operation in operations {
        refused += usize::from(!one(system, operation, buffers));
        let now = Instant::now();
        latencies.record(now - last);
        last = now;
    }
    refused
}

/// A batch's reads go in one call and its writes in another, as a server does with a pipeline of
/// independent commands.
#[inline]
fn batched<S: System>(system: &S, operations: &[Operation], buffers: &mut Buffers) -> usize {
    let mut refused = 0;
    for batch in operations.chunks(BATCH) {
        let (mut reads, mut writes) = ([0; BATCH], [0; BATCH]);
        let (mut to_read, mut to_write) = (0, 0);
        for operation in batch {
            let id = operation.record();
            match operation.kind() {
                Kind::Read => {
                    reads[to_read] = id;
                    to_read += 1;
                }
                Kind::Update | Kind::Insert => {
                    writes[to_write] = id;
                    to_write += 1;
                }
                Kind::Modify => refused += usize::from(!system.modify(id, &mut buffers.into)),
            }
        }
        if to_read > 0 {
            refused += to_read - system.read_many(&reads[..to_read], &mut buffers.into);
        }
        if to_write > 0 {
            let writes = &writes[..to_write];
            refused += to_write - system.write_many(writes, buffers.values_of(writes));
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::operations::{Distribution, Mix, Source, stream};
    use crate::systems::take;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    /// A map that forgets one record.
    struct Leaky(Mutex<HashMap<u32, Vec<u8>>>, Option<u32>);

    impl System for Leaky {
        fn read(&self, id: u32, into: &mut [u8]) -> bool {
            let map = self.0.lock().unwrap();
            map.get(&id).is_some_and(|value| take(value, id, into))
        }
        fn write(&self, id: u32, value: &[u8]) -> bool {
            if self.1 != Some(id) {
                self.0.lock().unwrap().insert(id, value.to_vec());
            }
            true
        }
        fn modify(&self, id: u32, into: &mut [u8]) -> bool {
            self.read(id, into)
        }
        fn remove(&self, id: u32) -> bool {
            self.0.lock().unwrap().remove(&id).is_some()
        }
    }

    const LOAD: Load = Load {
        records: 500,
        value: 64,
    };

    fn leaky(forgotten: Option<u32>) -> Leaky {
        Leaky(Mutex::default(), forgotten)
    }

    fn drawn(mix: Mix) -> Vec<Operation> {
        stream(
            mix,
            Distribution::Uniform,
            LOAD.records,
            2000,
            Source {
                seed: 1,
                thread: 0,
                threads: 1,
            },
        )
    }

    fn span(milliseconds: u64) -> Span {
        Span::new(Duration::ZERO, Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_system_that_keeps_everything_passes_single_and_batched() {
        for (mix, batch) in [
            (Mix::Get(50), 1),
            (Mix::Get(50), BATCH),
            (Mix::F, 1),
            (Mix::F, BATCH),
            (Mix::D, 1),
        ] {
            let system = leaky(None);
            system.load(LOAD, Order::Numbered).unwrap();
            system.load(LOAD, Order::Scattered).unwrap();
            let stream = drawn(mix);
            let lanes = [Lane::new(&stream, 100, mix != Mix::D)];
            system.rate(&lanes, batch, LOAD.value, span(5));
            lanes[0].verdict().unwrap();
        }
    }

    #[test]
    fn every_operation_of_the_timed_part_has_a_latency() {
        let system = leaky(None);
        system.load(LOAD, Order::Numbered).unwrap();
        let stream = drawn(Mix::Get(50));
        let lanes = [Lane::new(&stream, 0, false), Lane::new(&stream, 0, false)];
        let latencies = system.latencies(&lanes, LOAD.value, span(10_000));
        lanes[0].verdict().unwrap();
        assert_eq!(latencies.count() as usize, 2 * stream.len());
        assert!(latencies.at(100.0) >= latencies.at(50.0) && latencies.at(50.0) > 0.0);
    }

    #[test]
    fn a_lost_record_is_noticed() {
        let system = leaky(Some(7));
        // Loading samples; the measurement looks at everything.
        let _ = system.load(LOAD, Order::Numbered);
        let stream: Vec<Operation> = (0..LOAD.records)
            .map(|id| Operation::new(Kind::Read, id))
            .collect();
        for batch in [1, BATCH] {
            let lanes = [Lane::new(&stream, 0, false)];
            system.rate(&lanes, batch, LOAD.value, span(10_000));
            assert!(lanes[0].verdict().is_err());
            assert_eq!(
                lanes[0].executed().len(),
                stream.len(),
                "a lane that does not go around ends"
            );
        }
    }
}
