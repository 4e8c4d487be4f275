//! Named steps, each run with its time, and a summary at the end.

use std::process::Command;
use std::time::{Duration, Instant};

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

/// The record of the steps so far.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<(String, Duration, Outcome)>,
}

impl Steps {
    /// Runs one step and prints its name, its outcome and its time.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        let took = start.elapsed();
        println!(
            "== {name}: {} ({:.1} s)",
            outcome.words(),
            took.as_secs_f64()
        );
        self.done.push((name.to_owned(), took, outcome));
    }

    /// Prints the summary; true when nothing failed.
    pub fn summary(&self) -> bool {
        println!("\nsummary");
        for (name, took, outcome) in &self.done {
            println!(
                "  {:>7.1} s  {name}: {}",
                took.as_secs_f64(),
                outcome.words()
            );
        }
        let total: Duration = self.done.iter().map(|(_, took, _)| *took).sum();
        let failed = self.done.iter();
        let failed = failed.filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed(_)));
        let failed = failed.count();
        println!(
            "  {:>7.1} s  {} step(s), {failed} failed",
            total.as_secs_f64(),
            self.done.len()
        );
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

/// Runs a command with its output on the terminal.
pub fn run(command: &mut Command) -> Outcome {
    println!("$ {}", shown(command));
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(format!("{} ({status})", shown(command))),
        Err(error) => Outcome::Failed(format!("{}: {error}", shown(command))),
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
