//! `cargo xtask ladder`: the long forms of the proofs, by hand, for hours.
//!
//! Each item of *Kill storms* and of *Long runs* in `docs/proof.md` is a test that reads
//! `MNEME_LADDER_SECS` (how long to go on) and `MNEME_LADDER_SEED` (where its choices begin, if it
//! makes any) and prints what it counted. The seed is printed here, so that a failure can be had
//! again. Every fuzz target runs as long. The guests with several NUMA nodes run once, and so do
//! the power cuts, the papers' kernel modules and what is packed or built for users.

use crate::book;
use crate::ci;
use crate::clients;
use crate::container;
use crate::deb;
use crate::kernel::{self, Module, Release};
use crate::numa;
use crate::package;
use crate::power_cut;
use crate::proof::{Item, Proof};
use crate::python;
use crate::steps::{Outcome, Steps, Trouble, run, skipped};
use crate::workspace::Workspace;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What runs once, for no set time: what needs tools or a network, or builds for long.
const ONCE: &[ci::Step] = &[
    ("wheel", python::check_wheel),
    ("clients", clients::check),
    ("package", package::verify),
    ("book", book::build),
    ("deb", deb::try_packages),
    ("container", container::try_image),
    ("kernel gcma", |workspace| {
        kernel::run_one(workspace, Module::Gcma, Release::Stable)
    }),
    ("kernel gcma 6.12", |workspace| {
        kernel::run_one(workspace, Module::Gcma, Release::Later)
    }),
    ("kernel vas", |workspace| {
        kernel::run_one(workspace, Module::Vas, Release::Stable)
    }),
    ("kernel vas 6.12", |workspace| {
        kernel::run_one(workspace, Module::Vas, Release::Later)
    }),
];

/// How long and from which seed.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Seconds that each goes on
    #[arg(long, default_value_t = 600)]
    secs: u64,
    /// Where choices begin; another each time unless given
    #[arg(long, default_value_t = drawn_seed(), hide_default_value = true)]
    seed: u64,
    /// Those alone whose names have this in them
    #[arg(long)]
    only: Option<String>,
    /// Print them instead
    #[arg(long)]
    list: bool,
}

/// Any seed is as good as another; it only has to differ from run to run.
pub fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64 ^ u64::from(std::process::id()) << 32
}

/// Runs the long forms.
///
/// # Errors
/// Some failed; `docs/proof.md` cannot be read, or nothing in it matches.
pub fn run_all(workspace: &Workspace, options: &Options) -> Outcome {
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
        return Err("there is no such long run; see --list".into());
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
        return Ok(());
    }
    println!("{} s each, seed {}", options.secs, options.seed);
    let mut steps = Steps::default();
    for item in &items {
        steps.run(&name_of(item), || {
            long(item.test(&workspace.root), &item.arguments[1], options)
        });
    }
    for item in &addresses {
        steps.run(&sanitized(item), || {
            if !ci::has_sanitizer(workspace) {
                return skipped("`rustup toolchain install nightly` first");
            }
            let arguments = &item.arguments[0];
            let command = ci::sanitized(workspace, &item.package, arguments);
            long(command, arguments, options)
        });
    }
    if fuzz {
        steps.run("fuzz", || ci::fuzz_for(workspace, options.secs));
    }
    for (name, step) in once {
        steps.run(name, || step(workspace));
    }
    if guests {
        numa::check(workspace, &numa::GUESTS, &mut steps)?;
    }
    if cuts {
        let cuts = power_cut::Options::of_seed(options.seed);
        power_cut::check(workspace, &cuts, &mut steps);
    }
    steps.summary()
}

/// Runs a command of `cargo test` in its long form.
fn long(mut command: Command, arguments: &str, options: &Options) -> Outcome {
    if !arguments.split_whitespace().any(|word| word == "--") {
        command.arg("--");
    }
    command.args(["--include-ignored", "--nocapture"]);
    command.env("MNEME_LADDER_SECS", options.secs.to_string());
    command.env("MNEME_LADDER_SEED", options.seed.to_string());
    match run(&mut command) {
        Err(Trouble::Failed(why)) => Err(format!("{why}; seed {}", options.seed).into()),
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
