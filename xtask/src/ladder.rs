//! `cargo xtask ladder`: the long forms of the proofs, by hand, for hours.
//!
//! Each item of *Long runs* in `docs/proof.md` is a test that reads `MNEME_LADDER_SECS` (how long to go on) and
//! `MNEME_LADDER_SEED` (where its choices begin) and prints what it counted on lines beginning with `ladder:`. The
//! seed is printed here, so that a failure can be had again.

use crate::proof::Proof;
use crate::steps::{Outcome, Steps, run};
use crate::workspace::Workspace;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long and from which seed.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    seconds: u64,
    seed: u64,
    only: Option<String>,
    list: bool,
}

impl Options {
    /// Reads the command's arguments.
    ///
    /// # Errors
    /// In words, for an unknown flag or a number that is none.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut options = Self {
            seconds: 600,
            // Any seed is as good as another; it only has to differ from run to run.
            seed: now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32,
            only: None,
            list: false,
        };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            if flag == "--list" {
                options.list = true;
                continue;
            }
            let value = rest.next().ok_or_else(|| format!("{flag} wants a value"))?;
            let number = || {
                value
                    .parse()
                    .map_err(|_| format!("{flag} {value}: not a number"))
            };
            match flag.as_str() {
                "--secs" => options.seconds = number()?,
                "--seed" => options.seed = number()?,
                "--only" => options.only = Some(value.clone()),
                other => return Err(format!("`ladder` has no flag `{other}`")),
            }
        }
        Ok(options)
    }
}

/// Runs the long forms; true when none failed.
///
/// # Errors
/// In words, when `docs/proof.md` cannot be read or nothing in it matches.
pub fn run_all(workspace: &Workspace, options: &Options) -> Result<bool, String> {
    let mut items = Proof::read(&workspace.root)?.ladder;
    if let Some(wanted) = &options.only {
        items.retain(|item| item.package.contains(wanted) || item.arguments[0].contains(wanted));
    }
    if items.is_empty() {
        return Err("docs/proof.md lists no such long run".to_owned());
    }
    if options.list {
        for item in items {
            println!("{} {}", item.package, item.arguments[0]);
        }
        return Ok(true);
    }
    println!("{} s each, seed {}", options.seconds, options.seed);
    let mut steps = Steps::default();
    for item in &items {
        let name = format!("{} {}", item.package, item.arguments[0]);
        steps.run(&name, || {
            let mut command = Command::new("cargo");
            command.args(["test", "--release", "-p", &item.package]);
            command.args(item.arguments[0].split_whitespace());
            if !item.arguments[0]
                .split_whitespace()
                .any(|word| word == "--")
            {
                command.arg("--");
            }
            command.args(["--include-ignored", "--nocapture"]);
            command.env("MNEME_LADDER_SECS", options.seconds.to_string());
            command.env("MNEME_LADDER_SEED", options.seed.to_string());
            match run(command.current_dir(&workspace.root)) {
                Outcome::Failed(why) => Outcome::Failed(format!("{why}; seed {}", options.seed)),
                other => other,
            }
        });
    }
    Ok(steps.summary())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_time_can_be_given_again() {
        let words = ["--secs", "5", "--seed", "42", "--only", "epoch"].map(str::to_owned);
        let options = Options::parse(&words).unwrap();
        assert_eq!((options.seconds, options.seed), (5, 42));
        assert!(Options::parse(&["--secs".to_owned(), "x".to_owned()]).is_err());
        assert!(Options::parse(&["--seed".to_owned()]).is_err());
    }
}
