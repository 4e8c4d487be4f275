//! `mneme backup` writes all records of a server to one file. `mneme restore` makes a server's data
//! directory from such a file, or returns the directory to the state in its file.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mneme_durable::{DurabilityMode, DurableOptions};
use serde_json::json;

use super::client::{Answer, ServerConnection, Where};
use super::progress::ProgressLine;
use super::{output, registry, size};

/// The ending of a backup's file name.
const SUFFIX: &str = ".backup";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file NAME.backup is in the directory that `serve --data` names. It stands alone: copy it \
                  elsewhere. A backup of that name is replaced when the new one is whole."
)]
pub struct Backup {
    /// What to call it: 1 to 100 letters, digits, `_`, `-` and `.`.
    name: String,

    #[command(flatten)]
    server: Where,

    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Then `mneme serve --data DIRECTORY` has all that the backup holds. Without --segment no segment is \
                  touched: one that the directory was served with is refused afterwards, and is to be removed \
                  (`mneme segment rm`)."
)]
pub struct Restore {
    /// The backup: a file NAME.backup, as `mneme backup` has written it.
    file: PathBuf,

    /// A directory without a store, or one to be made; or the one that holds the file, which goes
    /// back to it: changes since then are given up.
    directory: PathBuf,

    /// The segment that the directory was served with, which is set aside under another name.
    /// Refused while a process has it attached, and if it is not this directory's.
    #[arg(long, value_name = "NAME")]
    segment: Option<String>,

    /// What a directory that holds nothing yet is begun with, as `serve --durability` has it then.
    /// One that holds something keeps what it has.
    #[arg(long, value_name = "journal|tree", default_value = "journal", value_parser = mode)]
    durability: DurabilityMode,

    #[command(flatten)]
    registry: registry::RegistryPath,

    /// Print what was restored as JSON.
    #[arg(long)]
    json: bool,
}

/// How often the server is asked for its progress.
const PAUSE: Duration = Duration::from_millis(100);

/// Requests a backup from the server, and waits until it is written.
pub fn backup(arguments: &Backup) -> Result<(), Box<dyn Error>> {
    let mut client = arguments.server.connect()?;
    let progress = ProgressLine::default();
    let Answer::Number(number) = client.request(&["MNEME", "BACKUP", &arguments.name])? else {
        return Err(unexpected(&client));
    };
    loop {
        let fields = client.request(&["MNEME", "BACKUP"])?.fields();
        if count(&fields, "backup") != number as u64 {
            return Err("another backup was begun since: ask for this one again".into());
        }
        let (records, bytes) = (count(&fields, "records"), count(&fields, "bytes"));
        match text(&fields, "state").as_str() {
            "running" => progress.show(bytes, count(&fields, "of").max(bytes + 1)),
            "done" => {
                progress.show(bytes, bytes);
                let name = &arguments.name;
                return match arguments.json {
                    true => output::line(json!({
                        "name": name, "file": format!("{name}{SUFFIX}"), "records": records,
                        "bytes": bytes,
                    })),
                    false => {
                        let size = size::show(bytes);
                        output::line(format_args!("{name}{SUFFIX}: {records} records, {size}"))
                    }
                };
            }
            "failed" => {
                let reason = output::plain(&text(&fields, "failure"));
                return Err(format!("the backup was not written: {reason}").into());
            }
            _ => return Err(unexpected(&client)),
        }
        std::thread::sleep(PAUSE);
    }
}

fn unexpected(client: &ServerConnection) -> Box<dyn Error> {
    format!(
        "the server at {} answers MNEME BACKUP as no Mneme does",
        client.place()
    )
    .into()
}

fn text(fields: &BTreeMap<String, Answer>, name: &str) -> String {
    match fields.get(name) {
        Some(Answer::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn count(fields: &BTreeMap<String, Answer>, name: &str) -> u64 {
    match fields.get(name) {
        Some(Answer::Number(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

/// Makes a directory from a backup, or returns the directory to it. Nothing is changed before the
/// whole backup has been read.
pub fn restore(arguments: Restore) -> Result<(), Box<dyn Error>> {
    let (file, to) = (&arguments.file, &arguments.directory);
    if !file.is_file() {
        return Err(format!("{} is no file", file.display()).into());
    }
    let name = file.file_name().and_then(|name| name.to_str());
    let Some(name) = name.and_then(|name| name.strip_suffix(SUFFIX)) else {
        return Err(format!("{} is not called NAME{SUFFIX}", file.display()).into());
    };
    let from = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let progress = ProgressLine::default();
    let options = DurableOptions::new(to)
        .mode(arguments.durability)
        .progress(Arc::new(move |now| {
            progress.show(now.done, now.total);
            ControlFlow::Continue(())
        }));
    let goes_back = to.canonicalize().is_ok_and(|to| {
        let from = from.canonicalize();
        from.is_ok_and(|from| from == to)
    });
    let aside = match (&arguments.segment, goes_back) {
        (None, true) => options.restore(name).map(|()| None)?,
        (Some(segment), true) => {
            options.restore_segment(&arguments.registry.open()?, segment, name)?
        }
        (None, false) => options.restore_from(from, name).map(|()| None)?,
        (Some(_), false) => {
            return Err(
                "--segment goes with the directory that holds the backup: another one has no \
                 segment yet"
                    .into(),
            );
        }
    };
    let bytes = file.metadata()?.len();
    let mode = DurabilityMode::found_in(to).unwrap_or_default();
    match arguments.json {
        true => output::line(json!({
            "directory": to, "backup": name, "bytes": bytes, "durability": mode.to_string(),
            "segment_set_aside": aside,
        })),
        false => {
            let (to, size) = (to.display(), size::show(bytes));
            let durability = match mode {
                DurabilityMode::Journal => String::new(),
                other => format!(" --durability {other}"),
            };
            output::line(format_args!(
                "{to} holds {name}, {size}: mneme serve --data {to}{durability}"
            ))?;
            match aside {
                None => Ok(()),
                Some(aside) => output::line(format_args!(
                    "its segment is set aside as {aside}: mneme segment rm {aside} frees that memory"
                )),
            }
        }
    }
}

/// The durability mode with this name.
fn mode(name: &str) -> Result<DurabilityMode, String> {
    let all = [DurabilityMode::Journal, DurabilityMode::Tree];
    let found = all.into_iter().find(|mode| mode.to_string() == name);
    found.ok_or_else(|| "it is journal or tree".to_owned())
}
