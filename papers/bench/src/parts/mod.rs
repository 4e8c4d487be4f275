//! `parts`: what each part of the design is worth (Nibble, fig. 8; dissertation, fig. 32 and 33).
//!
//! - `epoch`: an operation within our epoch, within a time-stamp epoch, and within one whose
//!   counter every operation bumps. How to read it: the ratios at the most threads; a shared
//!   counter costs nothing on one CPU and everything on many (the paper's factor of 20 needs 240).
//! - `heads`: a head a CPU against any number of heads chosen at random, as a hash would. Local and
//!   remote memory (the paper's 8b) differ only on a machine with several nodes; with one, what is
//!   left of it is contention.
//! - `puts`: percentiles of inserting and updating, by policy and size.

mod epoch;
mod heads;
mod puts;

use epoch::Work;
use mneme_bench::error::BenchError;
use mneme_bench::figure::{Bars, Figure};
use mneme_bench::goals::Goal;
use mneme_bench::latency::{PERCENTILES, percentile_case};
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::systems::bare::BareRecords;
use mneme_bench::systems::mneme::POLICIES;
use mneme_bench::table::{Table, beside_range, median};
use mneme_sys::{SysfsTopology, Topology};
use puts::Kind;
use serde_json::json;

/// How much is done.
pub struct Scale {
    /// Records behind the epochs.
    records: u64,
    /// Numbers of heads chosen at random.
    heads: &'static [usize],
    /// Bytes of each store with heads; all heads together take a fiftieth of it, at 2 MiB each.
    capacity: u64,
    /// Records that are put, at most, and their bytes, at most.
    puts: (u64, u64),
    /// Sizes of values that are put.
    values: &'static [usize],
    /// Sizes of values behind the heads, one after the other.
    head_values: &'static [usize],
    span: Span,
    /// Numbers of threads.
    threads: Vec<u32>,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            records: options.pick(200_000, 4_000_000),
            heads: options.pick(&[1, 2, 4], &[1, 2, 4, 8]),
            capacity: options.pick(400 << 20, 840 << 20),
            puts: options.pick((40_000, 32 << 20), (1_000_000, 512 << 20)),
            values: &[64, 256, 1024, 4096],
            head_values: options.pick(&[1024], &[1024, 100]),
            span: Span::of(options.pick(30, 500), 5),
            threads: options.threads.clone(),
        }
    }

    /// Records of this size that are put.
    fn puts_of(&self, value: usize) -> u64 {
        self.puts.0.min(self.puts.1 / value as u64)
    }
}

/// Measures and reports.
///
/// # Errors
/// No memory, a store that loses records, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut ledger = Ledger::default();
    epochs(scale, options, &mut ledger)?;
    for &value in scale.head_values {
        head_choices(scale, value, options, &mut ledger)?;
    }
    for &value in scale.values {
        put_latencies(scale, value, options.rounds, &mut ledger)?;
    }
    print_tables(scale, &ledger);
    let mut notes = Vec::new();
    if SysfsTopology::detect().nodes() == 1 {
        notes.push("one node: local and remote memory are the same here".to_owned());
    }
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({
            "records": scale.records,
            "capacity": scale.capacity,
            "threads": scale.threads,
            "seconds": scale.span.timed.as_secs_f64(),
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

fn epochs(scale: &Scale, options: &Common, ledger: &mut Ledger) -> Result<(), BenchError> {
    let load = epoch::load(scale.records);
    let records = BareRecords::new(load)?;
    let jobs = epoch::jobs(&records, load, &scale.threads, scale.span, options.seed)?;
    rounds::run(jobs, options.rounds, ledger)
}

fn head_choices(
    scale: &Scale,
    value: usize,
    options: &Common,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let random = scale.heads.iter().copied().map(Some);
    let stores = [None].into_iter().chain(random);
    let stores = stores.map(|heads| heads::Store::new(heads, scale.capacity, value));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let mut jobs = Vec::new();
    for reads in [50, 0] {
        for &threads in &scale.threads {
            let job = |store| heads::Store::job(store, reads, threads, scale.span, options.seed);
            jobs.extend(stores.iter().map(job));
        }
    }
    rounds::run(jobs, options.rounds, ledger)
}

fn put_latencies(
    scale: &Scale,
    value: usize,
    rounds: usize,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let records = scale.puts_of(value);
    let stores = POLICIES.iter();
    let stores = stores.map(|&policy| puts::Store::new(policy, records, value));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let of_store = stores.iter().map(|store| {
        let name = format!("PUT of {value} B");
        Job::of(name, |_, ledger| store.round(ledger))
    });
    let mut jobs: Vec<_> = of_store.collect();
    if scale.values.first() == Some(&value) {
        let clock = Job::of(puts::CLOCK, |_, ledger| {
            puts::clock(records, ledger);
            Ok(())
        });
        jobs.insert(0, clock);
    }
    rounds::run(jobs, rounds, ledger)
}

fn most_threads(scale: &Scale) -> u32 {
    scale.threads.iter().copied().max().unwrap_or(1)
}

/// The goals: each choice of the design is no worse than its alternatives.
fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let threads = most_threads(scale);
    let get = epoch::case(Work::Get, threads);
    let put = heads::case(0, scale.head_values[0], threads);
    let epoch_over = |other: &str| ledger.ratios((epoch::SYSTEMS[0], &get), (other, &get));
    let pin = epoch::case(Work::Nothing, 1);
    let pins = ledger.values(epoch::SYSTEMS[0], &pin).iter();
    vec![
        Goal::at_most(
            "pin and unpin, nanoseconds",
            3.0,
            pins.map(|mops| 1e3 / mops).collect(),
        ),
        Goal::at_least(
            format!("GET in our epoch over a time-stamp epoch's, {threads} thread(s)"),
            1.0,
            epoch_over("tsc"),
        ),
        Goal::at_least(
            format!("GET in our epoch over a counter's, {threads} thread(s)"),
            1.0,
            epoch_over("counter"),
        ),
        Goal::at_least(
            format!("PUT with a head a CPU over one head, {threads} thread(s)"),
            1.0,
            ledger.ratios((heads::LOCAL, &put), (&heads::random_of(1), &put)),
        ),
    ]
}

fn head_systems(scale: &Scale) -> Vec<String> {
    let random = scale.heads.iter().map(|&heads| heads::random_of(heads));
    let local = [heads::LOCAL.to_owned()].into_iter();
    local.chain(random).collect()
}

fn epoch_systems() -> Vec<String> {
    epoch::SYSTEMS.map(str::to_owned).to_vec()
}

fn epoch_cases(scale: &Scale) -> Vec<String> {
    let cases = [Work::Nothing, Work::Get, Work::Mix].into_iter();
    cases
        .flat_map(|work| scale.threads.iter().map(move |&t| epoch::case(work, t)))
        .collect()
}

fn head_cases(scale: &Scale) -> Vec<String> {
    let mut cases = Vec::new();
    for &value in scale.head_values {
        for reads in [50, 0] {
            cases.extend(scale.threads.iter().map(|&t| heads::case(reads, value, t)));
        }
    }
    cases
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    for (systems, cases) in [
        (epoch_systems(), epoch_cases(scale)),
        (head_systems(scale), head_cases(scale)),
    ] {
        Table::by_case("case", &systems, cases, |system, case| {
            let over = ledger.ratios((&systems[0], case), (system, case));
            beside_range(ledger.values(system, case), &over)
        })
        .print("millions of operations a second; in brackets the first over it, round by round");
    }
    let names = PERCENTILES.map(|(name, _)| name);
    let mut table = Table::new(["policy", "case"].into_iter().chain(names));
    let mut row = |system: &str, case: &str| {
        let cells = names.map(|p| median(ledger.values(system, &percentile_case(case, p)), 1.0));
        table.row([system, case].map(str::to_owned).into_iter().chain(cells));
    };
    row(puts::CLOCK, "nothing");
    for &value in scale.values {
        for kind in Kind::ALL {
            for &(policy, _) in POLICIES {
                row(policy, &puts::case(kind, value));
            }
        }
    }
    table.print("nanoseconds a PUT, one thread, median of the rounds");
}

fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let ends = format!(" {}t", most_threads(scale));
    let short = |cases: Vec<String>, prefix: &str| {
        let most = cases.into_iter().filter(|case| case.ends_with(&ends));
        let named = most.map(|case| (case.trim_start_matches(prefix).to_owned(), case));
        named
            .filter(|(name, _)| !name.starts_with("nothing"))
            .collect::<Vec<_>>()
    };
    let rate = Metric::Throughput;
    let epochs = short(epoch_cases(scale), "epoch around ");
    let epochs = Bars::of(ledger, "Epochs", rate, &epoch_systems(), epochs);
    let heads = short(head_cases(scale), "heads: ");
    let heads = Bars::of(ledger, "Heads", rate, &head_systems(scale), heads);
    let policies: Vec<_> = POLICIES.iter().map(|&(name, _)| name).collect();
    let puts = scale.values.iter().flat_map(|&value| {
        Kind::ALL.map(|kind| {
            let case = puts::case(kind, value);
            (case.clone(), percentile_case(&case, "p50"))
        })
    });
    let title = "Median latency of PUT, one thread";
    let puts = Bars::of(ledger, title, Metric::Latency, &policies, puts);
    vec![
        Figure::new("parts-epoch.svg", epochs),
        Figure::new("parts-heads.svg", heads),
        Figure::new("parts-puts.svg", puts),
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
            records: 1000,
            heads: &[1, 2],
            capacity: 64 << 20,
            puts: (500, 1 << 20),
            values: &[64],
            head_values: &[1024],
            span: Span::of(2, 2),
            threads: vec![1, 2],
        };
        let report = run(&scale, &common()).unwrap();
        let mut cases = epoch_cases(&scale);
        cases.extend(head_cases(&scale));
        cases.push(percentile_case(&puts::case(Kind::Update, 64), "p99"));
        let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
        assert_well_formed(&report, &cases);
        assert!(report.goals.iter().all(|goal| goal.measured().is_some()));
    }
}
