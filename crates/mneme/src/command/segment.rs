//! `mneme segment`: makes, shows, changes and removes the segments of a registry.

use std::error::Error;
use std::path::PathBuf;

use mneme::SharedStore;
use mneme_space::{Backing, Importable, OpenError, Registry, Segment, SegmentInfo};
use mneme_sys::PagePolicy;
use serde_json::{Value, json};

use super::registry::{self, Listing, mode, properties, table};
use super::size::{self, Size};
use super::{output, segment_store, unstick};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    registry: registry::RegistryPath,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the segments.
    Ls {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a segment.
    Create(Create),
    /// Say what a segment is.
    Show {
        /// The segment.
        name: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a segment at least so large; its memory, or space on its medium, is taken now.
    Grow {
        /// The segment.
        name: String,
        /// Bytes, as in 64mb.
        #[arg(value_parser = size::parse)]
        size: Size,
    },
    /// Copy a segment as it is at one moment.
    Clone {
        /// The segment.
        name: String,
        /// The copy's name.
        new: String,
    },
    /// Give a name to the data of a segment that have lost theirs, as after the registry's
    /// directory was emptied.
    Import {
        /// The data file. Without it, list the files in shared memory that could be imported.
        #[arg(requires = "name")]
        file: Option<PathBuf>,
        /// The segment's name.
        name: Option<String>,
        /// The address of its first byte, where the file does not say it.
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        base: Option<usize>,
    },
    /// Remove segments and what they hold. Refused while a living process has one mapped.
    Rm {
        /// The segments.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Lay a store out anew, larger or with another policy; the old one is kept as NAME~old. Nobody
    /// may have it meanwhile, and there must be memory for both.
    Upgrade(segment_store::Upgrade),
    /// Say which process keeps others from entering a segment, and recover one that is poisoned.
    Unstick(unstick::Arguments),
    /// Look at the whole registry, or at what concerns one segment, and say what is wrong.
    Check {
        /// The segment; all of the registry without one.
        name: Option<String>,
        /// Remove what the dead left behind; never what may be somebody's data.
        #[arg(long, conflicts_with = "name")]
        clean: bool,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name: 1 to 200 bytes, no slashes, no dot at the beginning, no letter behind a `~`.
    name: String,

    /// Bytes to begin with, in frames of 2 MiB, as in 64mb.
    #[arg(long, default_value = "2mb", value_parser = size::parse)]
    size: Size,

    /// Bytes that it may grow to; addresses, and no memory, are set aside for them. By default 1
    /// GiB, or SIZE if that is more.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<Size>,

    /// Permissions to read and write it, as for chmod.
    #[arg(long, default_value = "600", value_parser = mode)]
    mode: u32,

    /// What keeps the bytes: `shared` memory, `huge` pages, `file:DIRECTORY` on any file system, or
    /// `dax:DIRECTORY` on persistent memory.
    #[arg(long, default_value = "shared", value_parser = backing)]
    backing: Backing,

    /// Ask for pages of 4 KiB instead of huge ones.
    #[arg(long)]
    small_pages: bool,

    /// The address of its first byte, a multiple of 1 GiB in the registry's window, as in
    /// 0x400040000000.
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with = "floating")]
    base: Option<usize>,

    /// Give it no address of its own: for contents that do not point to themselves.
    #[arg(long)]
    floating: bool,
}

fn backing(text: &str) -> Result<Backing, String> {
    match text.split_once(':') {
        None if text == "shared" => Ok(Backing::Shared),
        None if text == "huge" => Ok(Backing::Huge),
        Some(("file", directory)) if !directory.is_empty() => Ok(Backing::File {
            directory: directory.into(),
        }),
        Some(("dax", directory)) if !directory.is_empty() => Ok(Backing::Dax {
            directory: directory.into(),
        }),
        _ => Err("one of shared, huge, file:DIRECTORY, dax:DIRECTORY".to_owned()),
    }
}

fn address(text: &str) -> Result<usize, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    usize::from_str_radix(digits, 16).map_err(|_| "an address in hexadecimal digits".to_owned())
}

/// Executes the command and prints its result.
pub fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let registry = arguments.registry.open()?;
    match arguments.action {
        Action::Ls { json } => list(&registry, json),
        Action::Create(create) => make(&registry, create),
        Action::Show { name, json } => show(&registry, &name, json),
        Action::Grow { name, size } => {
            let segment = Segment::open(&registry, &name)?;
            let now = match segment_store::is_one(&segment) {
                true => segment_store::grow(&registry, &name, size.0)?,
                false => segment.grow(size.bytes())? as u64,
            };
            output::line(format_args!("{name}: {}", size::show(now)))
        }
        Action::Clone { name, new } => {
            let clone = Segment::open(&registry, &name)?.clone_as(&new)?;
            output::line(format_args!("{}: {}", clone.name(), clone.uuid()))
        }
        Action::Import { file, name, base } => match file.zip(name) {
            Some((file, name)) => {
                let segment = registry.import_segment(&file, &name, base)?;
                output::print(described(&segment, &segment.info()?))
            }
            None => importable(&registry),
        },
        Action::Rm { names } => {
            for name in names {
                registry.remove_segment(&name)?;
            }
            Ok(())
        }
        Action::Upgrade(upgrade) => segment_store::upgrade(&registry, upgrade),
        Action::Unstick(unstick) => unstick::run(&registry, unstick),
        Action::Check { name, clean, json } => match name {
            None => registry::check(&registry, None, clean, json),
            // Reports a missing or unreadable segment before any problems of its parts.
            Some(name) => {
                let segment = Segment::open(&registry, &name)?;
                let info = segment.info()?;
                if segment_store::is_one(&segment) {
                    return segment_store::check(&registry, &name, json);
                }
                if !json {
                    let (contents, state) = (contents_word(&info), state_word(&info));
                    output::line(format_args!("{name}: {contents}, {state}"))?;
                }
                let (directory, data) = (segment.directory(), info.data);
                registry::check(&registry, Some(&[&directory, &data]), clean, json)
            }
        },
    }
}

/// Prints a segment's properties. For a segment that cannot be opened, prints those that are known,
/// and then the error.
fn show(registry: &Registry, name: &str, json: bool) -> Result<(), Box<dyn Error>> {
    let segment = Segment::described(registry, name)?;
    let info = match segment.info() {
        Ok(info) => info,
        Err(unusable) => {
            let known = match json {
                true => format!("{:#}\n", known_as_json(&segment, &unusable)),
                false => properties(known(&segment)),
            };
            output::print(known)?;
            return Err(match unusable {
                OpenError::DataGone { .. } if segment.is_volatile() => format!(
                    "{}: `mneme segment rm {name}` removes what is left of it",
                    output::with_causes(&unusable)
                )
                .into(),
                unusable => unusable.into(),
            });
        }
    };
    let store = match segment_store::is_one(&segment) {
        true => Some(SharedStore::administer(registry, name)),
        false => None,
    };
    if json {
        let mut shown = as_json(&segment, &info);
        shown["store"] = match &store {
            Some(Ok(store)) => segment_store::as_json(store),
            Some(Err(unusable)) => json!({ "error": output::with_causes(unusable) }),
            None => Value::Null,
        };
        output::line(format_args!("{shown:#}"))?;
    } else {
        output::print(described(&segment, &info))?;
        if let Some(Ok(store)) = &store {
            output::print(properties(segment_store::lines(store)))?;
            output::print(segment_store::processes(store))?;
        }
    }
    store.transpose()?;
    Ok(())
}

fn make(registry: &Registry, create: Create) -> Result<(), Box<dyn Error>> {
    let mut builder = registry
        .segment(&create.name)
        .size(create.size.bytes())
        .mode(create.mode)
        .backing(create.backing);
    if let Some(max) = create.max_size {
        builder = builder.max_size(max.bytes());
    }
    if create.small_pages {
        builder = builder.pages(PagePolicy::Small);
    }
    if let Some(base) = create.base {
        builder = builder.base(base);
    }
    if create.floating {
        builder = builder.floating();
    }
    let segment = builder.create()?;
    output::print(described(&segment, &segment.info()?))
}

/// Lists the files, one on each line.
fn importable(registry: &Registry) -> Result<(), Box<dyn Error>> {
    let files = registry.importable()?;
    let row = |file: &Importable| {
        [
            size::show(file.size),
            file.registry.to_string(),
            file.data.display().to_string(),
        ]
    };
    match &*files {
        [] => output::line("no data of other registries in shared memory"),
        files => {
            let rows: Vec<_> = files.iter().map(row).collect();
            output::print(table(["SIZE", "REGISTRY", "FILE"], &rows))
        }
    }
}

/// Lists the segments, one on each line.
fn list(registry: &Registry, json: bool) -> Result<(), Box<dyn Error>> {
    let head = [
        "NAME", "SIZE", "MAX", "MODE", "BACKING", "CONTENTS", "STATE",
    ];
    let mut listing = Listing::new(registry, "segments", head, json);
    for name in &registry.segments()? {
        let opened = Segment::open(registry, name.as_str()).and_then(|segment| {
            let info = segment.info()?;
            Ok((segment, info))
        });
        let as_json = |(segment, info): &(Segment, SegmentInfo)| as_json(segment, info);
        listing.add(name.as_str(), opened, as_json, |(_, info)| {
            [
                name.to_string(),
                size::show(info.size as u64),
                size::show(info.max_size as u64),
                format!("{:o}", info.mode),
                backing_word(&info.backing).to_owned(),
                contents_word(info).to_owned(),
                state_word(info).to_owned(),
            ]
        });
    }
    listing.print()
}

fn state_word(info: &SegmentInfo) -> &'static str {
    if info.poisoned { "poisoned" } else { "whole" }
}

/// The kind of a segment's contents: that of a library, a heap, or unknown data of the processes
/// that map it.
fn contents_word(info: &SegmentInfo) -> &str {
    match (&info.contents, info.base) {
        (Some(contents), _) => &contents.kind,
        (None, Some(_)) => "heap",
        (None, None) => "bytes",
    }
}

fn backing_word(backing: &Backing) -> &'static str {
    match backing {
        Backing::Shared => "shared",
        Backing::Huge => "huge",
        Backing::File { .. } => "file",
        Backing::Dax { .. } => "dax",
    }
}

fn as_json(segment: &Segment, info: &SegmentInfo) -> Value {
    json!({
        "name": segment.name().as_str(),
        "uuid": segment.uuid().to_string(),
        "size": info.size,
        "max_size": info.max_size,
        "base": info.base,
        "mode": format!("{:o}", info.mode),
        "backing": backing_word(&info.backing),
        "data": info.data,
        "cloned_from": info.cloned_from.map(|uuid| uuid.to_string()),
        "contents": contents_word(info),
        "poisoned": info.poisoned,
        "readers_could_break_writers": info.readers_could_break_writers(),
    })
}

/// The properties known from the description alone, for a segment that cannot be opened.
fn known(segment: &Segment) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("name", segment.name().to_string()),
        ("uuid", segment.uuid().to_string()),
        ("may grow to", size::show(segment.max_size() as u64)),
        ("address", base_word(segment.base())),
        ("backing", backing_word(segment.backing()).to_owned()),
    ];
    lines.extend(segment.contents().map(|kind| ("contents", kind.to_owned())));
    lines.push(("state", "it cannot be opened".to_owned()));
    lines
}

fn known_as_json(segment: &Segment, unusable: &OpenError) -> Value {
    json!({
        "name": segment.name().as_str(),
        "uuid": segment.uuid().to_string(),
        "max_size": segment.max_size(),
        "base": segment.base(),
        "backing": backing_word(segment.backing()),
        "contents": segment.contents(),
        "error": output::with_causes(unusable),
    })
}

fn base_word(base: Option<usize>) -> String {
    match base {
        Some(base) => format!("{base:#x}"),
        None => "none: it floats".to_owned(),
    }
}

fn described(segment: &Segment, info: &SegmentInfo) -> String {
    let mut lines = vec![
        ("name", segment.name().to_string()),
        ("uuid", segment.uuid().to_string()),
        ("size", size::show(info.size as u64)),
        ("may grow to", size::show(info.max_size as u64)),
        ("address", base_word(info.base)),
        ("mode", format!("{:o}", info.mode)),
        ("backing", backing_word(&info.backing).to_owned()),
        ("data", info.data.display().to_string()),
        ("contents", contents_word(info).to_owned()),
        ("state", state_word(info).to_owned()),
    ];
    if info.readers_could_break_writers() {
        let warning = "users who may only read it can write its locks, and so break its writers";
        lines.push(("warning", warning.to_owned()));
    }
    if let Some(original) = info.cloned_from {
        lines.push(("cloned from", original.to_string()));
    }
    properties(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_and_errors_explain_themselves() {
        assert_eq!(backing("shared"), Ok(Backing::Shared));
        let directory = std::path::PathBuf::from("/a:b");
        assert_eq!(backing("file:/a:b"), Ok(Backing::File { directory }));
        assert!(backing("file:").is_err() && backing("disk").is_err() && backing("dax").is_err());
        assert_eq!(address("0x400040000000"), Ok(0x4000_4000_0000));
        assert!(address("0xg").is_err());
    }
}
