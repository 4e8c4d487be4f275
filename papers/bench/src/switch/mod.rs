//! `switch`: what it costs to reach another's memory (SpaceJMP, figures 1 and 7, table 2).
//!
//! - *by size* (figure 1): mapping a range, touching each of its pages and unmapping it, against
//!   attaching a segment of that size, and against entering one whose addresses another has. How to
//!   read it: the first grows with the size, the others should not.
//! - *enter* (table 2): entering and leaving, with nobody in the way, beside a system call.
//! - *attach*: ten segments of the given size at once.
//! - *by payload* (figure 7): entering a segment and copying data out of it, against asking another
//!   thread for the data, which answers over a socket, or through memory that it watches without
//!   sleeping, and against calling a process that lives in the segment's space (up to the longest
//!   message).

mod asked;

use crate::reside::{self, FIRST, TIMEOUT};
use asked::{Socket, Watched};
use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::{BenchError, file_failed};
use mneme_bench::figure::Figure;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::scratch::{Scratch, space};
use mneme_bench::table::{Table, three};
use mneme_space::{Attachment, EnterError, MAX_MESSAGE, Schema, SegVec, Segment};
use mneme_sys::{Access, PagePolicy, Region};
use serde_json::json;
use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

const MMAP: &str = "mmap, touch, munmap";
const ATTACH: &str = "attach";
const SWITCH: &str = "switch";
const BY_SIZE: [&str; 3] = [MMAP, ATTACH, SWITCH];

const ENTER: &str = "enter";
const SOCKET: &str = "socket";
const WATCHED: &str = "watched memory";
const CALL: &str = "space.call";
const BY_PAYLOAD: [&str; 4] = [ENTER, CALL, SOCKET, WATCHED];

const READ_CASE: &str = "enter and leave, read";
const WRITE_CASE: &str = "enter and leave, write";
const CALL_CASE: &str = "system call";
const DETACH_CASE: &str = "detach them";
const PLAIN: &str = "mneme";
const KERNEL: &str = "getppid";

/// Segments that are attached at once.
const MANY: usize = 10;

/// How much is done.
pub struct Scale {
    /// Sizes by which mapping, attaching and switching are compared, in MiB.
    sizes: &'static [u64],
    /// MiB of each of the segments that are attached at once.
    many: u64,
    payloads: &'static [usize],
    span: Span,
    rounds: usize,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            sizes: options.pick(&[2, 16, 128], &[2, 16, 128, 1024]),
            many: options.pick(64, 1024),
            payloads: &[8, 64, 512, 4 << 10, 32 << 10, 256 << 10],
            span: Span::of(options.pick(40, 300), 3),
            rounds: options.rounds,
        }
    }

    /// The cases by size and by payload.
    fn cases(&self) -> (Cases, Cases) {
        let sizes = self.sizes.iter().map(|&mib| (mib as f64, size_case(mib)));
        let payloads = self.payloads.iter();
        let payloads = payloads.map(|&bytes| (bytes as f64, payload_case(bytes)));
        (sizes.collect(), payloads.collect())
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

/// Cases by the number that a figure shows them at.
type Cases = Vec<(f64, String)>;

fn size_case(mib: u64) -> String {
    format!("{mib} MiB")
}

fn payload_case(bytes: usize) -> String {
    format!("{bytes} B")
}

fn many_case(mib: u64) -> String {
    format!("attach {MANY} segments of {mib} MiB")
}

/// Measures and reports.
///
/// # Errors
/// No memory, a segment that cannot be entered, a file that cannot be written.
pub fn run(scale: &Scale, _: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    enter(scale, &mut ledger)?;
    // One part after the other, so that only one has its memory.
    for &mib in scale.sizes {
        by_size(scale, mib, &mut ledger)?;
    }
    many(scale, &mut ledger)?;
    by_payload(scale, &mut ledger)?;
    print_tables(scale, &ledger);
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({ "page_bytes": 4096, "seconds": scale.span.timed.as_secs_f64() }),
        goals: goals(scale, &ledger),
        ledger,
        notes: vec!["segments in tmpfs, ordinary pages, all in memory before".to_owned()],
    })
}

/// Nanoseconds of one of what `work` does in turn.
fn nanoseconds(
    span: Span,
    mut work: impl FnMut() -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let each = rounds::nanoseconds(span.warm_up, 1, &mut work)?;
    // As many between two looks at the clock as make the look cheap.
    let chunk = (20_000.0 / each).clamp(1.0, 1000.0);
    rounds::nanoseconds(span.timed, chunk as u32, work)
}

fn job<'a>(
    system: &str,
    case: String,
    span: Span,
    mut work: impl FnMut() -> Result<(), BenchError> + 'a,
) -> Job<'a> {
    Job::new(system, case, Metric::Latency, move |_| {
        nanoseconds(span, &mut work)
    })
}

fn attach(segment: &Segment, access: Access) -> Result<Attachment, BenchError> {
    Attachment::new([(segment, access)]).map_err(space)
}

fn enter(scale: &Scale, ledger: &mut Ledger) -> Result<(), BenchError> {
    let scratch = Scratch::new("switch", 4 * MIB)?;
    let segment = scratch.segment("entered", 2 * MIB)?;
    let attached = attach(&segment, Access::ReadWrite)?;
    let span = scale.span;
    let jobs = vec![
        job(PLAIN, READ_CASE.to_owned(), span, || {
            attached.read(|here| _ = black_box(here)).map_err(space)
        }),
        job(PLAIN, WRITE_CASE.to_owned(), span, || {
            attached.enter(|here| _ = black_box(here)).map_err(space)
        }),
        job(KERNEL, CALL_CASE.to_owned(), span, || {
            black_box(std::os::unix::process::parent_id());
            Ok(())
        }),
    ];
    rounds::run(jobs, scale.rounds, ledger)
}

/// Brings all pages of a segment into memory, and into the page tables of whoever keeps it
/// attached.
fn touch(segment: &Segment) -> Result<(), BenchError> {
    let mapping = segment.map(Access::ReadWrite).map_err(space)?;
    mapping.prefault(0..mapping.len())?;
    Ok(())
}

fn by_size(scale: &Scale, mib: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    let bytes = mib * MIB;
    let scratch = Scratch::new("switch", 3 * bytes)?;
    let [plain, one] = ["plain", "one"].map(|name| scratch.segment(name, bytes));
    let (plain, one) = (plain?, one?);
    let other = scratch.segment_at("other", bytes, one.base())?;
    let rivals = [
        attach(&one, Access::ReadWrite)?,
        attach(&other, Access::ReadWrite)?,
    ];
    for segment in [&plain, &one, &other] {
        touch(segment)?;
    }
    let path = plain.info().map_err(space)?.data;
    let mapped = || {
        let file = File::open(&path).map_err(file_failed(&path))?;
        let max = bytes as usize;
        let region = Region::map(file.into(), Access::ReadOnly, max, PagePolicy::Small)?;
        for at in (0..region.len()).step_by(4096) {
            black_box(region.load_u64(at as u64)?);
        }
        Ok(())
    };
    let mut turn = 0;
    let span = scale.span;
    let jobs = vec![
        job(MMAP, size_case(mib), span, mapped),
        job(ATTACH, size_case(mib), span, || {
            attach(&plain, Access::ReadWrite).map(|attached| drop(black_box(attached)))
        }),
        job(SWITCH, size_case(mib), span, || {
            turn ^= 1;
            let rival: &Attachment = &rivals[turn];
            rival.enter(|here| _ = black_box(here)).map_err(space)
        }),
    ];
    rounds::run(jobs, scale.rounds, ledger)
}

fn many(scale: &Scale, ledger: &mut Ledger) -> Result<(), BenchError> {
    let bytes = scale.many * MIB;
    let scratch = Scratch::new("switch", MANY as u64 * bytes)?;
    let space_of_many = scratch.space("many")?;
    for number in 0..MANY {
        let segment = scratch.segment(&format!("{number}"), bytes)?;
        space_of_many
            .add(&segment, Access::ReadWrite)
            .map_err(space)?;
    }
    // Each by itself: what is attached must be given up before it can be attached again.
    let each = |attaching: bool| {
        let timed = scale.span.timed;
        let space_of_many = &space_of_many;
        move |_| {
            let (start, mut took, mut times) = (Instant::now(), Duration::ZERO, 0);
            while start.elapsed() < timed || times == 0 {
                let before = Instant::now();
                let attached = space_of_many.attach().map_err(space)?;
                let between = Instant::now();
                drop(black_box(attached));
                took += if attaching {
                    between - before
                } else {
                    between.elapsed()
                };
                times += 1;
            }
            Ok(took.as_nanos() as f64 / f64::from(times))
        }
    };
    let job =
        |case: String, attaching: bool| Job::new(PLAIN, case, Metric::Latency, each(attaching));
    let jobs = vec![
        job(many_case(scale.many), true),
        job(DETACH_CASE.to_owned(), false),
    ];
    rounds::run(jobs, scale.rounds, ledger)
}

/// Bytes of a segment.
pub struct Bytes;

impl Schema for Bytes {
    type Root<'s> = SegVec<'s, u8>;
}

fn by_payload(scale: &Scale, ledger: &mut Ledger) -> Result<(), BenchError> {
    const NAME: &str = "data";
    let largest = scale.payloads.iter().copied().max().unwrap_or(1);
    let data: Arc<[u8]> = (0..largest).map(|i| i as u8).collect();
    let scratch = Scratch::new("switch", 4 * MIB)?;
    let segment = scratch.segment(NAME, 2 * MIB + largest as u64)?;
    let filled = attach(&segment, Access::ReadWrite)?.enter(|here| {
        let filled = |heap| {
            let mut bytes = SegVec::new_in(heap);
            bytes.extend_from_slice(&data);
            bytes
        };
        here.create_root::<Bytes>(NAME, filled).map(|_| ())
    });
    filled.map_err(space)?.map_err(space)?;
    let attached = attach(&segment, Access::ReadOnly)?;
    let lives_in = scratch.space(NAME)?;
    lives_in.add(&segment, Access::ReadOnly).map_err(space)?;
    let _resident = reside::start(&lives_in)?;
    let calls = lives_in.calls().map_err(space)?;
    let mut caller = calls.caller().map_err(space)?;
    let mut reply = Vec::new();
    for &payload in scale.payloads {
        let case = payload_case(payload);
        let wanted = (payload as u64).to_le_bytes();
        let span = scale.span;
        let (mut mine, mut sent, mut seen) = (vec![0; payload], vec![0; payload], vec![0; payload]);
        let mut socket = Socket::new(Arc::clone(&data))?;
        let enter = || {
            let copied = attached.try_read(|here| {
                mine.copy_from_slice(&here.root::<Bytes>(NAME)?[..payload]);
                Ok::<_, EnterError>(())
            });
            black_box(&mut mine);
            copied.map_err(space)
        };
        let mut jobs = vec![
            job(ENTER, case.clone(), span, enter),
            job(SOCKET, case.clone(), span, || socket.ask(&mut sent)),
            // While nobody asks, nobody watches: it would cost the others a core.
            Job::new(WATCHED, case, Metric::Latency, |_| {
                let mut watched = Watched::new(Arc::clone(&data));
                nanoseconds(span, || {
                    watched.ask(&mut seen);
                    Ok(())
                })
            }),
        ];
        if payload <= MAX_MESSAGE {
            jobs.push(job(CALL, payload_case(payload), span, || {
                let called = caller.call_into(FIRST, &wanted, &mut reply, TIMEOUT);
                called.map_err(space)?;
                if black_box(&reply).len() == payload {
                    Ok(())
                } else {
                    Err(BenchError::Space("a call's answer is too short".to_owned()))
                }
            }));
        }
        rounds::run(jobs, scale.rounds, ledger)?;
    }
    Ok(())
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let goal = |text: String, target, system: &str, case: &str, unit: f64| {
        let values = ledger.values(system, case).iter();
        Goal::at_most(text, target, values.map(|ns| ns / unit).collect())
    };
    let (many, largest) = (many_case(scale.many), size_case(scale.largest()));
    let switch = format!("switch to a segment of the same addresses, {largest}, us");
    let payload = payload_case(8);
    vec![
        goal(format!("{many}, us"), 200.0, PLAIN, &many, 1e3),
        goal(format!("{READ_CASE}, ns"), 60.0, PLAIN, READ_CASE, 1.0),
        goal(format!("{WRITE_CASE}, ns"), 100.0, PLAIN, WRITE_CASE, 1.0),
        goal(switch, 20.0, SWITCH, &largest, 1e3),
        goal(format!("{CALL}, {payload}, us"), 4.0, CALL, &payload, 1e3),
    ]
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let mut table = Table::new(["", "ns", "min", "max"]);
    let many = many_case(scale.many);
    let rows = [
        (PLAIN, READ_CASE),
        (PLAIN, WRITE_CASE),
        (KERNEL, CALL_CASE),
        (PLAIN, &many),
        (PLAIN, DETACH_CASE),
    ];
    for (system, case) in rows {
        let cells = three(ledger.values(system, case));
        table.row([case.to_owned()].into_iter().chain(cells));
    }
    table.print("nanoseconds, nobody in the way");
    let (sizes, payloads) = scale.cases();
    for (head, systems, cases) in [
        ("size", &BY_SIZE[..], sizes),
        ("payload", &BY_PAYLOAD, payloads),
    ] {
        let cases = cases.into_iter().map(|(_, case)| case);
        ledger
            .compared(head, systems, cases, 1.0)
            .print(format_args!(
                "nanoseconds by {head}; in brackets, the first over it"
            ));
    }
}

fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let (sizes, payloads) = scale.cases();
    let axes = |across: &str| (Axis::log(across), Axis::log("ns"));
    let title = "Reaching memory, by its size";
    let by_size = Curves::of(ledger, title, axes("MiB"), &BY_SIZE, &sizes);
    let title = "Reading another's data, by payload";
    let by_payload = Curves::of(ledger, title, axes("bytes"), &BY_PAYLOAD, &payloads);
    vec![
        Figure::new("switch-size.svg", by_size),
        Figure::new("switch-payload.svg", by_payload),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_part() {
        let scale = Scale {
            sizes: &[2],
            many: 2,
            payloads: &[8, 5000],
            span: Span::of(1, 1),
            rounds: 1,
        };
        let report = run(&scale, &common()).unwrap();
        let (size, payload) = (size_case(2), payload_case(5000));
        assert_well_formed(&report, &[READ_CASE, &size, &payload, &many_case(2)]);
        for system in BY_SIZE {
            assert!(report.ledger.values(system, &size)[0] > 0.0, "{system}");
        }
        for system in BY_PAYLOAD {
            assert!(report.ledger.values(system, &payload)[0] > 0.0, "{system}");
        }
    }
}
