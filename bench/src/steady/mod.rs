//! `steady`: memory and CPU time of data that is overwritten, thinned out and left alone.
//!
//! Keys are overwritten, chosen evenly or by Zipf's law with theta 0.99, six times each on the
//! average; then nothing is asked for; then three quarters of the records, chosen at random, are
//! removed; then nothing is asked for again. After each step stands what is resident.
//!
//! - *wire* (see `wire.rs`): ours beside Redis and Valkey, one CPU each, which ours has far more
//!   memory than the data need. Everything resident in the server's process counts, over the bytes
//!   of keys and values. The *live bytes* of one goal are what our server says: records and index.
//! - *private* (see `private.rs`): a store in this process, by who empties its log segments: CPU
//!   time a PUT, all threads of the process, bytes moved a byte written, resident over live and
//!   index; and by the fill that the maintainer keeps, which `--curve` measures alone.
//!
//! One round: memory hardly depends on time. CPU times are those of the steps of overwriting; a
//! goal's minimum and maximum are those of its steps. Peers are idle while ours is overwritten,
//! and longer by that when they are looked at.

mod private;
mod wire;

use crate::curves::{Axis, Curves};
use crate::error::BenchError;
use crate::figure::Figure;
use crate::generate::operations::{Distribution, scatter};
use crate::generate::random::{Random, mix};
use crate::generate::zipfian::{YCSB_THETA, Zipfian};
use crate::goals::Goal;
use crate::ledger::Ledger;
use crate::options::{Common, Steady};
use crate::progress;
use crate::report::Report;
use crate::server::servers::{OURS, REDIS, stores};
use crate::systems::redis::{PEERS, introduce};
use crate::table::{Table, beside, median};
use serde_json::json;
use std::fmt;
use std::time::Duration;

/// Steps of overwriting that are looked at.
const STEPS: usize = 12;

/// Steps of idleness that are looked at.
const IDLE_STEPS: usize = 5;

/// Of four records, how many are removed.
const REMOVED_OF_FOUR: u64 = 3;

/// What is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    /// Bytes of a value.
    value: usize,
    keys: Distribution,
    records: u32,
    /// How often each record is overwritten, on the average.
    turnovers: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turnovers {
            0 => write!(f, "{} B, removal alone", self.value),
            _ => write!(f, "{} B {}", self.value, self.keys),
        }
    }
}

/// When something is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// After a step of overwriting.
    Overwritten(usize),
    /// After a step of idleness behind it.
    Idle(usize),
    /// After the removal.
    Removed,
    /// After a step of idleness behind that.
    IdleAgain(usize),
}

/// At the end of the idleness after overwriting.
const RESTED: Moment = Moment::Idle(IDLE_STEPS);
/// At the end of the idleness after the removal.
const THINNED: Moment = Moment::IdleAgain(IDLE_STEPS);

impl Moment {
    /// All, in order.
    fn all(case: Case) -> impl Iterator<Item = Self> {
        let first = if case.turnovers == 0 { STEPS } else { 1 };
        let overwritten = (first..=STEPS).map(Self::Overwritten);
        let idle = (1..=IDLE_STEPS).map(Self::Idle);
        let again = (1..=IDLE_STEPS).map(Self::IdleAgain);
        overwritten.chain(idle).chain([Self::Removed]).chain(again)
    }

    /// Its place among them.
    fn place(self) -> usize {
        match self {
            Self::Overwritten(step) => step,
            Self::Idle(step) => STEPS + step,
            Self::Removed => STEPS + IDLE_STEPS + 1,
            Self::IdleAgain(step) => STEPS + IDLE_STEPS + 1 + step,
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overwritten(step) => write!(f, "overwritten {step:02}/{STEPS}"),
            Self::Idle(step) => write!(f, "idle {step}/{IDLE_STEPS}"),
            Self::Removed => write!(f, "removed"),
            Self::IdleAgain(step) => write!(f, "removed, idle {step}/{IDLE_STEPS}"),
        }
    }
}

/// The ledger's case of what is resident.
fn resident(case: Case, moment: Moment) -> String {
    format!("{case}, {moment}")
}

/// The ledger's case of the CPU time of a write.
fn cpu(case: Case) -> String {
    format!("{case}, CPU a write")
}

/// The ledger's case of the CPU time while there are no requests.
fn idle_cpu(case: Case) -> String {
    format!("{case}, CPU while idle")
}

/// The ledger's case of the bytes moved.
fn moved(case: Case) -> String {
    format!("{case}, moved")
}

/// The ledger's case of the resident bytes over live records and index, at the end.
fn over_live(case: Case) -> String {
    format!("{case}, over live and index")
}

/// How much is done.
pub struct Scale {
    cases: Vec<Case>,
    /// How long nothing is asked for.
    idle: Duration,
    /// Bytes that ours may take, for a byte of keys and values.
    spacious: u64,
    /// Whether the curve over fill targets alone is measured.
    curve: bool,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common, steady: &Steady) -> Self {
        let part = options.pick(20, 1);
        let case = |value, keys, records: u32, turnovers| Case {
            value,
            keys,
            records: records / part,
            turnovers,
        };
        let of = |value, records| {
            [Distribution::Uniform, Distribution::Zipfian].map(|keys| case(value, keys, records, 6))
        };
        let [small, large] = [of(100, 1_000_000), of(1000, 200_000)];
        let thinned = case(100, Distribution::Uniform, 4_000_000, 0);
        Self {
            cases: small.into_iter().chain(large).chain([thinned]).collect(),
            idle: Duration::from_millis(options.pick(400, 10_000)),
            spacious: 12,
            curve: steady.curve,
        }
    }
}

/// Records to overwrite, drawn one by one.
struct Draw {
    random: Random,
    law: Option<Zipfian>,
    records: u64,
}

impl Draw {
    fn new(case: Case, seed: u64) -> Self {
        let records = u64::from(case.records);
        let law = case.keys == Distribution::Zipfian;
        Self {
            random: Random::new(seed),
            law: law.then(|| Zipfian::new(records, YCSB_THETA)),
            records,
        }
    }

    #[inline]
    fn next(&mut self) -> u32 {
        let Self {
            random,
            law,
            records,
        } = self;
        match law {
            Some(law) => scatter(law.draw(random), *records) as u32,
            None => random.below(*records) as u32,
        }
    }
}

/// Whether a record is one of those that are removed.
fn goes(id: u32, seed: u64) -> bool {
    mix(seed ^ mix(u64::from(id))) % 4 < REMOVED_OF_FOUR
}

/// Measures and reports.
///
/// # Errors
/// A server that does not start, refuses, or mixes up records; no memory.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let mut notes = introduce(&PEERS);
    let mut ledger = Ledger::default();
    for case in scale.cases.iter().filter(|_| !scale.curve) {
        notes.extend(wire::run(*case, scale, options.seed, &mut ledger)?);
    }
    for case in scale.cases.iter().filter(|case| case.turnovers > 0) {
        private::run(*case, scale, options.seed, &mut ledger)?;
    }
    progress::clear();
    notes.dedup();
    if options.quick {
        notes.push("quick: what a process has before its first record weighs most".to_owned());
    }
    print_tables(scale, &ledger);
    Ok(Report {
        figures: scale
            .cases
            .iter()
            .filter(|_| !scale.curve)
            .map(|case| curves(*case, &ledger))
            .collect(),
        params: json!({
            "records": scale.cases.iter().map(|case| case.records).collect::<Vec<_>>(),
            "turnovers": scale.cases.iter().map(|case| case.turnovers).collect::<Vec<_>>(),
            "idle_seconds": scale.idle.as_secs_f64(),
        }),
        goals: goals(scale, &ledger),
        ledger,
        notes,
    })
}

/// Our memory over Redis', step by step of the second half of overwriting.
fn during(ledger: &Ledger, case: Case) -> Vec<f64> {
    let steps = (STEPS / 2 + 1..=STEPS).map(|step| resident(case, Moment::Overwritten(step)));
    let ratios = steps.flat_map(|case| ledger.ratios((OURS, &case), (REDIS, &case)));
    ratios.collect()
}

fn goals(scale: &Scale, ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    let uniform = |case: &&Case| case.turnovers > 0 && case.keys == Distribution::Uniform;
    for case in scale.cases.iter().filter(uniform) {
        let (most, rested) = if case.value < 500 {
            (1.0, 0.75)
        } else {
            (1.25, 0.95)
        };
        let text = format!("{case}: resident / redis, while overwritten");
        goals.push(Goal::at_most(text, most, during(ledger, *case)));
        let at = resident(*case, RESTED);
        let ratios = ledger.ratios((OURS, &at), (REDIS, &at));
        let text = format!("{case}: resident / redis, after idleness");
        goals.push(Goal::at_most(text, rested, ratios));
        let at = cpu(*case);
        let ratios = ledger.ratios((OURS, &at), (wire::AT_REST, &at));
        let text = format!("{case}: CPU a SET / that with activedefrag no");
        goals.push(Goal::at_most(text, 1.15, ratios));
    }
    for case in scale.cases.iter().filter(|case| case.turnovers == 0) {
        let text = format!(
            "{case}, {} records: resident over live and index, after idleness",
            case.records
        );
        let rounds = ledger.values(OURS, &over_live(*case)).to_vec();
        goals.push(Goal::at_most(text, 1.25, rounds));
    }
    goals
}

/// Systems that are measured over the wire, ours first.
fn systems() -> Vec<&'static str> {
    let mut systems = stores();
    systems.insert(1, wire::AT_REST);
    systems
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    let systems = systems();
    let cell = |system: &str, case: &str| {
        let ratios = match system {
            OURS => Vec::new(),
            _ => ledger.ratios((OURS, case), (system, case)),
        };
        beside(ledger.values(system, case), 1.0, &ratios)
    };
    let moments = [
        Moment::Overwritten(STEPS / 2),
        Moment::Overwritten(STEPS),
        RESTED,
        Moment::Removed,
        THINNED,
    ];
    let residents = scale.cases.iter();
    let residents = residents.flat_map(|case| moments.map(|moment| resident(*case, moment)));
    Table::by_case("when", &systems, residents, cell)
        .print("bytes resident over keys and values; in brackets ours over theirs");
    let overwritten = || scale.cases.iter().filter(|case| case.turnovers > 0);
    Table::by_case("case", &systems, overwritten().map(|case| cpu(*case)), cell)
        .print("server CPU, ns a pipelined SET; in brackets ours over theirs");
    let idle = scale.cases.iter().map(|case| idle_cpu(*case));
    Table::by_case("case", &systems, idle, cell)
        .print("server CPU, seconds of all idleness; in brackets ours over theirs");
    let plain = |system: &str, case: &str| median(ledger.values(system, case), 1.0);
    let rows = overwritten().flat_map(|case| {
        let moments = [Moment::Overwritten(STEPS), RESTED, THINNED];
        let residents = moments.map(|moment| resident(*case, moment));
        [cpu(*case), moved(*case)].into_iter().chain(residents)
    });
    Table::by_case(
        "private memory",
        &private::ARMS.map(|arm| arm.name),
        rows,
        plain,
    )
    .print("ns of CPU a PUT; bytes moved a byte written; resident over live and index");
}

fn curves(case: Case, ledger: &Ledger) -> Figure {
    let moments: Vec<_> = Moment::all(case)
        .map(|moment| (moment.place() as f64, resident(case, moment)))
        .collect();
    let across = format!(
        "step: {STEPS} of overwriting, {IDLE_STEPS} idle, removal of three quarters, {IDLE_STEPS} idle"
    );
    let axes = (
        Axis::linear(across),
        Axis::linear("bytes resident over keys and values"),
    );
    let title = format!("{case}, {} records", case.records);
    let systems = systems();
    let name = format!("steady-{}.svg", case.to_string().replace([' ', ','], "-"));
    Figure::new(name, Curves::of(ledger, title, axes, &systems, &moments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_well_formed;
    use crate::testing::common;

    fn scale(records: u32) -> Scale {
        let case = |keys, turnovers| Case {
            value: 100,
            keys,
            records,
            turnovers,
        };
        Scale {
            cases: vec![
                case(Distribution::Uniform, 2),
                case(Distribution::Zipfian, 2),
                case(Distribution::Uniform, 0),
            ],
            idle: Duration::from_millis(1),
            spacious: 12,
            curve: false,
        }
    }

    #[test]
    fn a_tiny_run_measures_every_moment_of_every_case() {
        let scale = scale(2000);
        let report = run(&scale, &common()).unwrap();
        let [uniform, zipfian, thinned] = scale.cases[..] else {
            unreachable!("there are three cases");
        };
        let cases = [uniform, zipfian, thinned].map(|case| resident(case, THINNED));
        assert_well_formed(&report, &cases.each_ref().map(String::as_str));
        let ledger = &report.ledger;
        for case in scale.cases {
            for system in stores() {
                for moment in Moment::all(case) {
                    let value = ledger.values(system, &resident(case, moment));
                    assert!(
                        value.len() == 1 && value[0] > 0.0,
                        "{system} {case} {moment}"
                    );
                }
            }
        }
        for arm in private::ARMS.into_iter().filter(|arm| arm.rests) {
            let times = ledger.values(arm.name, &cpu(uniform));
            assert!(times.iter().all(|ns| *ns > 0.0), "{times:?}");
            assert!(ledger.values(arm.name, &resident(zipfian, THINNED))[0] >= 1.0);
        }
        assert_eq!(ledger.values(OURS, &over_live(thinned)).len(), 1);
    }

    #[test]
    fn three_of_four_records_go_and_every_moment_has_its_own_place() {
        let gone = (0..100_000).filter(|id| goes(*id, 7)).count();
        assert!((74_000..76_000).contains(&gone), "{gone}");
        let case = scale(1).cases[0];
        let places: Vec<_> = Moment::all(case).map(Moment::place).collect();
        assert!(places.iter().copied().eq(1..=places.len()));
    }

    #[test]
    fn keys_that_are_drawn_are_records_that_there_are() {
        for case in scale(1000).cases {
            let mut draw = Draw::new(case, 1);
            assert!((0..10_000).all(|_| draw.next() < case.records));
        }
    }
}
