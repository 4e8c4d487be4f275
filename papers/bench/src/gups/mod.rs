//! `gups`: random updates of a table that is larger than what is mapped at a time (SpaceJMP, §5.2,
//! figure 8).
//!
//! One table of words, in windows. A window is chosen at random, a set of random words in it is
//! changed, then another window is chosen. How to read it: with one window nothing is mapped,
//! entered or moved for another; what is lost with more is the price of reaching them.
//!
//! - *MAP*: the window is mapped by `mmap`, and unmapped before the next.
//! - *MP*: each window is a process', which is sent the set, applies it and answers (`space.call`).
//! - *distinct*: windows are segments with addresses of their own; each set takes and gives back
//!   its segment's lock.
//! - *conflicting*: all of them claim the same addresses, as they must where the table exceeds the
//!   address space: each change of window moves two mappings, page tables and all.
//! - *bare*: everything mapped at once, no lock: what the memory gives.

pub mod windows;

use mneme_bench::curves::{Axis, Curves};
use mneme_bench::error::BenchError;
use mneme_bench::figure::Figure;
use mneme_bench::generate::random::Random;
use mneme_bench::goals::Goal;
use mneme_bench::ledger::{Ledger, Metric};
use mneme_bench::options::Common;
use mneme_bench::report::Report;
use mneme_bench::rounds::{self, Job, Span};
use mneme_bench::scratch::Scratch;
use mneme_bench::table::{Table, beside};
use serde_json::json;
use std::cell::RefCell;
use std::time::Instant;
use windows::{Bare, Called, Entered, Remapped, Residents, Segments, Update, Windows};

const MIB: u64 = 1 << 20;

const MAP: &str = "MAP";
const DISTINCT: &str = "distinct";
const CONFLICTING: &str = "conflicting";
const BARE: &str = "bare";
const MP: &str = "MP";
const SYSTEMS: [&str; 5] = [MAP, MP, DISTINCT, CONFLICTING, BARE];

/// Windows behind the goals, and those goals: updates a set, over MAP with addresses of their own,
/// and without.
const GOAL_WINDOWS: usize = 64;
const GOALS: [(usize, f64, f64); 2] = [(64, 50.0, 10.0), (16, 50.0, 4.0)];

/// How much is done.
pub struct Scale {
    /// Bytes of a window.
    window: u64,
    windows: &'static [usize],
    sets: &'static [usize],
    span: Span,
}

impl Scale {
    /// For these options.
    pub fn of(options: &Common) -> Self {
        Self {
            window: options.pick(8, 32) * MIB,
            windows: options.pick(&[1, 8, 64], &[1, 2, 4, 8, 16, 32, 64, 128]),
            sets: &[64, 16],
            span: Span::of(options.pick(60, 300), 3),
        }
    }
}

fn case(windows: usize, set: usize) -> String {
    format!("{windows} windows, sets of {set}")
}

/// Measures and reports.
///
/// # Errors
/// No memory, a window that cannot be reached, a file that cannot be written.
pub fn run(scale: &Scale, options: &Common) -> Result<Report, BenchError> {
    let most = scale.windows.iter().copied().max().unwrap_or(1);
    let scratch = Scratch::new("gups", 2 * most as u64 * (scale.window + 4 * MIB))?;
    let apart = Segments::new(&scratch, "distinct", most, scale.window, None)?;
    // The one address is that of the first, which nobody else wants.
    let first = Segments::new(&scratch, "first", 1, scale.window, None)?;
    let same = Segments::new(&scratch, "same", most, scale.window, first.address())?;
    let residents = Residents::new(&scratch, &apart)?;
    let systems: [(&str, RefCell<Box<dyn Windows + '_>>); 5] = [
        (MP, RefCell::new(Box::new(Called::new(&residents)?))),
        (MAP, RefCell::new(Box::new(Remapped::new(&apart)?))),
        (DISTINCT, RefCell::new(Box::new(Entered::new(&apart)?))),
        (CONFLICTING, RefCell::new(Box::new(Entered::new(&same)?))),
        (BARE, RefCell::new(Box::new(Bare::new(&apart)?))),
    ];
    let mut jobs = Vec::new();
    for &set in scale.sets {
        for &windows in scale.windows {
            for (system, reached) in &systems {
                let words = apart.words();
                let case = case(windows, set);
                jobs.push(Job::new(*system, case, Metric::Throughput, move |round| {
                    let mut random = Random::new(options.seed ^ (round as u64) << 32);
                    let mut plan = Plan::new(words, windows, set);
                    updates(
                        &mut **reached.borrow_mut(),
                        &mut plan,
                        &mut random,
                        scale.span,
                    )
                }));
            }
        }
    }
    let mut ledger = Ledger::default();
    rounds::run(jobs, options.rounds, &mut ledger)?;
    print_tables(scale, &ledger);
    Ok(Report {
        figures: figures(scale, &ledger),
        params: json!({
            "window_bytes": scale.window,
            "page_bytes": 4096,
            "seconds": scale.span.timed.as_secs_f64(),
        }),
        goals: goals(&ledger),
        ledger,
        notes: vec![format!(
            "windows of {} MiB in tmpfs, ordinary pages, all in memory before",
            scale.window / MIB
        )],
    })
}

/// Where the next updates go.
struct Plan {
    words: u64,
    windows: u64,
    set: Vec<Update>,
}

impl Plan {
    fn new(words: usize, windows: usize, set: usize) -> Self {
        Self {
            words: words as u64,
            windows: windows as u64,
            set: vec![Update { at: 0, by: 0 }; set],
        }
    }

    /// Chooses a window and fills the set.
    #[inline]
    fn next(&mut self, random: &mut Random) -> usize {
        for update in &mut self.set {
            let drawn = random.next_u64();
            update.at = ((u128::from(drawn) * u128::from(self.words)) >> 64) as usize;
            update.by = drawn;
        }
        random.below(self.windows) as usize
    }
}

/// Millions of updates a second.
fn updates(
    reached: &mut dyn Windows,
    plan: &mut Plan,
    random: &mut Random,
    span: Span,
) -> Result<f64, BenchError> {
    /// Sets between two looks at the clock.
    const SETS: usize = 16;
    let mut until = |end: Instant| {
        let mut done = 0;
        loop {
            for _ in 0..SETS {
                let window = plan.next(random);
                reached.update(window, &plan.set)?;
                done += plan.set.len() as u64;
            }
            if Instant::now() >= end {
                return Ok::<_, BenchError>(done);
            }
        }
    };
    until(Instant::now() + span.warm_up)?;
    let start = Instant::now();
    let done = until(start + span.timed)?;
    Ok(done as f64 / start.elapsed().as_secs_f64() / 1e6)
}

fn goals(ledger: &Ledger) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (set, apart, same) in GOALS {
        let case = case(GOAL_WINDOWS, set);
        for (system, target) in [(DISTINCT, apart), (CONFLICTING, same)] {
            let ratios = ledger.ratios((system, &case), (MAP, &case));
            let text = format!("{system} / MAP, {case}");
            goals.push(Goal::at_least(text, target, ratios));
        }
    }
    goals
}

fn print_tables(scale: &Scale, ledger: &Ledger) {
    for &set in scale.sets {
        let windows = scale.windows.iter();
        let rows = windows.map(|&windows| (windows.to_string(), case(windows, set)));
        let cell = |system: &str, case: &String| {
            let over = ledger.ratios((system, case), (MAP, case));
            beside(ledger.values(system, case), 1.0, &over)
        };
        Table::grid("windows", &SYSTEMS, rows, cell).print(format_args!(
            "million updates a second, sets of {set}; in brackets over MAP"
        ));
    }
}

/// The form of the paper's figure 8, one for each size of the sets.
fn figures(scale: &Scale, ledger: &Ledger) -> Vec<Figure> {
    let figure = |&set: &usize| {
        let windows = scale.windows.iter();
        let cases: Vec<_> = windows
            .map(|&windows| (windows as f64, case(windows, set)))
            .collect();
        let axes = (Axis::log("windows"), Axis::log("million updates a second"));
        let title = format!("Random updates, sets of {set}");
        let curves = Curves::of(ledger, title, axes, &SYSTEMS, &cases);
        Figure::new(format!("gups-{set}.svg"), curves)
    };
    scale.sets.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::common;
    use mneme_bench::testing::assert_well_formed;

    #[test]
    fn a_tiny_run_measures_every_system() {
        let scale = Scale {
            window: MIB,
            windows: &[1, 3],
            sets: &[16],
            span: Span::of(2, 2),
        };
        let report = run(&scale, &common()).unwrap();
        for system in SYSTEMS {
            let rates = report.ledger.values(system, &case(3, 16));
            assert!(rates[0] > 0.0, "{system}");
        }
        assert_well_formed(&report, &[&case(1, 16)]);
    }

    /// All ways lead to the same words: the same updates twice, by two ways, leave nothing.
    #[test]
    fn a_change_made_in_one_way_is_found_in_another() {
        let scratch = Scratch::new("gups-test", 8 * MIB).unwrap();
        let segments = Segments::new(&scratch, "w", 3, MIB, None).unwrap();
        let at = Segments::new(&scratch, "first", 1, MIB, None)
            .unwrap()
            .address();
        let same = Segments::new(&scratch, "s", 3, MIB, at).unwrap();
        let run = |reached: &mut dyn Windows| {
            let mut random = Random::new(7);
            let mut plan = Plan::new(segments.words(), 3, 16);
            for _ in 0..100 {
                let window = plan.next(&mut random);
                reached.update(window, &plan.set).unwrap();
            }
        };
        run(&mut Entered::new(&segments).unwrap());
        run(&mut Entered::new(&same).unwrap());
        for window in 0..3 {
            let words = segments.content(window);
            assert!(words.iter().any(|word| *word != 0));
            assert_eq!(words, same.content(window));
        }
        run(&mut Remapped::new(&segments).unwrap());
        run(&mut Bare::new(&same).unwrap());
        let residents = Residents::new(&scratch, &segments).unwrap();
        run(&mut Called::new(&residents).unwrap());
        run(&mut Bare::new(&segments).unwrap());
        drop(residents);
        for segments in [segments, same] {
            for window in 0..3 {
                assert!(segments.content(window).iter().all(|word| *word == 0));
            }
        }
    }
}
