//! `cargo xtask ladder`: the long forms of the proofs, by hand, for hours.
//!
//! Each item of *Kill storms* and of *Long runs* in `docs/proof.md` is a test that reads
//! `MNEME_LADDER_SECS` (how long to go on) and `MNEME_LADDER_SEED` (where its choices begin, if it
//! makes any) and prints what it counted. The seed is printed here, so that a failure can be had
//! again. Every fuzz target runs as long. The guests with several NUMA nodes run once, and so do
//! the power cuts and what is packed or built for users.

use crate::book;
use crate::ci;
use crate::container;
use crate::deb;
use crate::numa;
use crate::package;
use crate::power_cut;
use crate::proof::{Item, Proof};
use crate::python;
use crate::steps::{Outcome, Steps, run};
use crate::workspace::Workspace;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What runs once, for no set time: what needs tools or a network, or builds for long.
const ONCE: &[ci::Step] = &[
    ("wheel", python::check_wheel),
    ("package", package::verify),
    ("book", book::build),
    ("deb", deb::try_packages),
    ("container", container::try_image),
];

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
    let Proof {
        storms: mut items,
        ladder,
        mut addresses,
        ..
    } = Proof::read(&workspace.root)?;
    items.extend(ladder);
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    items.retain(|item| wanted(&name_of(item)));
    let sanitized = |item: &Item| format!("{} under AddressSanitizer", item.package);
    addresses.retain(|item| wanted(&sanitized(item)));
    let (fuzz, guests, cuts) = (wanted("fuzz"), wanted("numa"), wanted("power-cut"));
    let once: Vec<_> = ONCE.iter().filter(|(name, _)| wanted(name)).collect();
    let any_else = fuzz || guests || cuts;
    if items.is_empty() && addresses.is_empty() && !any_else && once.is_empty() {
        return Err("there is no such long run; see --list".to_owned());
    }
    if options.list {
        for name in items
            .iter()
            .map(name_of)
            .chain(addresses.iter().map(sanitized))
            .chain(fuzz.then(|| "fuzz".to_owned()))
            .chain(guests.then(|| "numa".to_owned()))
            .chain(cuts.then(|| "power-cut".to_owned()))
            .chain(once.iter().map(|(name, _)| (*name).to_owned()))
        {
            println!("{name}");
        }
        return Ok(true);
    }
    println!("{} s each, seed {}", options.seconds, options.seed);
    let mut steps = Steps::default();
    for item in &items {
        steps.run(&name_of(item), || {
            long(item.test(&workspace.root), &item.arguments[1], options)
        });
    }
    for item in &addresses {
        steps.run(&sanitized(item), || {
            if !ci::has_sanitizer(workspace) {
                return Outcome::Skipped("`rustup toolchain install nightly` first".to_owned());
            }
            let arguments = &item.arguments[0];
            let command = ci::sanitized(workspace, &item.package, arguments);
            long(command, arguments, options)
        });
    }
    if fuzz {
        steps.run("fuzz", || ci::fuzz_for(workspace, options.seconds));
    }
    for (name, step) in once {
        steps.run(name, || step(workspace));
    }
    if guests {
        numa::check(workspace, &numa::GUESTS, &mut steps)?;
    }
    if cuts {
        let cuts = power_cut::CUTS;
        power_cut::check(workspace, None, cuts, options.seed, &mut steps);
    }
    Ok(steps.summary())
}

/// Runs a command of `cargo test` in its long form.
fn long(mut command: Command, arguments: &str, options: &Options) -> Outcome {
    if !arguments.split_whitespace().any(|word| word == "--") {
        command.arg("--");
    }
    command.args(["--include-ignored", "--nocapture"]);
    command.env("MNEME_LADDER_SECS", options.seconds.to_string());
    command.env("MNEME_LADDER_SEED", options.seed.to_string());
    match run(&mut command) {
        Outcome::Failed(why) => Outcome::Failed(format!("{why}; seed {}", options.seed)),
        other => other,
    }
}

/// What `--only` is compared with.
fn name_of(item: &Item) -> String {
    match item.arguments[0].as_str() {
        "-" => format!("{} {}", item.package, item.arguments[1]),
        cfg => format!("{} {} (cfg {cfg})", item.package, item.arguments[1]),
    }
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
