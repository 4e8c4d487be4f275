//! Named steps, each run with its time, and a summary at the end.

use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

/// How a step ended.
pub type Outcome<T = ()> = Result<T, Trouble>;

/// Why a step did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It does not hold; why, in words.
    Failed(String),
    /// It could not be run here; why, in words.
    Skipped(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for Trouble {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => write!(f, "FAILED: {why}"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// A step that could not be run here.
///
/// # Errors
/// Always.
pub fn skipped<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Trouble::Skipped(why.into()))
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
        println!("== {name}: {} ({took})", words(&outcome));
        self.done.push((name.to_owned(), took, outcome));
    }

    /// Prints the summary.
    ///
    /// # Errors
    /// Some failed.
    pub fn summary(&self) -> Outcome {
        println!("\nsummary");
        for (name, took, outcome) in &self.done {
            println!("  {took}  {name}: {}", words(outcome));
        }
        let total: Took = self.done.iter().map(|(_, took, _)| *took).sum();
        let failed = self.done.iter();
        let failed = failed.filter(|(_, _, outcome)| matches!(outcome, Err(Trouble::Failed(_))));
        let failed = failed.count();
        println!("  {total}  {} step(s), {failed} failed", self.done.len());
        match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} step(s)").into()),
        }
    }
}

fn words(outcome: &Outcome) -> String {
    let outcome = outcome.as_ref();
    outcome.map_or_else(Trouble::to_string, |()| "ok".to_owned())
}

/// Several parts of one step: the first failure stands for all.
///
/// # Errors
/// That failure, or else the first part that was skipped.
pub fn all(parts: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut whole = Ok(());
    for part in parts {
        match (&whole, &part) {
            (Err(Trouble::Failed(_)), _) => {}
            (_, Err(Trouble::Failed(_))) | (Ok(()), _) => whole = part,
            _ => {}
        }
    }
    whole
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
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ({status})", shown(command)).into()),
        Err(error) => Err(format!("{}: {error}", shown(command)).into()),
    }
}

/// Runs the first of several commands by itself, for it may make what all need, and the others side
/// by side.
pub fn run_together(commands: Vec<Command>) -> Outcome {
    let mut commands = commands.into_iter();
    let first = commands.next().map(|mut command| run(&mut command));
    let others = run_side_by_side(commands.collect());
    all(first.into_iter().chain([others]))
}

/// Runs several commands, one on each processor at a time, and shows the output of each in one
/// piece.
pub fn run_side_by_side(commands: Vec<Command>) -> Outcome {
    let rest = Mutex::new(commands.into_iter());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || all(std::iter::from_fn(next).map(|mut command| run_silently(&mut command)));
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        all(ends.map(|end| end.unwrap_or(Err("it panicked".into()))))
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

/// Runs a command that must succeed; what it printed.
///
/// # Errors
/// In words, when it cannot be run; what it said when it fails.
pub fn printed(command: &mut Command) -> Result<String, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{}: {error}", shown(command)))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            Err(format!("{} ({status}) {}", shown(command), said.trim()))
        }
    }
}

/// Whether a command runs and succeeds, silently.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command of cargo.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    forget_package(&mut command);
    command
}

/// Removes from a command's environment what `cargo run` says to a program about its package. Build
/// scripts of dependencies read these variables too: cargo runs them again when they change, and
/// compiles all that depends on them again.
pub fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
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
        steps.run("good", || Ok(()));
        steps.run("absent", || skipped("no tool"));
        assert_eq!(steps.summary(), Ok(()));
        steps.run("bad", || run(&mut Command::new("false")));
        assert!(steps.summary().is_err());
    }

    #[test]
    fn one_of_several_that_fails_fails_them() {
        let all = |names: &[&str]| run_together(names.iter().map(Command::new).collect());
        assert_eq!(all(&[]), Ok(()));
        assert_eq!(all(&["true"; 5]), Ok(()));
        for bad in [["false", "true", "true"], ["true", "true", "false"]] {
            assert!(all(&bad).unwrap_err().to_string().contains("false"));
        }
        assert!(all(&["true", "/there/is/none"]).is_err());
    }

    #[test]
    fn a_failed_part_outweighs_skipped_and_passed_ones() {
        let failed = || Outcome::Err("f".into());
        let skipped = || skipped("s");
        assert_eq!(all([Ok(()), skipped(), failed(), skipped()]), failed());
        assert_eq!(all([Ok(()), skipped()]), skipped());
        assert_eq!(all([]), Ok(()));
    }
}
