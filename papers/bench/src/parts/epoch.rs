//! Three ways to say when an operation began (Nibble, §5.1 and fig. 8a), under the same operation.
//!
//! All three write to a line of the thread's own when an operation begins and ends. They differ in
//! where the time comes from and in what orders that line before the operation's loads:
//! - *ours*: an epoch that only reclaimers advance, and a barrier that only reclaimers pay;
//! - *tsc*: the processor's time stamp, as in the paper, and a full fence;
//! - *counter*: a shared counter that every operation bumps, and a full fence.
//!
//! The two models do what a thread does that reads and writes, and nothing of what a reclaimer
//! does.

use mneme_bench::error::{BenchError, failed};
use mneme_bench::generate::random::{Random, mix};
use mneme_bench::ledger::Metric;
use mneme_bench::rounds::{Job, Span, rate_of};
use mneme_bench::systems::bare::BareRecords;
use mneme_bench::systems::{Entry, Load, System};
use mneme_sync::{ControlOptions, Participants};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The names in reports, the first ours.
pub const SYSTEMS: [&str; 3] = ["ours", "tsc", "counter"];

/// Operations between two looks at the clock.
const CHUNK: u32 = 256;

/// Bytes of a value.
const VALUE: usize = 1024;

/// A slot that says that its thread is not in an operation.
const OUTSIDE: u64 = u64::MAX;

/// What is done within the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// A copy of a record at a random place.
    Get,
    /// Copies out and copies in, in equal numbers.
    Mix,
}

impl Work {
    const ALL: [Work; 3] = [Work::Nothing, Work::Get, Work::Mix];

    fn name(self) -> &'static str {
        match self {
            Work::Nothing => "nothing",
            Work::Get => "get 1024B",
            Work::Mix => "mix 1024B",
        }
    }
}

/// The case's name in reports.
pub fn case(work: Work, threads: u32) -> String {
    format!("epoch around {} {threads}t", work.name())
}

/// A thread's line in the table of operations under way.
#[repr(align(128))]
struct Slot(AtomicU64);

/// Where a thread's time of entry comes from.
trait Source: Sync {
    /// Runs `operation` as one that thread `thread` began now.
    fn within(&self, thread: usize, operation: impl FnOnce());
}

/// Ours.
struct Ours(Participants);

impl Source for Ours {
    #[inline]
    fn within(&self, _: usize, operation: impl FnOnce()) {
        if let Ok(pin) = self.0.pin() {
            operation();
            drop(black_box(pin));
        }
    }
}

/// A model whose time is what `now` says.
struct Model<F> {
    slots: Vec<Slot>,
    now: F,
}

impl<F: Fn() -> u64 + Sync> Model<F> {
    fn new(threads: usize, now: F) -> Self {
        let slots = (0..threads).map(|_| Slot(AtomicU64::new(OUTSIDE)));
        Self {
            slots: slots.collect(),
            now,
        }
    }
}

impl<F: Fn() -> u64 + Sync> Source for Model<F> {
    #[inline]
    fn within(&self, thread: usize, operation: impl FnOnce()) {
        let slot = &self.slots[thread].0;
        slot.store((self.now)(), Ordering::Relaxed);
        // SYNC: pairs with the fence of a reclaimer that would read all slots before it frees
        // anything.
        fence(Ordering::SeqCst);
        operation();
        // SYNC: pairs with the reclaimer's load of the slot: the operation's loads come before it.
        slot.store(OUTSIDE, Ordering::Release);
    }
}

/// Jobs for all three around every kind of work, on records that are there, for these numbers of
/// threads.
///
/// # Errors
/// [`BenchError::Store`].
pub fn jobs<'a>(
    records: &'a BareRecords,
    load: Load,
    threads: &[u32],
    span: Span,
    seed: u64,
) -> Result<Vec<Job<'a>>, BenchError> {
    let mut jobs = Vec::new();
    for work in Work::ALL {
        for &threads in threads {
            let place = Place {
                records,
                load,
                work,
                threads,
                span,
                seed,
            };
            let participants =
                Participants::private(ControlOptions::new([0; 16])).map_err(failed)?;
            let slots = threads as usize;
            jobs.push(place.job(SYSTEMS[0], Ours(participants)));
            jobs.push(place.job(SYSTEMS[1], Model::new(slots, mneme_sys::time_stamp)));
            let counter = AtomicU64::new(0);
            // The order of bumps among threads is all that a counter gives; the fence behind it
            // does the rest.
            let bump = move || counter.fetch_add(1, Ordering::Relaxed);
            jobs.push(place.job(SYSTEMS[2], Model::new(slots, bump)));
        }
    }
    Ok(jobs)
}

/// What a source is measured on.
#[derive(Clone, Copy)]
struct Place<'a> {
    records: &'a BareRecords,
    load: Load,
    work: Work,
    threads: u32,
    span: Span,
    seed: u64,
}

impl<'a> Place<'a> {
    fn job<S: Source + 'a>(self, system: &str, source: S) -> Job<'a> {
        Job::new(
            system,
            case(self.work, self.threads),
            Metric::Throughput,
            move |round| Ok(self.rate(&source, round as u64) / 1e6),
        )
    }

    fn rate(&self, source: &impl Source, round: u64) -> f64 {
        rate_of(self.threads, self.span, CHUNK, |thread| {
            self.records.enter(Entry {
                thread,
                threads: self.threads,
                writers: self.work == Work::Mix,
            });
            let mut random = Random::new(mix(self.seed ^ round ^ u64::from(thread) << 32));
            let mut value = vec![0; VALUE];
            move || {
                match self.work {
                    Work::Nothing => source.within(thread as usize, || {}),
                    Work::Get | Work::Mix => {
                        let drawn = random.below(2 * self.load.records);
                        let id = (drawn / 2) as u32;
                        let write = self.work == Work::Mix && drawn.is_multiple_of(2);
                        source.within(thread as usize, || {
                            black_box(match write {
                                true => self.records.write(id, &value),
                                false => self.records.read(id, &mut value),
                            });
                        });
                    }
                }
                1
            }
        })
    }
}

/// The records that operations are done on.
pub fn load(records: u64) -> Load {
    Load {
        records,
        value: VALUE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_inside_during_the_operation_and_outside_after_it() {
        let model = Model::new(2, || 7);
        let slot = |thread: usize| model.slots[thread].0.load(Ordering::Relaxed);
        model.within(1, || assert_eq!((slot(0), slot(1)), (OUTSIDE, 7)));
        assert_eq!(slot(1), OUTSIDE);
    }

    #[test]
    fn a_time_stamp_epoch_advances() {
        let first = mneme_sys::time_stamp();
        assert!((0..1000).any(|_| mneme_sys::time_stamp() > first));
    }
}
