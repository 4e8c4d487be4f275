//! `postmark`: time to completion of a file-system benchmark's trace (Nibble, fig. 10-12).
//!
//! Every thread runs the whole trace (see [`trace`]) on files of its own, so that more threads are
//! more work (weak scaling): the time should not grow with them. Our store has as much memory as
//! makes the largest set of rows 17 % of it, as in the paper; a second comparison takes memory away
//! from it until 90 %, which is what compaction costs. Peers have no bound, and their allocator has
//! been through a whole trace before the first round, as has our log.
//!
//! How to read it: seconds, and every other system's over ours, round by round; above 1 we are
//! faster. In the sweep, seconds over those at 17 %: Nibble's doubled at 65 % and more than doubled
//! at 80 %. Every GET is checked for whose row it found and for its length. Redis is left out: a
//! round trip for each of dependent operations measures the socket.

pub mod trace;

use crate::options::Postmark;
use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::{BenchError, failed};
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::generate::keys::{stamp, stamp_of};
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::{Common, chosen};
use mneme_bench::progress;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, joined};
use mneme_bench::systems::mneme::{APPEND, POLICIES};
use mneme_bench::systems::strings::{Strings, peer};
use mneme_bench::table::{Table, beside_range, figure, median, three};
use mneme_log::{LogStore, MIN_CAPACITY, UpdatePolicy};
use serde_json::json;
use std::sync::Barrier;
use std::time::Instant;
use trace::{Kind, Step, Trace, key};

/// Live share of our store beside the peers.
const LOW: f64 = 0.17;

/// The live share at which the paper's store needed more than twice the time.
const HIGH: f64 = 0.80;

/// Our store's name in reports, by policy.
fn ours(policy: &str) -> String {
    format!("mneme {policy}")
}

/// How much is done.
pub struct Scale {
    /// Files of a thread at a time.
    files: u32,
    /// Transactions of a thread.
    transactions: u32,
    /// Live shares of the sweep, the first [`LOW`].
    shares: &'static [f64],
    threads: Vec<u32>,
    peers: Vec<String>,
}

impl Scale {
    /// For these options.
    pub fn of(common: &Common, options: &Postmark) -> Self {
        Self {
            files: common.pick(16_000, 60_000),
            transactions: common.pick(30_000, 600_000),
            shares: common.pick(&[LOW, 0.50, HIGH], &[LOW, 0.35, 0.50, 0.65, HIGH, 0.90]),
            threads: common.threads.clone(),
            peers: chosen(&options.peers),
        }
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a system that loses rows, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let trace = Trace::new(scale.files, scale.transactions, options.seed);
    println!(
        "{} files and {} transactions a thread: {} operations, {} MiB at most\n",
        scale.files,
        scale.transactions,
        trace.steps.len(),
        trace.peak >> 20
    );
    let mut ledger = Ledger::default();
    for &threads in &scale.threads {
        let mut subjects = Vec::new();
        let case = || against(threads);
        for &policy in POLICIES {
            subjects.push(Subject::ours(policy, &trace, threads, LOW, case())?);
        }
        for name in &scale.peers {
            subjects.push(Subject {
                system: name.clone(),
                case: case(),
                threads,
                store: peer(name)?,
            });
        }
        measure(options.rounds, &subjects, &trace, &mut ledger)?;
    }
    let threads = most_threads(scale);
    for &policy in POLICIES {
        let at = |&share: &f64| {
            let case = sweep(share, threads);
            Subject::ours(policy, &trace, threads, share, case)
        };
        let subjects = scale.shares.iter().map(at).collect::<Result<Vec<_>, _>>()?;
        measure(options.rounds, &subjects, &trace, &mut ledger)?;
    }
    print_tables(scale, &ledger);
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({
            "files": scale.files,
            "transactions": scale.transactions,
            "operations": trace.steps.len(),
            "peak_bytes": trace.peak,
            "threads": scale.threads,
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes: Vec::new(),
    })
}

/// A system, how many threads run on it, and under which case.
struct Subject {
    system: String,
    case: String,
    threads: u32,
    store: Box<dyn Strings>,
}

impl Subject {
    fn ours(
        policy: (&str, UpdatePolicy),
        trace: &Trace,
        threads: u32,
        share: f64,
        case: String,
    ) -> Result<Self, BenchError> {
        let bytes = (u64::from(threads) * trace.peak) as f64 / share;
        let store = LogStore::builder()
            .capacity((bytes as u64).max(MIN_CAPACITY))
            .update_policy(policy.1)
            .open_private()
            .map_err(failed)?;
        Ok(Self {
            system: ours(policy.0),
            case,
            threads,
            store: Box::new(store),
        })
    }

    /// Runs the trace on every thread at once; seconds until the last has done.
    fn complete(&self, trace: &Trace) -> Result<f64, BenchError> {
        let together = Barrier::new(self.threads as usize + 1);
        let (taken, ends) = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        run_steps(self.store.as_ref(), &trace.steps, thread)
                    })
                })
                .collect();
            together.wait();
            let start = Instant::now();
            let ends: Vec<_> = runs.into_iter().map(joined).collect();
            (start.elapsed(), ends)
        });
        match ends.into_iter().collect() {
            Ok(()) => Ok(taken.as_secs_f64()),
            Err::<(), String>(what) => Err(BenchError::wrong(&self.system, &self.case, what)),
        }
    }
}

fn run_steps(store: &dyn Strings, steps: &[Step], thread: u32) -> Result<(), String> {
    let longest = trace::FILE_BYTES.1 as usize;
    let (mut into, mut from) = (vec![0; longest], vec![0x5A; longest]);
    for (at, step) in steps.iter().enumerate() {
        let key = key(thread, step.row);
        let good = match step.kind {
            Kind::Get => {
                let found = store.get(&key, &mut into)?;
                found == Some(usize::from(step.bytes)) && stamp_of(&into) == u64::from(step.row)
            }
            Kind::Insert | Kind::Overwrite => {
                stamp(&mut from, step.row);
                store.put(&key, &from[..usize::from(step.bytes)])?;
                true
            }
            Kind::Delete => store.del(&key)?,
        };
        if !good {
            return Err(format!("step {at}, {step:?}: something else was there"));
        }
    }
    Ok(())
}

/// One unmeasured run of each, then the rounds.
fn measure(
    rounds: usize,
    subjects: &[Subject],
    trace: &Trace,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let mut jobs = Vec::new();
    for subject in subjects {
        let Subject { system, case, .. } = subject;
        progress::show(format_args!("{system}, first run"));
        subject.complete(trace)?;
        jobs.push(Job::new(system, case, Metric::Duration, |_| {
            subject.complete(trace)
        }));
    }
    rounds::run(jobs, rounds, ledger)
}

fn against(threads: u32) -> String {
    format!("time to completion, {threads}t")
}

fn sweep(share: f64, threads: u32) -> String {
    format!("time to completion at {share:.2}, {threads}t")
}

fn most_threads(scale: &Scale) -> u32 {
    scale.threads.iter().copied().max().unwrap_or(1)
}

/// Time at a live share over the time at the lowest.
fn over_low(ledger: &Ledger, system: &str, share: f64, threads: u32) -> Vec<f64> {
    ledger.ratios(
        (system, &sweep(share, threads)),
        (system, &sweep(LOW, threads)),
    )
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let threads = most_threads(scale);
    let case = against(threads);
    let ours = &ours(APPEND);
    vec![
        Goal::at_most(
            format!("time at {HIGH:.2} live over that at {LOW:.2} (the paper: more than 2)"),
            2.0,
            over_low(ledger, ours, HIGH, threads),
        ),
        Goal::at_least(
            format!("DashMap's time over ours, {threads} thread(s)"),
            1.0,
            ledger.ratios(("dashmap", &case), (ours, &case)),
        ),
    ]
}

fn names(peers: &[String]) -> Vec<String> {
    let ours = POLICIES.iter().map(|(policy, _)| ours(policy));
    ours.chain(peers.iter().cloned()).collect()
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let ours = &ours(APPEND);
    let systems = names(&scale.peers);
    let threads = scale.threads.iter();
    let rows = threads.map(|&threads| (threads.to_string(), against(threads)));
    let cell = |system: &str, case: &String| {
        let over = ledger.ratios((system, case), (ours, case));
        beside_range(ledger.values(system, case), &over)
    };
    Table::grid("threads", &systems, rows, cell)
        .print("seconds to completion; in brackets over ours, round by round");
    let threads = most_threads(scale);
    let mut table = Table::new(["system", "live", "seconds", "/ 0.17", "min", "max"]);
    for (policy, _) in POLICIES {
        let system = &self::ours(policy);
        for &share in scale.shares {
            let seconds = median(ledger.values(system, &sweep(share, threads)), 1.0);
            let over = three(&over_low(ledger, system, share, threads));
            let head = [system.clone(), figure(share), seconds];
            table.row(head.into_iter().chain(over));
        }
    }
    table.print(format_args!(
        "seconds to completion by live share, {threads} thread(s)"
    ));
}

fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let systems = names(&scale.peers);
    let cases = scale
        .threads
        .iter()
        .map(|&threads| (format!("{threads}t"), against(threads)));
    let title = "Postmark's trace, 17 % live: time to completion";
    let bars = Bars::of(ledger, title, Metric::Duration, &systems, cases);
    let threads = most_threads(scale);
    let shares = scale.shares.iter();
    let shares: Vec<_> = shares
        .map(|&share| (share, sweep(share, threads)))
        .collect();
    let axes = (
        Axis::linear("rows / capacity"),
        Axis::linear("seconds to completion"),
    );
    let title = format!("Postmark's trace by live share, {threads} thread(s)");
    let curves = Curves::of(ledger, title, axes, &names(&[]), &shares);
    vec![
        Figure::new("postmark.svg", bars),
        Figure::new("postmark-live.svg", curves),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::systems::PEERS;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_completes_on_every_system() {
        let scale = Scale {
            files: 200,
            transactions: 300,
            shares: &[LOW, HIGH],
            threads: vec![1, 2],
            peers: PEERS.map(str::to_owned).to_vec(),
        };
        let report = run(&scale, &common()).unwrap();
        assert_well_formed(&report, &[&against(1), &against(2), &sweep(HIGH, 2)]);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
    }

    /// The promise of `--quick` and of the full run, by arithmetic, for two threads.
    #[test]
    fn runs_fit_their_memory() {
        for (quick, bytes) in [(true, 2u64 << 30), (false, 12 << 30)] {
            let mut common = common();
            (common.quick, common.threads) = (quick, vec![1, 2]);
            let peers = PEERS.map(str::to_owned).to_vec();
            let scale = Scale::of(&common, &Postmark { peers });
            let rows = 2 * Trace::new(scale.files, scale.transactions, 1).peak;
            let policies = POLICIES.len() as f64;
            let beside_peers = policies / LOW + 1.5 * PEERS.len() as f64;
            let swept: f64 = scale.shares.iter().map(|share| 1.0 / share).sum();
            assert!((rows as f64 * beside_peers.max(swept)) < bytes as f64);
        }
    }

    /// A store that forgets ends the run.
    #[test]
    fn a_lost_row_is_noticed() {
        struct Forgetful(Box<dyn Strings>);
        impl Strings for Forgetful {
            fn get(&self, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, String> {
                self.0.get(key, into)
            }
            fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
                match value.len() {
                    2000.. => Ok(()),
                    _ => self.0.put(key, value),
                }
            }
            fn del(&self, key: &[u8]) -> Result<bool, String> {
                self.0.del(key)
            }
        }
        let trace = Trace::new(50, 50, 1);
        let store = Forgetful(peer("dashmap").unwrap());
        assert!(run_steps(&store, &trace.steps, 0).is_err());
    }
}
