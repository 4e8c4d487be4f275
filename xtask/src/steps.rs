//! Named steps, each run with its time, and a summary at the end.

use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not hold; why, in words.
    Failed(String),
    /// It could not be run here; why, in words.
    Skipped(String),
}

/// The words of an error of the file system: what could not be done to which path.
pub fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot {what} {}: {error}", path.display())
}

/// The record of the steps so far.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<(String, Took, Outcome)>,
}

/// The time of a step, and the CPU time of the commands that it waited for: what counts where
/// other work fills the CPUs meanwhile.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    elapsed: Duration,
    cpu: Duration,
}

impl std::iter::Sum for Took {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self {
            elapsed: sum.elapsed + next.elapsed,
            cpu: sum.cpu + next.cpu,
        })
    }
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [elapsed, cpu] = [self.elapsed, self.cpu].map(|time| time.as_secs_f64());
        write!(f, "{elapsed:>7.1} s, CPU {cpu:>7.1} s")
    }
}

impl Steps {
    /// Runs one step and prints its name, its outcome and its time.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("\n== {name}");
        let (start, cpu) = (Instant::now(), cpu_of_children());
        let outcome = step();
        let took = Took {
            elapsed: start.elapsed(),
            cpu: cpu_of_children().saturating_sub(cpu),
        };
        println!("== {name}: {} ({took})", outcome.words());
        self.done.push((name.to_owned(), took, outcome));
    }

    /// Prints the summary; true when nothing failed.
    pub fn summary(&self) -> bool {
        println!("\nsummary");
        for (name, took, outcome) in &self.done {
            println!("  {took}  {name}: {}", outcome.words());
        }
        let total: Took = self.done.iter().map(|(_, took, _)| *took).sum();
        let failed = self.done.iter();
        let failed = failed.filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_)));
        let failed = failed.count();
        println!("  {total}  {} step(s), {failed} failed", self.done.len());
        failed == 0
    }
}

impl Outcome {
    fn words(&self) -> String {
        match self {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        }
    }

    /// What an errand answers: a step that could not be run is an error, in words.
    ///
    /// # Errors
    /// Why it did not pass.
    pub fn answer(self) -> Result<bool, String> {
        match self {
            Outcome::Passed => Ok(true),
            Outcome::Skipped(why) => Err(format!("skipped: {why}")),
            Outcome::Failed(why) => Err(why),
        }
    }

    /// For what goes on only if this passed.
    ///
    /// # Errors
    /// The outcome that ends it.
    pub fn passed(self) -> Result<(), Outcome> {
        match self {
            Outcome::Passed => Ok(()),
            other => Err(other),
        }
    }

    /// Several parts of one step: the first failure stands for all.
    pub fn all(parts: impl IntoIterator<Item = Outcome>) -> Outcome {
        let mut whole = Outcome::Passed;
        for part in parts {
            match (&whole, part) {
                (Outcome::Failed(_), _) => {}
                (_, failed @ Outcome::Failed(_)) => whole = failed,
                (Outcome::Passed, skipped @ Outcome::Skipped(_)) => whole = skipped,
                _ => {}
            }
        }
        whole
    }
}

/// The CPU time of all commands that this process has waited for, as far as the kernel says.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything, fields are counted from the third.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    // A tick is a hundredth of a second in all that the kernel tells a program.
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// Runs a command with its output on the terminal.
pub fn run(command: &mut Command) -> Outcome {
    println!("$ {}", shown(command));
    let status = command.status();
    ended(command, status)
}

fn ended(command: &Command, status: io::Result<ExitStatus>) -> Outcome {
    match status {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(format!("{} ({status})", shown(command))),
        Err(error) => Outcome::Failed(format!("{}: {error}", shown(command))),
    }
}

/// Runs the first of several commands by itself, for it may make what all need, and the others side
/// by side.
pub fn run_together(commands: Vec<Command>) -> Outcome {
    let mut commands = commands.into_iter();
    let first = commands.next().map(|mut command| run(&mut command));
    let others = run_side_by_side(commands.collect());
    Outcome::all(first.into_iter().chain([others]))
}

/// Runs several commands, one on each processor at a time, and shows the output of each in one
/// piece.
pub fn run_side_by_side(commands: Vec<Command>) -> Outcome {
    let rest = Mutex::new(commands.into_iter());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work =
        || Outcome::all(std::iter::from_fn(next).map(|mut command| run_silently(&mut command)));
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        Outcome::all(ends.map(|end| end.unwrap_or(Outcome::Failed("it panicked".to_owned()))))
    })
}

/// Runs a command and shows what it said when it has ended.
fn run_silently(command: &mut Command) -> Outcome {
    let output = command.output();
    let said = output
        .as_ref()
        .map(|output| [&output.stderr[..], &output.stdout].concat());
    let said = said.unwrap_or_default();
    println!("$ {}\n{}", shown(command), String::from_utf8_lossy(&said));
    ended(command, output.map(|output| output.status))
}

/// Runs a command that must succeed.
///
/// # Errors
/// In words, when it fails or cannot be run.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Whether a command runs and succeeds, silently.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?} ", name.to_str()?, value?.to_str()?)));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    variables.collect::<String>() + &words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_whole() {
        let mut steps = Steps::default();
        steps.run("good", || Outcome::Passed);
        steps.run("absent", || Outcome::Skipped("no tool".to_owned()));
        assert!(steps.summary());
        steps.run("bad", || run(&mut Command::new("false")));
        assert!(!steps.summary());
    }

    #[test]
    fn one_of_several_that_fails_fails_them() {
        let all = |names: &[&str]| run_together(names.iter().map(Command::new).collect());
        assert_eq!(all(&[]), Outcome::Passed);
        assert_eq!(all(&["true"; 5]), Outcome::Passed);
        for bad in [["false", "true", "true"], ["true", "true", "false"]] {
            assert!(matches!(all(&bad), Outcome::Failed(why) if why.contains("false")));
        }
        assert!(matches!(
            all(&["true", "/there/is/none"]),
            Outcome::Failed(_)
        ));
    }

    #[test]
    fn a_failed_part_outweighs_skipped_and_passed_ones() {
        let skipped = || Outcome::Skipped("s".to_owned());
        let failed = || Outcome::Failed("f".to_owned());
        assert_eq!(
            Outcome::all([Outcome::Passed, skipped(), failed(), skipped()]),
            failed()
        );
        assert_eq!(Outcome::all([Outcome::Passed, skipped()]), skipped());
        assert_eq!(Outcome::all([]), Outcome::Passed);
    }
}
