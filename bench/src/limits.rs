//! `limits`: what this machine's memory can do, with nothing of a store about it.
//!
//! Copies of records at random places (strides as in a store's log: header, key, value), dependent
//! loads (each address is in the line before), read-modify-writes of random words, writing from end
//! to end, and the first touch of fresh memory; on 4 KiB pages and on huge ones, in turn.

use crate::error::BenchError;
use crate::figure::{Bars, Figure};
use crate::generate::random::{Random, mix};
use crate::ledger::{Ledger, Metric};
use crate::memory::Bare;
use crate::options::Common;
use crate::report::Report;
use crate::rounds::{self, Job, Span, rate_of};
use crate::table::{Table, median, three};
use crate::{goals::Goal, systems};
use mneme_sys::{PagePolicy, Region};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Names of the page kinds, as systems of the comparison.
const SMALL: &str = "4 KiB pages";
const HUGE: &str = "huge pages";

/// Bytes from one line to the next in the chase and the updates.
const LINE: usize = 64;
/// Operations between two looks at the clock.
const CHUNK: u32 = 1024;

/// How much is done.
pub struct Scale {
    bytes: usize,
    fresh: usize,
    span: Span,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            bytes: options.pick(768 << 20, 4 << 30),
            fresh: options.pick(64 << 20, 1 << 30),
            span: Span::of(options.pick(60, 800), 10),
        }
    }
}

/// A record size copied in the measurement.
fn copy_case(value: usize, threads: u32) -> String {
    format!("random copy {value} B, {threads} thread(s)")
}

const CHASE: &str = "dependent load";
const WRITE: &str = "sequential write";
const TOUCH: &str = "first touch";

fn update_case(threads: u32) -> String {
    format!("random update 8 B, {threads} thread(s)")
}

/// Measures and reports.
///
/// # Errors
/// No memory, or a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let memories = [
        (SMALL, PagePolicy::Small, prepare(scale, PagePolicy::Small)?),
        (HUGE, PagePolicy::Huge, prepare(scale, PagePolicy::Huge)?),
    ];
    let mut notes = Vec::new();
    for (name, _, memory) in &memories {
        let pages = memory.pages();
        println!(
            "{name}: {:?}, {} of {} MiB huge",
            pages.kind,
            pages.huge_bytes >> 20,
            memory.bytes() >> 20
        );
        notes.extend(pages.warning);
    }
    let mut jobs = Vec::new();
    for (name, _, memory) in &memories {
        jobs.push(chase(name, memory, scale)?);
    }
    for (name, policy, _) in &memories {
        jobs.push(first_touch(name, *policy, scale.fresh));
    }
    for value in [100, 1024] {
        for &threads in &options.threads {
            for (name, _, memory) in &memories {
                jobs.push(copies(name, memory, value, threads, scale, options.seed));
            }
        }
    }
    for &threads in &options.threads {
        for (name, _, memory) in &memories {
            jobs.push(updates(name, memory, threads, scale, options.seed)?);
        }
    }
    for (name, _, memory) in &memories {
        jobs.push(writes(name, memory, scale)?);
    }
    let mut ledger = Ledger::default();
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print_table(&ledger);
    Ok(Report {
        figures: figures(&ledger),
        params: json!({ "bytes": scale.bytes, "seconds": scale.span.timed.as_secs_f64() }),
        goals: goals(&ledger),
        ledger,
        notes,
    })
}

/// Memory of which the first half is one random cycle of lines.
fn prepare(scale: &Scale, policy: PagePolicy) -> Result<Bare, BenchError> {
    let memory = Bare::new(scale.bytes, policy)?;
    let lines = chased_lines(&memory);
    let words = memory.words(0, lines * LINE / 8)?;
    // The cycle visits the lines in the order of a bijection of their numbers, so that it needs no
    // table.
    for step in 0..lines {
        let (here, next) = (place(step, lines), place((step + 1) % lines, lines));
        words[here * LINE / 8].store(next as u64, Ordering::Relaxed);
    }
    Ok(memory)
}

/// The largest power of two of lines in half of the memory.
fn chased_lines(memory: &Bare) -> usize {
    let lines = memory.bytes() / 2 / LINE;
    1 << lines.ilog2()
}

/// A bijection on `0..lines`, a power of two.
fn place(step: usize, lines: usize) -> usize {
    let bits = lines.ilog2();
    let mask = lines - 1;
    let half = bits.div_ceil(2);
    let mut x = step;
    for odd in [
        0x9E37_79B9_7F4A_7C15_u64,
        0xBF58_476D_1CE4_E5B9,
        0x94D0_49BB_1331_11EB,
    ] {
        x = x.wrapping_mul(odd as usize) & mask;
        x ^= x >> half;
    }
    x
}

/// The half of the memory that is not chased through.
fn free_half(memory: &Bare) -> (usize, usize) {
    (memory.bytes() / 2, memory.bytes() / 2)
}

fn copies<'a>(
    name: &str,
    memory: &'a Bare,
    value: usize,
    threads: u32,
    scale: &Scale,
    seed: u64,
) -> Job<'a> {
    let (span, stride) = (scale.span, systems::bare::stride(value));
    // Copies only read, so they may use all of it.
    let records = (memory.bytes() / stride) as u64;
    let measure = move |round: usize| {
        let copy = |thread: u32| {
            let mut random = Random::new(mix(seed ^ (u64::from(thread) << 32 | round as u64)));
            let mut into = vec![0; value];
            move || {
                // SAFETY: jobs take turns, and the threads of this one only read.
                unsafe { memory.copy_out(random.below(records) as usize * stride, &mut into) };
                std::hint::black_box(&mut into);
                1
            }
        };
        Ok(rate_of(threads, span, CHUNK, copy) / 1e6)
    };
    Job::new(name, copy_case(value, threads), Metric::Throughput, measure)
}

fn updates<'a>(
    name: &str,
    memory: &'a Bare,
    threads: u32,
    scale: &Scale,
    seed: u64,
) -> Result<Job<'a>, BenchError> {
    let (offset, bytes) = free_half(memory);
    let words = memory.words(offset, bytes / 8)?;
    let (span, lines) = (scale.span, (bytes / LINE) as u64);
    let measure = move |round: usize| {
        let update = |thread: u32| {
            let mut random = Random::new(mix(seed ^ (u64::from(thread) << 32 | round as u64)));
            move || {
                let drawn = random.below(lines);
                let word = &words[drawn as usize * (LINE / 8)];
                // Not an atomic read-modify-write: the limit is that of plain loads and stores.
                word.store(word.load(Ordering::Relaxed) ^ drawn, Ordering::Relaxed);
                1
            }
        };
        Ok(rate_of(threads, span, CHUNK, update) / 1e6)
    };
    Ok(Job::new(
        name,
        update_case(threads),
        Metric::Throughput,
        measure,
    ))
}

fn chase<'a>(name: &str, memory: &'a Bare, scale: &Scale) -> Result<Job<'a>, BenchError> {
    let words = memory.words(0, chased_lines(memory) * LINE / 8)?;
    let span = scale.span;
    let line = AtomicU64::new(0);
    let measure = move |_| {
        let chase = |_| {
            let line = &line;
            // As many as make the start cheap.
            || {
                let mut at = line.load(Ordering::Relaxed);
                for _ in 0..CHUNK {
                    at = words[at as usize * (LINE / 8)].load(Ordering::Relaxed);
                }
                line.store(at, Ordering::Relaxed);
                u64::from(CHUNK)
            }
        };
        Ok(1e9 / rate_of(1, span, 1, chase))
    };
    Ok(Job::new(name, CHASE, Metric::Latency, measure))
}

fn writes<'a>(name: &str, memory: &'a Bare, scale: &Scale) -> Result<Job<'a>, BenchError> {
    const BLOCK: usize = 64 << 10;
    let (offset, bytes) = free_half(memory);
    let (span, blocks) = (scale.span, bytes / BLOCK);
    let block = vec![0xA5u8; BLOCK];
    let next = AtomicU64::new(0);
    let measure = move |_| {
        let write = || {
            let at = next.fetch_add(1, Ordering::Relaxed) as usize % blocks;
            // SAFETY: jobs take turns, and this one has one thread.
            unsafe { memory.copy_in(offset + at * BLOCK, &block) };
            BLOCK as u64
        };
        Ok(rate_of(1, span, 1, |_| write) / 1e9)
    };
    Ok(Job::new(name, WRITE, Metric::Bandwidth, measure))
}

/// One write to every 4 KiB of memory that nobody has touched.
fn first_touch<'a>(name: &str, policy: PagePolicy, bytes: usize) -> Job<'a> {
    let measure = move |_| {
        let region = Region::private(bytes, bytes, policy)?;
        let words: &[AtomicU64] = region.slice_at(0, region.len() / 8)?;
        let start = Instant::now();
        for word in words.iter().step_by(4096 / 8) {
            word.store(1, Ordering::Relaxed);
        }
        Ok(start.elapsed().as_secs_f64() / (region.len() as f64 / (1u64 << 30) as f64))
    };
    Job::new(name, TOUCH, Metric::FirstTouch, measure)
}

fn cases(ledger: &Ledger) -> Vec<(String, Metric)> {
    let of_small = ledger.series().iter().filter(|s| s.system == SMALL);
    of_small.map(|s| (s.case.clone(), s.metric)).collect()
}

fn print_table(ledger: &Ledger) {
    let mut table = Table::new(["case", "unit", SMALL, HUGE, "huge / 4 KiB", "min", "max"]);
    for (case, metric) in cases(ledger) {
        let [small, huge] = [SMALL, HUGE].map(|system| median(ledger.values(system, &case), 1.0));
        let ratio = three(&ledger.ratios((HUGE, &case), (SMALL, &case)));
        let head = [case, metric.unit().to_owned(), small, huge];
        table.row(head.into_iter().chain(ratio));
    }
    println!("\n{table}");
}

/// The goal: huge pages are worth asking for. On a machine where they are not, the page policy
/// should be reconsidered.
fn goals(ledger: &Ledger) -> Vec<Goal> {
    let gain = |case: &str| ledger.ratios((HUGE, case), (SMALL, case));
    vec![
        Goal::at_least(
            "random copy 1 KiB: huge / 4 KiB pages",
            1.0,
            gain(&copy_case(1024, 1)),
        ),
        Goal::at_most("dependent load: huge / 4 KiB pages", 1.0, gain(CHASE)),
        Goal::at_most("first touch of 4 GiB on huge pages, seconds", 1.5, {
            ledger
                .values(HUGE, TOUCH)
                .iter()
                .map(|seconds| seconds * 4.0)
                .collect()
        }),
    ]
}

fn figures(ledger: &Ledger) -> Vec<Figure> {
    let bars = |metric: Metric, file: &str| {
        let of_metric = cases(ledger)
            .into_iter()
            .filter(|(_, other)| *other == metric);
        let cases = of_metric.map(|(case, _)| (case.replace(" thread(s)", "t"), case));
        let title = format!("Limits of this machine's memory: {}", metric.name());
        Figure::new(file, Bars::of(ledger, title, metric, &[SMALL, HUGE], cases))
    };
    vec![
        bars(Metric::Throughput, "limits-throughput.svg"),
        bars(Metric::Latency, "limits-latency.svg"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::common;
    use std::collections::HashSet;

    #[test]
    fn the_chase_visits_every_line_once() {
        for lines in [2, 64, 1 << 13, 1 << 14] {
            let places: HashSet<usize> = (0..lines).map(|step| place(step, lines)).collect();
            assert_eq!(places.len(), lines);
        }
        let scale = Scale {
            bytes: 2 << 20,
            fresh: 0,
            span: Scale::of(&common()).span,
        };
        let memory = prepare(&scale, PagePolicy::Small).unwrap();
        let lines = chased_lines(&memory);
        let words = memory.words(0, lines * LINE / 8).unwrap();
        let (mut at, mut steps) = (0, 0);
        loop {
            at = words[at * LINE / 8].load(Ordering::Relaxed) as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, lines);
    }
}
