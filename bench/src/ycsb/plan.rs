//! What a run of `ycsb` measures, fitted to its memory and its time.

use crate::generate::operations::{Distribution, Mix};
use crate::options::{Common, Ycsb, chosen};
use crate::rounds::Span;
use crate::systems::{self, BATCH, bare, mneme};
use std::fmt;

/// One point of a comparison, within a mix and a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// How records are chosen.
    pub distribution: Distribution,
    /// Records a call.
    pub batch: usize,
    /// Threads at once.
    pub threads: u32,
}

impl Cell {
    /// With single calls.
    pub fn unbatched(&self) -> Self {
        Self { batch: 1, ..*self }
    }
}

/// Cells that are measured in turn, so that ratios between them mean something too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What is done.
    pub mix: Mix,
    /// Bytes of a value.
    pub value: usize,
    /// How.
    pub cells: Vec<Cell>,
    /// Those of the cells, with single calls, whose every operation is timed besides.
    pub timed: Vec<Cell>,
}

impl Group {
    /// The case's name in reports.
    pub fn case(&self, cell: &Cell) -> String {
        case(self.mix, self.value, cell)
    }
}

/// The name of a case: `get50 zipfian 1024B x32 2t`.
pub fn case(mix: Mix, value: usize, cell: &Cell) -> String {
    let Cell {
        distribution,
        batch,
        threads,
    } = cell;
    format!("{mix} {distribution} {value}B x{batch} {threads}t")
}

/// All groups of one value size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// Bytes of a value.
    pub value: usize,
    /// Records loaded.
    pub records: u64,
    /// What is measured on them.
    pub groups: Vec<Group>,
}

impl Size {
    /// The case under which footprints are reported.
    pub fn case(&self) -> String {
        format!("{}B", self.value)
    }
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// One after the other.
    pub sizes: Vec<Size>,
    /// Rounds of every cell.
    pub rounds: usize,
    /// How long one measurement takes.
    pub span: Span,
    /// Operations in a thread's stream.
    pub operations: usize,
    /// Where the streams begin.
    pub seed: u64,
    peers: Vec<String>,
    quick: bool,
}

/// How large a run may be.
struct Scale {
    /// Bytes that all systems together may fill with one size of value.
    memory: u64,
    /// More records than this take long to load and show nothing new.
    most_records: u64,
    /// Milliseconds of one measurement.
    timed: u64,
    operations: usize,
}

const QUICK: Scale = Scale {
    memory: 1200 << 20,
    most_records: 250_000,
    timed: 40,
    operations: 2 << 20,
};

const FULL: Scale = Scale {
    memory: 10 << 30,
    most_records: 6_000_000,
    timed: 120,
    operations: 8 << 20,
};

impl Plan {
    /// The plan for these options.
    pub fn of(common: &Common, options: &Ycsb) -> Self {
        let scale = common.pick(QUICK, FULL);
        let mut plan = Self {
            sizes: Vec::new(),
            rounds: common.rounds,
            span: Span::of(scale.timed, 10),
            operations: scale.operations,
            seed: common.seed,
            peers: chosen(&options.peers),
            quick: common.quick,
        };
        for &value in &options.value {
            let records = (scale.memory / plan.estimate(value)).min(scale.most_records);
            plan.sizes.push(Size {
                value,
                records: options.records.unwrap_or(records),
                groups: common.pick(quick as Groups, full)(value, &common.threads),
            });
        }
        plan
    }

    /// Bytes that a record costs all systems together, roughly.
    fn estimate(&self, value: usize) -> u64 {
        let systems = self.systems().into_iter();
        systems.map(|name| estimate(name, value)).sum()
    }

    /// The stores: ours, then the peers.
    pub fn stores(&self) -> Vec<&str> {
        systems::OURS
            .into_iter()
            .chain(self.peers.iter().map(String::as_str))
            .collect()
    }

    /// The stores and bare memory.
    pub fn systems(&self) -> Vec<&str> {
        [bare::NAME].into_iter().chain(self.stores()).collect()
    }

    /// What a reader must know about the figures.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "peers use glibc's allocator and our hash; DashMap and scc overwrite values in place, papaya and moka replace them"
                .to_owned(),
            "footprint is resident memory in a process of its own; mneme's capacity is twice its records'".to_owned(),
            "E (scans in key order) waits for ordered data".to_owned(),
        ];
        if self.quick {
            notes.push(
                "quick: so few records lie largely in the caches, where a bare copy gains most"
                    .to_owned(),
            );
        }
        if self.rounds < 5 {
            notes.push(format!("{} round(s): medians say little", self.rounds));
        }
        notes
    }
}

/// Bytes that a record costs a system, roughly: to fit a run into its memory, not to report.
fn estimate(system: &str, value: usize) -> u64 {
    let record = bare::stride(value) as u64;
    match system {
        bare::NAME => record,
        // All of its capacity comes into use, since updates append.
        mneme::NAME | mneme::OVERWRITING => mneme::bytes_a_record(value),
        "moka" => record + 300,
        _ => record + 120,
    }
}

/// What is measured on values of a size, by so many threads.
type Groups = fn(usize, &[u32]) -> Vec<Group>;

/// Everything.
fn full(value: usize, threads: &[u32]) -> Vec<Group> {
    let cells = |distributions: &[Distribution], batches: &[usize]| {
        let mut cells = Vec::new();
        for &distribution in distributions {
            for &batch in batches {
                cells.extend(threads.iter().map(|&threads| Cell {
                    distribution,
                    batch,
                    threads,
                }));
            }
        }
        cells
    };
    let most = threads.iter().copied().max().unwrap_or(1);
    let group = |mix, distributions: &[Distribution], batches: &[usize]| {
        let cells = cells(distributions, batches);
        let timed = cells
            .iter()
            .filter(|cell| cell.batch == 1 && cell.threads == most);
        Group {
            mix,
            value,
            timed: timed.copied().collect(),
            cells,
        }
    };
    let both = [Distribution::Uniform, Distribution::Zipfian];
    let paper = [100, 95, 50, 0].map(|share| group(Mix::Get(share), &both, &[1, BATCH]));
    let latest = group(Mix::D, &[Distribution::Latest], &[1]);
    let modify = group(Mix::F, &[Distribution::Zipfian], &[1]);
    paper.into_iter().chain([latest, modify]).collect()
}

/// What the goals need: at 1 KiB and above all of it, below only the batched reads.
fn quick(value: usize, threads: &[u32]) -> Vec<Group> {
    let one = threads.iter().copied().min().unwrap_or(1);
    let uniform = Distribution::Uniform;
    let cell = |distribution, batch, threads| Cell {
        distribution,
        batch,
        threads,
    };
    let single_and_batched = vec![cell(uniform, 1, one), cell(uniform, BATCH, one)];
    let group = |share, cells, timed| Group {
        mix: Mix::Get(share),
        value,
        cells,
        timed,
    };
    if value < 1024 {
        return vec![group(100, single_and_batched, Vec::new())];
    }
    let more = threads.iter().filter(|&&threads| threads != one);
    let scaling = more.map(|&threads| cell(uniform, 1, threads));
    let cells: Vec<Cell> = single_and_batched.into_iter().chain(scaling).collect();
    let skew = vec![cell(uniform, 1, one), cell(Distribution::Zipfian, 1, one)];
    let timed = vec![cell(uniform, 1, one)];
    vec![
        group(100, cells.clone(), timed.clone()),
        group(50, skew, Vec::new()),
        group(0, cells, timed),
    ]
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for size in &self.sizes {
            writeln!(
                f,
                "{} records, keys of 24 B, values of {} B",
                size.records, size.value
            )?;
        }
        write!(
            f,
            "{} rounds of {} ms each after {} ms unmeasured, seed {}",
            self.rounds,
            self.span.timed.as_millis(),
            self.span.warm_up.as_millis(),
            self.seed
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::options::Workload;
    use crate::options::tests::parsed;
    use std::collections::HashSet;

    /// The plan of a run with these words.
    pub fn plan(words: &str) -> Plan {
        let options = parsed(&format!("ycsb {words}")).unwrap();
        match &options.workload {
            Workload::Ycsb(ycsb) => Plan::of(&options.common, ycsb),
            _ => unreachable!("the subcommand is ycsb"),
        }
    }

    fn timed(plan: &Plan) -> f64 {
        let groups = plan.sizes.iter().flat_map(|size| &size.groups);
        let cells = groups.map(|group| group.cells.len() + group.timed.len());
        let measured = cells.sum::<usize>() * plan.systems().len() * plan.rounds;
        measured as f64 * (plan.span.warm_up + plan.span.timed).as_secs_f64()
    }

    /// The promise of `--quick` and of the full run, by arithmetic: the rest is loading.
    #[test]
    fn runs_fit_their_time_and_memory() {
        for (words, seconds, bytes) in [("--quick", 20.0, 2u64 << 30), ("", 480.0, 12 << 30)] {
            let plan = plan(words);
            assert!(timed(&plan) < seconds, "{words}: {} s", timed(&plan));
            for size in &plan.sizes {
                let most = size.groups.iter().map(|group| {
                    let streams: HashSet<Cell> = group.cells.iter().map(Cell::unbatched).collect();
                    let threads: u64 = streams.iter().map(|cell| u64::from(cell.threads)).sum();
                    threads * plan.operations as u64 * 4
                });
                let all = size.records * plan.estimate(size.value) + most.max().unwrap();
                assert!(all < bytes, "{words} {}", size.value);
            }
        }
    }

    #[test]
    fn a_full_run_has_every_mix_and_no_cell_twice() {
        let plan = plan("");
        let mut cases = HashSet::new();
        for size in &plan.sizes {
            let groups = size.groups.iter();
            let mixes: Vec<String> = groups.map(|group| group.mix.to_string()).collect();
            assert_eq!(mixes, ["get100", "get95", "get50", "get0", "d", "f"]);
            for group in &size.groups {
                for cell in &group.cells {
                    assert!(cases.insert(group.case(cell)), "{}", group.case(cell));
                }
                assert!(!group.timed.is_empty());
                assert!(group.timed.iter().all(|cell| group.cells.contains(cell)));
            }
        }
        assert!(cases.contains("get50 zipfian 1024B x32 2t"));
    }

    #[test]
    fn records_and_threads_can_be_given() {
        let plan = plan("--records 5000 --value 200 --threads 4 --peers none");
        assert_eq!(plan.sizes[0].records, 5000);
        let mut cells = plan.sizes[0].groups[0].cells.iter();
        assert!(cells.all(|cell| cell.threads == 4));
        assert!(!plan.systems().contains(&"dashmap"));
    }
}
