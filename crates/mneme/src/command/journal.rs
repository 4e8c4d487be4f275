//! `mneme journal`: checks the data directory of a server, and repairs its journal with the least
//! possible loss.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mneme_durable::DurabilityMode;
use mneme_journal::{
    BaseFile, BaseReader, JournalError, Options, Position, Report, bases, check, repair,
};
use mneme_sys::medium::{Directory, FileDirectory};
use serde_json::{Value, json};

use super::output;
use super::size;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Read the whole journal and all checkpoints and backups, and say whether they are whole and
    /// what a repair would lose. No server may use the directory meanwhile.
    #[command(after_help = "Exits with 0 if all is whole, and with 1 if it is not.")]
    Check(Place),
    /// Cut a damaged journal where it stops being whole. What is cut off was acknowledged once:
    /// look at `mneme journal check` first, and keep a copy of the directory.
    Repair {
        #[command(flatten)]
        place: Place,
        /// Also if that loses changes that were durable.
        #[arg(long)]
        lose: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The directory, as `serve --data` names it.
    directory: PathBuf,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// The contents of a directory.
struct Found {
    report: Report,
    bases: Vec<(BaseFile, Option<JournalError>)>,
}

pub fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    match arguments.action {
        Action::Check(place) => {
            let (_, found) = look(&place.directory)?;
            found.print(&place, None)?;
            found.verdict()
        }
        Action::Repair { place, lose } => mend(&place, lose),
    }
}

/// Locks the directory, which must exist, and reads all of it.
fn look(path: &Path) -> Result<(Arc<dyn Directory>, Found), Box<dyn Error>> {
    if !path.is_dir() {
        return Err(format!("{} is no directory", path.display()).into());
    }
    if DurabilityMode::found_in(path) == Some(DurabilityMode::Tree) {
        let tree = path.join("store.tree");
        return Err(format!(
            "{} is kept with durability tree, and has no journal: `mneme tree check {}` reads all \
             of it",
            path.display(),
            tree.display()
        )
        .into());
    }
    let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(path)?);
    let report = check(&*directory, None)?;
    let mut all = Vec::new();
    for base in bases(&*directory)? {
        let damage = match read(&*directory, &base.file) {
            Ok(()) => None,
            Err(damage @ JournalError::Damaged(_)) => Some(damage),
            Err(other) => return Err(other.into()),
        };
        all.push((base, damage));
    }
    let bases = all;
    Ok((directory, Found { report, bases }))
}

/// Reads a base file to the end.
fn read(directory: &dyn Directory, file: &str) -> Result<(), JournalError> {
    let mut reader = BaseReader::open(directory, file)?;
    while reader.next()?.is_some() {}
    Ok(())
}

fn mend(place: &Place, lose: bool) -> Result<(), Box<dyn Error>> {
    let (directory, found) = look(&place.directory)?;
    let report = &found.report;
    if report.damage.is_none() {
        found.print(place, Some(false))?;
        return found.verdict();
    }
    let Some(identity) = report.identity else {
        return Err(format!(
            "no header of the journal can be read, and no checkpoint stands without it: nothing of {} can be loaded. If its \
             segment is still there, that holds everything: serve it with an empty directory (`mneme serve --data`); else \
             restore a backup (`mneme restore`)",
            place.directory.display()
        )
        .into());
    };
    if report.lost > 0 && !lose {
        let lost = report.lost;
        return Err(format!(
            "a repair loses {lost} bytes of changes behind position {}, which were durable: `mneme journal check` says \
             more; with a copy of the directory kept elsewhere, --lose goes ahead",
            report.end
        )
        .into());
    }
    repair(&directory, Options::new(identity), None)?;
    found.print(place, Some(true))
}

impl Found {
    fn print(&self, place: &Place, repaired: Option<bool>) -> Result<(), Box<dyn Error>> {
        match place.json {
            true => output::line(format_args!("{:#}", self.json(repaired))),
            false => output::print(output::plain(&self.text(repaired))),
        }
    }

    /// The damage, as an error.
    fn verdict(&self) -> Result<(), Box<dyn Error>> {
        let bad = self.bases.iter().filter(|(_, damage)| damage.is_some());
        match (self.report.damage.is_some(), bad.count()) {
            (false, 0) => Ok(()),
            (true, 0) => Err("the journal is damaged".into()),
            (false, bad) => Err(format!("{bad} checkpoints or backups are damaged").into()),
            (true, bad) => {
                Err(format!("the journal and {bad} checkpoints or backups are damaged").into())
            }
        }
    }

    fn text(&self, repaired: Option<bool>) -> String {
        let Report {
            identity,
            files,
            from,
            end,
            damage,
            lost,
        } = &self.report;
        let bytes = size::show(bytes(*from, *end));
        // Writing to a `String` does not fail.
        let mut text = format!("journal    {files} files, whole from {from} to {end}, {bytes}\n");
        if let Some(damage) = damage {
            let damage = output::with_causes(damage);
            let _ = writeln!(text, "damage     {damage}");
            let lost = size::show(*lost);
            let _ = match (repaired, identity) {
                (Some(_), _) => writeln!(text, "repaired   it ends at {end}; lost were {lost}"),
                (None, Some(_)) => writeln!(text, "a repair   ends it at {end} and loses {lost}"),
                (None, None) => writeln!(
                    text,
                    "a repair   is not possible: no header can be read that says whose journal it is; lost are {lost}"
                ),
            };
        } else if repaired.is_some() {
            text.push_str("repaired   nothing: it is not damaged\n");
        }
        for (base, damage) in &self.bases {
            let kind = match &base.kept {
                Some(name) => format!("backup `{name}`"),
                None => "checkpoint".to_owned(),
            };
            let state = match damage {
                Some(damage) => output::with_causes(damage),
                None => "whole".to_owned(),
            };
            let _ = writeln!(text, "{kind}  {}: {state}", base.file);
        }
        text
    }

    fn json(&self, repaired: Option<bool>) -> Value {
        let bases = self.bases.iter().map(|(base, damage)| {
            json!({
                "file": base.file,
                "backup": base.kept,
                "damage": damage.as_ref().map(|damage| output::with_causes(damage)),
            })
        });
        let report = &self.report;
        json!({
            "files": report.files,
            "from": report.from.get(),
            "end": report.end.get(),
            "damage": report.damage.as_ref().map(|damage| output::with_causes(damage)),
            "lost_bytes": report.lost,
            "repaired": repaired,
            "bases": bases.collect::<Vec<_>>(),
        })
    }
}

/// The number of bytes between two positions.
fn bytes(from: Position, to: Position) -> u64 {
    to.get().saturating_sub(from.get())
}
